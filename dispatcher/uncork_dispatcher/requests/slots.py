"""The outbound semaphore: one slot per healthy worker, and the batches that occupy them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from uncork_dispatcher.actions import Start
from uncork_dispatcher.requests.launches import Launches
from uncork_dispatcher.requests.queue import Entry
from uncork_dispatcher.stats import RunningBatch, WorkStats


@dataclass(slots=True)
class Running:
    """A batch that a worker executes; it is abandoned at ``gives_up_at``. Times are on the core's clock."""

    start: Start
    entries: list[Entry]
    started: float
    gives_up_at: float


class Slots:
    """Which workers there are, which are idle (the one idle longest first), and what the rest run."""

    def __init__(self) -> None:
        self._workers: set[int] = set()
        self._idle: dict[int, None] = {}
        self._running: dict[int, Running] = {}
        self.launches = Launches()
        self.next_timeout = math.inf
        """When the first running batch times out; infinity if nothing runs."""
        self.changes = 0
        """Counts the changes: a result computed from the slots is valid while this stays the same."""

    def __iter__(self) -> Iterator[Running]:
        return iter(self._running.values())

    @property
    def workers(self) -> int:
        """How many healthy workers there are."""
        return len(self._workers)

    @property
    def idle(self) -> int:
        """How many batches could start now."""
        return len(self._idle)

    @property
    def running(self) -> int:
        """How many batches run."""
        return len(self._running)

    def add(self, worker: int) -> None:
        """Add a worker; ignore one that is known."""
        if worker not in self._workers:
            self.changes += 1
            self._workers.add(worker)
            self._idle[worker] = None

    def lose(self, worker: int) -> Running | None:
        """Remove a worker; return the batch that it was running."""
        self.changes += 1
        self._workers.discard(worker)
        self._idle.pop(worker, None)
        for number, running in self._running.items():
            if running.start.worker == worker:
                return self._remove(number)
        return None

    def next_idle(self, slowdown: Callable[[int], float]) -> int:
        """Return the fastest idle worker, of equally fast ones the one idle longest. There must be one."""
        return min(self._idle, key=slowdown) if len(self._idle) > 1 else next(iter(self._idle))

    def occupy(self, running: Running) -> None:
        """Take the slot of the worker that the batch starts on."""
        self.changes += 1
        del self._idle[running.start.worker]
        self._running[running.start.batch] = running
        self.next_timeout = min(self.next_timeout, running.gives_up_at)

    def runs(self, batch: int) -> bool:
        """Whether a batch runs."""
        return batch in self._running

    def retries(self, api: str) -> bool:
        """Whether a quarantined request of an API is being retried."""
        return any(
            running.start.api == api and running.entries[0].queue.is_quarantine
            for running in self._running.values()
        )

    def finish(self, batch: int) -> Running | None:
        """Free the slot of a batch that has ended; return None if the batch is not known any more."""
        self.changes += 1
        running = self._remove(batch)
        if running is not None and running.start.worker in self._workers:
            self._idle[running.start.worker] = None
        return running

    def give_up_overdue(self, now: float) -> list[Running]:
        """Remove the batches that ran past their timeout, and their workers."""
        if now < self.next_timeout:
            return []
        overdue = [running for running in self._running.values() if running.gives_up_at <= now]
        self.changes += len(overdue)
        for running in overdue:
            self._remove(running.start.batch)
            self._workers.discard(running.start.worker)
        return overdue

    def outlook(self, now: float) -> list[tuple[float, Start]]:
        """Return the predicted finish, never in the past, and start of each running batch; soonest first."""
        outlook = []
        for running in self._running.values():
            finish = running.started + running.start.predicted_s
            outlook.append((finish if finish > now else now, running.start))
        outlook.sort()
        return outlook

    def free_at(self, now: float) -> list[float]:
        """Return when each worker is free, soonest first; without workers, when each that starts is due."""
        if not self._workers:
            return self.launches.due(now)
        return [now] * len(self._idle) + [finish for finish, _ in self.outlook(now)]

    def stats(self, now: float) -> WorkStats:
        """Return how many workers there are, and what they run."""
        running = [
            RunningBatch(
                batch.start.worker,
                batch.start.api,
                batch.start.rows,
                len(batch.entries),
                now - batch.started,
                batch.started + batch.start.predicted_s - now,
            )
            for batch in self
        ]
        return WorkStats(self.workers, self.idle, running)

    def _remove(self, batch: int) -> Running | None:
        running = self._running.pop(batch, None)
        self.next_timeout = min([other.gives_up_at for other in self._running.values()], default=math.inf)
        return running
