"""The outbound semaphore: one slot per healthy worker, and the batches that occupy them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from uncork_dispatcher.actions import Start
from uncork_dispatcher.requests.launches import Launches
from uncork_dispatcher.requests.queue import Entry


@dataclass(slots=True)
class Running:
    """A batch that a worker executes. Times are seconds on the core's clock."""

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
        self.changes = 0
        """Counts the changes: what was computed from all this holds while it stays the same."""

    def __iter__(self) -> Iterator[Running]:
        """The batches that run."""
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
        """A worker became usable; one that is known already is left as it is."""
        if worker not in self._workers:
            self.changes += 1
            self._workers.add(worker)
            self._idle[worker] = None

    def lose(self, worker: int) -> Running | None:
        """Forget a worker; returns the batch that it was running."""
        self.changes += 1
        self._workers.discard(worker)
        self._idle.pop(worker, None)
        for number, running in self._running.items():
            if running.start.worker == worker:
                return self._running.pop(number)
        return None

    def next_idle(self, pace: Callable[[int], float]) -> int:
        """The idle worker with the lowest pace, of equal ones the one idle longest. There must be one."""
        return min(self._idle, key=pace) if len(self._idle) > 1 else next(iter(self._idle))

    def take(self, worker: int) -> None:
        """Take the slot of an idle worker."""
        del self._idle[worker]

    def occupy(self, running: Running) -> None:
        """Note what runs in the slot that was taken."""
        self.changes += 1
        self._running[running.start.batch] = running

    def runs(self, batch: int) -> bool:
        """Whether a batch runs."""
        return batch in self._running

    def tries_suspect(self, api: str) -> bool:
        """Whether a suspect of an api runs."""
        return any(
            running.start.api == api and running.entries[0].suspect for running in self._running.values()
        )

    def finish(self, batch: int) -> Running | None:
        """A batch has ended and its worker is idle again; None if the batch is not known any more."""
        self.changes += 1
        running = self._running.pop(batch, None)
        if running is not None and running.start.worker in self._workers:
            self._idle[running.start.worker] = None
        return running

    def give_up_overdue(self, now: float) -> list[Running]:
        """Remove the batches that ran past their timeout, and their workers with them."""
        overdue = [running for running in self._running.values() if running.gives_up_at <= now]
        self.changes += len(overdue)
        for running in overdue:
            del self._running[running.start.batch]
            self._workers.discard(running.start.worker)
        return overdue

    def next_timeout(self) -> float:
        """When the first running batch is to be given up; infinity if nothing runs."""
        return min((running.gives_up_at for running in self._running.values()), default=math.inf)

    def busy_until(self, now: float) -> list[float]:
        """Predicted finish of each running batch, soonest first, never in the past."""
        return [finish for finish, _ in self.outlook(now)]

    def outlook(self, now: float) -> list[tuple[float, Start]]:
        """Predicted finish, never in the past, and start of each running batch; soonest first."""
        outlook = []
        for running in self._running.values():
            finish = running.started + running.start.predicted_s
            outlook.append((finish if finish > now else now, running.start))
        outlook.sort()
        return outlook

    def free_at(self, now: float) -> list[float]:
        """When each worker can take a batch, soonest first; while there is none, each that is due."""
        if not self._workers:
            return self.launches.due(now)
        return [now] * len(self._idle) + self.busy_until(now)
