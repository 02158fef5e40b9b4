"""An API with a short goal beside one whose batches take long, on the same workers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dispatcher.driver import Arrival, Driver, core_with, poll_all, starts
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules

FAST_S, SLOW_S = 0.005, 2.0
FAST = ApiRules(name="fast", goal_s=0.05)
SLOW = ApiRules(name="slow", goal_s=30.0, max_batch_rows=1)


def taught(*rules: ApiRules, workers: int, takes_ahead: bool = False) -> Dispatcher:
    """Return a core that knows batch times: 5 ms and 2 s."""
    core = core_with(*rules, workers=0)
    for worker in range(workers):
        core.worker_ready(worker, now=0.0, takes_ahead=takes_ahead)
        core.profile("fast", worker, [(rows, FAST_S) for rows in (1, 4, 16)] * 10, now=0.0)
        core.profile("slow", worker, [(1, SLOW_S)] * 10, now=0.0)
    return core


def in_goals(workers: int, load: float, *, seconds: float = 120.0, seed: int = 1) -> tuple[float, float]:
    """Return the shares in the goals of both APIs: 50 fast requests/s, and ``load`` of the workers' time.

    Arrivals are random, and batch times vary by 5 %.
    """
    chance = random.Random(seed)

    def times(rate: float) -> Iterator[float]:
        now = chance.expovariate(rate)
        while now < seconds:
            yield now
            now += chance.expovariate(rate)

    fast = [Arrival(now, "fast") for now in times(50.0)]
    slow = [Arrival(now, "slow") for now in times(load * workers / SLOW_S)]
    usual = {"fast": FAST_S, "slow": SLOW_S}
    end = Driver(
        taught(FAST, SLOW, workers=workers),
        fast + slow,
        lambda start: usual[start.api] * chance.gauss(1, 0.05),
    ).run()
    latencies = [end.latency.get(number, 1e9) for number in range(len(fast) + len(slow))]
    in_goal = [latency <= FAST.goal_s for latency in latencies[: len(fast)]]
    in_time = [latency <= SLOW.goal_s for latency in latencies[len(fast) :]]
    return sum(in_goal) / len(fast), sum(in_time) / len(slow)


@pytest.mark.parametrize(("workers", "load", "least"), [(2, 0.5, 0.93), (4, 0.5, 0.97)])
def test_long_batches_leave_a_worker_while_their_goal_permits(
    workers: int, load: float, least: float
) -> None:
    """Without this rule, 0.73 and 0.85 of the fast requests meet their goal; with more load, fewer."""
    fast, slow = in_goals(workers, load)
    assert fast > least
    assert slow == 1.0


def busy_core(*, rate: int = 50, **rules: float) -> tuple[Dispatcher, Batch[Any]]:
    """Return a core with recent fast requests, and a slow batch that runs on one of two workers since 1 s."""
    fast = ApiRules(name="fast", goal_s=rules.get("goal_s", FAST.goal_s))
    core = taught(fast, SLOW, workers=2)
    for number in range(rate):
        core.submit(("fast", number), api="fast", now=number / 50)
        for start in starts(poll_all(core, number / 50)):
            core.batch_done(start.number, status="worked", now=number / 50 + FAST_S)
    core.submit("long", api="slow", now=1.0)
    [long] = starts(poll_all(core, 1.0))
    return core, long


@pytest.mark.parametrize(
    ("rules", "rate", "now"),
    [
        pytest.param({}, 50, 2.97, id="the other worker is free in time"),
        pytest.param({}, 0, 1.1, id="no request of the other API is expected"),
        pytest.param({"goal_s": 2.5}, 50, 1.1, id="the goal of the other API allows for the batch"),
        pytest.param({"goal_s": 0.004}, 50, 1.1, id="the goal of the other API is out of reach"),
    ],
)
def test_the_last_worker_is_not_held_without_need(rules: dict[str, float], rate: int, now: float) -> None:
    core, _ = busy_core(rate=rate, **rules)
    core.submit("next", api="slow", now=now)
    assert [start.requests for start in starts(poll_all(core, now))] == [("next",)]


@pytest.mark.parametrize(("rate", "sent"), [(50, 0), (0, 1)])
def test_no_long_batch_goes_ahead_where_others_have_shorter_goals(rate: int, sent: int) -> None:
    core = taught(FAST, SLOW, workers=1, takes_ahead=True)
    now = 0.0
    for number in range(6):
        core.submit(number, api="slow", now=now)
        [start] = starts(poll_all(core, now))
        now += SLOW_S + 0.1
        core.batch_done(start.number, status="worked", chunks=[(1, SLOW_S)], now=now)
    core.submit("long", api="slow", now=now)
    poll_all(core, now)
    for number in range(rate):
        core.submit(("fast", number), api="fast", now=now)
    core.submit("next", api="slow", now=now)
    late = now + SLOW_S - 0.01
    for number in range(rate):
        core.cancel(("fast", number), now=late)
    assert len([start for start in starts(poll_all(core, late)) if start.is_ahead]) == sent
