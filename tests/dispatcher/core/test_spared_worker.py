"""A batch that runs again leaves a healthy worker for other requests: it may lose its worker once more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dispatcher.driver import core_with, poll_all, start_one, starts
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


def test_it_waits_no_longer_than_a_batch_may_run() -> None:
    """Although other workers die one after the other."""
    core = expecting(workers=2)
    lose(core, start_one(core, 1, now=2.0), now=2.1)
    for place in range(2, 12):
        now = 5.0 * place
        core.worker_expected(place, now=now)
        assert poll_all(core, now) == []
    until = 2.0 + RULES.timeout_s
    assert core.next_wakeup() == until

    [start] = starts(poll_all(core, until))
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
