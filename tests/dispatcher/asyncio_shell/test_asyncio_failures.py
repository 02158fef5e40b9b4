"""The asyncio shell when runners fail, workers die, time runs out or requests are refused."""

from __future__ import annotations

import asyncio
import gc
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.dispatcher.batches import batch_of
from tests.dispatcher.shell import Log, Workers, calls, dispatcher, outcomes, shell_of, shout
from tests.dispatcher.wrapped_core import replace_core
from uncork_dispatcher.asyncio_dispatcher import AsyncDispatcher
from uncork_dispatcher.errors import RequestShed, WorkerLost, WrongResultCount
from uncork_dispatcher.jobs import BatchResult, OnBatchEnd, RequestResult, Submission, payloads_of
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.tasks import TaskRunner
from uncork_dispatcher.wording import plural

pytestmark = pytest.mark.virtual_time


def failing(error: Exception, *, times: int = 1) -> Callable[[Batch[Any]], BatchResult[str]]:
    """Raises the error for the first batches, then answers."""
    left = iter([error] * times)

    def then(job: Batch[Any]) -> BatchResult[str]:
        if (failure := next(left, None)) is not None:
            raise failure
        return shout(job)

    return then


@pytest.mark.parametrize("after", [0.02, 0.05])
async def test_an_error_of_the_runner_goes_to_every_caller(after: float) -> None:
    """The same one, except to a caller that left midway or as the batch failed; nothing is learned."""
    log, error = Log(), KeyError("no such column")
    shell = dispatcher(Workers(then=failing(error)), observer=log)
    callers = calls(shell, "x", "y", "z")
    await asyncio.sleep(after)
    callers[0].cancel()
    [left, *ends] = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(left, asyncio.CancelledError)
    assert ends == [error, error]
    assert shell.stats()[0].estimate.seconds(1) == 0.0

    assert (await shell.call("a", "z")).result == "Z"
    assert log.lines[:2] == [("started", 1, [0.0, 0.0, 0.0]), ("ended", 1, "failed", 0.0, 0.05)]


@pytest.mark.parametrize("method", ["batch_done", "poll"])
async def test_a_fault_of_the_core_costs_no_results(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """The runner gets the exception."""
    is_faulty = False

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*args: Any, **more: Any) -> Any:
            result = call(*args, **more)
            if is_faulty:
                raise ZeroDivisionError
            return result

        return faulty

    ends: list[Callable[[], None]] = []

    class Kept(TaskRunner[str, str]):
        def start(self, batch: Batch[Any], ended: OnBatchEnd[str]) -> None:
            ends.append(lambda: ended(shout(batch)))

    replace_core(monkeypatch, "uncork_dispatcher.asyncio_dispatcher", method, wrap)
    shell = shell_of(Kept(Workers()))
    shell.set_api(ApiRules(name="a"))
    shell.worker_ready(0)
    running = asyncio.create_task(shell.call("a", "x"))
    await asyncio.sleep(0.01)
    queued = asyncio.create_task(shell.call("a", "y"))
    await asyncio.sleep(0.01)
    is_faulty = True
    with pytest.raises(ZeroDivisionError):
        ends[0]()
    is_faulty = False
    assert (await running).result == "X"
    queued.cancel()


class Lying(Sequence[str]):
    """Results that are fewer when they are read than when they are counted."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, at: Any) -> Any:
        return ["X"][at]


class LyingList(list[str]):
    """The same as a list."""

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize("results", [[], ["X"], ["X", "Y", "Z"], Lying(), LyingList(["X"])])
async def test_a_wrong_number_of_results_is_nobodys_answer(results: Sequence[str]) -> None:
    """Nobody knows whose is missing; the message says how many came."""
    log = Log()
    shell = dispatcher(Workers(then=lambda job: BatchResult(results)), observer=log)
    ends = await asyncio.gather(*calls(shell, "x", "y"), return_exceptions=True)

    assert [type(end) for end in ends] == [WrongResultCount] * 2
    assert f"returned {plural(len([*results]), 'result')} for 2 items" in str(ends[0])
    assert log.lines[-1][:3] == ("ended", 1, "failed")


@pytest.mark.parametrize("results", ["XY", {"x": "X", "y": "Y"}, {"X", "Y"}, iter(["X", "Y"]), None, 5])
async def test_what_is_no_list_of_results_is_nobodys_answer(results: Any) -> None:
    shell = dispatcher(Workers(then=lambda job: BatchResult(results)))
    ends = await asyncio.gather(*calls(shell, "x", "y"), return_exceptions=True)

    assert [type(end) for end in ends] == [TypeError] * 2
    assert "must return a list or an array with one result per item" in str(ends[0])


async def test_an_exit_ends_the_batch_first() -> None:
    """Its callers get an error, and then the loop gets the exit."""
    ended: list[BatchResult[str] | Exception] = []

    async def leave(job: Batch[Any]) -> BatchResult[str]:
        raise SystemExit(3)

    run = TaskRunner(leave)._run(batch_of(), ended.append)
    with pytest.raises(SystemExit):
        await run
    assert [str(error) for error in ended] == ["the batch function raised SystemExit(3)"]


async def test_a_waiter_may_change_the_list_of_results() -> None:
    """The others get what the runner gave them."""
    results = ["X", "Y"]
    shell = dispatcher(Workers(then=lambda job: BatchResult(results)))

    class Greedy(Unlucky):
        def answered(self, answer: RequestResult[str]) -> None:
            results.clear()

    shell.submit(Submission(Greedy(), "a", "x"))
    assert (await shell.call("a", "y")).result == "Y"


def test_a_batch_that_has_ended_is_abandoned_without_effect() -> None:
    TaskRunner(Workers()).abandon(7, worker=1)


@pytest.mark.parametrize(
    "measured",
    [
        *[
            {"chunks": [(1, 0.1), chunk]}
            for chunk in [(0, 0.1), (math.nan, 0.1), (math.inf, 0.1), (1, -0.1), (1, math.inf), (1, math.nan)]
        ],
        *[{"prepare_s": prepare_s} for prepare_s in (-0.1, math.inf, math.nan)],
    ],
)
async def test_times_that_make_no_sense_leave_nobody_waiting(measured: dict[str, Any]) -> None:
    """A runner's bookkeeping is not worth a caller who hangs for ever."""
    shell = dispatcher(Workers(then=lambda job: BatchResult(["X"], **measured)))

    assert await outcomes(calls(shell, "x")) == ["ValueError"]


