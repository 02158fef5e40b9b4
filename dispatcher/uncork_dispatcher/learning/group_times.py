"""How long groups of clients that were answered together stay away, by the size of the group.

A group is away until its answers are written, and its next requests are sent and read. Part of that is work
on one request after the other, so large groups take longer. Each size has its own mean. A size that has not
been seen takes the time of the nearest size, in proportion; if none is near, that of half or twice the size.
"""

from __future__ import annotations

import math

# A mean follows each new group by this share, and none counts for more than this multiple of it.
_FRESH = 0.1
_OUTLIER = 2.0
# Sizes share a mean if they differ by less than about a twentieth.
_SIZES_PER_DOUBLING = 8
# The time of a size that has not been seen follows from one that is at most so many sizes away.
_NEAR = 4


class GroupTimes:
    """The mean seconds until almost all clients of a group are back, by rows of the group."""

    def __init__(self) -> None:
        self._means: dict[int, tuple[float, int]] = {}
        """By size: the mean, and the number of groups behind it."""
        self.latest_s = 0.0
        """Seconds until the latest group was back; 0 before the first."""

    def observe(self, rows: float, seconds: float) -> None:
        """Learn that a group of ``rows`` rows was back within ``seconds``."""
        self.latest_s = seconds
        size = _size(rows)
        mean, seen = self._means.get(size, (0.0, 0))
        if seen:
            seconds = min(seconds, _OUTLIER * mean)
        self._means[size] = mean + max(_FRESH, 1 / (seen + 1)) * (seconds - mean), seen + 1

    def whole_and_half(self, rows: float) -> tuple[float, float]:
        """Return the seconds for a group of ``rows`` rows and for half of it; zeros if neither was seen.

        A half takes no longer than the whole, and the whole at most twice as long as a half.
        """
        whole, half = self._seen(rows), self._seen(rows / 2)
        if whole is None:
            return (0.0, 0.0) if half is None else (2 * half, half)
        if half is None:
            return whole, whole
        return min(whole, 2 * half), min(half, whole)

    def _seen(self, rows: float) -> float | None:
        """Return the time of the seen size that is nearest, in proportion; None if none is near."""
        size = _size(rows)
        for distance in range(_NEAR + 1):
            for near in (size + distance, size - distance):
                if near in self._means:
                    mean, _ = self._means[near]
                    return mean * 2 ** ((size - near) / _SIZES_PER_DOUBLING)
        return None


def _size(rows: float) -> int:
    return round(_SIZES_PER_DOUBLING * math.log2(rows))
