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

_AVERAGED_S = 5.0
# Arrivals at the rate of traffic that changes within this time count as bursts, above it as another rate.
_SHORT_S = 2.0
# Fewer counts say too little about bursts.
_LEAST_PAIRS = 20
# The mean of a squared standard normal number if the largest tenth is left out: 0.561 / 0.9.
_KEPT = 0.9
_MEAN_OF_KEPT = 0.623


class _Count(NamedTuple):
    """How many rows had arrived by a time."""

    now: float
    rows: float


class ArrivalHistory:
    """Remembers counts of arrivals for five minutes.

    Times are seconds on a clock that never goes back. Counts may come at any intervals. Those at most two
    seconds apart also show bursts, so once a second is a good interval.
    """

    def __init__(self) -> None:
        self._counts: deque[_Count] = deque()
        self._total = 0.0

    def count(self, total: float, *, now: float) -> None:
        """Note that ``total`` rows have arrived until now. A total that has fallen was restarted at 0."""
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
        """Return the highest average over 5 s within the last ``seconds`` seconds, in rows per second.

        0 until counts are 5 s apart.
        """
        highest, starts = 0.0, iter(self._counts)
        start = next(starts, None)
        following = next(starts, None)
        for end in self._since(seconds):
            while start and following and following.now <= end.now - _AVERAGED_S:
                start, following = following, next(starts, None)
            if start and end.now - start.now >= _AVERAGED_S:
                highest = max(highest, (end.rows - start.rows) / (end.now - start.now))
        return highest

    def dispersion(self, seconds: float) -> float:
        """Return variance over mean of the rows counted in the last ``seconds`` seconds, at least 1.

        It is taken from the differences of successive counts, without the largest tenth: a rate that changes
        now and then is no burst. Without enough counts that are close together it is 1, as for single rows
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
            if max(seconds_1, seconds_2) <= _SHORT_S and rows_1 + rows_2 > 0
        )
        if len(found) < _LEAST_PAIRS:
            return 1.0
        return max(1.0, fmean(found[: round(_KEPT * len(found))]) / _MEAN_OF_KEPT)

    def _since(self, seconds: float) -> Iterator[_Count]:
        """Yield the counts of the last ``seconds`` seconds."""
        earliest = self._counts[-1].now - seconds if self._counts else math.inf
        older = sum(count.now < earliest for count in self._counts)
        return islice(self._counts, older, None)
