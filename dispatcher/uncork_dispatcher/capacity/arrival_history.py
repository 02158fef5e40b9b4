"""The arrivals of one API over the last minutes, from its running total."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from itertools import islice, pairwise
from statistics import fmean
from typing import NamedTuple

HISTORY_S = 300.0
"""How far back the history goes."""

LOOK_S = 5.0
"""Seconds between two calls of :meth:`Autoscaler.look`, over which arrivals are averaged."""

# The mean of a squared standard normal number if the largest tenth is left out: 0.561 / 0.9.
_KEPT = 0.9
_MEAN_OF_KEPT = 0.623


class _Count(NamedTuple):
    """The rows that had arrived by the time ``now``."""

    now: float
    rows: float


class ArrivalHistory:
    """Remembers how many rows have arrived, for five minutes.

    Call :meth:`count` about once a second: longer intervals are allowed, but intervals above 2 s do not show
    bursts. Times are seconds on a clock that never goes back.
    """

    def __init__(self) -> None:
        self._counts: deque[_Count] = deque()
        self._total = 0.0

    def count(self, total: float, *, now: float) -> None:
        """Note that ``total`` rows have arrived by ``now``; a lower total than before was restarted at 0."""
        rows = 0.0
        if self._counts:
            grown = total - self._total if total >= self._total else total
            rows = self._counts[-1].rows + grown
        self._total = total
        if self._counts and now <= self._counts[-1].now:
            self._counts.pop()
        self._counts.append(_Count(now, rows))
        # The count before the beginning of the window stays: the first average starts there.
        while len(self._counts) > 1 and self._counts[1].now <= now - HISTORY_S:
            self._counts.popleft()

    def highest_rate(self, seconds: float) -> float:
        """Return the highest average rate over 5 s within the last ``seconds`` seconds, in rows per second.

        The rate is 0 until 5 s have been counted.
        """
        highest, starts = 0.0, iter(self._counts)
        start = next(starts, None)
        following = next(starts, None)
        for end in self._since(seconds):
            while start and following and following.now <= end.now - LOOK_S:
                start, following = following, next(starts, None)
            if start and end.now - start.now >= LOOK_S:
                highest = max(highest, (end.rows - start.rows) / (end.now - start.now))
        return highest

    def dispersion(self, seconds: float) -> float:
        """Return variance over mean of the arrivals in the last ``seconds`` seconds, at least 1.

        Compares successive intervals of at most 2 s, without the largest tenth of the differences: occasional
        changes of the rate are not bursts. With fewer than 20 such pairs the result is 1, as for single rows
        that arrive at random.
        """
        intervals = [
            (after.now - before.now, after.rows - before.rows)
            for before, after in pairwise(self._since(seconds))
        ]
        # Where counts are normal, each is the dispersion times the square of a standard normal number.
        found = sorted(
            (rows_1 / seconds_1 - rows_2 / seconds_2) ** 2 * seconds_1 * seconds_2 / (rows_1 + rows_2)
            for (seconds_1, rows_1), (seconds_2, rows_2) in pairwise(intervals)
            # A change that is over within 2 s counts as a burst, a longer one as another rate.
            if max(seconds_1, seconds_2) <= 2.0 and rows_1 + rows_2 > 0
        )
        # Fewer counts say too little about bursts.
        if len(found) < 20:
            return 1.0
        return max(1.0, fmean(found[: round(_KEPT * len(found))]) / _MEAN_OF_KEPT)

    def _since(self, seconds: float) -> Iterator[_Count]:
        earliest = self._counts[-1].now - seconds if self._counts else math.inf
        older = sum(count.now < earliest for count in self._counts)
        return islice(self._counts, older, None)
