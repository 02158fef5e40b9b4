"""A worker that is started for the next request."""

from __future__ import annotations

import asyncio

import pytest

from tests.dispatcher.driver import core_with, poll_all, start_one, starts
from tests.dispatcher.shell import Workers, shell_of
from uncork_dispatcher.actions import Shed, WorkerWanted
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.errors import RequestShed
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.tasks import TaskRunner

SLOW, FAST = ApiRules(name="a", goal_s=10.0, timeout_s=20.0), ApiRules(name="b", goal_s=0.3)


def asleep(*, startup_s: float | None = 2.0) -> Dispatcher:
    """A core whose only worker took so long to start, and was stopped at 10 s."""
    core = core_with(SLOW, FAST, workers=0)
    if startup_s is not None:
        core.worker_expected(0, now=0.0)
        core.worker_ready(7, now=startup_s, place=0)
    core.workers_on_demand(now=10.0)
    core.worker_retired(7, now=10.0)
    assert poll_all(core, 10.0) == []
    return core


def test_a_request_that_can_wait_is_queued_and_a_worker_wanted() -> None:
    """However long the service has slept; it runs when the worker is ready."""
    core = asleep()
    assert core.submit(1, api="a", now=1000.0) is None
    assert poll_all(core, 1000.0) == [WorkerWanted()]
    core.worker_expected(0, now=1000.0)
    assert core.submit(2, api="a", now=1000.5) is None
    assert poll_all(core, 1000.5) == []
    core.worker_ready(8, now=1002.0, place=0)
    assert [start.requests for start in starts(poll_all(core, 1002.0))] == [(1, 2)]


def test_a_request_that_cannot_wait_is_refused_and_a_worker_wanted() -> None:
    """Its client should retry when the worker is ready."""
    core = asleep()
    assert core.submit(1, api="b", now=1000.0) == Shed(1, "b", "no_worker", 2.0)
    assert poll_all(core, 1000.0) == [WorkerWanted()]


@pytest.mark.parametrize("end", ["retired", "lost", "overdue"])
def test_requests_that_the_last_worker_leaves_want_another(end: str) -> None:
    """It was not started on demand, but on another machine."""
    core = asleep()
    core.worker_ready(8, now=1000.0)
    start_one(core, 1, now=1000.0)
    assert core.submit(2, api="a", now=1015.0) is None
    assert poll_all(core, 1015.0) == []
    now = 1000.0 + SLOW.timeout_s if end == "overdue" else 1016.0
    if end == "retired":
        core.worker_retired(8, now=now)
    elif end == "lost":
        core.worker_lost(8, now=now)

    assert WorkerWanted() in poll_all(core, now)
    core.worker_expected(0, now=now)
    core.worker_ready(9, now=now + 2.0, place=0)
    assert starts(poll_all(core, now + 2.0))


def test_requests_that_are_queued_when_the_service_falls_asleep_want_a_worker() -> None:
    core = core_with(SLOW, workers=0)
    core.worker_expected(0, now=0.0)
    core.worker_ready(7, now=2.0, place=0)
    for request in (1, 2):
        core.submit(request, api="a", now=5.0)
        poll_all(core, 5.0)
    core.worker_retired(7, now=6.0)
    core.workers_on_demand(now=6.0)
    assert poll_all(core, 6.0) == [WorkerWanted()]


@pytest.mark.virtual_time
@pytest.mark.parametrize("goal_s", [10.0, 0.3])
async def test_the_shell_starts_a_worker_for_a_request_queued_or_refused(goal_s: float) -> None:
    shell = shell_of(TaskRunner(Workers()))
    shell.set_api(ApiRules(name="a", goal_s=goal_s))
    started: list[None] = []

    def start() -> None:
        started.append(None)
        shell.worker_expected(0)

    shell.worker_expected(0)
    await asyncio.sleep(2.0)
    shell.worker_ready(7, place=0)
    shell.workers_on_demand(start)
    shell.worker_retired(7)
    calling = asyncio.create_task(shell.call("a", "x"))
    await asyncio.sleep(1.0)
    assert started == [None]
    shell.worker_ready(8, place=0)
    if goal_s > 2.0:
        assert (await calling).result == "X"
    else:
        with pytest.raises(RequestShed):
            await calling
    assert shell.is_empty
