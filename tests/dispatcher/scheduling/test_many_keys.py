"""Clients choose batch keys: the work of an input or a poll must not grow with the number of keys queued."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any

import pytest

from tests.dispatcher.driver import core_with, poll_all, starts, teach
from uncork_dispatcher import CORE_IS_COMPILED
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.policies.base import Hold, Policy, Release, View
from uncork_dispatcher.requests.queue import RequestQueue
from uncork_dispatcher.requests.queue_order import QueueHeap
from uncork_dispatcher.rules import ApiRules


def calls(work: Callable[[], object]) -> int:
    """Count the calls of functions, Python's own included, that ``work`` makes."""
    number = 0

    def count_call(_frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        work()
    finally:
        sys.setprofile(None)
    return number


def crowded(keys: int, policy: str, *, idle: bool, expires_at: float = math.inf) -> Dispatcher:
    """Return a core with two requests of each of ``keys`` keys queued, and one worker, idle or not."""
    rules = ApiRules(
        name="a",
        policy=policy,
        goal_s=1e6,
        timeout_s=1e9,
        max_queue_rows=10**9,
        max_queue_requests=10**9,
    )
    core = core_with(rules)
    now = teach(core, 0.01) if policy == "cork" else 0.0
    if not idle:
        core.submit(-1, api="a", now=now)
        assert len(starts(poll_all(core, now))) == 1
    for number in range(2 * keys):
        core.submit(number, api="a", key=number // 2, now=now, expires_at=expires_at)
    assert bool(starts(poll_all(core, now))) is (idle and policy != "fixed:999999999")
    return core


def life(core: Dispatcher, *, batch: int) -> None:
    """A request of a new key and one of an old key come, one leaves, a batch ends, and all is read."""
    now = 10.0
    core.submit(10**6, api="a", key="new", now=now, expires_at=now + 1e5)
    core.submit(10**6 + 1, api="a", key=3, now=now)
    poll_all(core, now)
    core.cancel(7, now=now)
    core.batch_done(batch, status="worked", now=now)
    poll_all(core, now)
    core.next_wakeup()
    core.stats(now=now)


@pytest.mark.skipif(CORE_IS_COMPILED, reason="calls in compiled code are not seen")
@pytest.mark.parametrize("expires_at", [math.inf, 1e5])
@pytest.mark.parametrize(
    ("policy", "idle"), [("none", False), ("cork", False), ("cork", True), ("fixed:999999999", True)]
)
def test_work_does_not_grow_with_the_number_of_keys(policy: str, idle: bool, expires_at: float) -> None:
    """Whether a worker is idle, so that policies hold, or not; a heap may be a little deeper."""
    few, many = [
        calls(lambda core=core: life(core, batch=6 if policy == "cork" else 1))  # type: ignore[misc]
        for core in [crowded(keys, policy, idle=idle, expires_at=expires_at) for keys in (50, 1000)]
    ]
    assert many < 1.2 * few


def flooded(flows: int, bulk_goal_s: float | None) -> Dispatcher:
    """Return a core that runs a batch, with two requests of so many flows queued, one bulk if it may be."""
    rules = ApiRules(
        name="a", goal_s=1.0, bulk_goal_s=bulk_goal_s, max_batch_rows=4, fair=True, max_queue_rows=2 * flows
    )
    core = core_with(rules)
    now = teach(core, 0.0001)
    assert now < 0.01
    core.submit(-1, api="a", now=now)
    assert len(starts(poll_all(core, now))) == 1
    for number in range(2 * flows):
        shed = core.submit(number, api="a", flow=number // 2, bulk=number % 2 == 0, now=now)
        assert shed is None
    return core


@pytest.mark.skipif(CORE_IS_COMPILED, reason="calls in compiled code are not seen")
@pytest.mark.parametrize("bulk_goal_s", [None, math.inf])
def test_work_does_not_grow_with_the_number_of_flows(bulk_goal_s: float | None) -> None:
    """Requests of new and old flows come to a full queue, and batches end."""

    def work(core: Dispatcher) -> None:
        assert core.submit("new", api="a", flow="new", now=0.01) is None
        core.submit("old", api="a", flow=3, now=0.01)
        for number in (6, 7, 8):
            poll_all(core, 0.01)
            assert core.batch_done(number, status="worked", now=0.01)

    cores = [flooded(flows, bulk_goal_s) for flows in (50, 1000)]
    for core in cores:  # the first time, flows are sorted by what they have queued
        assert core.submit("first", api="a", flow="first", now=0.01) is None
        for number in range(100):  # and changes leave nothing in the way of the next
            core.submit(("urgent", number), api="a", flow=1, now=0.01, expires_at=0.5)
            core.cancel(("urgent", number), now=0.01)
    few, many = [calls(lambda core=core: work(core)) for core in cores]  # type: ignore[misc]
    assert many < 1.2 * few


@pytest.mark.skipif(CORE_IS_COMPILED, reason="calls in compiled code are not seen")
def test_a_batch_does_not_look_at_all_keys_of_apis_with_slots_of_their_own() -> None:
    """When it plans for clients that wait for their responses."""

    def work(keys: int) -> int:
        core = core_with(ApiRules(name="a"), ApiRules(name="b", concurrency=2))
        for number in range(2 + keys):
            core.submit(("b", number), api="b", key=number, now=0.0)
        poll_all(core, 0.0)
        for number in range(4):
            core.submit(number, api="a", source=number, now=0.0)
        [start] = starts(poll_all(core, 0.0))
        return calls(lambda: core.batch_done(start.number, status="worked", now=0.1))

    assert work(1000) < 1.2 * work(50)


def test_keys_go_in_the_order_of_their_oldest_request() -> None:
    """Of equal ages, the key that began first; a key that was served goes by its next request."""
    core = core_with(ApiRules(name="a", policy="none", goal_s=100.0))
    numbers = count()
    for at, keys in enumerate(["cab", "abc", "dda"]):
        for key in keys:
            core.submit(next(numbers), api="a", key=key, now=float(at) / 1000)
    served = []
    for _ in range(9):
        [start] = starts(poll_all(core, 1.0))
        served.append((start.key, *start.requests))
        core.batch_done(start.number, status="worked", now=1.0)

    assert "".join(str(key) for key, _ in served) == "cabcabadd"
    assert core.is_empty


@pytest.mark.parametrize("event", ["time", "drain", "rules"])
def test_all_held_keys_are_released_in_the_end(event: str) -> None:
    """When their time has come, when the gateway drains, and when the rules change."""
    rules = ApiRules(name="a", policy="fixed:1000", goal_s=100.0)
    core = core_with(rules, workers=50)
    for number in range(50):
        core.submit(number, api="a", key=number, now=number / 1000)
    assert poll_all(core, 0.5) == []
    assert core.next_wakeup() == 1.0
    if event == "drain":
        core.drain(now=0.5)
    elif event == "rules":
        core.set_api(ApiRules(name="a", policy="none"))

    at = 0.5 if event != "time" else 2.0
    assert [start.key for start in starts(poll_all(core, at))] == list(range(50))


class _Asked(Policy):
    """Hold everything; note the keys, which are the numbers of rows."""

    def __init__(self) -> None:
        super().__init__(limit_rows=10**9)
        self.keys: list[int] = []

    def decide(self, view: View) -> Release | Hold:
        self.keys.append(int(view.rows))
        return Hold(view.now + 60.0, "window")


def test_after_an_event_the_policy_decides_again_about_what_changed_and_the_oldest() -> None:
    core = core_with(ApiRules(name="a", goal_s=100.0, max_batch_rows=10**6, max_queue_rows=10**9))
    core._apis["a"].policy = policy = _Asked()
    for number in range(100):
        core.submit(number, api="a", key=number, rows=1000 + number, now=number / 1000)
    poll_all(core, 1.0)
    assert policy.keys == list(range(1000, 1100))
    policy.keys.clear()
    core.cancel(50, now=2.0)
    core.submit(100, api="a", key=70, now=2.0)
    poll_all(core, 2.0)

    assert policy.keys == [*range(1000, 1016), 1071]


def test_a_heap_of_queues_forgets_the_times_that_queues_had() -> None:
    """Whatever the number of changes; the order stays right."""
    heap: QueueHeap[RequestQueue] = QueueHeap()
    queues = [RequestQueue("a", key) for key in range(10)]
    for number, queue in enumerate(queues):
        queue.number = number
    for turn in range(1000):
        heap.file(queues[turn % 10], float(turn % 10 - turn))

    assert len(heap._heap) < 100
    assert [queue.key for queue in heap.first(3)] == [0, 1, 2]
    for queue in queues[:9]:
        heap.discard(queue)
    assert heap.top() == (-990.0, queues[9])
    heap.discard(queues[9])
    assert heap.top() is None
