"""The asyncio shell when runners fail, workers die, time runs out or requests are refused."""

from __future__ import annotations

import asyncio
import gc
import math
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from tests.dispatcher.batches import batch_of
from tests.dispatcher.shell import Log, Workers, calls, dispatcher, outcomes, shell_of, shout
from tests.dispatcher.wrapped_core import replace_core
from uncork_dispatcher.actions import BatchStatus, Shed
from uncork_dispatcher.asyncio_dispatcher import AsyncDispatcher
from uncork_dispatcher.errors import BatchTimedOut, RequestShed, WorkerLost, WrongResultCount
from uncork_dispatcher.jobs import BatchResult, OnBatchEnd, RequestResult, Submission, payloads_of
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.stats import WorkStats
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


async def test_a_batch_cancelled_from_within_is_a_failed_one() -> None:
    """Something that the runner awaited was cancelled: its callers get an error, and the next batch runs."""

    def then(job: Batch[Any]) -> BatchResult[str]:
        if "x" in payloads_of(job):
            raise asyncio.CancelledError
        return shout(job)

    shell = dispatcher(Workers(then=then))

    assert await outcomes(calls(shell, "x", "y")) == ["DispatchError", "DispatchError"]
    assert (await shell.call("a", "z")).result == "Z"


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
    """A text is one, because each character could be a result."""
    shell = dispatcher(Workers(then=lambda job: BatchResult(results)))
    ends = await asyncio.gather(*calls(shell, "x", "y"), return_exceptions=True)

    if isinstance(results, str):
        assert [end.result for end in ends if isinstance(end, RequestResult)] == ["X", "Y"]
    else:
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


async def test_a_runner_may_use_one_list_for_all_batches() -> None:
    """It clears the list when the next batch starts, which is before the callers of the last have theirs."""
    results: list[str] = []

    class Reusing:
        def start(self, batch: Batch[Any], ended: OnBatchEnd[str]) -> None:
            results.clear()
            asyncio.get_running_loop().call_soon(self.end, batch, ended)

        def end(self, batch: Batch[Any], ended: OnBatchEnd[str]) -> None:
            results[:] = payloads_of(batch)
            ended(BatchResult(results))

        def abandon(self, batch: int, worker: int) -> None:
            raise AssertionError

        def cancel(self, batch: Batch[Any], requests: Collection[Any]) -> None:
            raise AssertionError

    shell: AsyncDispatcher[str, str] = shell_of(Reusing())
    shell.set_api(ApiRules(name="a", policy="none"))
    shell.worker_ready(1)
    assert await outcomes(calls(shell, "x", "y", "z")) == ["x", "y", "z"]


def test_a_batch_that_has_ended_is_abandoned_without_effect() -> None:
    TaskRunner(Workers()).abandon(7, worker=1)


async def test_a_batch_may_fail_and_still_have_answers() -> None:
    """The runner's own answers for a batch that is to teach nothing: an error reply each, say."""
    log = Log()
    shell = dispatcher(Workers(then=lambda job: BatchResult(["sorry"], "failed")), observer=log)

    assert await outcomes(calls(shell, "x")) == ["sorry"]
    assert shell.stats()[0].estimate.seconds(1) == 0.0
    assert log.lines[-1] == ("ended", 1, "failed", 0.0, 0.05)


@pytest.mark.parametrize(
    "chunk", [(0, 0.1), (math.nan, 0.1), (math.inf, 0.1), (1, -0.1), (1, math.inf), (1, math.nan)]
)
async def test_chunks_that_make_no_sense_leave_nobody_waiting(chunk: tuple[float, float]) -> None:
    """A runner's bookkeeping is not worth a caller who hangs for ever."""
    shell = dispatcher(Workers(then=lambda job: BatchResult(["X"], chunks=[(1, 0.1), chunk])))
    callers = calls(shell, "x")
    await asyncio.wait(callers, timeout=5.0)

    assert callers[0].done()
    assert await outcomes(callers) in (["X"], ["ValueError"])


@pytest.mark.parametrize("prepare_s", [-0.1, math.inf, math.nan])
async def test_a_first_stage_of_no_length_leaves_nobody_waiting(prepare_s: float) -> None:
    result = BatchResult(["X"], chunks=[(1, 0.1)], prepare_s=prepare_s)

    assert await outcomes(calls(dispatcher(Workers(then=lambda job: result)), "x")) == ["ValueError"]


# Waiters, observers and runners that raise


class Unlucky:
    """A waiter that raises whatever becomes of its request."""

    def answered(self, answer: RequestResult[str]) -> None:
        raise RuntimeError("answered")

    def failed(self, error: Exception) -> None:
        raise RuntimeError("failed")


