"""The estimate of batch time from batches seen, and what follows from its line."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from uncork_dispatcher.learning.estimator import BatchTimeEstimator, Estimate


def model(rows: int) -> float:
    """A worker that takes 50 ms and half a millisecond for each row."""
    return 0.050 + 0.0005 * rows


def after(sizes: Iterable[int], seconds: Callable[[int], float] = model) -> BatchTimeEstimator:
    estimator = BatchTimeEstimator()
    for rows in sizes:
        estimator.observe(rows, seconds(rows))
    return estimator


@pytest.mark.parametrize(
    ("intercept_s", "slope_s"), [(0.05, 0.0005), (0.001, 0.01), (0.0, 0.01), (0.05, 0.0)]
)
def test_two_sizes_give_the_line_exactly(intercept_s: float, slope_s: float) -> None:
    """Without noise nothing is left to guess, however far that is from the first guess."""
    estimate = after([1, 100], lambda rows: intercept_s + slope_s * rows).estimate

    assert estimate.intercept_s == pytest.approx(intercept_s, abs=1e-9)
    assert estimate.slope_s == pytest.approx(slope_s, abs=1e-9)


def test_slope_and_intercept_are_found_in_noisy_batches() -> None:
    """300 batches of all sizes with 10 % noise: predictions within 5 % from 1 to 500 rows."""
    chance = random.Random(1)
    sizes = [chance.choice([1, 2, 5, 12, 40, 100, 250, 500]) for _ in range(300)]
    estimate = after(sizes, lambda rows: model(rows) * chance.gauss(1.0, 0.1)).estimate

    for rows in (1, 10, 100, 500):
        assert estimate.seconds(rows) == pytest.approx(model(rows), rel=0.05)
    assert estimate.spread == pytest.approx(0.1, rel=0.5)


def test_a_window_of_one_size_keeps_the_shape() -> None:
    """1000 batches of 30 rows do not make the estimator forget what one row takes."""
    estimate = after([1, 30, 200] * 5 + [30] * 1000).estimate

    assert estimate.seconds(30) == pytest.approx(model(30), rel=0.01)
    assert estimate.seconds(1) == pytest.approx(model(1), rel=0.01)
    assert estimate.seconds(200) == pytest.approx(model(200), rel=0.01)


def test_up_to_twice_the_usual_counts_in_full() -> None:
    """It moves the mean by a tenth of the difference; more than twice counts as twice."""
    moved = []
    for factor in (1.5, 2.0, 60.0):
        estimator = after([10] * 50)
        estimator.observe(10, factor * model(10))
        moved.append(estimator.estimate.seconds(10) / model(10))

    assert moved == pytest.approx([1.05, 1.1, 1.1])


SIZES = (1, 20, 200)


@pytest.mark.parametrize(
    ("before", "since", "factor", "rel"),
    [
        pytest.param([20] * 100, [20] * 20, 3, 0.15, id="one size"),
        pytest.param([*SIZES] * 30, [*SIZES] * 20, 3, 0.15, id="every size"),
        # What 1 and 200 rows took before does not argue with what 20 take now.
        pytest.param([*SIZES] * 30, [20] * 60, 3, 0.1, id="other sizes no longer seen"),
        # Sizes around 380 teach each other.
        pytest.param([*range(280, 480, 2)], [*range(281, 481, 2)], 3, 0.2, id="no size comes twice"),
        pytest.param([20] * 100, [20] * 30, 0.5, 0.1, id="a faster model"),
    ],
)
def test_a_model_that_changes_is_followed(
    before: list[int], since: list[int], factor: float, rel: float
) -> None:
    """Three times as slow is no outlier, if 20 batches are."""
    chance = random.Random(1)
    estimator = after(chance.sample(before, len(before)))
    for rows in chance.sample(since, len(since)):
        estimator.observe(rows, factor * model(rows))

    for rows in {*since} if len({*since}) < 5 else {380}:
        assert estimator.estimate.seconds(rows) == pytest.approx(factor * model(rows), rel=rel)


@pytest.mark.parametrize(
    ("seconds", "intercept_s", "slope_s"),
    [
        pytest.param({1: 0.2, 10: 0.1}, (0.1, 0.2), (0, 0), id="falls with the rows"),
        pytest.param({1: 0.001, 10: 0.1}, (0, 0), (0.001, 0.01), id="grows faster than the rows"),
    ],
)
def test_no_part_of_the_line_is_negative(
    seconds: dict[int, float], intercept_s: tuple[float, float], slope_s: tuple[float, float]
) -> None:
    estimate = after([*seconds] * 10, seconds.__getitem__).estimate

    assert intercept_s[0] <= estimate.intercept_s <= intercept_s[1]
    assert slope_s[0] <= estimate.slope_s <= slope_s[1]


def test_refusing_must_be_earned_by_five_batches() -> None:
    """Not by four; and then up to twice the largest batch seen."""
    assert after([8, 3, 8, 3]).estimate.earned_rows == 0.0
    assert after([8, 3, 8, 3, 3]).estimate.earned_rows == 16.0


def test_the_spread_tells_steady_from_scattered() -> None:
    """No noise brings it to nothing, batches of 50 and 150 ms in turn to about a half."""
    turn = iter([0.05, 0.15] * 100)

    assert after([5] * 100).estimate.spread < 0.01
    assert after([5] * 200, lambda _: next(turn)).estimate.spread == pytest.approx(0.5, rel=0.2)


@pytest.mark.parametrize(("rows", "seconds"), [(0, 0.1), (-1, 0.1), (1, -0.1), (1, math.nan), (1, math.inf)])
def test_nonsense_is_refused(rows: int, seconds: float) -> None:
    """A batch has a row and a time; what was learned stays."""
    estimator = after([1, 2])
    before = estimator.estimate

    with pytest.raises(ValueError, match="more than 0 rows and a finite time"):
        estimator.observe(rows, seconds)
    with pytest.raises(ValueError, match="more than 0 rows and a finite time"):
        estimator.observe_profile([(4, 9.0), (rows, seconds)])
    assert estimator.estimate == before
    estimator.observe_profile([])
    assert estimator.known_rows == (1, 2)


clocked = st.just(0.0) | st.floats(1e-9, 1000)  # what a clock of nanoseconds can show


@given(st.lists(st.tuples(st.integers(1, 100_000), clocked), min_size=1, max_size=40))
def test_an_estimate_is_never_negative_nor_undefined(seen: list[tuple[int, float]]) -> None:
    """Whatever batches were seen, and it never falls with the rows."""
    estimator = BatchTimeEstimator()
    for rows, seconds in seen:
        estimator.observe(rows, seconds)
        estimate = estimator.estimate

        assert 0 <= estimate.intercept_s < math.inf
        assert 0 <= estimate.slope_s < math.inf
        assert 0 <= estimate.spread < math.inf


def test_a_profile_gives_the_line_exactly() -> None:
    estimator = BatchTimeEstimator()
    estimator.observe_profile([(rows, model(rows)) for rows in (1, 2, 4, 8)])
    assert estimator.estimate.seconds(100) == pytest.approx(model(100))
    assert estimator.estimate.earned_rows == 0

    for _ in range(100):
        estimator.observe(4, 2 * model(4))
    assert estimator.estimate.seconds(4) == pytest.approx(2 * model(4), rel=0.05)


def test_one_size_does_not_show_the_slope() -> None:
    """Nor does a single batch of another size, which may have been slow because it was the first."""
    estimator = BatchTimeEstimator()
    assert estimator.slope_error_s == math.inf

    estimator.observe(1, 0.15)
    for _ in range(40):
        estimator.observe(16, 0.082)
    assert estimator.estimate.slope_s == 0
    assert estimator.slope_error_s == math.inf


def test_sizes_that_ran_repeatedly_correct_a_slope_from_a_slow_first_batch() -> None:
    estimator = BatchTimeEstimator()
    estimator.observe(1, 0.15)
    for _ in range(40):
        for rows in (4, 16):
            estimator.observe(rows, 0.050 + 0.002 * rows)

    assert abs(estimator.estimate.slope_s - 0.002) <= estimator.slope_error_s < 0.001


@pytest.mark.parametrize(
    ("slope_s", "seconds", "rows"),
    [(0.5, 3.0, 4.0), (0.5, 0.5, -1.0), (0.0, 1.0, math.inf), (0.0, 0.5, -math.inf)],
    ids=["some rows", "an empty batch takes longer", "rows take no time", "no batch is fast enough"],
)
def test_the_largest_batch_within_a_time(slope_s: float, seconds: float, rows: float) -> None:
    """An empty batch takes a second. One that scatters must leave room for two deviations."""
    assert Estimate(1.0, slope_s, spread=0).rows_within(seconds) == rows
    assert Estimate(1.0, slope_s, spread=0.5).rows_within(2 * seconds) == rows
    assert Estimate(1.0, slope_s, spread=0.5).rows_within(seconds, z=0) == rows


@given(
    rate=st.floats(0.01, 1e4),
    workers=st.integers(1, 8),
    slope_s=st.floats(0, 0.01),
    intercept_s=st.floats(0, 1),
)
@example(rate=100.0, workers=1, slope_s=0.001, intercept_s=0.01)
@example(rate=100.0, workers=1, slope_s=0.01, intercept_s=0.01)
def test_workers_keep_up_with_batches_that_leave_them_no_time(
    rate: float, workers: int, slope_s: float, intercept_s: float
) -> None:
    """If rows alone take all their time, no batch is large enough."""
    line = Estimate(intercept_s, slope_s, spread=0)
    rows = line.keep_up_rows(rate, workers=workers)

    if rate * slope_s >= workers:
        assert rows == math.inf
    elif rows > 1e-6:
        assert rate / rows * line.seconds(rows) == pytest.approx(workers, rel=1e-3)


def test_the_batch_with_which_two_workers_keep_up() -> None:
    """100 rows per second, of which 2 in each batch: 50 batches of 0.04 s keep two workers busy."""
    assert Estimate(0.02, 0.01, spread=0).keep_up_rows(100.0, workers=2) == pytest.approx(2.0)
