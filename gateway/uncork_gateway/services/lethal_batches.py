"""Finds batches that killed their workers because they did not fit into memory."""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from uncork_dispatcher import Batch, BatchStatus, Observer

# Of batches whose requests leave before they are answered, nothing is learned. So many are remembered, and so
# many of the workers that were lost or killed last.
_REMEMBERED = 16


@dataclass(slots=True, eq=False)
class _Case:
    """A batch of several requests that was lost with its worker, once or twice.

    Attributes:
        pending: after the second loss, its requests that have not been answered alone yet.
    """

    api: str
    size: float
    requests: tuple[Any, ...]
    places: set[int] = field(default_factory=set)
    pending: set[Any] = field(default_factory=set)


class LethalBatches(Observer):
    """Finds batches that were too large for the memory of their workers.

    The kernel has killed the worker of such a batch; or the batch has lost two workers, and its requests were
    then all answered alone, so that none of them was at fault. If a batch of that size has worked, something
    else killed the workers. An observer of the dispatcher.

    Args:
        index_of: returns the index of the worker with a key; negative if it is unknown.
        found: called with API, indexes of the workers, and size of such a batch. If the kernel has killed the
            worker, the indexes are None: all workers of this machine share its memory.
    """

    def __init__(
        self, index_of: Callable[[int], int], found: Callable[[str, Collection[int] | None, float], object]
    ) -> None:
        self._index_of = index_of
        self._found = found
        self._cases: dict[Any, _Case] = {}
        """The batches by request."""
        self._oldest: deque[_Case] = deque()
        self._largest: dict[str, float] = {}
        """The size of the largest batch that has worked, by API."""
        self._ran: dict[int, tuple[str, float]] = {}
        """API and size of the batches of the workers lost last, without batches ahead."""
        self._killed: deque[int] = deque(maxlen=_REMEMBERED)
        """The workers that the kernel has killed last, known before they were lost."""
        self._newest = self._last_of_old_code = 0
        """The number of the batch that started last: of all, and before the code changed."""

    def code_changed(self) -> None:
        """Forget everything; nothing is learned from batches that run now, because they run the old code."""
        self._last_of_old_code = self._newest
        self._largest.clear()
        self._ran.clear()
        while self._oldest:
            self._close(self._oldest[0])

    def killed(self, worker: int) -> None:
        """Note that the kernel has killed a worker for lack of memory; it may have been lost already."""
        if worker in self._ran:
            self._killed_by(*self._ran.pop(worker))
        else:
            self._killed.append(worker)

    def batch_started(self, batch: Batch[Any]) -> None:
        self._newest = max(self._newest, batch.number)

    def batch_ended(self, batch: Batch[Any], status: BatchStatus) -> None:
        if batch.number <= self._last_of_old_code:
            return
        if status == "worked" and (size := _size(batch)) > self._largest.get(batch.api, 0.0):
            self._largest[batch.api] = size
        if status != "lost" and not self._cases:
            return
        is_alone = len(batch.requests) == 1
        if status == "lost":
            self._worker_lost(batch)
        if status == "lost" and not is_alone:
            self._lost(batch)
        elif (case := self._cases.get(batch.requests[0])) is not None:
            if status in ("worked", "failed") and is_alone and case.pending:
                self._answered_alone(case, batch.requests[0])
            else:
                self._close(case)

    def _worker_lost(self, batch: Batch[Any]) -> None:
        """Note the batch that a lost worker ran. A batch ahead is reported second, and ignored."""
        # A single request may be at fault itself.
        worker, size = batch.worker, _size(batch) if len(batch.requests) > 1 else 0.0
        if worker in self._killed:
            self._killed.remove(worker)
            self._killed_by(batch.api, size)
        elif worker not in self._ran:
            self._ran[worker] = batch.api, size
            if len(self._ran) > _REMEMBERED:
                del self._ran[next(iter(self._ran))]

    def _killed_by(self, api: str, size: float) -> None:
        """Note that the kernel has killed a worker that ran a batch of this size."""
        if size > self._largest.get(api, 0.0):
            self._found(api, None, size)

    def _lost(self, batch: Batch[Any]) -> None:
        case = self._cases.get(batch.requests[0])
        if case is None:
            case = _Case(batch.api, _size(batch), batch.requests)
            self._cases.update(dict.fromkeys(batch.requests, case))
            self._oldest.append(case)
            if len(self._oldest) > _REMEMBERED:
                self._close(self._oldest[0])
        else:
            # If memory is limited, only some of the requests have run again.
            case.pending, case.size = {*batch.requests}, _size(batch)
        case.places.add(self._index_of(batch.worker))

    def _answered_alone(self, case: _Case, request: Any) -> None:
        case.pending.discard(request)
        if not case.pending:
            self._close(case)
            if case.size > self._largest.get(case.api, 0.0):
                self._found(case.api, [index for index in case.places if index >= 0], case.size)

    def _close(self, case: _Case) -> None:
        for request in case.requests:
            self._cases.pop(request, None)
        self._oldest.remove(case)


def _size(batch: Batch[Any]) -> float:
    return batch.padded if batch.pads else batch.rows
