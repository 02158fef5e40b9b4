"""The asyncio shell when callers leave while their batch runs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from tests.dispatcher.shell import Log, Workers, calls, dispatcher, outcomes, shell_of
from uncork_dispatcher.asyncio_dispatcher import AsyncDispatcher
from uncork_dispatcher.callers import FutureWaiter
from uncork_dispatcher.errors import RequestExpired
from uncork_dispatcher.jobs import BatchResult, OnBatchEnd, RequestResult, Submission, payloads_of
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules

pytestmark = pytest.mark.virtual_time


class Noting:
    """A runner that notes the cancelled requests; batches end when the test ends them."""

    def __init__(self) -> None:
        self.running: dict[int, tuple[Batch[Any], OnBatchEnd[str]]] = {}
        self.left: list[tuple[int, list[str]]] = []
        self.shell: AsyncDispatcher[str, str] = shell_of(self)
        self.shell.set_api(ApiRules(name="a", policy="fixed:0", max_batch_rows=8))
        self.shell.worker_ready(0)

    def start(self, batch: Batch[Any], ended: OnBatchEnd[str]) -> None:
        self.running[batch.number] = batch, ended

    def abandon(self, batch: int, worker: int) -> None:
        raise AssertionError

    def cancel(self, batch: Batch[Any], requests: Collection[Any]) -> None:
        self.left.append((batch.number, [request.payload for request in requests]))

    def end(self, number: int) -> None:
        batch, ended = self.running.pop(number)
        ended(BatchResult(payloads_of(batch)))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_runner_knows_whose_callers_have_left() -> None:
    """Those of one turn at once; requests that are queued or answered are none of its business."""
    on = Noting()
    callers = calls(on.shell, "x", "y", "z")
    await turns()
    queued = calls(on.shell, "q")
    await turns()
    for leaving in ([callers[0], queued[0]], callers[1:]):
        for caller in leaving:
            caller.cancel()
        await turns()
    assert on.left == [(1, ["x"]), (1, ["y", "z"])]
    on.end(1)
    assert await outcomes(callers) == ["CancelledError"] * 3
    again = calls(on.shell, "x")
    await turns()
    on.end(2)
    assert await outcomes(again) == ["x"]
    assert len(on.left) == 2


async def test_a_batch_that_has_ended_is_not_cancelled() -> None:
    on = Noting()
    futures: list[asyncio.Future[RequestResult[str]]] = [asyncio.Future(), asyncio.Future()]
    leaving, staying = [Submission(FutureWaiter(future), "a", "x") for future in futures]
    on.shell.submit(leaving)
    on.shell.submit(staying)
    await turns()
    on.shell.cancel(leaving)
    on.end(1)
    await turns()
    assert on.left == []
    assert [future.done() for future in futures] == [False, True]


async def test_a_running_request_ends_when_its_time_has_passed() -> None:
    """As if its caller had left: its neighbors get their results, and a second run leaves it out."""
    on = Noting()
    patient = calls(on.shell, "x")
    hasty = [asyncio.ensure_future(on.shell.call("a", each, client_timeout_s=0.2)) for each in "yz"]
    await asyncio.sleep(0.1)
    hasty[1].cancel()
    assert await outcomes(hasty) == ["RequestExpired", "CancelledError"]
    assert asyncio.get_running_loop().time() == pytest.approx(0.2)
    await turns()
    assert on.left == [(1, ["z"]), (1, ["y"])]
    on.shell.worker_lost(0)
    on.shell.worker_ready(1)
    await turns()
    assert payloads_of(on.running[2][0]) == ["x"]
    on.end(2)
    assert await outcomes(patient) == ["x"]
    assert (on.shell.unanswered, len(on.left)) == (0, 2)


@pytest.mark.parametrize("at", [0, 1])
async def test_a_request_with_other_clients_gets_more_time(at: int) -> None:
    """One of two whose times pass in one poll; the last one then leaves by itself."""
    on = Noting()
    times, calls_ = iter([0.3, 0.3, 0.5]), []

    def more(now: float) -> float:
        calls_.append(now)
        if (at_s := next(times, None)) is not None:
            return at_s
        on.shell.cancel(requests[at])
        return 0.0

    futures: list[asyncio.Future[RequestResult[str]]] = [asyncio.Future(), asyncio.Future()]
    requests = [
        Submission(FutureWaiter(one), "a", "xy"[at_], client_timeout_s=0.2) for at_, one in enumerate(futures)
    ]
    requests[at].on_expiry = more
    for request in requests:
        on.shell.submit(request)
    await asyncio.sleep(1.0)
    assert calls_ == pytest.approx([0.2, 0.3, 0.3, 0.5])
    assert on.left == [(1, ["yx"[at]]), (1, ["xy"[at]])]
    assert [future.done() for future in futures] == [at == 1, at == 0]
    assert isinstance(futures[1 - at].exception(), RequestExpired)
    assert on.shell.unanswered == 0


async def test_a_callback_about_passed_time_may_raise_or_cancel_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The request that it is about then runs on."""
    on = Noting()

    def fails(now: float) -> float:
        on.shell.cancel(requests[1])
        raise OSError

    futures: list[asyncio.Future[RequestResult[str]]] = [asyncio.Future(), asyncio.Future()]
    requests = [Submission(FutureWaiter(one), "a", "x", client_timeout_s=0.2) for one in futures]
    requests[0].on_expiry = fails
    for request in requests:
        on.shell.submit(request)
    await asyncio.sleep(1.0)
    on.end(1)
    await turns()
    assert [future.done() for future in futures] == [True, False]
    assert futures[0].result().result == "x"
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [OSError]


async def test_a_task_for_which_nobody_waits_is_cancelled_and_its_slot_is_free() -> None:
    workers, log = Workers(seconds=9.0), Log()
    shell = dispatcher(workers, observer=log)
    callers = calls(shell, "x", "y")
    await asyncio.sleep(1.0)
    callers[0].cancel()
    await asyncio.sleep(1.0)
    assert workers.cancelled == []
    callers[1].cancel()
    await asyncio.sleep(0.5)
    assert workers.cancelled == [1]
    workers.seconds = 1.0
    assert (await shell.call("a", "z")).result == "Z"
    assert asyncio.get_running_loop().time() == pytest.approx(3.5)
    assert [line[2] for line in log.lines if line[0] == "ended"] == ["cancelled", "worked"]


@pytest.mark.parametrize("outcome", ["a result", "an error"])
async def test_a_task_may_end_otherwise_when_it_is_cancelled(outcome: str) -> None:
    """Nothing is learned from it."""

    async def stubborn(job: Batch[Any]) -> BatchResult[str]:
        try:
            await asyncio.sleep(9.0)
        except asyncio.CancelledError:
            if outcome == "an error":
                raise ValueError from None
        return BatchResult(payloads_of(job))

    shell = dispatcher(stubborn)
    [caller] = calls(shell, "x")
    await asyncio.sleep(1.0)
    caller.cancel()
    await asyncio.sleep(1.0)
    assert shell.sample("a").estimate.seconds(1) == 0.0
    assert shell.work().running == []
