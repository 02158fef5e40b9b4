"""The displayed estimate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_dispatcher import Estimate
from uncork_gateway.telemetry.recorder import SmoothEstimate, calibrated

QUICK = Estimate(intercept_s=0.010, slope_s=0.002, spread=0.1, earned_rows=64)
SLOW = Estimate(intercept_s=0.015, slope_s=0.003, spread=0.3, earned_rows=64)


def test_an_estimate_that_jumps_to_and_fro_is_shown_as_its_mean() -> None:
    """The input moves by half every second; from second 10 on the output moves by a few percent."""
    smooth = SmoothEstimate(15)
    seen = []
    for second in range(120):
        smooth.add((QUICK, SLOW)[second % 2], now=1000.0 + second)
        assert smooth.value is not None
        seen.append(smooth.value.seconds(10))

    mean = (QUICK.seconds(10) + SLOW.seconds(10)) / 2
    assert seen[0] == QUICK.seconds(10)
    assert seen[10:] == pytest.approx([mean] * 110, rel=0.05)


def test_a_change_that_lasts_is_followed() -> None:
    """The mean moves two thirds of the way in one span, and nearly all of it in three."""
    smooth = SmoothEstimate(15)
    for second in range(60):
        smooth.add(QUICK, now=float(second))
    way = []
    for second in range(60, 120):
        smooth.add(SLOW, now=float(second))
        assert smooth.value is not None
        way.append((smooth.value.intercept_s - 0.010) / 0.005)

    assert way[15] == pytest.approx(0.66, abs=0.02)
    assert way[45] > 0.94
    assert smooth.value == pytest.approx(SLOW, rel=0.05)


def test_after_a_long_silence_what_was_before_counts_for_nothing() -> None:
    """Conditions may have changed by then."""
    smooth = SmoothEstimate(15)
    smooth.add(QUICK, now=0.0)
    smooth.add(QUICK, now=1.0)
    smooth.add(SLOW, now=1000.0)

    assert smooth.value == pytest.approx(SLOW)


def test_an_estimate_that_knows_larger_batches_replaces_what_was_before() -> None:
    """Batches of one row say little about larger ones."""
    smooth = SmoothEstimate(15)
    for second in range(60):
        smooth.add(QUICK._replace(earned_rows=2), now=float(second))
    smooth.add(SLOW._replace(earned_rows=2.9), now=60.0)
    assert smooth.value is not None
    assert smooth.value.slope_s < 0.0022
    smooth.add(SLOW._replace(earned_rows=100), now=61.0)

    assert smooth.value == pytest.approx(SLOW._replace(earned_rows=100))


positive = st.floats(1e-4, 1e3)


@given(intercept=positive, slope=positive, batches=st.integers(1, 1000), rows=positive, seconds=positive)
def test_a_calibrated_estimate_predicts_what_was_measured(
    intercept: float, slope: float, batches: int, rows: float, seconds: float
) -> None:
    """The scaled line matches the mean batch and keeps its shape."""
    made = calibrated(Estimate(intercept, slope, 0.1), batches=batches, rows=rows, seconds=seconds)

    assert made.seconds(rows / batches) == pytest.approx(seconds / batches)
    assert made.slope_s * intercept == pytest.approx(made.intercept_s * slope)


def test_what_is_nothing_stays_nothing() -> None:
    nothing = Estimate(0.0, 0.0, 0.1)

    assert calibrated(nothing, batches=9, rows=9.0, seconds=9.0) == nothing
