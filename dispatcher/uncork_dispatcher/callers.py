"""The unanswered requests of the asyncio shell, and how their waiters are notified."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypedDict, TypeVar, TypeVarTuple

from uncork_dispatcher.actions import BatchStatus, Shed, Start
from uncork_dispatcher.errors import RequestShed
from uncork_dispatcher.jobs import BatchFacts, BatchResult, Job, Observer, RequestResult, Waiter

log = logging.getLogger("uncork.dispatcher")

P = TypeVar("P")
R = TypeVar("R")
Args = TypeVarTuple("Args")


class Call(Generic[P, R]):
    """A request, from its submission until its waiter is notified."""

    __slots__ = ("arrival", "cost", "payload", "rows", "waiter")

    def __init__(self, payload: P, rows: int, cost: float, arrival: float, waiter: Waiter[R]) -> None:
        self.payload = payload
        self.rows = rows
        self.cost = cost
        self.arrival = arrival
        self.waiter = waiter


class CallOptions(TypedDict, total=False):
    """Optional arguments of :meth:`AsyncDispatcher.submit`."""

    rows: int
    cost: float | None
    longest: float | None
    size_bytes: int
    key: Hashable
    client_timeout_s: float
    source: Hashable
    flow: Hashable


class FutureWaiter(Generic[R]):
    """A waiter that resolves a future."""

    def __init__(self, future: asyncio.Future[RequestResult[R]]) -> None:
        self._future = future

    def answered(self, answer: RequestResult[R]) -> None:
        if not self._future.done():
            self._future.set_result(answer)

    def failed(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)


class NoBursts:
    """For callers that submit each request as it arrives, and take each answer by itself."""

    def submit_waiting(self) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


def notify(who: str, callback: Callable[[*Args], object], *args: *Args) -> None:
    """Call ``callback`` and log an exception: other requests, batches and slots depend on the next steps."""
    try:
        callback(*args)
    except (Exception, asyncio.CancelledError):
        log.exception("%s raised", who)


class Observers:
    """Notifies the observers of a dispatcher."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers
        self._started: list[tuple[BatchFacts, list[float]]] = []
        """Batches whose start they do not know yet, with each request's seconds in the queue."""

    def batch_starts(self, batch: BatchFacts, queued_s: list[float]) -> None:
        """Note the start of a batch for the next :meth:`notify_started`."""
        self._started.append((batch, queued_s))

    def notify_started(self) -> None:
        started, self._started = self._started, []
        for batch, queued_s in started:
            for observer in self._observers:
                notify("an observer", observer.batch_started, batch.start, batch.rows, queued_s)

    def batch_ended(self, batch: BatchFacts, status: BatchStatus) -> None:
        for observer in self._observers:
            notify("an observer", observer.batch_ended, batch, status)

    def shed(self, shed: Shed) -> RequestShed:
        """Notify of a shed request; return the error for its waiter."""
        for observer in self._observers:
            notify("an observer", observer.request_shed, shed.api, shed.reason)
        return RequestShed(shed.reason, shed.retry_after_s)


class Calls(dict[int, Call[P, R]]):
    """The unanswered requests, by number."""

    def job(self, start: Start, now: float) -> tuple[Job[P], list[float]]:
        """Return the job of a batch that is sent now, and how long each of its requests was queued."""
        starts = now + (start.ahead_s or 0.0)
        calls = [self[request] for request in start.requests]
        job = Job(
            start,
            payloads=[call.payload for call in calls],
            rows=[call.rows for call in calls],
            costs=[call.cost for call in calls],
            left_s=[deadline - starts for deadline in start.deadlines],
        )
        return job, [now - call.arrival for call in calls]

    def settle(self, batch: BatchFacts, outcome: BatchResult[R] | Exception) -> None:
        """Notify the waiters of a batch that has ended."""
        if isinstance(outcome, Exception):
            self.fail(batch.start.requests, outcome)
            return
        for request, result in zip(batch.start.requests, outcome.results, strict=True):
            call = self.pop(request, None)
            if call is not None:
                answer = RequestResult(result, batch, batch.started - call.arrival)
                notify("a waiter", call.waiter.answered, answer)

    def fail(self, requests: Iterable[int], error: Exception) -> None:
        """Notify the waiters of requests of an error, unless they have left or were notified already."""
        for request in requests:
            call = self.pop(request, None)
            if call is not None:
                notify("a waiter", call.waiter.failed, error)
