"""Predicts when busy workers will be free again, soonest first."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from uncork_dispatcher.policies.base import Numbers
from uncork_dispatcher.requests.batch import Batch


class Outlook:
    """Batches in the order of their predicted finishes; of equal finishes, in the order of adding.

    The cost of adding or removing a batch hardly depends on the number of workers.
    """

    def __init__(self) -> None:
        self.finishes: list[float] = []
        """The predicted finishes, ascending; in the past for late batches. Read-only."""
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

    def rows(self, api: str) -> Numbers:
        """Return the rows of each batch of an API, 0 for batches of other APIs; valid until a change."""
        return _RowsOf(self.batches, api)

    def free_at(self, now: float, idle: int) -> Numbers:
        """Return when each worker is free: ``idle`` workers at ``now``, then the busy ones, soonest first.

        Valid until a change.
        """
        return _FreeAt(self.finishes, now, idle)


class _RowsOf:
    __slots__ = ("_api", "_batches")

    def __init__(self, batches: Sequence[Batch[Any]], api: str) -> None:
        self._batches = batches
        self._api = api

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, place: int) -> float:
        batch = self._batches[place]
        return batch.rows if batch.api == self._api else 0.0


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
