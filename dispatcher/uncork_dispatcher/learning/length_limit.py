"""The length beyond which rows take no more time, as models truncate their input.

The time of a padded batch is ``a + b * rows * min(longest, limit)``. Lines through the last batches, with
different limits, show which limit explains their times best.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

# Lines are fitted to this many of the last batches; first to half of them.
_KEPT = 64
# One other limit is tried after this many batches: a fit takes 20 microseconds.
_EVERY = 8
# Another limit takes over if its squared error is less than this share. Times that grow less than linearly
# look a little like truncation; to have no limit is simpler.
_BETTER = 0.5
_NO_WORSE = 0.9
# A limit must lie below the longest row of this many of the batches.
_ABOVE = 4
_NEGLIGIBLE_ERROR = 0.01**2
# Limits that are tried lie this factor apart.
_STEP = math.sqrt(2)


class LengthLimit:
    """Finds the limit from batches that are padded to their longest row.

    Attributes:
        length: the limit; infinity if none has been found.
    """

    def __init__(self) -> None:
        self.length = math.inf
        self._batches: deque[tuple[float, float, float]] = deque(maxlen=_KEPT)
        """Rows, longest row and seconds."""
        self._seen = 0
        self._tried = 0

    def observe(self, count: float, longest: float, seconds: float) -> bool:
        """Learn that a batch of ``count`` rows took ``seconds``; return whether the limit has changed."""
        if seconds <= 0:
            return False
        self._batches.append((count, longest, seconds))
        self._seen += 1
        if self._seen % _EVERY or self._seen < _KEPT // 2:
            return False
        limit = self._next_candidate()
        if limit == self.length:
            return False
        error = _NEGLIGIBLE_ERROR + _squared_error(self.batches())
        enough = error * (_NO_WORSE if limit == math.inf else _BETTER)
        if _NEGLIGIBLE_ERROR + _squared_error(self._limited(limit)) >= enough:
            return False
        self.length = limit
        return True

    def batches(self) -> list[tuple[float, float]]:
        """Return (padded size, seconds) of the last batches."""
        return self._limited(self.length)

    def _limited(self, limit: float) -> list[tuple[float, float]]:
        return [(count * min(longest, limit), seconds) for count, longest, seconds in self._batches]

    def _next_candidate(self) -> float:
        """Return the limits within the lengths of the last batches in turn, and infinity."""
        lengths = sorted([longest for _, longest, _ in self._batches])
        lowest = math.ceil(math.log(lengths[0], _STEP) - 1e-9)
        candidates = math.ceil(math.log(lengths[-_ABOVE], _STEP) - 1e-9) - lowest
        self._tried += 1
        place = self._tried % (candidates + 1)
        return _STEP ** (lowest + place) if place < candidates else math.inf


def _squared_error(batches: Sequence[tuple[float, float]]) -> float:
    """Return the mean squared relative error of the line that fits some batches best."""
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
