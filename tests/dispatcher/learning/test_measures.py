"""What the time of a batch depends on: rows, cost or bytes, with or without padding."""

from __future__ import annotations

import random

import pytest

from uncork_dispatcher.learning.measures import BatchSize, Measures, Padding, Rows


def batch(random_: random.Random, rows: int = 8) -> BatchSize:
    """Return the size of a batch of mixed lengths, in cost."""
    lengths = [random_.choice([8, 64, 300]) for _ in range(random_.randint(1, rows))]
    return BatchSize(sum(lengths), len(lengths) * max(lengths))


def with_costs() -> Measures:
    """Return the measures of an API whose requests have costs."""
    measures = Measures()
    measures.expect_costs(True)
    return measures


def learned(
    truth: float, *, batches: int = 200, noise: float = 0.1, seed: int = 1, measures: Measures | None = None
) -> Measures:
    """Return what was learned from batches of which this share of the padding takes time."""
    random_, measures = random.Random(seed), measures or with_costs()
    for _ in range(batches):
        size = batch(random_)
        seconds = 0.002 + 1e-5 * (size.rows + truth * (size.padded - size.rows))
        measures.observe(size, seconds * random_.lognormvariate(0, noise))
    return measures


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
@pytest.mark.parametrize(("truth", "pads"), [(1.0, True), (0.0, False)])
def test_the_better_measure_wins(truth: float, pads: bool, noise: float) -> None:
    measures = learned(truth, noise=noise)
    assert measures.pads == pads
    assert BatchSize(100, 200)[measures.in_force] == (200 if pads else 100)
    assert measures.estimate.slope_s == pytest.approx(1e-5, rel=0.2 + noise)
    if not pads:
        assert (measures.ratio, measures.padding) == (1.0, Padding("sum", 0.0))
        assert measures.of_cost is measures.estimate
    measures.observe(BatchSize(10, 20), 0.0)  # says nothing
    assert measures.pads == pads
    assert learned(1.0 - truth, measures=measures).pads != pads, "the model has changed"


def test_the_first_batch_that_padding_slows_down_much_brings_it_back() -> None:
    """After a few batches with little padding that it did not slow down."""
    measures = with_costs()
    for number in range(30):
        if measures.pads:
            rows = 100 + number
            measures.observe(BatchSize(rows, (1.5 if number % 2 else 1.1) * rows), 0.002 + 1e-5 * rows)
    assert (measures.pads, measures.separates) == (False, False)
    measures.observe(BatchSize(100, 400), 0.002 + 1e-5 * 400)
    assert (measures.pads, measures.separates) == (False, False), "too little to be no hiccup"
    measures.observe(BatchSize(1000, 5000), 0.002 + 1e-5 * 5000)
    assert (measures.pads, measures.separates) == (True, True)


def test_the_estimate_over_cost_has_the_usual_padding() -> None:
    """Batches of cost 100 that take as long as 200 without padding."""
    measures = with_costs()
    for rows in (50, 100) * 100:
        measures.observe(BatchSize(rows, 2 * rows), 0.01 + 1e-3 * 2 * rows)
    assert measures.ratio == pytest.approx(2, rel=0.01)
    assert measures.padding is not None
    assert measures.padding.share == pytest.approx(0.5, rel=0.01)
    assert measures.of_cost.seconds(100) == pytest.approx(measures.estimate.seconds(200), rel=0.01)
    assert measures.of_cost.earned_rows == pytest.approx(measures.estimate.earned_rows / 2, rel=0.01)


def test_a_profile_teaches_both() -> None:
    """So the first mixed batch is predicted by either."""
    measures = with_costs()
    measures.observe_profile([(10, 0.011), (100, 0.02)])
    measures.observe(BatchSize(100, 300), 0.04)
    measures.observe_profile([(10, 0.011), (100, 0.02)])
    assert measures.estimate.seconds(300) == pytest.approx(0.04, rel=0.05)


def of_bytes(
    truth: str, *, batches: int = 300, noise: float = 0.1, seed: int = 1, cv: float = 0.3
) -> Measures:
    """Return what was learned without costs, from requests of a row each whose bodies differ much.

    A row has about four bytes for each of its tokens; their coefficient of variation is ``cv``.
    """
    random_, measures = random.Random(seed), Measures()
    for _ in range(batches):
        tokens = [random_.choice([8, 64, 300]) for _ in range(random_.randint(1, 8))]
        bodies = [4 * each * random_.lognormvariate(0, cv) for each in tokens]
        size = BatchSize(len(tokens), len(tokens) * max(bodies), sum(bodies))
        work = {"rows": 100 * len(tokens), "sum": sum(tokens), "longest": len(tokens) * max(tokens)}[truth]
        measures.observe(size, (0.002 + 1e-5 * work) * random_.lognormvariate(0, noise))
    return measures


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("truth", "measure"), [("rows", None), ("sum", "bytes"), ("longest", "longest_bytes")]
)
def test_without_costs_bytes_count_if_they_predict_better(truth: str, measure: str | None, seed: int) -> None:
    measures = of_bytes(truth, seed=seed)
    assert (measures.padding and measures.padding.measure) == measure
    assert measures.separates == (measure == "longest_bytes")


