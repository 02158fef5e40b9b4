"""A batch whose worker is lost runs again as it was, in its old place, on another host."""

from __future__ import annotations

import dataclasses
import math

from tests.dispatcher.driver import core_with, poll_all, start_one, starts, teach
from uncork_dispatcher.actions import Shed
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.stats import Holding

RULES = ApiRules(name="a", max_batch_rows=3, goal_s=10.0)


def on_hosts(hosts: str, rules: ApiRules = RULES) -> Dispatcher:
    """A core with a worker on each of these hosts, numbered from 0."""
    core = core_with(rules, workers=0)
    for worker, host in enumerate(hosts):
        core.worker_ready(worker, now=0.0, host=host)
    return core


def running_three(core: Dispatcher, *, first: int = 1, now: float = 0.0) -> Dispatcher:
    """Start requests 1, 2 and 3 as one batch on the worker that is next."""
    for number in range(first, first + 3):
        core.submit(number, api="a", now=now)
    assert [start.requests for start in starts(core.poll(now))] == [(first, first + 1, first + 2)]
    return core


def holding(core: Dispatcher, now: float) -> Holding | None:
    [api] = core.stats(now=now)
    return api.holding


def test_a_lost_batch_runs_again_whole_and_unmixed() -> None:
    """At once, although others of its kind are queued and fit."""
    core = running_three(on_hosts("xx", dataclasses.replace(RULES, max_batch_rows=100)))
    core.worker_lost(0, now=0.5)
    core.submit(4, api="a", now=0.5)

    assert [(start.worker, start.requests) for start in starts(core.poll(0.5))] == [(1, (1, 2, 3))]
    core.batch_done(2, status="worked", now=0.6)
    assert [start.requests for start in starts(poll_all(core, 0.6))] == [(4,)]


def test_it_is_whole_even_if_the_limits_have_become_lower() -> None:
    core = running_three(on_hosts("xy"))
    core.set_api(dataclasses.replace(RULES, max_batch_rows=1))
    core.worker_lost(0, now=0.5)

    assert [start.requests for start in starts(core.poll(0.5))] == [(1, 2, 3)]


# Requests of a lost batch that end otherwise


def test_it_is_not_shed_for_being_late() -> None:
    """Its answer comes late; but a client may give up, and then the others run."""
    core = core_with(ApiRules(name="a", goal_s=1.0), ApiRules(name="b"))
    now = teach(core, 0.1)
    for number, patience in ((1, 0.9), (2, 9.0), (3, math.inf)):
        core.submit(number, api="a", now=now, expires_at=now + patience)
    core.poll(now)
    core.worker_ready(1, now=now)
    busy = start_one(core, 4, api="b", now=now)
    core.worker_lost(0, now=now + 0.1)
    assert core.poll(now + 0.1) == []
    [shed] = core.poll(core.next_wakeup())
    assert isinstance(shed, Shed)
    assert (shed.request, shed.reason) == (1, "client_deadline")

    core.batch_done(busy.number, status="worked", now=now + 5.0)
    assert [start.requests for start in starts(poll_all(core, now + 5.0))] == [(2, 3)]


def test_without_workers_it_waits_past_its_goal_but_not_for_ever() -> None:
    """No longer than a batch may run; then each of its requests is shed."""
    core = running_three(on_hosts("x", ApiRules(name="a", goal_s=2.0, timeout_s=9.0)))
    core.worker_lost(0, now=0.5)
    assert core.poll(0.5) == []
    assert core.next_wakeup() == 9.5

    sheds = core.poll(9.5)
    assert [(shed.request, shed.reason) for shed in sheds if isinstance(shed, Shed)] == [
        (1, "no_worker"),
        (2, "no_worker"),
        (3, "no_worker"),
    ]
    assert core.is_empty


def test_it_waits_for_a_busy_worker_of_another_host() -> None:
    """Others take the idle worker of its own meanwhile. Not even a loss there is its second."""
    core = running_three(running_three(on_hosts("xyx")), first=4)
    core.worker_lost(0, now=0.5)
    core.submit(7, api="a", now=0.5)
    [other] = starts(core.poll(0.5))
    assert (other.worker, other.requests) == (2, (7,))
    core.worker_lost(2, now=0.53125)
    core.worker_ready(3, now=0.53125, host="x")
    assert core.poll(0.53125) == []
    assert holding(core, 0.53125) == Holding(2.0, "host")

    core.batch_done(2, status="worked", now=0.6)
    assert [(start.worker, start.requests) for start in starts(poll_all(core, 0.6))] == [(1, (1, 2, 3))]
    core.batch_done(4, status="worked", now=0.7)
    assert [(start.worker, start.requests) for start in starts(poll_all(core, 0.7))] == [(1, (7,))]