@pytest.mark.parametrize("outcome", [BatchResult(["X", "Y"]), KeyError("no such column")])
@pytest.mark.parametrize("queued", [False, True])
async def test_a_waiter_that_raises_costs_nobody_else_anything(
    outcome: BatchResult[str] | Exception, queued: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its neighbour gets the answer or the error, the worker its next batch; the log says what was raised."""

    def then(job: Batch[Any]) -> BatchResult[str]:
        if "x" not in payloads_of(job):
            return shout(job)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    shell = dispatcher(Workers(then=then))
    await asyncio.sleep(0)
    neighbours = calls(shell, "y")
    shell.submit(Submission(Unlucky(), "a", "x"))
    await asyncio.sleep(0.02)
    later = calls(shell, "z") if queued else []
    await asyncio.wait([*neighbours, *later], timeout=1.0)

    assert await outcomes(neighbours) == ["KeyError" if isinstance(outcome, Exception) else "Y"]
    assert (await asyncio.wait_for(shell.call("a", "w"), 1.0)).result == "W"
    await asyncio.wait_for(shell.drain(), 1.0)
    assert await outcomes(later) == ["Z"] * len(later)
    assert [record.getMessage() for record in caplog.records] == ["a waiter raised"]


async def test_an_observer_that_raises_costs_nobody_anything(caplog: pytest.LogCaptureFixture) -> None:
    """Not even the next observer its events."""

    class Broken(Log):
        def batch_started(self, batch: Batch[Any]) -> None:
            raise RuntimeError("started")

        def batch_ended(self, batch: Batch[Any], status: BatchStatus) -> None:
            raise RuntimeError("ended")

        def request_shed(self, shed: Shed) -> None:
            raise RuntimeError("shed")

    class Listening(Log):
        def batch_started(self, batch: Batch[Any]) -> None:
            events.append("started")

        def batch_ended(self, batch: Batch[Any], status: BatchStatus) -> None:
            events.append(status)

        def request_shed(self, shed: Shed) -> None:
            events.append(shed.reason)

    events: list[str] = []
    shell = shell_of(TaskRunner(Workers()), observers=[Broken(), Listening()])
    shell.set_api(ApiRules(name="a"))
    shell.worker_ready(0)
    assert (await asyncio.wait_for(shell.call("a", "x"), 1.0)).result == "X"
    await asyncio.wait_for(shell.drain(), 1.0)
    with pytest.raises(RequestShed):
        await shell.call("a", "x")
    assert events == ["started", "worked", "draining"]
    assert {record.getMessage() for record in caplog.records} == {"an observer raised"}


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


# Workers that die


async def test_a_batch_whose_worker_dies_runs_elsewhere() -> None:
    """As it was, and on another host; the dead worker gets nothing more until it is ready again."""
    workers = Workers(then=failing(WorkerLost()))
    shell = dispatcher(workers, workers=0)
    for worker, host in enumerate("xxy"):
        shell.worker_ready(worker, host=host)

    assert await outcomes(calls(shell, "x", "y")) == ["X", "Y"]
    assert workers.payloads == [["x", "y"], ["x", "y"]]
    assert workers.workers == [0, 2]
    shell.worker_lost(1)
    await shell.call("a", "z")
    assert workers.workers[2:] == [2]

    shell.worker_ready(0, host="y")
    await asyncio.gather(shell.call("a", "v", key=1), shell.call("a", "w", key=2))
    assert workers.workers[3:] == [2, 0]


async def test_a_request_that_loses_three_workers_is_lost() -> None:
    """The caller gets the exception; its neighbour in the first two batches gets a result."""
    workers = Workers(then=failing(WorkerLost(), times=3))
    shell = dispatcher(workers, workers=4)

    assert await outcomes(calls(shell, "x", "y")) == ["WorkerLost", "Y"]
    assert await outcomes(calls(shell, "z")) == ["Z"]
    assert workers.workers == [0, 1, 2, 3, 3]


async def test_a_retired_worker_finishes_its_batch() -> None:
    """The next request waits for a new worker."""
    workers = Workers()
    shell = dispatcher(workers)
    [first] = calls(shell, "x")
    await asyncio.sleep(0.01)
    shell.worker_retired(0)
    assert (await first).result == "X"
    assert shell.work() == WorkStats(0, 0, [])

    shell.worker_ready(1)
    assert await outcomes(calls(shell, "y")) == ["Y"]
    assert workers.workers == [0, 1]


async def test_the_answer_of_a_worker_that_was_given_up_is_dropped() -> None:
    """The supervisor said that it is gone; what it still says is not believed."""
    log = Log()
    workers = Workers(then=lambda job: BatchResult([f"from {job.worker}"]))
    shell = dispatcher(workers, workers=2, observer=log)
    [caller] = calls(shell, "x")
    await asyncio.sleep(0.03)
    shell.worker_lost(0)

    assert (await caller).result == "from 1"
    assert (await caller).queued_s == pytest.approx(0.03)
    assert [line[:3:2] if line[0] == "ended" else line[:2] for line in log.lines] == [
        *(("started", 1), ("ended", "lost")),
        *(("started", 2), ("ended", "worked")),
    ]


# Time


async def test_a_batch_past_its_timeout_is_cancelled() -> None:
    """Its callers get an error; its worker gets no batch until it is ready again."""
    workers = Workers(seconds=9.0)
    shell = dispatcher(workers, ApiRules(name="a", timeout_s=2.0))
    callers = calls(shell, "x", "y")
    ends = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(end) for end in ends] == [BatchTimedOut] * 2
    assert asyncio.get_running_loop().time() == pytest.approx(2.0)
    await asyncio.sleep(0)
    assert workers.cancelled == [1]

    with pytest.raises(RequestShed, match="no_worker"):
        await shell.call("a", "z")
    workers.seconds = 1.0
    shell.worker_ready(0)
    assert (await shell.call("a", "z")).result == "Z"


async def test_a_runner_may_ignore_that_it_is_cancelled() -> None:
    """What it returns in the end goes nowhere, and its slot does not come back by it."""

    async def stubborn(job: Batch[Any]) -> BatchResult[str]:
        try:
            await asyncio.sleep(9.0)
        except asyncio.CancelledError:
            await asyncio.sleep(1.0)
        return shout(job)

    log = Log()
    shell = dispatcher(stubborn, ApiRules(name="a", timeout_s=2.0), observer=log)
    assert await outcomes(calls(shell, "x")) == ["BatchTimedOut"]
    await asyncio.sleep(2.0)

    assert await outcomes(calls(shell, "y")) == ["RequestShed"]
    assert log.lines == [
        ("started", 1, [0.0]),
        ("ended", 1, "timed_out", 0.0, 2.0),
        ("shed", "a", "no_worker"),
    ]


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
