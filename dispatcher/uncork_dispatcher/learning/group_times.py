"""Learns how long groups of clients that were answered together take to return, by the size of the group.

The time includes writing the responses and reading the next requests. Part of this work is serial, so large
groups take longer. Each size has its own mean. The time of a new size follows from the nearest known size,
in proportion; if none is near, from half or twice the size.
"""

from __future__ import annotations

import math

# Sizes share a mean if they differ by less than about a twentieth.
_SIZES_PER_DOUBLING = 8


class GroupTimes:
    """The mean seconds until 98 % of the clients of a group are back, by the rows of the group."""

    def __init__(self) -> None:
        self._means: dict[int, tuple[float, int]] = {}
        """By size: the mean seconds, and the number of groups that it rests on."""
        self.latest_s = 0.0
        """Seconds until the latest group was back; 0 before the first."""

    def observe(self, rows: float, seconds: float) -> None:
        """Learn that a group of ``rows`` rows was back within ``seconds``."""
        self.latest_s = seconds
        size = _size(rows)
        mean, seen = self._means.get(size, (0.0, 0))
        if seen:
            seconds = min(seconds, 2.0 * mean)
        self._means[size] = mean + max(0.1, 1 / (seen + 1)) * (seconds - mean), seen + 1

    def whole_and_half(self, rows: float) -> tuple[float, float]:
        """Return the seconds for a group of ``rows`` rows and for half of it; zeros if neither is known.

        The half never takes longer than the whole, nor the whole longer than twice the half.
        """
        whole, half = self._seen(rows), self._seen(rows / 2)
        if whole is None:
            return (0.0, 0.0) if half is None else (2 * half, half)
        if half is None:
            return whole, whole
        return min(whole, 2 * half), min(half, whole)

    def _seen(self, rows: float) -> float | None:
        """Return the mean of the nearest size, scaled to ``rows``; None if none is within a factor of 1.4."""
        size = _size(rows)
        for distance in range(5):
            for near in (size + distance, size - distance):
                if near in self._means:
                    mean, _ = self._means[near]
                    return mean * 2 ** ((size - near) / _SIZES_PER_DOUBLING)
        return None


def _size(rows: float) -> int:
    return round(_SIZES_PER_DOUBLING * math.log2(rows))
