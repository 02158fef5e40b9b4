"""Whom the core refuses, when, and with what words; and whom it must never refuse."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.dispatcher.driver import Arrival, Driver, core_with, poll_all, start_one, starts, teach
from uncork_dispatcher.actions import Expired, Shed
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules


def model(start: Batch[Any]) -> float:
    """A worker that takes 50 ms and half a millisecond for each row."""
    return 0.050 + 0.0005 * start.rows


def burst(requests: int, at: float = 0.0) -> list[Arrival]:
    """Requests that come 0.1 ms apart."""
    return [Arrival(at + number * 1e-4) for number in range(requests)]


def taught(seconds: float = 0.1, **limits: float) -> tuple[Dispatcher, float]:
    """A core that has seen five batches of one row, its worker busy with a sixth from the time returned."""
    core = core_with(ApiRules(name="a", **limits))  # type: ignore[arg-type]
    now = teach(core, seconds)
    start_one(core, 0, now=now)
    return core, now


@pytest.mark.parametrize("policy", ["cork", "cork-classic"])
@pytest.mark.parametrize(
    ("arrivals", "goal_s"),
    [(burst(50), 0.3), ([Arrival(i * 0.1) for i in range(500)] + burst(30, at=50.0), 0.5)],
)
def test_a_burst_is_answered_in_time(policy: str, arrivals: list[Arrival], goal_s: float) -> None:
    """After a cold start, and after 500 batches of one row, which do not show what 30 rows take."""
    end = Driver(core_with(ApiRules(name="a", policy=policy, goal_s=goal_s)), arrivals, model).run()

    assert end.refused == {}
    assert len(end.latency) == len(arrivals)
    assert max(end.latency.values()) < goal_s


def test_a_goal_that_cannot_be_met_is_told_once() -> None:
    """With the time of one row alone, once the estimate has been earned; again when the goal changes."""
    core = core_with(ApiRules(name="a", goal_s=0.03))
    first = Driver(core, [Arrival(i * 0.2) for i in range(20)], model).run()
    core.set_api(ApiRules(name="a", goal_s=0.04))
    second = Driver(core, [Arrival(8.0 + i * 0.2) for i in range(20)], model).run()

    [warning] = first.warnings
    assert (warning.api, warning.goal_s) == ("a", 0.03)
    assert warning.needed_s == pytest.approx(0.0505)
    assert [again.goal_s for again in second.warnings] == [0.04]


def test_nobody_is_refused_before_the_estimate_is_earned() -> None:
    """Four slow batches refuse nobody, neither at the door nor later; the fifth makes the difference."""
    core = core_with(ApiRules(name="a", goal_s=0.3))
    now = teach(core, 0.2, batches=4)
    start = start_one(core, 0, now=now)
    assert core.submit(1, api="a", now=now) is None
    assert core.poll(now + 0.19) == []
    assert core.poll(now + 5.0) == []

    core.batch_done(start.number, status="worked", now=now + 5.0)
    assert [start.requests for start in starts(core.poll(now + 5.0))] == [(1,)]


def deserted(startup_s: float = 2.0, **limits: float) -> tuple[Dispatcher, float]:
    """A core whose only worker took so long to start, ran five batches of 0.1 s, and dies at that time."""
    core = core_with(ApiRules(name="a", **limits), workers=0)  # type: ignore[arg-type]
    core.worker_expected("w", now=-startup_s)
    core.worker_ready(0, now=0.0, place="w")
    now = teach(core, 0.1)
    core.worker_lost(0, now=now)
    core.worker_expected("w", now=now)
    return core, now


@pytest.mark.parametrize(
    ("goal_s", "patience", "failures", "refused"),
    [
        (2.2, math.inf, 0, None),
        (2.05, math.inf, 0, Shed(1, "a", "no_worker", 2.0)),
        (9.0, 1.0, 0, Shed(1, "a", "no_worker", 2.0)),
        (9.0, math.inf, 2, Shed(1, "a", "no_worker", 2.0)),
    ],
    ids=["in time", "late", "in a hurry", "the worker keeps failing"],
)
def test_a_request_that_the_next_worker_can_answer_in_time_is_queued(
    goal_s: float, patience: float, failures: int, refused: Shed | None
) -> None:
    """The worker is due in 2 s, and a batch takes 0.1 s. Others may come back when it is due."""
    core, now = deserted(goal_s=goal_s)
    core.worker_expected("w", now=now, failures=failures)
    assert core.submit(1, api="a", now=now, expires_at=now + patience) == refused

    assert core.poll(now) == []
    core.worker_ready(1, now=now + 2.0, place="w")
    assert [start.requests for start in starts(core.poll(now + 2.0))] == ([] if refused else [(1,)])


def test_queued_requests_are_refused_when_their_worker_is_put_off() -> None:
    """It failed in setup and is tried again in 5 s; those that can wait so long stay."""
    core, now = deserted(goal_s=9.0)
    core.submit(1, api="a", now=now, expires_at=now + 4.0)
    core.submit(2, api="a", now=now)
    core.worker_expected("w", now=now + 1.0, delay_s=5.0, failures=1)

    [shed] = core.poll(now + 1.0)
    assert isinstance(shed, Shed)
    assert (shed.request, shed.reason) == (1, "no_worker")
    assert shed.retry_after_s == pytest.approx(7.0), "the other is due later, and would not go before it"
    assert core.next_wakeup() == pytest.approx(now + 8.9), "the last moment to start the other"


@pytest.mark.parametrize("runs", [False, True])
def test_a_request_waits_for_a_worker_that_starts_longer_than_a_batch_may_run(runs: bool) -> None:
    """Also one that the last worker has run. If that worker does not come, none waits for ever."""
    for comes in (True, False):
        core = core_with(ApiRules(name="a", policy="none", goal_s=60.0, timeout_s=5.0), workers=0)
        core.worker_expected("w", now=-30.0)
        core.worker_ready(0, now=0.0, place="w")
        now = teach(core, 0.1)
        if runs:
            start_one(core, 1, now=now)
        core.worker_lost(0, now=now)
        core.worker_expected("w", now=now)
        if not runs:
            assert core.submit(1, api="a", now=now) is None
        for later in (now, now + 6.0, now + 29.0):
            assert core.poll(later) == []

        if comes:
            core.worker_ready(1, now=now + 30.0, place="w")
            assert [start.requests for start in starts(core.poll(now + 30.0))] == [(1,)]
        else:
            [shed] = core.poll(now + 61.0)
            assert isinstance(shed, Shed)
            assert (shed.request, shed.reason) == (1, "no_worker")


@pytest.mark.parametrize("bulk", [False, True])
def test_those_who_are_refused_while_a_worker_starts_for_minutes_return_when_it_is_due(bulk: bool) -> None:
    """A minute is the most only for a backlog. Each has a time of its own."""
    core, now = deserted(startup_s=300.0, goal_s=9.0, bulk_goal_s=20.0)
    refused = [core.submit(number, api="a", now=now, bulk=bulk) for number in range(5)]
    waits = [shed.retry_after_s for shed in refused if shed is not None and shed.reason == "no_worker"]

    assert len(waits) == len({round(wait) for wait in waits}) == 5
    assert min(waits) == pytest.approx(300.0)
    assert max(waits) < 600.0


@pytest.mark.parametrize(("goal_s", "patience"), [(0.5, math.inf), (9.0, 0.5)])
def test_hopeless_requests_are_refused_when_they_become_so(goal_s: float, patience: float) -> None:
    """The worker hangs: 0.1 s before the deadline is the last moment to start, and the core wakes for it."""
    core, now = taught(goal_s=goal_s)
    core.submit(1, api="a", now=now, expires_at=now + patience)
    core.poll(now)
    last = core.next_wakeup()
    assert last == pytest.approx(now + 0.4)
    assert core.poll(last - 1e-6) == []

    assert core.poll(last) == [Shed(1, "a", "deadline", 1.0)]
    assert core.stats(now=last)[0].queued_requests == 0


def test_a_larger_request_must_start_earlier() -> None:
    """1 row takes 0.1 s and 11 rows 0.2 s: 0.2 s before the deadline is too late for those."""
    core = core_with(ApiRules(name="a", goal_s=0.5))
    for number, rows in enumerate([1, 11, 1, 11, 1, 1]):
        core.submit(number, api="a", rows=rows, now=float(number))
        [start] = starts(core.poll(number))
        if number < 5:
            core.batch_done(start.number, status="worked", now=number + 0.09 + 0.01 * rows)
    core.submit(6, api="a", rows=11, now=5.0)

    assert core.poll(5.0) == []
    assert core.next_wakeup() == pytest.approx(5.3)


def test_a_request_far_larger_than_any_batch_seen_is_not_refused_by_prediction() -> None:
    """Batches of one row were seen; what 100 rows take is a guess that nobody is refused on."""
    core, now = taught(seconds=0.05, goal_s=0.3)
    assert core.submit(1, api="a", rows=100, now=now) is None

    assert core.poll(now) == []
    assert core.next_wakeup() > now + 0.2


def test_what_the_release_leaves_behind_is_looked_at_again() -> None:
    """The worker that comes back takes one request, and for the other it is too late."""
    core, now = taught(goal_s=0.5, max_batch_rows=1)
    core.submit(1, api="a", now=now)
    core.submit(2, api="a", now=now)
    core.batch_done(6, status="worked", now=now + 0.45)

    start, shed = poll_all(core, now + 0.45)
    assert isinstance(start, Batch)
    assert start.requests == (1,)
    assert isinstance(shed, Shed)
    assert (shed.request, shed.reason) == (2, "deadline")


def test_a_client_may_give_up_while_its_request_runs() -> None:
    """The core says so once, whether the driver cancels it, extends it, or does nothing."""
    core = core_with(ApiRules(name="a", policy="fixed:0"))
    for request, expires_at in enumerate([0.2, 0.4, math.inf, 0.3, 0.3]):
        core.submit(request, api="a", now=0.0, expires_at=expires_at)
    [batch] = starts(poll_all(core, 0.0))
    assert core.next_wakeup() == 0.2
    assert core.poll(0.2) == [Expired(0)]
    assert core.cancel(0, now=0.2) is batch
    assert (poll_all(core, 0.2), core.next_wakeup()) == ([], 0.3)
    assert core.poll(0.3) == [Expired(3), Expired(4)]
    core.extend(3, expires_at=0.35, now=0.3)
    assert (poll_all(core, 0.3), core.next_wakeup()) == ([], 0.35)
    assert core.poll(0.5) == [Expired(3), Expired(1)]
    core.extend(3, expires_at=math.inf, now=0.5)
    core.submit(5, api="a", now=0.5, expires_at=0.6)
    core.worker_retired(0, now=0.5)
    core.batch_done(batch.number, status="worked", now=0.5)
    core.extend(1, expires_at=0.55, now=0.5)
    assert [type(action) for action in poll_all(core, 0.7)] == [Shed]
    assert core.is_empty


def test_a_batch_that_ends_leaves_the_times_of_others() -> None:
    """Also if nothing is queued."""
    core = core_with(ApiRules(name="a", policy="fixed:0", timeout_s=9.0), workers=2)
    for request, expires_at in enumerate([0.2, 0.4]):
        core.submit(request, api="a", now=0.0, expires_at=expires_at)
        poll_all(core, 0.0)
    core.batch_done(1, status="worked", now=0.1)
    assert core.next_wakeup() == 0.4
    core.batch_done(2, status="worked", now=0.1)
    assert core.next_wakeup() == math.inf
