"""What follows from the line of batch times."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from uncork_dispatcher.learning.estimator import Estimate


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
