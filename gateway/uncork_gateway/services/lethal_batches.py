"""Batches that were too large for the memory of their workers, so that the kernel killed these."""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from uncork_dispatcher import Batch, BatchStatus, ShedReason

# Of batches whose requests leave before they are answered, nothing is learned. So many are remembered.
_REMEMBERED = 16


@dataclass(slots=True, eq=False)
class _Case:
    """A batch that has lost its worker.

    Attributes:
        places: the indexes of the workers that it has lost.
        pending: its requests without a response, once it has lost two.
    """

    api: str
    size: float
    requests: tuple[Any, ...]
    places: set[int] = field(default_factory=set)
    pending: set[Any] = field(default_factory=set)


class LethalBatches:
    """Finds batches that lost two workers and whose requests were then all answered alone.

    No request was at fault, so the size of the batch was, unless a batch of that size has worked: then
    something else killed the workers. An observer of the dispatcher.

    Args:
        index_of: returns the index of the worker with a key; negative if it is unknown.
        found: called with API, indexes of the workers, and size of such a batch.
    """

    def __init__(
        self, index_of: Callable[[int], int], found: Callable[[str, Collection[int], float], object]
    ) -> None:
        self._index_of = index_of
        self._found = found
        self._cases: dict[Any, _Case] = {}
        """By request."""
        self._oldest: deque[_Case] = deque()
        self._largest: dict[str, float] = {}
        """The size of the largest batch that has worked, by API."""

    def batch_started(self, batch: Batch[Any]) -> None:
        """Do nothing; see :class:`uncork_dispatcher.Observer`."""

    def request_shed(self, api: str, reason: ShedReason) -> None:
        """Do nothing; see :class:`uncork_dispatcher.Observer`."""

    def batch_ended(self, batch: Batch[Any], status: BatchStatus) -> None:
        is_alone = len(batch.requests) == 1
        if status == "worked" and (size := _size(batch)) > self._largest.get(batch.api, 0.0):
            self._largest[batch.api] = size
        if status == "lost" and not is_alone:
            self._lost(batch)
        elif self._cases and (case := self._cases.get(batch.requests[0])) is not None:
            if status in ("worked", "failed") and is_alone and case.pending:
                self._answered_alone(case, batch.requests[0])
            else:
                self._close(case)

    def _lost(self, batch: Batch[Any]) -> None:
        case = self._cases.get(batch.requests[0])
        if case is None:
            case = _Case(batch.api, _size(batch), batch.requests)
            self._cases.update(dict.fromkeys(batch.requests, case))
            self._oldest.append(case)
            if len(self._oldest) > _REMEMBERED:
                self._close(self._oldest[0])
        else:
            case.pending = {*batch.requests}
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
