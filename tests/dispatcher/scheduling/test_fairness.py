"""One noisy flow does not starve the others: overload in virtual time, and a queue that is full."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import NamedTuple

import pytest

from tests.dispatcher.driver import Arrival, Driver, core_with, start_one, starts
from uncork_dispatcher.actions import Shed
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.rules import ApiRules

INTERCEPT_S, SLOPE_S, LIMIT_ROWS = 0.01, 0.002, 32
BATCH_S = INTERCEPT_S + SLOPE_S * LIMIT_ROWS
CAPACITY = LIMIT_ROWS / BATCH_S
QUIET = ("q0", "q1", "q2", "q3")
LASTS_S, WARM_S = 3.0, 1.0


class Outcome(NamedTuple):
    """Shares of the quiet flows' requests, answered and within the goal; all answers within it."""

    answered: float
    within_goal: float
    goodput: int


def overload(*, fair: bool, workers: int, goal_s: float, max_queue_rows: int = 20_000) -> Outcome:
    """One flow at 10 times the capacity, four at a tenth of it each."""
    random_ = random.Random(7)
    arrivals = []
    for flow in ("noisy", *QUIET):
        now, rate = 0.0, workers * CAPACITY * (10 if flow == "noisy" else 0.1)
        while (now := now + random_.expovariate(rate)) < LASTS_S:
            arrivals.append(Arrival(now, flow=flow))
    arrivals.sort(key=lambda one: one.at)
    rules = ApiRules(
        name="a", goal_s=goal_s, max_batch_rows=LIMIT_ROWS, fair=fair, max_queue_rows=max_queue_rows
    )
    ran = Driver(
        core_with(rules, workers=workers), arrivals, lambda start: INTERCEPT_S + SLOPE_S * start.rows
    ).run()
    measured = {number for number, one in enumerate(arrivals) if one.at > WARM_S}
    quiet = {number for number in measured if arrivals[number].flow in QUIET}
    inside = {number for number, latency_s in ran.latency.items() if latency_s <= goal_s} & measured
    return Outcome(
        len(quiet & ran.latency.keys()) / len(quiet), len(quiet & inside) / len(quiet), len(inside)
    )


@pytest.mark.long_run
@pytest.mark.parametrize(
    ("workers", "goal_s", "limits"),
    [
        (1, 10 * BATCH_S, {}),
        (2, 5 * BATCH_S, {}),
        (1, 1.35 * BATCH_S, {}),
        (1, 1000.0, {"max_queue_rows": 150}),
    ],
)
def test_quiet_flows_are_served_beside_a_noisy_one(
    workers: int, goal_s: float, limits: dict[str, int]
) -> None:
    """All of them, within the goal, for as many answers in all; without fairness a tenth of them are."""
    fair = overload(fair=True, workers=workers, goal_s=goal_s, **limits)
    plain = overload(fair=False, workers=workers, goal_s=goal_s, **limits)

    assert fair.answered >= 0.98
    assert fair.within_goal >= 0.98
    assert fair.goodput >= 0.97 * plain.goodput
    assert plain.answered < 0.3


def full(*, fair: bool = True) -> Dispatcher:
    """A core whose only worker is busy, and whose queue is filled by requests 1 to 4 of one flow."""
    core = core_with(ApiRules(name="a", max_queue_rows=4, fair=fair))
    start_one(core, 0, now=0.0)
    for number in (1, 2, 3, 4):
        assert core.submit(number, api="a", now=0.1, flow="noisy") is None
    return core


def test_a_quiet_flow_takes_the_place_of_the_newest_of_a_noisy_one() -> None:
    """Up to its equal share; the next poll sheds the displaced request."""
    core = full()
    assert core.submit(5, api="a", now=0.2, flow="quiet") is None
    assert core.poll(0.2) == [Shed(4, "a", "queue_full", 1.0)]
    assert core.submit(6, api="a", now=0.2, flow="quiet") is None
    assert core.poll(0.2) == [Shed(3, "a", "queue_full", 1.0)]

    assert core.submit(7, api="a", now=0.2, flow="quiet") == Shed(7, "a", "queue_full", 1.0)
    assert core.submit(8, api="a", now=0.2, flow="noisy") == Shed(8, "a", "queue_full", 1.0)
    core.batch_done(1, status="worked", now=0.3)
    assert [start.requests for start in starts(core.poll(0.3))] == [(1, 5, 2, 6)]


def test_parts_of_an_accepted_request_make_no_room() -> None:
    """All that it has computed would be lost with them."""
    core = core_with(ApiRules(name="a", max_queue_rows=4, fair=True))
    start_one(core, 0, now=0.0)
    for number in (1, 2, 3, 4):
        assert core.submit(number, api="a", now=0.1, flow="noisy", follows=number > 1) is None
    assert core.submit(5, api="a", now=0.2, flow="quiet") is None
    assert core.poll(0.2) == [Shed(1, "a", "queue_full", 1.0)]
    assert core.submit(6, api="a", now=0.2, flow="quiet") == Shed(6, "a", "queue_full", 1.0)


def test_a_displaced_request_may_be_cancelled_before_it_is_shed() -> None:
    """It is still shed, and not counted twice."""
    core = full()
    core.submit(5, api="a", now=0.2, flow="quiet")
    core.cancel(4, now=0.2)
    assert not core.is_empty
    assert core.poll(0.2) == [Shed(4, "a", "queue_full", 1.0)]
    assert core.stats(now=0.2)[0].queued_requests == 4


def test_a_queue_becomes_fair_while_it_is_full() -> None:
    """What is queued stays, in its order within a flow; the flows share the next batch."""
    rules = ApiRules(name="a", max_batch_rows=2)
    core = core_with(rules)
    start_one(core, 0, now=0.0)
    for number, flow in enumerate(("noisy", "noisy", "noisy", "quiet"), 1):
        core.submit(number, api="a", now=0.1 + number / 100, flow=flow)

    core.set_api(replace(rules, fair=True))
    core.batch_done(1, status="worked", now=0.3)
    assert [start.requests for start in starts(core.poll(0.3))] == [(1, 4)]

    core.set_api(rules)
    core.submit(5, api="a", now=0.4, flow="quiet")
    core.batch_done(2, status="worked", now=0.5)
    assert [start.requests for start in starts(core.poll(0.5))] == [(2, 3)]
    core.batch_done(3, status="worked", now=0.6)
    core.drain(now=0.6)
    assert [start.requests for start in starts(core.poll(0.6))] == [(5,)]
