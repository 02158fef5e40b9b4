"""When a worker is due."""

from __future__ import annotations

import math

import pytest

from uncork_dispatcher.workers.launches import Launches


def after(*startups_s: float) -> Launches:
    """Workers have taken so long to start, one after the other from time 0."""
    launches = Launches()
    for number, startup_s in enumerate(startups_s):
        launches.expect(number, at=0.0)
        launches.ready(number, now=startup_s)
    return launches


def test_nothing_is_due_before_a_first_worker_was_ready() -> None:
    launches = after()
    launches.expect("x", at=0.0)

    assert launches.startup_s is None
    assert launches.due(1.0) == []
    assert launches.soonest(1.0) == 1.0


def test_the_usual_startup_is_the_prediction() -> None:
    """The median of the last five; one slow start counts for little, and old ones for nothing."""
    launches = after(2.0, 3.0, 90.0)
    launches.expect("x", at=10.0)
    assert launches.startup_s == 3.0
    assert launches.due(10.0) == [13.0]

    launches = after(*[9.0] * 20, *[2.0] * 3)
    launches.expect("x", at=10.0)
    assert launches.due(10.0) == [12.0]


def test_each_launch_is_due_by_itself() -> None:
    """Also one that is still to be made; a later word on it replaces an earlier one."""
    launches = after(2.0)
    launches.expect("x", at=5.0)
    launches.expect("y", at=4.0)
    assert launches.due(4.5) == [6.0, 7.0]

    launches.expect("y", at=8.0, failures=0)
    assert launches.due(4.5) == [7.0, 10.0]
    launches.ready("x", now=7.0)
    assert launches.due(7.0) == [10.0]


def test_a_late_worker_is_due_at_any_moment_for_as_long_again() -> None:
    launches = after(2.0)
    launches.expect("x", at=4.0)

    assert launches.due(7.0) == [7.0]
    assert launches.due(8.0) == [8.0]
    assert launches.due_until(8.0) == 8.0
    assert (launches.due(8.1), launches.due_until(8.1)) == ([], -math.inf)


@pytest.mark.parametrize(("failures", "due"), [(1, [6.0]), (2, [])])
def test_a_worker_that_fails_again_and_again_is_not_counted_on(failures: int, due: list[float]) -> None:
    launches = after(2.0)
    launches.expect("x", at=4.0, failures=failures)

    assert launches.due(4.0) == due
    assert launches.soonest(4.0) == 6.0


def test_a_launch_that_is_called_off_is_not_due() -> None:
    launches = after(2.0)
    launches.expect("x", at=4.0)
    launches.expect("y", at=5.0)
    launches.forget("x")
    launches.forget("unknown")

    assert (launches.due(4.0), launches.soonest(4.0)) == ([7.0], 7.0)
    launches.ready("x", now=60.0)
    assert launches.startup_s == 2.0


def test_who_does_not_know_of_failures_changes_nothing() -> None:
    """A lost connection may be noticed after the exit, which says when the next process starts."""
    launches = after(2.0)
    launches.expect("x", at=30.0, failures=1)
    launches.expect("x", at=10.0)
    assert launches.due(10.0) == [32.0]

    launches.expect("x", at=10.0, failures=2)
    launches.expect("x", at=10.0)
    assert launches.due(10.0) == []