# Waiters, observers and runners that raise


class Unlucky:
    """A waiter that raises whatever becomes of its request."""

    def answered(self, answer: RequestResult[str]) -> None:
        raise RuntimeError("answered")

    def failed(self, error: Exception) -> None:
        raise RuntimeError("failed")


class Payload:
    """A payload that a weak reference can point to."""


async def _raises(job: Batch[Any]) -> BatchResult[Any]:
    raise ValueError("bad")


async def _cancels(job: Batch[Any]) -> BatchResult[Any]:
    raise asyncio.CancelledError


async def _runs_too_long(job: Batch[Any]) -> BatchResult[Any]:
    await asyncio.sleep(100)
    return BatchResult(payloads_of(job))


async def _gives_too_few(job: Batch[Any]) -> BatchResult[Any]:
    return BatchResult([])


@pytest.mark.parametrize("execute", [_raises, _cancels, _runs_too_long, _gives_too_few])
async def test_a_failed_batch_leaves_nothing_to_the_garbage_collector(
    execute: Callable[[Batch[Any]], Any],
) -> None:
    """The collector runs rarely in a server: memory would grow with failures."""
    shell: AsyncDispatcher[Any, Any] = dispatcher(execute, ApiRules(name="a", timeout_s=5))
    gc.disable()
    try:
        payload = Payload()
        kept = weakref.ref(payload)
        caller = asyncio.ensure_future(shell.call("a", payload))
        del payload
        await asyncio.wait([caller])
        assert caller.exception() is not None
        del caller
        await asyncio.sleep(1)

        assert kept() is None
    finally:
        gc.enable()


async def test_a_request_that_loses_three_workers_is_lost() -> None:
    """The caller gets the exception; its neighbour in the first two batches gets a result."""
    workers = Workers(then=failing(WorkerLost(), times=3))
    shell = dispatcher(workers, workers=4)

    assert await outcomes(calls(shell, "x", "y")) == ["WorkerLost", "Y"]
    assert await outcomes(calls(shell, "z")) == ["Z"]
    assert workers.workers == [0, 1, 2, 3, 3]


async def test_a_refusal_says_why_and_when_to_try_again() -> None:
    """At once, or when the time of the client is over."""
    log = Log()
    shell = dispatcher(Workers(), observer=log, workers=0)
    with pytest.raises(RequestShed, match=r"request shed: no_worker; retry after 1\.0 s") as caught:
        await shell.call("a", "x")
    assert (caught.value.reason, caught.value.retry_after_s) == ("no_worker", 1.0)

    shell.worker_ready(0)
    first = calls(shell, "x")
    await asyncio.sleep(0.01)
    with pytest.raises(RequestShed, match="client_deadline"):
        await shell.call("a", "y", client_timeout_s=0.02)
    assert asyncio.get_running_loop().time() == pytest.approx(0.03)
    assert await outcomes(first) == ["X"]
    assert [line[2] for line in log.lines if line[0] == "shed"] == ["no_worker", "client_deadline"]


class Together:
    """The waiter of several requests, which leaves when the first of them fails."""

    def __init__(self, shell: AsyncDispatcher[str, str], *payloads: str) -> None:
        self.errors: list[Exception] = []
        self._shell = shell
        self._requests = [Submission(self, "a", payload, bulk=True) for payload in payloads]
        for request in self._requests:
            shell.submit(request)

    def answered(self, answer: RequestResult[str]) -> None:
        raise AssertionError("no request may be answered")

    def failed(self, error: Exception) -> None:
        self.errors.append(error)
        for request in self._requests:
            self._shell.cancel(request)


async def test_requests_of_one_caller_that_are_displaced_together_are_one_refusal() -> None:
    log = Log()
    rules = ApiRules(name="a", bulk_goal_s=math.inf, max_queue_rows=2)
    shell = dispatcher(Workers(), rules, observer=log)
    running = calls(shell, "x")
    await asyncio.sleep(0.01)
    assert shell.bulk_parts("a", rows=2, size_bytes=0) == 1
    together = Together(shell, "y", "z")
    first = asyncio.create_task(shell.call("a", "w", rows=2))
    assert await outcomes([*running, first]) == ["X", "W"]
    assert [str(error) for error in together.errors] == ["request shed: displaced; retry after 1.0 s"]
    assert [line[2] for line in log.lines if line[0] == "shed"] == ["displaced"]


async def test_parts_that_wait_fill_the_queue() -> None:
    shell = dispatcher(Workers(), ApiRules(name="a", max_queue_rows=2))
    assert shell.parts_in_turn("a", rows=1) == (1, 1)
    running = calls(shell, "x")
    await asyncio.sleep(0.01)
    running += calls(shell, "y")
    await asyncio.sleep(0)
    shell.reserve("a", rows=2, size_bytes=0)
    with pytest.raises(RequestShed):
        await shell.call("a", "z")
    shell.reserve("a", rows=-2, size_bytes=0)
    assert await outcomes([*running, *calls(shell, "z")]) == ["X", "Y", "Z"]
