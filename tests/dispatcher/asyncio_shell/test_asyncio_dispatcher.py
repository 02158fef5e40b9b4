"""The asyncio shell: calls, cancellation, drains, batches ahead; timers and failures have their own files."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.dispatcher.shell import Log, Workers, calls, dispatcher, fixed, outcomes
from uncork_dispatcher.asyncio_dispatcher import AsyncDispatcher
from uncork_dispatcher.errors import RequestExpired, RequestShed
from uncork_dispatcher.jobs import BatchResult, RequestResult, Submission, longest_queued_s, payloads_of
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.tasks import TaskRunner

pytestmark = pytest.mark.virtual_time


async def test_a_job_says_how_much_time_is_left() -> None:
    """Until the goal, or until the client gives up; negative for one that was queued for too long."""
    workers = Workers(seconds=1.0)
    shell = dispatcher(workers, ApiRules(name="a", goal_s=0.8))
    callers = calls(shell, "v")
    await asyncio.sleep(0.1)
    callers += calls(shell, "w")
    await asyncio.sleep(0.4)
    callers += calls(shell, "x")
    with pytest.raises(RequestExpired):
        await shell.call("a", "y", client_timeout_s=0.6)
    await asyncio.gather(*callers)

    first, second = workers.jobs
    assert first.left_s == [0.8]
    assert longest_queued_s(second) == pytest.approx(0.9)
    assert dict(zip(workers.payloads[1], second.left_s, strict=True)) == {
        "w": pytest.approx(-0.1),
        "x": pytest.approx(0.3),
        "y": pytest.approx(0.1),
    }


async def test_a_profile_is_known_before_the_first_call() -> None:
    shell = dispatcher(Workers())
    shell.profile("a", 0, [(1, 0.1), (11, 0.2)])

    assert shell.stats()[0].estimate.seconds(21) == pytest.approx(0.3)


async def test_size_and_key_reach_the_core() -> None:
    """Two of 60 bytes are one too many for a batch of 100; another key is another batch."""
    workers = Workers()
    shell = dispatcher(workers, ApiRules(name="a", max_batch_bytes=100), workers=4)
    await asyncio.gather(
        *(shell.call("a", payload, size_bytes=60) for payload in "xy"),
        *(shell.call("a", payload, key="other") for payload in "zw"),
    )

    assert workers.payloads == [["x"], ["y"], ["z", "w"]]


@pytest.mark.parametrize("gone", ["x", "y", "z"])
@pytest.mark.parametrize("after", [0.02, 0.05])
async def test_a_caller_that_leaves_while_its_batch_runs_disturbs_nobody(gone: str, after: float) -> None:
    """First, middle or last, midway or as the batch ends: its mates get their results."""
    workers = Workers()
    shell = dispatcher(workers)
    callers = calls(shell, "x", "y", "z")
    await asyncio.sleep(after)
    callers["xyz".index(gone)].cancel()

    expected = ["CancelledError" if payload == gone else payload.upper() for payload in "xyz"]
    assert await outcomes(callers) == expected
    assert workers.cancelled == []
    assert (await shell.call("a", "next")).result == "NEXT"


async def test_an_api_is_removed_when_its_requests_are_over() -> None:
    """Not before; callers get their answers."""
    shell = dispatcher(Workers())
    [caller] = calls(shell, "x")
    await asyncio.sleep(0.01)
    assert not shell.remove_api("a")
    await caller

    assert shell.remove_api("a")
    assert shell.stats() == []


async def test_a_queue_is_empty_when_all_its_requests_have_started() -> None:
    """A waiter may give up; running requests need not have ended."""
    shell = dispatcher(Workers(), fixed(100))
    [caller] = calls(shell, "x")
    await asyncio.sleep(0.02)
    leaves, waits = (asyncio.ensure_future(shell.queue_empty(["a"])) for _ in range(2))
    await asyncio.sleep(0.02)
    leaves.cancel()
    await waits

    assert asyncio.get_running_loop().time() == pytest.approx(0.1)
    assert not caller.done()
    assert await outcomes([caller]) == ["X"]


async def test_a_queue_is_not_empty_while_parts_of_a_request_wait() -> None:
    shell = dispatcher(Workers())
    shell.reserve("a", rows=1, size_bytes=0)
    waits = asyncio.ensure_future(shell.queue_empty(["a"]))
    assert await outcomes(calls(shell, "x")) == ["X"]
    assert not waits.done()
    shell.reserve("a", rows=-1, size_bytes=0)
    [caller] = calls(shell, "y")
    await waits

    assert await outcomes([caller]) == ["Y"]


async def test_the_observer_is_told_in_order() -> None:
    """Starts with the time that each request was queued, ends, and shed requests."""
    log = Log()
    shell = dispatcher(Workers(), observer=log)
    callers = calls(shell, "x")
    await asyncio.sleep(0.02)
    callers += calls(shell, "y", "z")
    await outcomes(callers)
    await shell.drain()
    with pytest.raises(RequestShed):
        await shell.call("a", "late")

    assert log.lines == [
        ("started", 1, [0.0]),
        ("ended", 1, "worked", 0.0, 0.05),
        ("started", 2, [0.03, 0.03]),
        ("ended", 2, "worked", 0.05, 0.05),
        ("shed", "a", "draining"),
    ]


async def test_a_goal_out_of_reach_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A handler of 50 ms behind a goal of 30: the log says so, and everybody is answered."""
    shell = dispatcher(Workers(), ApiRules(name="a", goal_s=0.03))
    for _ in range(10):
        assert (await shell.call("a", "x")).result == "X"

    [record] = caplog.records
    assert (record.name, record.levelname) == ("uncork.dispatcher", "WARNING")
    assert "a: even the smallest request takes 50.0 ms, longer than the goal (30 ms)" in record.message


