"""The workers that some APIs of a service may use, and when the busy ones will be free again.

An API may reserve a number of workers: only this API then uses so many, and the others share the rest.
Workers are counted, not named: each runs every API, so whichever is idle serves, and the number stays when a
worker dies, is replaced, or joins from another machine.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import Any

from uncork_dispatcher.requests.batch import Batch


class Share:
    """The share of the workers that some APIs may use.

    The batches are in the order of their predicted finishes; of equal finishes, in the order of adding. The
    cost of adding or removing a batch hardly depends on the number of workers.
    """

    def __init__(self, reserved: int = 0, *, takes: dict[int, None] | None = None) -> None:
        self.apis: dict[str, None] = {}
        self.takes: dict[int, None] = {} if takes is None else takes
        """The workers that could start a batch, the longest idle first; of all shares. Read-only."""
        self.reserved = reserved
        """The workers that its API has reserved; 0 if the APIs share the unreserved ones."""
        self.workers = 0
        """The most workers that the APIs may use now."""
        self.idle = 0
        """How many of them could start a batch."""
        self.started = -math.inf
        """When a batch last started on an idle worker; minus infinity before the first."""
        self.finishes: list[float] = []
        """When each busy worker should be free, soonest first; in the past for late batches. Read-only."""
        self.batches: list[Batch[Any]] = []
        """The batches, in the order of ``finishes``. Read-only."""

    def add(self, batch: Batch[Any]) -> None:
        """Add a batch. While it is here, its predicted finish must not change."""
        finish = batch.finish
        place = bisect_right(self.finishes, finish)
        self.finishes.insert(place, finish)
        self.batches.insert(place, batch)

    def remove(self, batch: Batch[Any]) -> None:
        place = self.batches.index(batch, bisect_left(self.finishes, batch.finish))
        del self.finishes[place]
        del self.batches[place]

    def clear(self) -> None:
        self.finishes.clear()
        self.batches.clear()

    def freed(self, batch: Batch[Any]) -> Share:
        """Return a copy in which a batch has ended and its worker is idle."""
        freed = Share(self.reserved)
        freed.finishes, freed.batches = self.finishes.copy(), self.batches.copy()
        freed.remove(batch)
        freed.workers, freed.idle = self.workers, self.idle + 1
        return freed

    @property
    def is_short(self) -> bool:
        """True if other APIs use its workers, as after the loss of a worker."""
        return self.workers > self.idle + len(self.batches)

    def rows(self, api: str, place: int) -> float:
        """Return the rows of the batch at a place of :attr:`batches`; 0 if it is not of this API."""
        batch = self.batches[place]
        return batch.rows if batch.api == api else 0.0

    @property
    def places(self) -> int:
        """The number of workers that are idle or busy."""
        return self.idle + len(self.finishes)

    def free_at(self, place: int, now: float) -> float:
        """Return when the worker at a place is free: idle ones come first, then the soonest to be free."""
        if place < self.idle:
            return now
        finish = self.finishes[place - self.idle]
        return finish if finish > now else now


class ConcurrentShare(Share):
    """The slots of an API that has ``concurrency`` slots at each worker, whatever other APIs run there."""

    def __init__(self, concurrency: int) -> None:
        super().__init__()
        self.concurrency = concurrency
        self._running: dict[int, int] = {}
        """How many batches of the API each healthy worker runs."""
        self._closed: set[int] = set()
        """Workers that run a batch again that was lost. It may kill the worker, so nothing joins it."""

    def clear(self) -> None:
        super().clear()
        self._running.clear()
        self._closed.clear()
        self.takes.clear()
        self.workers = self.idle = 0

    def join(self, worker: int) -> None:
        self._running[worker] = 0
        self.workers += self.concurrency
        self.idle += self.concurrency
        self.takes[worker] = None

    def leave(self, worker: int) -> None:
        """Remove a worker; :meth:`remove` its batches too."""
        self.idle -= self._free(worker)
        self.workers -= self.concurrency
        self.takes.pop(worker, None)
        self._closed.discard(worker)
        del self._running[worker]

    def began(self, worker: int, *, retried: bool) -> None:
        """Count a batch that starts on a worker; with ``retried``, the worker gets no others meanwhile."""
        before = self._free(worker)
        self._running[worker] += 1
        if retried:
            self._closed.add(worker)
        self._offer(worker, before)

    def ended(self, worker: int, *, retried: bool) -> None:
        """Count a batch that has ended on a worker; see :meth:`began`."""
        before = self._free(worker)
        self._running[worker] -= 1
        if retried:
            self._closed.discard(worker)
        self._offer(worker, before)

    def running(self, worker: int) -> int:
        return self._running[worker]

    @property
    def is_short(self) -> bool:
        return False

    def _offer(self, worker: int, before: int) -> None:
        """Put a worker behind the others if it has a free slot; ``before`` is how many it had."""
        after = self._free(worker)
        self.idle += after - before
        self.takes.pop(worker, None)
        if after:
            self.takes[worker] = None

    def _free(self, worker: int) -> int:
        return 0 if worker in self._closed else max(0, self.concurrency - self._running[worker])
