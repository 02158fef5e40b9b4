"""The workers of an API whose batches run at the same time in one worker."""

from __future__ import annotations

from uncork_dispatcher.workers.share import Share


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
        """Remove all workers and batches."""
        super().clear()
        self._running.clear()
        self._closed.clear()
        self.takes.clear()
        self.workers = self.idle = 0

    def join(self, worker: int) -> None:
        """Add a worker."""
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
        """Return how many batches of the API a worker runs."""
        return self._running[worker]

    def count_idle(self, idle: int) -> None:
        """Do nothing: other APIs take none of the slots."""

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
