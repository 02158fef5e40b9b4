"""Requests of many rows that run in parts, one after another: no part is late because of the others."""

from __future__ import annotations

import asyncio
import contextlib
import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatcher.shell import shell_of
from uncork_dispatcher import ApiRules, AsyncDispatcher, BatchResult, RequestResult, RequestShed, TaskRunner
from uncork_dispatcher.jobs import payloads_of
from uncork_dispatcher.requests.batch import Batch
from uncork_gateway.codecs import Marshalled
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.requests.parts import Submitted, submission_of, submit

pytestmark = pytest.mark.virtual_time

RULES = ApiRules(name="echo", goal_s=0.3, max_batch_rows=100, max_queue_rows=1000)
ROW_S = 0.01


@dataclass
class Caller:
    """A waiter that keeps its results and failures."""

    bodies: list[bytes] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def answered(self, answer: RequestResult[HandlerResult]) -> None:
        self.bodies.append(answer.result.body)

    def failed(self, error: Exception) -> None:
        self.errors.append(error)


class Slow:
    """A dispatcher whose model needs 5 ms for a batch and 10 ms for each row, and knows that."""

    def __init__(self, *, workers: int = 1, rules: ApiRules = RULES) -> None:
        self.rows: list[int] = []
        """The rows of each batch."""
        self.dispatcher: AsyncDispatcher[Marshalled, HandlerResult] = shell_of(
            TaskRunner(self._run), clock=asyncio.get_running_loop().time
        )
        self.dispatcher.set_api(rules)
        for worker in range(workers):
            self.dispatcher.worker_ready(worker)
            self.dispatcher.profile("echo", worker, [(rows, self._seconds(rows)) for rows in (1, 8, 64)])

    @staticmethod
    def _seconds(rows: float) -> float:
        return 0.005 + ROW_S * rows

    async def _run(self, job: Batch[Any]) -> BatchResult[HandlerResult]:
        payloads = payloads_of(job)
        self.rows.append(sum(payload.rows for payload in payloads))
        await asyncio.sleep(self._seconds(self.rows[-1]))
        return BatchResult([HandlerResult(200, payload.body) for payload in payloads])

    def send(
        self, rows: int, *, timeout_s: float = math.inf, bulk: bool = False, divisible: bool = True
    ) -> tuple[Caller, Submitted]:
        payload = Marshalled(body=numbers(rows), rows=rows, single=False, divisible=divisible)
        caller = Caller()
        return caller, submit(self.dispatcher, submission_of(caller, "echo", payload, timeout_s, bulk=bulk))

    @property
    def sample(self) -> Any:
        return self.dispatcher.sample("echo")


def numbers(count: int) -> bytes:
    return b",".join([b"%d" % number for number in range(count)])


async def test_a_request_that_takes_longer_than_the_goal_is_answered() -> None:
    on = Slow()
    caller, _ = on.send(200)
    await on.dispatcher.drain()
    assert (caller.bodies, caller.errors) == ([numbers(200)], [])
    assert max(on.rows) * ROW_S < RULES.goal_s / 2


@given(st.lists(st.integers(1, 300), min_size=1, max_size=4), st.integers(1, 3))
async def test_all_that_is_accepted_is_answered_in_order_and_nothing_stays_reserved(
    sizes: list[int], workers: int
) -> None:
    on = Slow(workers=workers)
    accepted = []
    for size in sizes:
        with contextlib.suppress(RequestShed):
            accepted.append((size, on.send(size)[0]))
    await on.dispatcher.drain()
    assert accepted
    assert [caller.bodies for _, caller in accepted] == [[numbers(size)] for size, _ in accepted]
    assert on.dispatcher.remove_api("echo")


async def test_others_are_served_between_the_parts() -> None:
    on = Slow()
    large, _ = on.send(400)
    await asyncio.sleep(1.0)
    small, _ = on.send(1)
    await asyncio.sleep(RULES.goal_s)
    assert (small.bodies, large.bodies) == ([b"0"], [])
    await on.dispatcher.drain()
    assert large.bodies == [numbers(400)]


async def test_parts_that_wait_count_against_the_limits_of_the_queue() -> None:
    on = Slow(rules=replace(RULES, goal_s=1000.0, max_queue_rows=300))
    running, _ = on.send(1)
    await asyncio.sleep(0)
    on.send(200)
    with pytest.raises(RequestShed) as caught:
        on.send(200)
    assert caught.value.reason == "queue_full"
    await on.dispatcher.drain()
    assert running.bodies == [b"0"]
    assert on.dispatcher.remove_api("echo")


async def test_parts_of_bulk_that_wait_refuse_no_request_of_the_first_class() -> None:
    """They cannot make room as queued bulk does, so they must not take it. Other bulk is refused."""
    on = Slow(rules=replace(RULES, max_queue_rows=100, bulk_goal_s=math.inf))
    bulk, _ = on.send(400, bulk=True)
    await asyncio.sleep(0.01)
    first = [on.send(1)[0] for _ in range(10)]
    with pytest.raises(RequestShed) as caught:
        on.send(1, bulk=True)
    assert caught.value.reason == "queue_full"
    assert not on.dispatcher.remove_api("echo")
    await on.dispatcher.drain()
    assert [caller.bodies for caller in first] == [[b"0"]] * 10
    assert bulk.bodies == [numbers(400)]
    assert on.dispatcher.remove_api("echo")


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_request_alone_may_exceed_the_limits_of_the_queue(workers: int) -> None:
    """As any request while nothing is queued; its second part does not find the first in the way."""
    on = Slow(workers=workers, rules=replace(RULES, max_queue_rows=100))
    caller, _ = on.send(200)
    await on.dispatcher.drain()
    assert (caller.bodies, caller.errors) == ([numbers(200)], [])


async def test_a_second_request_may_not_exceed_them_while_parts_of_the_first_wait() -> None:
    """Although nothing is queued: the only part that was submitted runs. A small request may."""
    on = Slow(rules=replace(RULES, max_queue_rows=100))
    first, _ = on.send(400)
    await asyncio.sleep(0.01)
    with pytest.raises(RequestShed) as caught:
        on.send(400)
    assert caught.value.reason == "queue_full"
    small, _ = on.send(1)
    await on.dispatcher.drain()
    assert (first.bodies, small.bodies) == ([numbers(400)], [b"0"])
    assert on.dispatcher.remove_api("echo")


async def test_the_clients_time_is_one_for_all_parts() -> None:
    on = Slow()
    caller, _ = on.send(400, timeout_s=1.0)
    await asyncio.sleep(1.1)
    assert len(caller.errors) == 1
    await on.dispatcher.drain()
    assert sum(on.rows) < 200
    assert on.dispatcher.remove_api("echo")


async def test_bulk_that_may_take_longer_than_its_client_waits_is_tried_whole() -> None:
    """Its last part would be refused by the prediction, and with it the request, although all is idle."""
    on = Slow(rules=replace(RULES, bulk_goal_s=math.inf))
    for _ in range(5):
        on.send(1)
        await asyncio.sleep(0.1)
    await asyncio.sleep(60)  # so that no request of the first class is expected
    on.send(150, timeout_s=1.0, bulk=True, divisible=False)
    await on.dispatcher.drain()
    assert on.rows[-1] == 150
