"""Notifies waiters and observers for the asyncio shell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar, TypeVarTuple

from uncork_dispatcher.actions import BatchStatus, Shed
from uncork_dispatcher.errors import DispatchError, RequestShed
from uncork_dispatcher.jobs import BatchResult, Observer, RequestResult, Submission
from uncork_dispatcher.requests.batch import Batch

log = logging.getLogger("uncork.dispatcher")

R = TypeVar("R")
Args = TypeVarTuple("Args")

# An exception of an observer or a waiter is logged: the next steps serve other requests.
_RAISED = (Exception, asyncio.CancelledError)


class FutureWaiter(Generic[R]):
    """A waiter that sets the result or the exception of a future."""

    def __init__(self, future: asyncio.Future[RequestResult[R]]) -> None:
        self._future = future

    def answered(self, answer: RequestResult[R]) -> None:
        if not self._future.done():
            self._future.set_result(answer)

    def failed(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)


def notify(who: str, callback: Callable[[*Args], object], *args: *Args) -> None:
    """Call ``callback``, and log an exception instead of raising it."""
    try:
        callback(*args)
    except _RAISED:
        log.exception("%s raised", who)


class Observers:
    """Notifies the observers of a dispatcher.

    Attributes:
        started: batches whose start the observers do not know yet.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers
        self.started: list[Batch[Any]] = []

    # Batches and waiters are frequent, so these methods do without :func:`notify`.

    def notify_started(self) -> None:
        started, self.started = self.started, []
        for batch in started:
            for observer in self._observers:
                try:
                    observer.batch_started(batch)
                except _RAISED:
                    log.exception("an observer raised")

    def batch_ended(self, batch: Batch[Any], status: BatchStatus) -> None:
        for observer in self._observers:
            try:
                observer.batch_ended(batch, status)
            except _RAISED:
                log.exception("an observer raised")

    def shed(self, shed: Shed) -> RequestShed:
        """Notify the observers of a shed request; return the error for its waiter."""
        for observer in self._observers:
            notify("an observer", observer.request_shed, shed)
        return RequestShed(shed.reason, shed.retry_after_s)


def settle(batch: Batch[Submission[Any, R]], outcome: BatchResult[R] | Exception) -> None:
    """Notify the waiters of a batch that has ended, and drop the payloads of its requests."""
    for request in batch.requests:
        request.payload = None
    if isinstance(outcome, Exception):
        if isinstance(outcome, DispatchError):
            outcome.batch = batch.number
        fail(batch.requests, outcome)
        return
    started = batch.started
    for request, result in zip(batch.requests, outcome.results, strict=True):
        if (waiter := request.waiter) is not None:
            request.waiter = request.on_expiry = None
            try:
                waiter.answered(RequestResult(result, batch, started - request.arrival))
            except _RAISED:
                log.exception("a waiter raised")


def fail(requests: Iterable[Submission[Any, Any]], error: Exception) -> None:
    """Pass an error to the waiters of requests, unless they have left or were already notified."""
    for request in requests:
        waiter = request.leave()
        if waiter is not None:
            notify("a waiter", waiter.failed, error)
