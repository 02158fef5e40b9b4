"""The rate at which rows arrive, learned from the arrivals."""

from __future__ import annotations

import math

_WINDOW_S = 0.5
# Within this share of the window nothing is forgotten: many requests arrive at the same time.
_GRAIN = 1e-4
# After this many windows the time before the first arrival does not count.
_SETTLED_WINDOWS = 40.0


class ArrivalRate:
    """Rows per second, averaged over about the last ``window_s`` seconds with exponential forgetting.

    A window of time, not of arrivals: clients that wait for a batch return all at once, and an average over
    the last 50 arrivals would mistake such a burst for the rate of the traffic.
    """

    def __init__(self, window_s: float = _WINDOW_S) -> None:
        self._window_s = window_s
        self._rows = 0.0
        self._started = math.inf
        self._updated = 0.0

    def arrived(self, rows: float, *, now: float) -> None:
        """Count ``rows`` rows that arrived at ``now`` (seconds)."""
        if self._started == math.inf:
            self._started = self._updated = now
        passed = now - self._updated
        if passed > _GRAIN * self._window_s:
            self._rows *= math.exp(-passed / self._window_s)
            self._updated = now
        self._rows += rows

    def per_second(self, *, now: float) -> float:
        """Return the rate at ``now`` (seconds), in rows per second; 0 before the first arrival."""
        if self._started == math.inf:
            return 0.0
        per_second = self._rows * math.exp((self._updated - now) / self._window_s) / self._window_s
        windows = (now - self._started) / self._window_s
        if windows > _SETTLED_WINDOWS:
            return per_second
        # Corrects for the part of the window that lies before the first arrival.
        return per_second / max(1.0 - math.exp(-windows), min(1.0, 0.05 / self._window_s))
