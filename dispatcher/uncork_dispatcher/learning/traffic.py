"""What is known of the arrivals of one API: their rates, and which clients are expected back."""

from __future__ import annotations

from collections.abc import Hashable

from uncork_dispatcher.learning.arrivals import ArrivalRate
from uncork_dispatcher.learning.returns import Returns

# Capacity is judged by the higher of the rates over a short and this longer time.
_SLOW_S = 5.0


class Traffic:
    """Counts the requests of one API as they arrive, whether they are queued or shed."""

    def __init__(self) -> None:
        self.arrived_rows = 0.0
        self._rate = ArrivalRate()
        self._slow_rate = ArrivalRate(_SLOW_S)
        self.new_clients = ArrivalRate()
        """Arrivals from clients that were not expected back."""
        self.returns = Returns()

    def arrived(self, source: Hashable, rows: float, now: float) -> None:
        """Count a request of ``rows`` rows from ``source``; None is an unknown client."""
        self.arrived_rows += rows
        self._rate.arrived(rows, now=now)
        self._slow_rate.arrived(rows, now=now)
        if not self.returns.arrived(source, now=now):
            self.new_clients.arrived(rows, now=now)

    def rate(self, now: float) -> float:
        """Return the arrivals in rows per second, over about half a second."""
        return self._rate.per_second(now=now)

    def load_rate(self, now: float) -> float:
        """Return the arrivals in rows per second: the higher of a short and a long average."""
        rate, slow_rate = self._rate.per_second(now=now), self._slow_rate.per_second(now=now)
        return rate if rate > slow_rate else slow_rate

    def returning_share(self, now: float) -> float:
        """Return the share of the arrivals that came from clients that were expected back."""
        rate = self.rate(now)
        return max(0.0, 1.0 - self.new_clients.per_second(now=now) / rate) if rate > 0 else 0.0
