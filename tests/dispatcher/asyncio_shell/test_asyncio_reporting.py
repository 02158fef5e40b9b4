"""The asyncio shell: workers that are expected, samples, closing, costs, and who calls."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable
from typing import Any

import pytest

from tests.dispatcher.batches import costs_of, rows_of
from tests.dispatcher.driver import starts
from tests.dispatcher.shell import Log, Workers, calls, dispatcher, fixed
from tests.dispatcher.wrapped_core import note_sources
from uncork.batched_functions.decorator import batched
from uncork_dispatcher.asyncio_dispatcher import AsyncDispatcher
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.errors import RequestShed
from uncork_dispatcher.policies.base import REGISTERED, Hold, View
from uncork_dispatcher.policies.fixed import FixedPolicy
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.tasks import TaskRunner

pytestmark = pytest.mark.virtual_time


async def test_what_is_known_of_launches_reaches_the_core() -> None:
    """Refusals say when the next worker is due; a launch that is called off teaches nothing."""
    shell = dispatcher(Workers(), workers=0)
    shell.worker_expected("off")
    shell.worker_not_expected("off")
    shell.worker_ready(0, place="off")
    assert shell.startup_s is None
    shell.worker_lost(0)

    shell.worker_expected("launch", delay_s=50.0)
    with pytest.raises(RequestShed) as refused:
        await shell.call("a", "x", client_timeout_s=1.0)
    assert refused.value.retry_after_s >= 50.0
    await asyncio.sleep(62.0)
    shell.worker_ready(1, place="launch")
    assert shell.startup_s == pytest.approx(12.0)


async def test_closing_a_runner_cancels_its_batches() -> None:
    workers = Workers()
    runner = TaskRunner(workers)
    shell = AsyncDispatcher(runner, clock=asyncio.get_running_loop().time)
    shell.set_api(ApiRules(name="a"))
    shell.worker_ready(0)
    [caller] = calls(shell, "x")
    await asyncio.sleep(0.01)
    await runner.close()
    caller.cancel()

    assert workers.cancelled == [1]


async def test_a_call_outside_of_any_task_has_no_client() -> None:
    """A callback can step a coroutine by hand: then there is no task to recognise the client by."""

    @batched()
    async def shout(texts: list[str]) -> list[str]:
        return [text.upper() for text in texts]

    async def call() -> None:
        results.append(await shout("x"))

    results: list[str] = []
    coroutine: Coroutine[Any, Any, None] = call()
    future: list[asyncio.Future[Any]] = []
    asyncio.get_running_loop().call_soon(lambda: future.append(coroutine.send(None)))
    await asyncio.sleep(0)
    await asyncio.wait(future)
    with pytest.raises(StopIteration):
        coroutine.send(None)

    assert results == ["X"]


def test_a_hold_until_now_is_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a faulty policy would make the driver poll for ever."""

    class Faulty(FixedPolicy):
        def decide(self, view: View) -> Hold:
            return Hold(view.now, "window")

    monkeypatch.setitem(REGISTERED, "fixed", Faulty)
    core = Dispatcher()
    core.set_api(fixed(250))
    core.worker_ready(0, now=0.0)
    core.submit(1, api="a", now=0.0)

    [start] = starts(core.poll(0.0))
    assert start.reason == "not_worth_waiting"


async def test_limits_of_memory_and_what_was_learned_reach_the_core() -> None:
    workers = Workers()
    shell = dispatcher(workers, ApiRules(name="a", goal_s=9.0, policy="fixed:0"))
    shell.limit_batches(0, "a", 2.0)
    assert shell.learned("a") == []
    await asyncio.gather(*[shell.call("a", "x") for _ in range(30)])

    assert max(map(len, workers.payloads)) <= 2
    learned = shell.learned("a")
    assert learned
    again = dispatcher(Workers(), ApiRules(name="a", goal_s=9.0, policy="fixed:0"))
    again.recall("a", learned)
    for _ in range(3):
        await again.call("a", "x")
    assert again.learned("a")


class RowsLog(Log):
    """Notes the rows of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def batch_started(self, batch: Batch[Any]) -> None:
        self.rows.append(batch.count)


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[Hashable]:
    """Yield the sources that the core gets, in order."""
    return note_sources(monkeypatch, "uncork_dispatcher.asyncio_dispatcher")


async def test_the_core_counts_cost_and_everybody_else_rows() -> None:
    workers, log = Workers(), RowsLog()
    shell = dispatcher(workers, observer=log)
    answers = await asyncio.gather(
        shell.call("a", "x", rows=2, cost=70.5),
        shell.call("a", "y", cost=8),
        shell.call("a", "z", rows=3),
    )

    [job] = workers.jobs
    assert (rows_of(job), costs_of(job), job.rows) == ([2, 1, 3], [70.5, 8, 3], 81.5)
    assert {answer.batch.count for answer in answers} == {6}
    assert log.rows == [6]


async def test_the_core_is_told_who_asks(sources: list[Hashable]) -> None:
    shell = dispatcher(Workers())
    await asyncio.gather(shell.call("a", "x", source=("host", 1)), shell.call("a", "y"))

    assert sources == [("host", 1), None]


@batched()
async def same(items: list[int]) -> list[int]:
    return items


async def test_a_task_that_calls_again_is_the_same_source(sources: list[Hashable]) -> None:
    """It is a client that waits for its answer before it asks again; others are other clients."""

    async def client() -> None:
        for item in range(3):
            await same(item)

    await asyncio.gather(client(), client())

    assert sorted(sources, key=str) == [1, 1, 1, 2, 2, 2]


async def test_a_new_task_is_a_new_source(sources: list[Hashable]) -> None:
    """Also where it lies in memory where one that has ended lay."""
    for item in range(50):
        await asyncio.ensure_future(same(item))

    assert len(set(sources)) == 50
