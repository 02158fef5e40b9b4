"""Whether a batch takes the time of its cost, or of its cost with padding."""

from __future__ import annotations

import random

import pytest

from uncork_dispatcher.learning.measures import Measures, Padding


def batch(random_: random.Random, rows: int = 8) -> tuple[float, float]:
    """Return cost and padded cost of a batch of mixed lengths."""
    lengths = [random_.choice([8, 64, 300]) for _ in range(random_.randint(1, rows))]
    return sum(lengths), len(lengths) * max(lengths)


def learned(
    truth: float, *, batches: int = 200, noise: float = 0.1, seed: int = 1, measures: Measures | None = None
) -> Measures:
    """Return what was learned from batches of which this share of the padding takes time."""
    random_, measures = random.Random(seed), measures or Measures()
    for _ in range(batches):
        rows, padded = batch(random_)
        seconds = 0.002 + 1e-5 * (rows + truth * (padded - rows))
        measures.observe(rows, padded, seconds * random_.lognormvariate(0, noise))
    return measures


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
@pytest.mark.parametrize(("truth", "pads"), [(1.0, True), (0.0, False)])
def test_the_better_measure_wins(truth: float, pads: bool, noise: float) -> None:
    measures = learned(truth, noise=noise)
    assert measures.pads == pads
    assert measures.size(100, 200) == (200 if pads else 100)
    assert measures.estimate.slope_s == pytest.approx(1e-5, rel=0.2 + noise)


def test_a_model_may_change() -> None:
    """From padding to none, and back; each costs one change of mind."""
    measures, seen = Measures(), []
    for truth in (1.0, 0.0, 1.0):
        learned(truth, measures=measures)
        seen.append(measures.pads)
    assert seen == [True, False, True]


def test_few_batches_decide_nothing() -> None:
    assert learned(0.0, batches=4, noise=0.0).pads


def test_batches_without_padding_say_nothing() -> None:
    """One measure is kept, and the estimate is over the cost itself."""
    measures = Measures()
    for rows in (1, 2, 3) * 20:
        measures.observe(rows * 50, rows * 50, 0.1 * rows)
    assert (measures.pads, measures.padding, measures.ratio) == (True, None, 1.0)
    assert measures.of_cost is measures.estimate
    assert measures.known_rows == (50, 150)


def test_the_estimate_over_cost_has_the_usual_padding() -> None:
    """Batches of cost 100 that take as long as 200 without padding."""
    measures = Measures()
    for rows in (50, 100) * 100:
        measures.observe(rows, 2 * rows, 0.01 + 1e-3 * 2 * rows)
    assert measures.ratio == pytest.approx(2, rel=0.01)
    assert measures.padding is not None
    assert measures.padding.share == pytest.approx(0.5, rel=0.01)
    assert measures.of_cost.seconds(100) == pytest.approx(measures.estimate.seconds(200), rel=0.01)
    assert measures.of_cost.earned_rows == pytest.approx(measures.estimate.earned_rows / 2, rel=0.01)


def test_without_padding_in_the_time_there_is_no_ratio() -> None:
    measures = learned(0.0)
    assert (measures.ratio, measures.padding) == (1.0, Padding("sum", 0.0))
    assert measures.of_cost is measures.estimate


def test_a_profile_teaches_both() -> None:
    """So the first mixed batch is predicted by either."""
    measures = Measures()
    measures.observe_profile([(10, 0.011), (100, 0.02)])
    measures.observe(100, 300, 0.04)
    measures.observe_profile([(10, 0.011), (100, 0.02)])
    assert measures.estimate.seconds(300) == pytest.approx(0.04, rel=0.05)


def test_of_two_good_predictions_the_first_stays() -> None:
    """If all batches have the same share of padding, one measure is as good as the other."""
    measures = Measures()
    for rows in (50, 100, 70) * 50:
        measures.observe(rows, 3 * rows, 0.01 + 1e-3 * rows)
    assert measures.pads


def test_a_batch_that_took_no_time_is_not_compared() -> None:
    measures = learned(1.0, batches=20)
    measures.observe(10, 20, 0.0)
    assert measures.pads