async def test_draining_waits_for_what_runs_and_what_is_held() -> None:
    """The policy no longer holds; every request is answered when drain returns."""
    workers = Workers()
    shell = dispatcher(workers, fixed(9000, max_batch_rows=2))
    callers = calls(shell, "x", "y", "z")
    await asyncio.sleep(0.02)
    drains = asyncio.gather(shell.drain(), shell.drain())
    await asyncio.sleep(0.02)
    assert not drains.done()
    await drains

    assert all(caller.done() for caller in callers)
    assert await outcomes(callers) == ["X", "Y", "Z"]
    assert asyncio.get_running_loop().time() == pytest.approx(0.1)


async def test_giving_up_answers_everybody_and_ends_the_drain() -> None:
    """Queued requests are not started any more; batches that run are cancelled."""
    workers = Workers(seconds=1.0)
    shell = dispatcher(workers, fixed(0, max_batch_rows=1), workers=2)
    callers = calls(shell, "x", "y", "z")
    await asyncio.sleep(0.5)
    drain = asyncio.ensure_future(shell.drain())
    await asyncio.sleep(0.1)
    shell.give_up()
    assert await outcomes(callers) == ["RequestShed"] * 3
    assert asyncio.get_running_loop().time() == pytest.approx(0.6)
    assert (shell.unanswered, shell.stats()[0].queued_requests) == (0, 0)

    await asyncio.wait_for(drain, 5.0)
    assert asyncio.get_running_loop().time() == pytest.approx(0.6)
    assert (workers.payloads, workers.cancelled) == ([["x"], ["y"]], [1, 2])


