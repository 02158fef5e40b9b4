"""An API that has reserved workers uses these and no others, and the other APIs share the rest."""

from __future__ import annotations

import pytest

from tests.dispatcher.driver import Arrival, Driver, core_with, done, poll_all, starts, teach
from tests.dispatcher.driver import submit_all as submit
from uncork_dispatcher.actions import Shed
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.rules import ApiRules

FAST = ApiRules(name="fast", goal_s=0.05, workers=1)
SLOW = ApiRules(name="slow", goal_s=10.0, max_batch_rows=1)


def test_other_apis_leave_the_reserved_worker_idle() -> None:
    core = core_with(FAST, SLOW, workers=3)
    assert len(submit(core, 1, 2, 3, 4, api="slow")) == 2
    [start] = submit(core, 5, api="fast", now=0.01)
    assert start.requests == (5,)


@pytest.mark.parametrize(("reserved", "keeps"), [(0, False), (1, True)])
def test_the_reserved_worker_keeps_the_goal_beside_long_batches(reserved: int, keeps: bool) -> None:
    """Batches of 2 s, and every 200 ms a request whose batch takes 20 ms; without a reservation, it waits."""
    fast = ApiRules(name="fast", goal_s=0.05, workers=reserved)
    long = [Arrival(number / 2, api="slow") for number in range(20)]
    short = [Arrival(0.001 + number / 5, api="fast") for number in range(50)]
    core = core_with(fast, ApiRules(name="slow", goal_s=60.0), workers=2)
    end = Driver(core, long + short, lambda start: 0.02 if start.api == "fast" else 2.0).run()

    in_goal = [number for number, latency in end.latency.items() if number >= 20 and latency <= fast.goal_s]
    assert (len(in_goal) == 50) is keeps


def test_a_retired_worker_counts_for_no_api_after_a_change() -> None:
    core = core_with(FAST, SLOW, workers=2)
    [slow] = submit(core, 1, api="slow")
    core.worker_retired(slow.worker, now=0.1)
    core.worker_ready(2, now=0.1)
    core.set_api(ApiRules(name="fast", goal_s=0.05))
    core.set_api(FAST)
    assert [start.requests for start in submit(core, 2, 3, api="slow", now=0.2)] == [(2,)]
    assert done(core, slow, now=0.3) == []


def test_the_reservation_outlives_a_worker() -> None:
    """Whichever worker is left serves the API: none is bound to it."""
    core = core_with(FAST, SLOW, workers=3)
    [one, _] = submit(core, 1, 2, 3, api="slow")
    [fast] = submit(core, 4, api="fast", now=0.01)
    core.worker_lost(fast.worker, now=0.02)
    assert starts(poll_all(core, 0.02)) == []

    [again] = done(core, one, now=3.0)
    assert again.requests == (4,)
    core.worker_ready(9, now=3.1)
    assert [(start.worker, start.requests) for start in starts(poll_all(core, 3.1))] == [(9, (3,))]


def test_the_last_worker_is_for_all() -> None:
    core = core_with(FAST, SLOW, workers=2)
    core.worker_lost(0, now=0.0)
    [slow] = submit(core, 1, 2, api="slow", now=1.0)
    assert submit(core, 3, api="fast", now=1.1) == []
    [fast] = done(core, slow, now=1.2)
    assert fast.requests == (3,)
    assert [start.requests for start in done(core, fast, now=1.3)] == [(2,)]


def test_apis_take_turns_on_the_last_worker() -> None:
    """A backlog of the reserving API does not starve the others."""
    core = core_with(FAST, SLOW, workers=2)
    core.worker_lost(0, now=0.0)
    [slow] = submit(core, 1, 2, api="slow")
    assert submit(core, 3, api="fast", now=0.99) == []
    [fast] = done(core, slow, now=1.0)
    assert fast.requests == (3,)
    assert submit(core, 4, api="fast", now=1.0) == []
    [again] = done(core, fast, now=1.02)
    assert again.requests == (2,)


def ahead_core() -> Dispatcher:
    """Return a core with two workers that take batches ahead; batches take 1 s, and 100 ms of transport."""
    core = Dispatcher()
    for rules in (FAST, SLOW):
        core.set_api(rules)
    for worker in range(2):
        core.worker_ready(worker, now=0.0, takes_ahead=True)
    for number in range(6):
        [batch] = submit(core, 100 + number, api="slow", now=2.0 * number)
        ended = 2.0 * number + 1.1
        assert core.batch_done(batch.number, status="worked", chunks=[(1, 1.0)], now=ended)
    return core


@pytest.mark.parametrize(("lost", "sent"), [(False, 1), (True, 0)])
def test_no_batch_goes_ahead_while_an_api_lacks_its_worker(lost: bool, sent: int) -> None:
    core, now = ahead_core(), 20.0
    [slow] = submit(core, 1, api="slow", now=now)
    if lost:
        core.worker_lost(1 - slow.worker, now=now)
    core.submit(2, api="fast", now=now)
    core.submit(3, api="slow", now=now)
    ahead = starts(poll_all(core, now + 0.5)) + starts(poll_all(core, now + 0.9999))
    assert len([start for start in ahead if start.is_ahead]) == sent


def test_the_worker_of_an_api_whose_own_was_lost_is_the_next_that_others_free() -> None:
    fast = ApiRules(name="fast", goal_s=0.5, workers=1)
    core = core_with(fast, SLOW, workers=2)
    now = teach(core, 0.1, api="fast", batches=6)
    now = teach(core, 1.0, api="slow", batches=6, now=now)
    [slow] = submit(core, 1, api="slow", now=now)
    core.worker_lost(1 - slow.worker, now=now)

    core.submit(2, api="fast", now=now)
    refused = core.submit(3, api="fast", now=now)
    assert isinstance(refused, Shed)
    assert core.submit(4, api="fast", now=now + 0.9) is None


def test_a_removed_api_leaves_its_workers_to_the_others() -> None:
    core = core_with(FAST, SLOW, workers=2)
    [_] = submit(core, 1, 2, api="slow")
    assert core.remove_api("fast")
    core.set_api(SLOW)
    [second] = submit(core, 3, api="slow", now=0.1)
    assert second.requests == (2,)
