"""What the asyncio shell hands to a runner and an observer, and what comes back."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from uncork_dispatcher.actions import Outcome, ShedReason, Start
from uncork_dispatcher.errors import WrongResultCount

P = TypeVar("P")
R = TypeVar("R")


class Job(NamedTuple, Generic[P]):
    """A batch to run: its start, and of each of its requests the payload, the rows, and what they cost.

    A request whose caller gave no cost costs its rows. ``start.rows`` is the sum of the costs.
    """

    start: Start
    payloads: list[P]
    rows: list[int]
    costs: list[float]


class Ran(NamedTuple, Generic[R]):
    """What a runner made of a job.

    ``results`` holds one result per request, in order. ``outcome`` and ``chunks`` are for the estimator:
    see :meth:`Dispatcher.batch_done`; chunks count what the job's costs count.
    """

    results: Sequence[R]
    outcome: Outcome = "worked"
    chunks: Sequence[tuple[float, float]] = ()

    def check(self, start: Start) -> None:
        """What a runner says must fit its batch: callers and the estimate depend on it.

        Raises:
            WrongResultCount: if there is not one result for each request.
            ValueError: if a chunk has no rows or no time.
        """
        if len(self.results) != len(start.requests):
            raise WrongResultCount(len(start.requests), len(self.results))
        if not all(0 < cost < math.inf and 0 <= seconds < math.inf for cost, seconds in self.chunks):
            raise ValueError(f"a call takes some rows and some time, the runner says {self.chunks}")


class BatchFacts(NamedTuple):
    """What is known of a batch once it has run. Times in seconds; ``rows`` are rows whatever they cost."""

    start: Start
    rows: int
    started: float
    seconds: float


class Answer(NamedTuple, Generic[R]):
    """One request's result, the batch that it was in, and how long it was held (seconds)."""

    result: R
    batch: BatchFacts
    held_s: float


Runner = Callable[[Job[P]], Awaitable[Ran[R]]]
"""Executes a job on the worker that the job names.

Raises :class:`WorkerLost` when the worker died. It is cancelled when the batch runs past its timeout; the
worker then counts as lost until :meth:`AsyncDispatcher.worker_ready`. Any other exception goes to every
caller of the batch.
"""


class Observer(Protocol):
    """Told what happens, for metrics and logs. Must be quick and must not raise."""

    def batch_started(self, start: Start, rows: int, held_s: Sequence[float]) -> None:
        """A batch of ``rows`` rows was released; ``held_s`` is how long each of its requests was held."""

    def batch_ended(self, batch: BatchFacts, outcome: Outcome) -> None:
        """A batch came back."""

    def request_shed(self, api: str, reason: ShedReason) -> None:
        """A request was refused."""