class Callers:
    """Submit payloads when the shell asks for them, and record what it does."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.log: list[str] = []
        self.writes_s = 0.0
        """How long the responses of a batch take."""
        self.written_s = 0.0
        self.workers = Workers()
        loop = asyncio.get_running_loop()
        self.shell: AsyncDispatcher[str, str] = AsyncDispatcher(
            TaskRunner(self.workers), bursts=self, clock=lambda: loop.time() + self.written_s
        )
        self.shell.set_api(fixed(0))
        self.shell.worker_ready(0)

    def submit(self, payload: str) -> None:
        self.shell.submit(Submission(self, "a", payload))

    def answered(self, answer: RequestResult[str]) -> None:
        """Record the result and the number of its batch."""
        self.log.append(f"{answer.result}{answer.batch.number}")

    def failed(self, error: Exception) -> None:
        raise error

    def submit_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        for payload in waiting:
            self.submit(payload)

    def __enter__(self) -> None:
        self.log.append("(")

    def __exit__(self, *error: object) -> None:
        self.log.append(")")
        self.written_s += self.writes_s


async def test_deadlines_leave_time_to_write_responses() -> None:
    """Twice: a request may also arrive while others' responses are written."""
    callers = Callers()
    callers.writes_s = 0.05
    for _ in range(60):
        callers.submit("x")
        await asyncio.sleep(0.1)

    assert callers.workers.jobs[0].left_s == [0.3]
    assert callers.workers.jobs[-1].left_s == [pytest.approx(0.2, abs=0.01)]


async def test_waiting_requests_join_the_batch_that_is_about_to_start() -> None:
    callers = Callers()
    await asyncio.sleep(0)
    callers.submit("x")
    callers.waiting = ["y", "z"]
    await asyncio.sleep(1)
    assert callers.log == ["(", "X1", "Y1", "Z1", ")"]


async def test_waiting_requests_join_the_batch_that_follows_one_that_ends() -> None:
    callers = Callers()
    await asyncio.sleep(0)
    callers.submit("x")
    await asyncio.sleep(0.01)
    callers.submit("y")
    await asyncio.sleep(0.01)
    callers.waiting = ["z"]
    await asyncio.sleep(1)
    assert callers.log == ["(", "X1", ")", "(", "Y2", "Z2", ")"]


SECONDS = 0.05
WAY_S = 0.01
"""To the worker, and back."""


class Remote(Workers):
    """A worker that runs its batches one after another, some way off."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = asyncio.Lock()
        self.hangs_in = -1
        """The number of the batch that never ends."""

    async def __call__(self, job: Batch[Any]) -> BatchResult[str]:
        self.payloads.append(payloads_of(job))
        await asyncio.sleep(WAY_S)
        async with self.busy:
            await asyncio.sleep(SECONDS if job.number != self.hangs_in else 1e6)
        await asyncio.sleep(WAY_S)
        return BatchResult(
            [payload.upper() for payload in payloads_of(job)], chunks=[(len(job.requests), SECONDS)]
        )


async def busy_with(remote: Remote, observer: Log) -> AsyncDispatcher[str, str]:
    """A shell that knows the worker; one batch holds two requests."""
    shell = dispatcher(
        remote, ApiRules(name="a", max_batch_rows=2, goal_s=10.0, timeout_s=5.0), workers=0, observer=observer
    )
    shell.worker_ready(0, takes_ahead=True)
    for _ in range(60):
        await outcomes(calls(shell, "x"))
    observer.lines.clear()
    remote.payloads.clear()
    return shell


@pytest.mark.parametrize("lost", [True, False])
async def test_a_batch_ahead_is_lost_with_its_worker(lost: bool) -> None:
    """It runs again on the next worker; the batch that ran does so only if it did not run out of time."""
    remote, log = Remote(), Log()
    shell = await busy_with(remote, log)
    remote.hangs_in = 61
    callers = calls(shell, "a", "b", "c", "d")
    await asyncio.sleep(1.0)
    if lost:
        shell.worker_lost(0)
    await asyncio.sleep(5.0)
    first = "lost" if lost else "timed_out"
    assert [line[2] for line in log.lines if line[0] == "ended"] == [first, "lost"]
    remote.busy = asyncio.Lock()  # of another process
    shell.worker_ready(1)

    assert await outcomes(callers) == [*(["A", "B"] if lost else ["BatchTimedOut"] * 2), "C", "D"]
    assert remote.payloads[2:] == [["a", "b"], ["c", "d"]][not lost :]
