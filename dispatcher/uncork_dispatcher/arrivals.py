"""The rate at which rows arrive, learned from the arrivals."""

from __future__ import annotations

import math

_WINDOW_S = 0.5


class ArrivalRate:
    """Rows per second, averaged over about the last half second with exponential forgetting.

    A window of time, not of arrivals: clients that wait for a batch come back all at once, and an
    average over the last 50 arrivals would take such a burst for the rate of the traffic.
    """

    def __init__(self) -> None:
        self._rows = 0.0
        self._started = math.inf
        self._updated = 0.0

    def arrived(self, rows: int, *, now: float) -> None:
        """Count ``rows`` rows that arrived at ``now`` (seconds)."""
        if self._started == math.inf:
            self._started = self._updated = now
        self._rows = self._rows * math.exp((self._updated - now) / _WINDOW_S) + rows
        self._updated = now

    def per_second(self, *, now: float) -> float:
        """The rate at ``now`` (seconds), in rows per second; 0 before the first arrival."""
        if self._started == math.inf:
            return 0.0
        rows = self._rows * math.exp((self._updated - now) / _WINDOW_S)
        # Corrects for the part of the window that lies before the first arrival.
        observed = 1.0 - math.exp((self._started - now) / _WINDOW_S)
        return rows / (_WINDOW_S * max(observed, 0.1))
