"""The interface between the asyncio shell and its runner, observers and waiters."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from uncork_dispatcher.actions import BatchStatus, ShedReason, Start
from uncork_dispatcher.errors import WrongResultCount

P = TypeVar("P")
R = TypeVar("R")


class Job(NamedTuple, Generic[P]):
    """A batch to run, with the payload, the rows and the cost of each request.

    A request without a cost costs its rows. ``start.rows`` is the sum of the costs. ``left_s`` is how many
    seconds each request had left at the start, to be done at its worker in time; negative if it was late.
    """

    start: Start
    payloads: list[P]
    rows: list[int]
    costs: list[float]
    left_s: list[float]


def results_fault(results: Any, expected: int) -> Exception | None:
    """Return an error if these cannot be the results of a call of a batch function."""
    is_list = isinstance(results, list)  # asking for the abstract types takes several times as long
    if not is_list and (not isinstance(results, Collection) or isinstance(results, Mapping | Set)):
        return TypeError(
            f"the batch function returned {type(results).__name__} {results!r:.80}; "
            "it must return a list or an array with one result per item, in order"
        )
    return None if len(results) == expected else WrongResultCount(expected, len(results))


class BatchResult(NamedTuple, Generic[R]):
    """The result of a job.

    ``results`` holds one result per request, in order. ``status`` and ``chunks`` are for the estimator:
    see :meth:`Dispatcher.batch_done`; chunks count rows as the job's costs do.
    """

    results: Sequence[R]
    status: BatchStatus = "worked"
    chunks: Sequence[tuple[float, float]] = ()

    @staticmethod
    def checked(outcome: BatchResult[R] | Exception, start: Start) -> BatchResult[R] | Exception:
        """Return the outcome of a batch, or an error if it cannot be the outcome of ``start``."""
        if isinstance(outcome, Exception):
            return outcome
        try:
            expected, results = len(start.requests), outcome.results
            fault = results_fault(results, expected)
            if fault is None and not isinstance(results, list):
                # A collection of the user's may raise while it is read, or have more results than it says.
                outcome = outcome._replace(results=list(results))
                fault = results_fault(outcome.results, expected)
            if not all(0 < cost < math.inf and 0 <= seconds < math.inf for cost, seconds in outcome.chunks):
                says = "chunks must have more than 0 rows and a time of at least 0 s"
                fault = fault or ValueError(f"{says}, got {outcome.chunks}")
        except Exception as error:
            return error
        return fault or outcome


class BatchFacts(NamedTuple):
    """A batch that has run. Times in seconds; ``rows`` are rows, not their cost.

    ``queued_s`` is how long its oldest request was queued.
    """

    start: Start
    rows: int
    started: float
    seconds: float
    queued_s: float

    def ended_at(self, now: float, started: float | None = None) -> BatchFacts:
        """Return the facts with the duration filled in; ``started`` replaces the start if it is known."""
        start, rows, sent, _, queued_s = self
        started = min(sent if started is None else started, now)
        return BatchFacts(start, rows, started, now - started, queued_s)


class RequestResult(Generic[R]):
    """One request's result, its batch, and how many seconds it was queued."""

    __slots__ = ("batch", "queued_s", "result")

    def __init__(self, result: R, batch: BatchFacts, queued_s: float) -> None:
        self.result = result
        self.batch = batch
        self.queued_s = queued_s


class Waiter(Protocol[R]):
    """Waits for the answer to a request; notified exactly once, unless it has left.

    It may submit and cancel requests meanwhile. Exceptions are logged.
    """

    def answered(self, answer: RequestResult[R]) -> None:
        """Take the result of the request."""

    def failed(self, error: Exception) -> None:
        """Take the error of the request or of its whole batch."""


OnBatchEnd = Callable[[BatchResult[R] | Exception], None]
"""Takes the end of a batch. An exception goes to all callers. Ignored if the batch was lost or abandoned."""


class Runner(Protocol[P, R]):
    """Executes batches."""

    def start(self, job: Job[P], ended: OnBatchEnd[R]) -> None:
        """Execute a job on the worker that it names, and call ``ended`` once, unless the worker is lost.

        Report a loss with :meth:`AsyncDispatcher.worker_lost`. If this raises, the batch ends with that
        exception; ``ended`` must not be called then.
        """

    def abandon(self, batch: int, worker: int) -> None:
        """Stop a batch that ran past its timeout; its result is ignored.

        Its worker counts as lost.
        """


class Bursts(Protocol):
    """Submits requests and takes answers several at a time, for the asyncio shell."""

    def submit_waiting(self) -> None:
        """Submit the requests that have arrived: the next batch is about to be chosen."""

    def __enter__(self) -> None:
        """The answers of a batch begin."""

    def __exit__(self, *error: object) -> None:
        """The answers of the batch have been given."""


class Observer(Protocol):
    """Notified of events, for metrics and logs. Must be quick. It may do the same as a waiter."""

    def batch_started(self, start: Start, rows: int, queued_s: Sequence[float]) -> None:
        """A batch of ``rows`` rows was released; ``queued_s`` is how long each of its requests was queued."""

    def batch_ended(self, batch: BatchFacts, status: BatchStatus) -> None:
        """A batch has ended. Called once for each that was released."""

    def request_shed(self, api: str, reason: ShedReason) -> None:
        """A request was shed."""
