"""A batch that runs again leaves a healthy worker for other requests: it may lose its worker once more."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.dispatcher.driver import core_with, poll_all, start_one, starts
from uncork_dispatcher.actions import Lost, Shed
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules

RULES = ApiRules(name="a", goal_s=10.0, policy="none")
STARTUP_S = 2.0


def expecting(*, workers: int) -> Dispatcher:
    """A core with these workers, each of which took two seconds to start, at time 2."""
    core = core_with(RULES, workers=0)
    for worker in range(workers):
        core.worker_expected(worker, now=0.0)
    for worker in range(workers):
        core.worker_ready(worker, place=worker, now=STARTUP_S)
    return core


def lose(core: Dispatcher, start: Batch[Any], *, now: float, failures: int = 0) -> None:
    """Lose the worker of a batch, and start another in its place."""
    core.worker_lost(start.worker, now=now)
    core.worker_expected(start.worker, now=now, failures=failures)


def test_a_lost_batch_waits_for_a_second_worker() -> None:
    """The only healthy one serves other requests meanwhile."""
    core = expecting(workers=2)
    lose(core, start_one(core, 1, now=2.0), now=2.1)
    assert poll_all(core, 2.1) == []

    other = start_one(core, 2, now=2.2)
    assert other.worker == 1
    core.batch_done(other.number, status="worked", now=2.3)
    assert poll_all(core, 2.3) == []
    [stats] = core.stats(now=2.3)
    assert stats.holding is not None
    assert stats.holding.reason == "quarantine"

    core.worker_ready(0, place=0, now=4.1)
    assert [start.requests for start in starts(poll_all(core, 4.1))] == [(1,)]


def test_a_quarantined_request_waits_for_a_second_worker_too() -> None:
    core = expecting(workers=2)
    lose(core, start_one(core, 1, now=2.0), now=2.1)
    core.worker_ready(0, place=0, now=4.1)
    [again] = starts(poll_all(core, 4.1))
    lose(core, again, now=4.2, failures=1)
    assert poll_all(core, 4.2) == []

    core.worker_ready(again.worker, place=again.worker, now=6.2)
    [alone] = starts(poll_all(core, 6.2))
    lose(core, alone, now=6.3)
    assert poll_all(core, 6.3) == [Lost(1)]
    assert core.work(now=6.3).workers == 1


def test_three_killers_at_once_are_retried_one_after_another() -> None:
    """However often the same worker fails meanwhile; one of three workers always serves the others."""
    core = expecting(workers=4)
    for request in (1, 2, 3):
        core.submit(request, api="a", now=2.0)
    now, failures, most = 2.0, 0, 0
    lost: list[int] = []
    running = starts(poll_all(core, now))
    assert len(running) == 3
    while len(lost) < 3:
        now += 0.1
        failures += 1
        for start in running:
            lose(core, start, now=now, failures=failures)
        assert core.work(now=now).workers >= 1
        started = poll_all(core, now)
        now += STARTUP_S
        for start in running:
            core.worker_ready(start.worker, place=start.worker, now=now)
        started += poll_all(core, now)
        running = starts(started)
        most = max(most, len(running))
        lost += [action.request for action in started if isinstance(action, Lost)]
        assert not any(isinstance(action, Shed) for action in started)

    assert sorted(lost) == [1, 2, 3]
    assert most == 3, "with four workers, three may run again at a time"


def test_a_second_lost_batch_waits_for_the_first() -> None:
    """Two healthy workers: one of them is spared, whatever is due."""
    core = expecting(workers=4)
    for request in (1, 2):
        core.submit(request, api="a", now=2.0)
    for start in starts(poll_all(core, 2.0)):
        lose(core, start, now=2.1)
    [first] = starts(poll_all(core, 2.1))
    assert core.next_wakeup() < math.inf

    core.batch_done(first.number, status="worked", now=2.2)
    [second] = starts(poll_all(core, 2.2))
    assert {first.requests, second.requests} == {(1,), (2,)}


@pytest.mark.parametrize("failures", [0, 5])
def test_it_does_not_wait_for_ever_for_a_worker_that_does_not_come(failures: int) -> None:
    """No longer than four usual starts, however often its process is started again."""
    core = expecting(workers=2)
    lose(core, start_one(core, 1, now=2.0), now=2.1)
    for now in (3.0, 5.0, 7.0, 9.0):
        core.worker_expected(0, now=now, failures=failures)
        assert poll_all(core, now) == []
    until = 2.1 + 4 * STARTUP_S
    assert core.next_wakeup() == pytest.approx(until)

    [start] = starts(poll_all(core, core.next_wakeup()))
    assert (start.worker, start.requests) == (1, (1,))


@pytest.mark.parametrize("workers", [1, 2])
def test_if_no_other_worker_is_due_it_runs_at_once(workers: int) -> None:
    """On an only worker, for example, or behind the proxy."""
    core = core_with(RULES, workers=workers)
    start = start_one(core, 1, now=0.0)
    core.worker_lost(start.worker, now=0.1)
    if workers == 1:
        core.worker_ready(1, now=0.1)

    assert [start.requests for start in starts(poll_all(core, 0.1))] == [(1,)]


def test_it_does_not_wait_for_a_worker_that_is_called_off() -> None:
    core = expecting(workers=2)
    lose(core, start_one(core, 1, now=2.0), now=2.1)
    core.worker_not_expected(0, now=2.2)

    assert [start.requests for start in starts(poll_all(core, 2.2))] == [(1,)]


def on_two_hosts() -> Dispatcher:
    """A core with two workers on each host; those on host ``x`` run requests 1 and 2."""
    core = core_with(RULES, workers=0)
    for worker in range(4):
        core.worker_ready(worker, host="xxyy"[worker], now=0.0)
    for request in (1, 2):
        core.submit(request, api="a", now=0.0)
    assert [start.worker for start in starts(poll_all(core, 0.0))] == [0, 1]
    return core


def test_the_death_of_a_host_is_no_reason_to_spare_workers() -> None:
    """Both batches that it ran go to the other host at once."""
    core = on_two_hosts()
    core.worker_lost(0, now=0.1)
    [first] = starts(poll_all(core, 0.1))
    core.worker_lost(1, now=0.12)
    [second] = starts(poll_all(core, 0.12))

    assert (first.worker, second.worker) == (2, 3)


def test_two_losses_that_leave_their_host_a_worker_are_no_death_of_a_host() -> None:
    core = on_two_hosts()
    core.worker_ready(4, host="x", now=0.0)
    core.worker_lost(2, now=0.05)
    for worker in (0, 1):
        core.worker_lost(worker, now=0.1)
    assert core.work(now=0.1).workers == 2

    assert len(starts(poll_all(core, 0.1))) == 1


def test_losses_far_apart_are_no_death_of_a_host() -> None:
    core = on_two_hosts()
    core.worker_lost(0, now=0.1)
    core.worker_lost(2, now=0.1)
    core.worker_ready(4, host="y", now=0.1)
    assert len(starts(poll_all(core, 0.1))) == 1
    core.worker_lost(1, now=2.2)

    assert starts(poll_all(core, 2.2)) == []


def test_draining_spares_no_worker() -> None:
    core = expecting(workers=2)
    lose(core, start_one(core, 1, now=2.0), now=2.1)
    core.drain(now=2.2)

    assert [start.requests for start in starts(poll_all(core, 2.2))] == [(1,)]
