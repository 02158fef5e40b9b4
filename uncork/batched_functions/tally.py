"""The counts of batched functions. Several event loops and threads share them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from threading import RLock
from typing import Any

from uncork_dispatcher import Batch, BatchStatus
from uncork_dispatcher.actions import Shed

_SECONDS = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0),
)
_SIZES = tuple([2.0**power for power in range(13)])


class Histogram:
    """Counts values by bucket.

    Attributes:
        bounds: the largest value of each bucket but the last.
        counts: the values in each bucket.
        sum: the sum of all values.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Tally:
    """The counts of a function; an observer of its dispatchers. Hold ``lock`` to read several together.

    Attributes:
        releases, endings, sheds: batches released by reason and ended by outcome; refused calls by reason.
        batches, calls: the batches that have ended, and the calls in them.
        memory_failures: how often the function ran out of memory.
    """

    def __init__(self) -> None:
        self.lock = RLock()  # a finalizer may run while it is taken
        self.releases: Counter[str] = Counter()
        self.endings: Counter[str] = Counter()
        self.sheds: Counter[str] = Counter()
        self.batches = 0
        self.calls = 0
        self.memory_failures = 0
        self.sizes = Histogram(_SIZES)
        self.queue_wait = Histogram(_SECONDS)
        self.batch_duration = Histogram(_SECONDS)
        self.duration = Histogram(_SECONDS)

    def batch_started(self, batch: Batch[Any]) -> None:
        with self.lock:
            self.releases[batch.reason] += 1
            self.sizes.observe(len(batch.requests))
            for request in batch.requests:
                self.queue_wait.observe(batch.released - request.arrival)

    def batch_ended(self, batch: Batch[Any], status: BatchStatus) -> None:
        with self.lock:
            self.endings[status] += 1
            self.batches += 1
            self.calls += len(batch.requests)
            if status in ("worked", "failed"):  # as in the metrics of the gateway
                self.batch_duration.observe(batch.seconds)
            for request in batch.requests:
                self.duration.observe(batch.started + batch.seconds - request.arrival)

    def request_shed(self, shed: Shed) -> None:
        with self.lock:
            self.sheds[shed.reason] += 1

    def ran_out_of_memory(self, calls: int) -> None:
        with self.lock:
            self.memory_failures += calls
