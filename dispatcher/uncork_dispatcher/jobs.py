"""The interface between the asyncio shell and its runner, observers and waiters."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from uncork_dispatcher.actions import BatchStatus, Shed
from uncork_dispatcher.errors import WrongResultCount
from uncork_dispatcher.requests.batch import Batch

P = TypeVar("P")
R = TypeVar("R")


class Submission(msgspec.Struct, Generic[P, R], eq=False):
    """A request to an API, from its submission until its waiter is notified.

    Limits, estimate and policy count ``cost``, a positive number in any unit, instead of ``rows`` where it is
    given; all requests of an API should give it or none.

    Attributes:
        waiter: gets the result; None once it was notified, or has left.
        payload: the input of the runner; None once the batch has ended.
        longest: the largest cost of a row, by default the average: if the model pads batches to their longest
            row, requests of similar length share a batch.
        size_bytes: the size of the body.
        key, group: only requests with the same key and group share a batch; ``group`` is what the author
            names, None without.
        client_timeout_s: the seconds after which the client gives up.
        source: identifies the client, for example by its connection, to recognize returning clients; None if
            unknown.
        flow: the flow of the request; if the rules are ``fair``, flows share the queue equally.
        bulk: True if the request belongs to the API's second class, if it has one.
        follows: True for a later part of a request that was accepted; it is not refused on arrival.
        on_expiry: called with the time, on the shell's clock, if the client's time passes while the request
            runs; returns a new time, because other clients wait too. Without it, the request fails.
        arrival: when the request was submitted, in seconds on the shell's clock.
    """

    waiter: Waiter[R] | None
    api: str
    payload: P
    rows: int = 1
    cost: float | None = None
    longest: float | None = None
    size_bytes: int = 0
    key: Hashable = None
    group: Hashable = None
    client_timeout_s: float = math.inf
    source: Hashable = None
    flow: Hashable = None
    bulk: bool = False
    follows: bool = False
    on_expiry: Callable[[float], float] | None = None
    arrival: float = 0.0

    def leave(self) -> Waiter[R] | None:
        """Detach and return the waiter; return None if it was notified or has left."""
        waiter, self.waiter = self.waiter, None
        if self.on_expiry is not None:
            self.on_expiry = None
        return waiter


def results_fault(results: Any, expected: int) -> Exception | None:
    """Return an error unless ``results`` is a collection with one result for each expected item."""
    is_list = isinstance(results, list)  # asking for the abstract types takes several times as long
    if not is_list and not _is_sequence(results):
        return TypeError(
            f"the batch function returned {type(results).__name__} {results!r:.80}; "
            "it must return a list or an array with one result per item, in order"
        )
    return None if len(results) == expected else WrongResultCount(expected, len(results))


def _is_sequence(results: object) -> bool:
    """Return whether these can be results in order; a table is a collection of the names of its columns."""
    if not isinstance(results, Collection) or isinstance(results, Mapping | Set | str | bytes | bytearray):
        return False
    return not hasattr(type(results), "columns")


class BatchResult(NamedTuple, Generic[R]):
    """The result of a batch: one result per request, in order.

    ``chunks`` has (rows, seconds) of each call at the worker, with cost for rows if the API has one; see
    :meth:`Dispatcher.batch_done`, also for ``prepare_s``.
    """

    results: Sequence[R]
    status: BatchStatus = "worked"
    chunks: Sequence[tuple[float, float]] = ()
    prepare_s: float | None = None

    @staticmethod
    def checked(outcome: BatchResult[R] | Exception, batch: Batch[Any]) -> BatchResult[R] | Exception:
        """Return the outcome of a batch, or an error if its results or chunks are invalid."""
        if isinstance(outcome, Exception):
            return outcome
        try:
            expected, (results, status, chunks, prepare_s) = len(batch.requests), outcome
            if fault := results_fault(results, expected):
                return fault
            # A collection of the user's may raise while it is read, have more results than it says, or be
            # changed before all callers have theirs.
            copied = list(results)
            if len(copied) != expected:
                return WrongResultCount(expected, len(copied))
            for cost, seconds in chunks:
                if not (0 < cost < math.inf and 0 <= seconds < math.inf):
                    says = "chunks must have more than 0 rows and a time of at least 0 s"
                    return ValueError(f"{says}, got {chunks}")
            if prepare_s is not None and not 0 <= prepare_s < math.inf:
                return ValueError(f"prepare_s must be 0 or more, got {prepare_s}")
        except Exception as error:
            return error
        return BatchResult(copied, status, chunks, prepare_s)


def payloads_of(batch: Batch[Submission[P, Any]]) -> list[P]:
    return [request.payload for request in batch.requests]


def longest_queued_s(batch: Batch[Submission[Any, Any]]) -> float:
    """Return how many seconds the oldest request of a batch was queued."""
    oldest: float = min([request.arrival for request in batch.requests])
    return batch.released - oldest


class RequestResult(Generic[R]):
    """One request's result, its batch, and how many seconds it was queued."""

    __slots__ = ("batch", "queued_s", "result")

    def __init__(self, result: R, batch: Batch[Any], queued_s: float) -> None:
        self.result = result
        self.batch = batch
        self.queued_s = queued_s


class Waiter(Protocol[R]):
    """Waits for the result of a request; notified exactly once, unless it has left.

    Its methods may submit and cancel requests. Their exceptions are logged.
    """

    def answered(self, answer: RequestResult[R]) -> None:
        """Receive the result of the request."""

    def failed(self, error: Exception) -> None:
        """Receive the error of the request or of its whole batch."""


OnBatchEnd = Callable[[BatchResult[R] | Exception], None]
"""Reports the end of a batch; an exception goes to all its waiters. Ignored if it was lost or abandoned."""


class Runner(Protocol[P, R]):
    """Executes batches on workers, for the asyncio shell."""

    def start(self, batch: Batch[Submission[P, R]], ended: OnBatchEnd[R]) -> None:
        """Execute a batch on the worker that it names, and call ``ended`` once, unless the worker is lost.

        Report a loss with :meth:`AsyncDispatcher.worker_lost`. If ``start`` raises, the batch ends with that
        exception, and ``ended`` must not be called.
        """

    def abandon(self, batch: int, worker: int) -> None:
        """Stop a batch that ran past its timeout. Its result is ignored, and its worker counts as lost."""

    def cancel(self, batch: Batch[Submission[P, R]], requests: Collection[Submission[P, R]]) -> None:
        """Note that the callers of these requests of a batch have left; the batch must still end."""


class Bursts(Protocol):
    """Submits requests and takes results several at a time, for the asyncio shell."""

    def submit_waiting(self) -> None:
        """Submit the requests that have arrived, before the core chooses the next batch."""

    def __enter__(self) -> None:
        """Called before the results of a batch go to its waiters."""

    def __exit__(self, *error: object) -> None:
        """Called after the results of a batch went to its waiters."""


class Observer(Protocol):
    """Notified of events, for metrics and logs. Must be quick. It may submit and cancel requests.

    A subclass may leave out methods; these do nothing.
    """

    def batch_started(self, batch: Batch[Any]) -> None:
        """Called when a batch was released."""
        return

    def batch_ended(self, batch: Batch[Any], status: BatchStatus) -> None:
        """Called once for each released batch, when it has ended."""
        return

    def request_shed(self, shed: Shed) -> None:
        """Called when a request was shed, or its client's time passed while it ran."""
        return
