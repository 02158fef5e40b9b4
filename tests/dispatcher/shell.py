"""Fakes around the asyncio shell: workers on virtual time, and an observer that takes notes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from uncork_dispatcher.actions import BatchStatus, Shed
from uncork_dispatcher.asyncio_dispatcher import AsyncDispatcher
from uncork_dispatcher.errors import WorkerLost
from uncork_dispatcher.jobs import BatchResult, OnBatchEnd, RequestResult, Runner, payloads_of
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.tasks import TaskRunner

Call = asyncio.Task[RequestResult[str]]


def shout(job: Batch[Any]) -> BatchResult[str]:
    """The model of these tests: every payload in capitals."""
    return BatchResult([payload.upper() for payload in payloads_of(job)])


@dataclass
class Workers:
    """A runner: takes ``seconds`` for a batch, then answers with ``then(job)``, which may raise."""

    seconds: float = 0.05
    then: Callable[[Batch[Any]], BatchResult[str]] = shout
    jobs: list[Batch[Any]] = field(default_factory=list)
    payloads: list[list[str]] = field(default_factory=list)
    """What went together."""
    cancelled: list[int] = field(default_factory=list)

    async def __call__(self, job: Batch[Any]) -> BatchResult[str]:
        self.jobs.append(job)
        self.payloads.append(payloads_of(job))
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled.append(job.number)
            raise
        return self.then(job)

    @property
    def workers(self) -> list[int]:
        return [job.worker for job in self.jobs]


P = TypeVar("P")
R = TypeVar("R")


class Losing(Generic[P, R]):
    """A runner that reports the loss of a worker where its batch ends with WorkerLost, or raises that."""

    def __init__(self, runner: Runner[P, R]) -> None:
        self._runner = runner
        self.lost: Callable[[int], None]
        """Reports a loss to the shell."""

    def start(self, job: Batch[Any], ended: OnBatchEnd[R]) -> None:
        """Run a batch."""
        worker = job.worker

        def end(outcome: BatchResult[R] | Exception) -> None:
            if isinstance(outcome, WorkerLost):
                self.lost(worker)
            else:
                ended(outcome)

        try:
            self._runner.start(job, end)
        except WorkerLost:
            self.lost(worker)

    def abandon(self, batch: int, worker: int) -> None:
        self._runner.abandon(batch, worker)

    def cancel(self, batch: Batch[Any], requests: Collection[Any]) -> None:
        self._runner.cancel(batch, requests)


def shell_of(runner: Runner[P, R], **options: Any) -> AsyncDispatcher[P, R]:
    """Return a shell whose runner may end batches with WorkerLost, on the clock of the running loop."""
    losing = Losing(runner)
    made = AsyncDispatcher(losing, **{"clock": asyncio.get_running_loop().time, **options})
    losing.lost = made.worker_lost
    return made


@dataclass
class Log:
    """An observer that records each event as a tuple."""

    lines: list[tuple[object, ...]] = field(default_factory=list)

    def batch_started(self, batch: Batch[Any]) -> None:
        queued_s = [round(batch.released - request.arrival, 6) for request in batch.requests]
        self.lines.append(("started", batch.number, queued_s))

    def batch_ended(self, batch: Batch[Any], status: BatchStatus) -> None:
        """A batch came back, or will not."""
        self.lines.append(("ended", batch.number, status, round(batch.started, 6), round(batch.seconds, 6)))

    def request_shed(self, shed: Shed) -> None:
        self.lines.append(("shed", shed.api, shed.reason))


def dispatcher(
    run: Callable[[Batch[Any]], Awaitable[BatchResult[str]]],
    *rules: ApiRules,
    workers: int = 1,
    observer: Log | None = None,
) -> AsyncDispatcher[str, str]:
    """A shell on the clock of the running loop, with one api ``a`` if no others are given."""
    observers = () if observer is None else (observer,)
    made = shell_of(TaskRunner(run), observers=observers)
    for each in rules or (ApiRules(name="a"),):
        made.set_api(each)
    for worker in range(workers):
        made.worker_ready(worker)
    return made


def fixed(milliseconds: int, **limits: float) -> ApiRules:
    """An api ``a`` that holds for so long."""
    return ApiRules(name="a", policy=f"fixed:{milliseconds}", **limits)  # type: ignore[arg-type]


def calls(shell: AsyncDispatcher[str, str], *payloads: str, key: Hashable = None) -> list[Call]:
    """Callers, one for each payload, that call in the next turn of the loop."""
    return [asyncio.ensure_future(shell.call("a", payload, key=key)) for payload in payloads]


async def outcomes(callers: Sequence[Call]) -> list[str]:
    """What became of each caller: its result, or the name of its error."""
    ends = await asyncio.gather(*callers, return_exceptions=True)
    return [end.result if isinstance(end, RequestResult) else type(end).__name__ for end in ends]
