"""When busy workers should be free again, soonest first."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from uncork_dispatcher.actions import Start
from uncork_dispatcher.policies.base import Numbers


class Outlook:
    """The predicted finishes of running batches, kept in order; of equal ones, the first started first.

    A start or an end costs two binary searches, whatever the number of workers.
    """

    def __init__(self) -> None:
        self.finishes: list[float] = []
        """Predicted finishes in ascending order, of late batches as well. Read-only."""
        self._starts: list[Start] = []

    def add(self, start: Start, started: float) -> None:
        """Add a batch that started at ``started``."""
        finish = started + start.predicted_s
        place = bisect_right(self.finishes, finish)
        self.finishes.insert(place, finish)
        self._starts.insert(place, start)

    def remove(self, start: Start, started: float) -> None:
        """Remove a batch that was added with the same arguments."""
        place = self._starts.index(start, bisect_left(self.finishes, started + start.predicted_s))
        del self.finishes[place]
        del self._starts[place]

    def rows(self, api: str) -> Numbers:
        """Return the rows of an API in each of the batches, 0 in another API's; valid until a change."""
        return _RowsOf(self._starts, api)

    def free_at(self, now: float, idle: int) -> Numbers:
        """Return when each worker is free, of which ``idle`` are now; valid until a change."""
        return _FreeAt(self.finishes, now, idle)


class _RowsOf:
    __slots__ = ("_api", "_starts")

    def __init__(self, starts: Sequence[Start], api: str) -> None:
        self._starts = starts
        self._api = api

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, place: int) -> float:
        start = self._starts[place]
        return start.rows if start.api == self._api else 0.0


class _FreeAt:
    __slots__ = ("_finishes", "_idle", "_now")

    def __init__(self, finishes: Sequence[float], now: float, idle: int) -> None:
        self._finishes = finishes
        self._now = now
        self._idle = idle

    def __len__(self) -> int:
        return self._idle + len(self._finishes)

    def __getitem__(self, place: int) -> float:
        if place < self._idle:
            return self._now
        finish = self._finishes[place - self._idle]
        return finish if finish > self._now else self._now
