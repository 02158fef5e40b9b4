"""The latest batches of all services, for the dashboard."""

import time
from collections import deque
from collections.abc import Callable
from itertools import islice

import msgspec

_MOST = 2000


class FinishedBatch(msgspec.Struct, frozen=True):
    """One finished batch, as the dashboard receives it.

    Attributes:
        number: a sequence number over all APIs.
        api: the id of the API in ``/status``.
        ended: the time of its end, in seconds since 1970.
        rows: the number of rows; ``cost``: the same, or their cost if the API defines one.
        waited_ms: the longest time that a request of the batch was queued.
        worker: the index of the worker, -1 if the worker is gone; in a proxy, the slot's number.
    """

    number: int
    ended: float
    api: str
    rows: int
    cost: float
    requests: int
    reason: str
    waited_ms: float
    predicted_ms: float
    actual_ms: float
    worked: bool
    worker: int


BatchRecord = tuple[float, str, int, float, int, str, float, float, float, bool, int]
"""The fields of a :class:`FinishedBatch` after the number, with the clock's time. Building the struct would
cost as much as the rest of the recording, so the reader does it."""


class FinishedBatches:
    """The latest 2000 batches. ``clock`` returns monotonic seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._batches: deque[BatchRecord] = deque(maxlen=_MOST)
        self._number = 0

    def add(self, batch: BatchRecord) -> None:
        self._number += 1
        self._batches.append(batch)

    def after(self, number: int) -> list[FinishedBatch]:
        """Return the kept batches with a higher number, oldest first."""
        kept = len(self._batches)
        new = max(0, min(self._number - number, kept))
        epoch, first = time.time() - self._clock(), self._number - new + 1
        ended = islice(self._batches, kept - new, None)
        return [FinishedBatch(at, epoch + one[0], *one[1:]) for at, one in enumerate(ended, first)]
