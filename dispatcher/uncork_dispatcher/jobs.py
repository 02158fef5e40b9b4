"""What the asyncio shell hands to a runner and an observer, and what comes back."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Generic, NamedTuple, Protocol, TypeVar

from uncork_dispatcher.actions import Ending, Outcome, ShedReason, Start
from uncork_dispatcher.errors import WrongResultCount

P = TypeVar("P")
R = TypeVar("R")


class Job(NamedTuple, Generic[P]):
    """A batch to run: its start, and of each of its requests the payload, the rows, and what they cost.

    A request whose caller gave no cost costs its rows. ``start.rows`` is the sum of the costs. ``left_s`` is
    how many seconds each had left at the start, to be done at its worker in time; negative if it was late.
    """

    start: Start
    payloads: list[P]
    rows: list[int]
    costs: list[float]
    left_s: list[float]


class Ran(NamedTuple, Generic[R]):
    """What a runner made of a job.

    ``results`` holds one result per request, in order. ``outcome`` and ``chunks`` are for the estimator:
    see :meth:`Dispatcher.batch_done`; chunks count what the job's costs count.
    """

    results: Sequence[R]
    outcome: Outcome = "worked"
    chunks: Sequence[tuple[float, float]] = ()

    def fault(self, start: Start) -> Exception | None:
        """Return what is wrong with this as the outcome of ``start``, or None if nothing is."""
        if not isinstance(self.results, Collection) or isinstance(self.results, Mapping | Set):
            return TypeError(
                f"the batch function returned {type(self.results).__name__} {self.results!r:.80}; "
                "it must return a list or an array with one result for each item, in order"
            )
        if len(self.results) != len(start.requests):
            return WrongResultCount(len(start.requests), len(self.results))
        if not all(0 < cost < math.inf and 0 <= seconds < math.inf for cost, seconds in self.chunks):
            return ValueError(f"a call takes some rows and some time, the runner says {self.chunks}")
        return None


class BatchFacts(NamedTuple):
    """What is known of a batch once it has run. Times in seconds; ``rows`` are rows whatever they cost.

    ``waited_s`` is how long the request was held that waited longest.
    """

    start: Start
    rows: int
    started: float
    seconds: float
    waited_s: float


class Answer(NamedTuple, Generic[R]):
    """One request's result, the batch that it was in, and how long it was held (seconds)."""

    result: R
    batch: BatchFacts
    held_s: float


class Waiter(Protocol[R]):
    """Who waits for the answer to a request; told exactly once, unless it has left. Exceptions are logged."""

    def answered(self, answer: Answer[R]) -> None:
        """The request was executed."""

    def failed(self, error: Exception) -> None:
        """It was not, or its whole batch failed."""


Ended = Callable[[Ran[R] | Exception], None]
"""What came of a batch. :class:`WorkerLost`: the worker died. Another exception goes to all its callers."""


class Runner(Protocol[P, R]):
    """Executes batches."""

    def start(self, job: Job[P], ended: Ended[R]) -> None:
        """Execute a job on the worker that it names, and call ``ended`` once, after this has returned.

        If this raises, the batch ends with that exception; ``ended`` must not be called then.
        """

    def abandon(self, batch: int, worker: int) -> None:
        """A batch ran past its timeout: nobody waits for it any more.

        Its worker counts as lost until :meth:`AsyncDispatcher.worker_ready`.
        """


class Observer(Protocol):
    """Told what happens, for metrics and logs. Must be quick. Exceptions are logged."""

    def batch_started(self, start: Start, rows: int, held_s: Sequence[float]) -> None:
        """A batch of ``rows`` rows was released; ``held_s`` is how long each of its requests was held."""

    def batch_ended(self, batch: BatchFacts, ending: Ending) -> None:
        """A batch came back, or will not. Told once for each that was released."""

    def request_shed(self, api: str, reason: ShedReason) -> None:
        """A request was refused."""
