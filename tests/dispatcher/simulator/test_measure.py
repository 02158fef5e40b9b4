"""The figures of a cell, against closed forms and against invariants of all cells."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from uncork_dispatcher.simulator.cells import Cell
from uncork_dispatcher.simulator.measure import measure

PROPERTY = at_most(15)
POLICIES = ["cork", "cork-classic", "fixed:0", "fixed:3", "aimd", "none"]
FAR_MS = 1e6
"""A goal so far off that it decides nothing."""
# Batches of one row, 10 ms each: a queue that every policy serves in the same way, first come first served.
ROW_BY_ROW = Cell(intercept_ms=9, slope_ms=1, workers=4, limit_rows=1, goal_ms=FAR_MS, load=0.3)


@PROPERTY
@given(
    st.sampled_from(POLICIES),
    st.sampled_from(["poisson", "gamma:2", "onoff", "step"]),
    st.floats(0.05, 4),
    st.integers(1, 4),
    st.floats(20, 200),
    st.integers(2, 100),
)
def test_every_measured_request_is_counted_once(
    policy: str, kind: str, load: float, workers: int, goal_ms: float, count: int
) -> None:
    """As answered or as shed; those of the warm-up are not. And shares are shares."""
    cell = Cell(
        intercept_ms=5, slope_ms=1, workers=workers, limit_rows=8, goal_ms=goal_ms, load=load, arrivals=kind
    )
    seen = measure(cell, policy, 1, requests=count)

    assert seen.answered + seen.shed == count
    assert seen.shed_share == pytest.approx(seen.shed / count)
    assert 0 <= seen.utilisation <= 1 + 1e-9
    assert 0 <= seen.goodput_per_s <= seen.rows_per_s
    if seen.answered:
        assert 0 <= seen.inside_goal <= 1
        assert 6 - 1e-6 <= seen.p50_ms <= seen.p99_ms
        assert seen.mean_ms <= seen.p99_ms + 0.01 * (seen.mean_ms * seen.answered)


@pytest.mark.parametrize(("policy", "warm_up"), [("none", 100), ("fixed:0", 100), ("cork-classic", 1200)])
def test_the_warm_up_is_not_measured(policy: str, warm_up: int) -> None:
    """A queue that grows for ever shows how many were before: a quarter, and 6 s for ``cork-classic``.

    200 requests per second come, 100 are answered: each waits 5 ms longer than the one before it.
    """
    cell = dataclasses.replace(ROW_BY_ROW, workers=1, load=2.0)
    seen = measure(cell, policy, 1, requests=400)

    assert seen.mean_ms == pytest.approx((warm_up + 200) * 5, rel=0.1)
    assert seen.rows_per_s == pytest.approx(100, rel=0.01)


def test_what_comes_within_the_goal_is_goodput() -> None:
    """Nine tenths of one worker's capacity, a mean latency of 55 ms, and a goal of 25 ms."""
    cell = dataclasses.replace(ROW_BY_ROW, workers=1, load=0.9, goal_ms=25)
    relaxed = measure(dataclasses.replace(cell, goal_ms=FAR_MS), "none", 1, requests=1000)
    strict = measure(cell, "none", 1, requests=1000)

    assert relaxed.goodput_per_s == relaxed.rows_per_s
    assert relaxed.p50_ms > 25
    assert strict.shed > 0
    assert strict.goodput_per_s == pytest.approx(strict.rows_per_s * strict.inside_goal, rel=0.01)


def test_a_goal_that_nobody_meets_leaves_no_goodput() -> None:
    seen = measure(dataclasses.replace(ROW_BY_ROW, goal_ms=9), "fixed:0", 1, requests=500)

    assert (seen.answered, seen.inside_goal, seen.goodput_per_s) == (500, 0.0, 0.0)
    assert seen.rows_per_s > 0


def test_nobody_answered_is_not_a_number() -> None:
    """256 clients of a worker that serves 24 a second within 1 s: after the warm-up all are shed."""
    cell = Cell(intercept_ms=40, slope_ms=1, clients=256)
    seen = measure(cell, "none", 1, requests=500)

    assert (seen.answered, seen.shed_share) == (0, 1.0)
    assert seen.shed == pytest.approx(500, abs=10)
    assert all(math.isnan(value) for value in (seen.mean_ms, seen.p50_ms, seen.p99_ms, seen.inside_goal))


@pytest.mark.parametrize(
    ("cell", "policy", "requests", "message"),
    [
        (ROW_BY_ROW, "magic", 10, "unknown policy 'magic'"),
        (dataclasses.replace(ROW_BY_ROW, arrivals="magic"), "cork", 10, "unknown arrivals 'magic'"),
        (ROW_BY_ROW, "cork", 1, "at least 2 requests must be measured, got 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(cell: Cell, policy: str, requests: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure(cell, policy, 1, requests=requests)


@pytest.mark.parametrize(
    ("answered", "shed", "inside", "in_goal"),
    [(4.0, 96.0, 1.0, 0.04), (50.0, 0.0, 0.5, 0.5), (0.0, 9.0, math.nan, 0.0)],
)
def test_shed_requests_are_not_within_the_goal(
    answered: float, shed: float, inside: float, in_goal: float
) -> None:
    """Whether any request was answered or not; without requests, the share is unknown."""
    seen = measure(Cell(intercept_ms=1.0, slope_ms=0.1, load=0.5), "none", 1, requests=10)
    assert dataclasses.replace(
        seen, answered=answered, shed=shed, inside_goal=inside
    ).in_goal == pytest.approx(in_goal)
    assert math.isnan(dataclasses.replace(seen, answered=0.0, shed=0.0, inside_goal=math.nan).in_goal)
