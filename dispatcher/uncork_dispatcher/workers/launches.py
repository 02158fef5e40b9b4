"""Predicts when the next worker will be ready, from the time that workers took from launch to ready."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Hashable
from typing import NamedTuple


class _Launch(NamedTuple):
    at: float
    failures: int
    since: float
    """When the first process at this place started, or should have, since a worker was last ready there."""


class Launches:
    """Worker processes that are starting, or about to be started. Times are seconds on the core's clock."""

    def __init__(self) -> None:
        self._launches: dict[Hashable, _Launch] = {}
        """The expected workers by place."""
        self.on_demand = False
        """True while a worker would be started for the next request, and none is expected."""
        # The median of five, so that one slow start with cold caches does not set the prediction.
        self._startups_s: deque[float] = deque(maxlen=5)

    def expect(self, place: Hashable, *, at: float, failures: int | None = None) -> None:
        """Note that a process starts at ``at``; a later call for the same ``place`` replaces this one.

        ``failures`` is how often in a row a process at this place has ended before it finished a batch.
        Without it, an earlier call stays.
        """
        self.on_demand = False
        known = self._launches.get(place)
        if known is None:
            self._launches[place] = _Launch(at, failures or 0, at)
        elif failures is not None:
            self._launches[place] = _Launch(at, failures, known.since)

    def forget(self, place: Hashable) -> None:
        self._launches.pop(place, None)

    def ready(self, place: Hashable, *, now: float) -> None:
        """Note that the worker at this place is ready; if it was expected, learn how long it took."""
        expected = self._launches.pop(place, None)
        if expected is not None:
            self._startups_s.append(max(0.0, now - expected.at))

    @property
    def startup_s(self) -> float | None:
        """The median of the last times from launch to ready, in seconds; None before the first."""
        return statistics.median(self._startups_s) if self._startups_s else None

    def due(self, now: float) -> list[float]:
        """Return when each starting worker should be ready, soonest first, never before ``now``.

        A worker that can be started on demand counts as starting now. Omits workers that have failed twice in
        a row, or have taken twice the usual time.
        """
        startup_s = self.startup_s
        if startup_s is None:
            return []
        if self.on_demand:
            return [now + startup_s]
        return sorted(max(now, at + startup_s) for at in self._counted(now, startup_s))

    def due_until(self, now: float) -> float:
        """Return until when :meth:`due` counts a starting worker; minus infinity if it counts none."""
        startup_s = self.startup_s
        if startup_s is None:
            return -math.inf
        return max([at + 2 * startup_s for at in self._counted(now, startup_s)], default=-math.inf)

    def _counted(self, now: float, startup_s: float) -> list[float]:
        """Return when the processes start for whose workers requests wait."""
        return [
            launch.at
            for launch in self._launches.values()
            # Requests do not wait for a worker that failed twice in a row, or whose start takes twice as long
            # as usual: they would only be shed later.
            if launch.failures < 2 and now <= launch.at + 2 * startup_s
        ]

    def awaited_until(self, now: float) -> float:
        """Return until when a batch that lost its worker waits for another; ``now`` if none is starting."""
        startup_s = self.startup_s
        if startup_s is None or not self._launches:
            return now
        newest = max([launch.since for launch in self._launches.values()])
        # However often the worker fails meanwhile: what lost the batch may have made it fail.
        return max(now, newest + 4 * startup_s)

    def soonest(self, now: float) -> float:
        """Return the earliest time at which a worker may be ready; ``now`` if no worker is starting."""
        startup_s = self.startup_s or 0.0
        if self.on_demand:
            return now + startup_s
        return max(now, min([launch.at + startup_s for launch in self._launches.values()], default=now))