def test_bodies_of_different_sizes_are_taken_as_padded_until_it_is_known() -> None:
    """From the first batch that has them on, with the times of the batches before."""
    measures = Measures()
    for rows in (1, 4) * 5:
        measures.observe(BatchSize(rows, rows * 40.0, rows * 40), 0.01 + 0.001 * rows)
    assert not measures.separates
    measures.observe(BatchSize(4, 400.0, 200), 0.014)
    assert (measures.separates, measures.padding) == (True, None)
    assert measures.estimate.seconds(400.0) == pytest.approx(0.014, rel=0.1)
    assert measures.estimate.earned_rows > 0


@pytest.mark.parametrize("seed", range(3))
def test_bytes_do_not_count_if_nothing_shows_that_they_do(seed: int) -> None:
    """Requests that run alone, in batches that take as long whatever their size."""
    measures, random_ = Measures(), random.Random(seed)
    for _ in range(60):
        size = random_.randint(40, 400)
        measures.observe(BatchSize(1, size, size), 0.01 * random_.lognormvariate(0, 0.1))
    assert (measures.separates, measures.padding) == (False, None)
    assert BatchSize(3, 900, 800)[measures.in_force] == 3


def test_after_a_batch_of_mixed_lengths_the_next_one_keeps_them_apart() -> None:
    measures, probes = with_costs(), []
    for mixed in (False, True, True, True, False, True):
        measures.ran(mixed=mixed)
        probes.append(measures.probes)
    assert probes == [True, False, True, False, True, False]


def test_the_share_of_padding_in_bytes() -> None:
    """Batches of two rows, one of which is a third as long as the other."""
    measures, random_ = Measures(), random.Random(1)
    for _ in range(300):
        longest = random_.choice([30.0, 300.0, 3000.0])
        measures.observe(BatchSize(2, 2 * longest, longest * 4 / 3), 0.001 + 1e-5 * 2 * longest)
    assert measures.padding is not None
    assert measures.padding.measure == "longest_bytes"
    assert measures.padding.share == pytest.approx(1 / 3)
    # A limit of rows counts no bytes.
    assert (measures.limit_ratio, measures.ratio > 100) == (1.0, True)


@pytest.mark.parametrize("size_bytes", [0, 40])
def test_bodies_of_equal_sizes_say_nothing(size_bytes: int) -> None:
    """And cost nothing: one estimator learns."""
    measures = Measures()
    for rows in (1, 2, 3) * 40:
        measures.observe(BatchSize(rows, rows * (size_bytes or 1), rows * size_bytes), 0.1 * rows)
    assert (measures.padding, measures.estimate, measures.ratio) == (None, measures.of_cost, 1.0)
    assert BatchSize(3, 900, 800)[measures.in_force] == 3


@pytest.mark.parametrize("truth", ["rows", "sum", "longest"])
def test_batches_of_empty_bodies_teach_nothing_about_bytes(truth: str) -> None:
    """Whatever counts, they are learned from as rows; and what was learned about bytes stays."""
    measures = of_bytes(truth)
    before = measures.padding
    for rows in (1, 5, 2, 8) * 10:
        measures.observe(BatchSize(rows, 0.0, 0), 0.001 * rows, Rows(rows, 0.0))

    assert measures.padding == before
    assert measures.known_rows is not None
    assert measures.known_rows[0] == pytest.approx(1, abs=0.5)


def test_costs_replace_what_was_learned_about_bytes() -> None:
    """Their lengths are of another kind; the times by rows stay until batches with costs are seen."""
    measures = of_bytes("longest")
    before = measures.known_rows
    measures.expect_costs(True)
    assert (measures.padding, measures.pads, measures.ratio, measures.probes) == (None, True, 1.0, True)
    assert measures.known_rows == before


def test_lengths_beyond_the_limit_of_the_model_are_found() -> None:
    """The estimate then counts them with that length."""
    random_, measures = random.Random(1), with_costs()
    for _ in range(1000):
        longest, number = random_.choice([32, 64, 128, 256, 512, 1024]), random_.randint(1, 8)
        size = number * min(longest, measures.length_limit)
        seconds = 0.002 + 1e-5 * number * min(longest, 128)
        measures.observe(
            BatchSize(size * 0.7, size), seconds * random_.lognormvariate(0, 0.1), Rows(number, longest)
        )
    assert measures.padding is not None
    assert measures.padding.length_limit == pytest.approx(128)
    assert measures.estimate.seconds(8 * 128) == pytest.approx(0.002 + 1e-5 * 8 * 128, rel=0.05)
