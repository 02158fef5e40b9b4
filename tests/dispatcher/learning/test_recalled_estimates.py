"""What an earlier run has learned: it counts once a batch confirms it, and costs nothing if none does."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_dispatcher.learning.estimator import BatchTimeEstimator
from uncork_dispatcher.learning.measures import BatchSize, Measures

SIZES = [1, 40, 3, 200, 12, 90]


def model(rows: float) -> float:
    """A worker that takes 50 ms and half a millisecond for each row."""
    return 0.050 + 0.0005 * rows


def seen(sizes: Sequence[int], *, recalled: Sequence[tuple[float, float]] = ()) -> BatchTimeEstimator:
    """An estimator that has seen batches of these sizes, perhaps after it has recalled something."""
    estimator = BatchTimeEstimator()
    estimator.recall(recalled)
    for rows in sizes:
        estimator.observe(rows, model(rows))
    return estimator


LEARNED = seen(SIZES).learned()


def slower(factor: float) -> list[tuple[float, float]]:
    return [(rows, factor * seconds) for rows, seconds in LEARNED]


def test_the_line_is_given_from_the_smallest_to_the_largest_batch() -> None:
    assert [pytest.approx((1, model(1))), pytest.approx((200, model(200)))] == LEARNED
    assert seen([7] * 5).learned() == [pytest.approx((7, model(7)))]


def test_before_the_first_batch_nothing_is_believed() -> None:
    estimator = seen([], recalled=LEARNED)

    assert estimator.estimate == BatchTimeEstimator().estimate
    assert estimator.known_rows is None
    assert estimator.learned() == [pytest.approx(each) for each in LEARNED]


def test_one_batch_confirms_the_line() -> None:
    """Then batches of the largest size may shed requests, and the slope is known."""
    estimator = seen([40], recalled=LEARNED)

    assert estimator.estimate.earned_rows == pytest.approx(400)
    assert estimator.known_rows == pytest.approx((1, 200))
    for rows in (1, 40, 200):
        assert estimator.estimate.seconds(rows) == pytest.approx(model(rows), rel=1e-6)
    assert seen([40]).estimate.earned_rows == 0


@given(
    factor=st.sampled_from([0.0, 0.1, 0.7, 1.5, 10.0, 1e9]),
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=20),
)
def test_a_wrong_line_changes_nothing(factor: float, sizes: list[int]) -> None:
    wrong, cold = seen(sizes, recalled=slower(factor)), seen(sizes)

    assert wrong.estimate == cold.estimate
    assert wrong.known_rows == cold.known_rows


@pytest.mark.parametrize(("slow", "believed"), [(4, True), (5, False)])
def test_a_later_one_of_the_first_batches_confirms_it_too(slow: int, believed: bool) -> None:
    """The first may have to compile or allocate something."""
    estimator = BatchTimeEstimator()
    estimator.recall(LEARNED)
    for rows in range(1, slow + 1):
        estimator.observe(rows, 9 * model(rows))
    estimator.observe(9, model(9))

    assert estimator.known_rows == (pytest.approx((1, 200)) if believed else (1, 9))


def test_batches_of_a_size_replace_its_recalled_time() -> None:
    """And they count for more than the other end of the line, which may be wrong."""
    estimator = seen([1], recalled=[(1, model(1)), (200, 1.2 * model(200))])
    for _ in range(3):
        estimator.observe(200, model(200))

    assert estimator.estimate.seconds(200) == pytest.approx(model(200), rel=0.02)


@pytest.mark.parametrize(("factor", "believed"), [(1.0, True), (2.0, False)])
def test_the_largest_batch_of_a_warm_up_decides(factor: float, believed: bool) -> None:
    estimator = BatchTimeEstimator()
    estimator.recall(LEARNED)
    estimator.observe_profile([(1, model(1)), (4, factor * model(4)), (2, model(2))])
    estimator.observe(3, model(3))

    assert (estimator.known_rows == pytest.approx((1, 200))) == believed


@pytest.mark.parametrize("wrong", [(0, 1.0), (-1, 1.0), (1, -1.0), (math.nan, 1.0), (1, math.inf)])
def test_values_that_no_batch_has_are_refused(wrong: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="a batch must have more than 0 rows and a finite time"):
        BatchTimeEstimator().recall([(1, 0.1), wrong])


def padded(*, recalled: Sequence[tuple[float, float]] = (), batches: int = 40) -> Measures:
    """The measures of a model that pads, which takes 2 ms and 10 us for each unit of padded cost."""
    measures = Measures()
    measures.recall(recalled)
    measures.expect_costs(True)
    for number in range(batches):
        size = BatchSize(100 + number, (2 + number % 3) * (100 + number))
        measures.observe(size, 0.002 + 1e-5 * size.padded)
    return measures


def test_of_a_model_that_pads_the_padded_line_is_given() -> None:
    """It is right for batches without padding, from which the next run begins."""
    learned = padded().learned()
    again = padded(recalled=learned, batches=1)

    assert [seconds for _, seconds in learned] == pytest.approx([0.002 + 1e-5 * rows for rows, _ in learned])
    assert again.estimate.earned_rows > 0
    assert again.estimate.seconds(500) == pytest.approx(0.002 + 1e-5 * 500, rel=0.01)
