"""Finds the length beyond which rows take no more time, because the model truncates its input.

The time of a padded batch is ``a + b * rows * min(longest, limit)``. Lines through the last batches, with
different limits, show which limit explains their times best.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

# Lines are fitted to this many of the last batches, whenever half of them are new.
_KEPT = 64
_NEGLIGIBLE_ERROR = 0.01**2
# Limits that are tried lie this factor apart.
_STEP = math.sqrt(2)


class LengthLimit:
    """Finds the length at which a model truncates rows, from batches that are padded to their longest row.

    Attributes:
        length: the limit; infinity if none has been found.
    """

    def __init__(self) -> None:
        self.length = math.inf
        self._batches: deque[tuple[float, float, float]] = deque(maxlen=_KEPT)
        """Rows, longest row and seconds."""
        self._seen = 0

    def observe(self, number: float, longest: float, seconds: float) -> bool:
        """Learn that a batch of ``number`` rows took ``seconds``; return True if the limit has changed."""
        if seconds <= 0:
            return False
        self._batches.append((number, longest, seconds))
        self._seen += 1
        if self._seen % (_KEPT // 2):
            return False
        before, self.length = self.length, self._best()
        return self.length != before

    def _best(self) -> float:
        """Return the limit that explains the times of the last batches best."""
        errors = {limit: self._error(limit) for limit in (*self._candidates(), self.length, math.inf)}
        best = min(errors, key=lambda limit: errors[limit])
        if errors[best] >= 0.8 * errors[self.length]:
            return self.length
        # A limit must halve the error without limit: times that grow less than linearly look a little like
        # truncation.
        return best if errors[best] < 0.5 * errors[math.inf] else math.inf

    def batches(self) -> list[tuple[float, float]]:
        """Return (padded size, seconds) of each of the last batches, with the limit applied."""
        return self._limited(self.length)

    def _limited(self, limit: float) -> list[tuple[float, float]]:
        return [(number * min(longest, limit), seconds) for number, longest, seconds in self._batches]

    def _error(self, limit: float) -> float:
        return _NEGLIGIBLE_ERROR + _squared_error(self._limited(limit))

    def _candidates(self) -> list[float]:
        """Return the limits to try: powers of √2 within the lengths of the last batches."""
        lengths = sorted([longest for _, longest, _ in self._batches])
        first = math.ceil(math.log(lengths[0], _STEP) - 1e-9)
        # A limit must lie below the longest row of four of the batches.
        end = math.ceil(math.log(lengths[-4], _STEP) - 1e-9)
        return [_STEP**power for power in range(first, end)]


def _squared_error(batches: Sequence[tuple[float, float]]) -> float:
    """Return the mean squared relative error of the line that fits the (size, seconds) of batches best."""
    weight = x = y = xx = xy = 0.0
    for size, seconds in batches:
        w = 1 / seconds**2
        weight += w
        x += w * size
        y += w * seconds
        xx += w * size * size
        xy += w * size * seconds
    spread = weight * xx - x * x
    slope = max(0.0, (weight * xy - x * y) / spread) if spread > 1e-9 * weight * xx else 0.0
    intercept = (y - slope * x) / weight
    if intercept < 0:
        intercept, slope = 0.0, xy / xx
    return sum([((intercept + slope * size) / seconds - 1) ** 2 for size, seconds in batches]) / len(batches)
