"""The arrivals of one API: their rates, and which clients are expected back."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from copy import copy

from uncork_dispatcher.learning.returns import Returns

_WINDOW_S, _LONG_WINDOW_S = 0.5, 5.0
# Within this time nothing is forgotten: many requests arrive at the same time.
_GRAIN_S = 0.0005
# After this many windows the time before the first arrival does not count.
_SETTLED_WINDOWS = 40.0
# The first arrivals count as if they had taken at least this long.
_LEAST_S = 0.05


class ArrivalRate:
    """Rows per second over about the last half second, and the last 5 s, with exponential forgetting.

    It averages over time because clients that wait for a batch return all at once: an average over the last
    50 arrivals would mistake such a burst for the rate of the traffic.
    """

    def __init__(self) -> None:
        self._rows = 0.0
        self._rows_of_long = 0.0
        self._started = math.inf
        self._updated = -math.inf

    def arrived(self, rows: float, now: float) -> None:
        """Count ``rows`` rows that arrived at ``now`` (seconds)."""
        passed = now - self._updated
        if passed > _GRAIN_S:
            self._rows *= math.exp(-passed / _WINDOW_S)
            self._rows_of_long *= math.exp(-passed / _LONG_WINDOW_S)
            self._updated = now
            if self._started == math.inf:
                self._started = now
        self._rows += rows
        self._rows_of_long += rows

    def per_second(self, *, now: float) -> float:
        """Return the rate over half a second at ``now``, in rows per second; 0 before the first arrival."""
        return self._per_second(self._rows, _WINDOW_S, now)

    def highest(self, *, now: float) -> float:
        """Return the higher of the rates over half a second and over 5 s."""
        rate = self._per_second(self._rows, _WINDOW_S, now)
        long_rate = self._per_second(self._rows_of_long, _LONG_WINDOW_S, now)
        return rate if rate > long_rate else long_rate

    def _per_second(self, rows: float, window_s: float, now: float) -> float:
        per_second = rows * math.exp((self._updated - now) / window_s) / window_s
        passed = now - self._started
        if passed > _SETTLED_WINDOWS * window_s or per_second == 0.0:
            return per_second
        # Corrects for the part of the window that lies before the first arrival.
        return per_second / max(1.0 - math.exp(-passed / window_s), _LEAST_S / window_s)


class Traffic:
    """The arrivals of requests that may share a batch, whether they are queued or shed."""

    def __init__(self) -> None:
        self.mean_rows = 0.0
        """Rows (or cost) of an average request, over about the last hundred; 0 before the first."""
        self._rate = ArrivalRate()
        self.new_clients = ArrivalRate()
        """The rate of arrivals from clients that were not expected back."""
        self.returns = Returns()

    def count(self, rows: float, now: float) -> None:
        """Count a request of ``rows`` rows in the rates and in the mean."""
        mean = self.mean_rows
        if rows != mean:
            self.mean_rows = mean + 0.01 * (rows - mean) if mean else rows
        self._rate.arrived(rows, now)

    def counted(self) -> Traffic:
        """Return a copy with the rates and the mean, without the clients."""
        traffic = Traffic()
        traffic.mean_rows = self.mean_rows
        traffic._rate = copy(self._rate)
        return traffic

    def rate(self, now: float) -> float:
        """Return the arrivals in rows per second, over about half a second."""
        return self._rate.per_second(now=now)

    def load_rate(self, now: float) -> float:
        """Return the arrivals in rows per second: the higher of a short and a long average."""
        return self._rate.highest(now=now)

    def fades_in_s(self, rate: float, now: float) -> float:
        """Return after how many seconds without arrivals :meth:`load_rate` is at most ``rate``."""
        load = self.load_rate(now)
        return _LONG_WINDOW_S * math.log(load / rate) if load > rate else 0.0


_NONE = Traffic()
"""Traffic without arrivals."""


class ApiTraffic:
    """The arrivals of one API, and of each of its batch keys.

    Attributes:
        arrived_rows: the rows that have arrived since the start.
        all: the arrivals of all batch keys, without returning clients if there are several keys.
    """

    def __init__(self) -> None:
        self.arrived_rows = 0.0
        self.all = Traffic()
        self._keys: OrderedDict[Hashable, Traffic] = OrderedDict()
        """The latest keys; a key alone has the traffic :attr:`all`."""

    def arrived(self, key: Hashable, source: Hashable, rows: float, now: float) -> None:
        """Count a request with a batch key from the client ``source``, which is None if unknown."""
        self.arrived_rows += rows
        own = self._keys.get(key)
        if own is None:
            own = self._begin(key)
        own.count(rows, now)
        if source is None or not own.returns.arrived(source, now):
            own.new_clients.arrived(rows, now)
        if own is not self.all:
            self.all.count(rows, now)
            self._keys.move_to_end(key)

    def answered(self, key: Hashable, clients: Iterable[tuple[Hashable, float]], *, now: float) -> None:
        """Expect answered clients back with the same batch key; see :meth:`Returns.answered`."""
        if key in self._keys:
            self._keys[key].returns.answered(clients, now=now)

    def of(self, key: Hashable, now: float) -> Traffic:
        """Return the traffic of a batch key, or one without arrivals if most arrivals have other keys.

        A hold for the next requests of a rare key would keep a worker idle for too few.
        """
        own = self._keys.get(key, _NONE)
        return own if own is self.all or 2 * own.load_rate(now) >= self.all.load_rate(now) else _NONE

    def _begin(self, key: Hashable) -> Traffic:
        keys = self._keys
        if not keys:
            keys[key] = self.all
            return self.all
        if len(keys) == 1:
            self.all = self.all.counted()
        # A key with half of the arrivals is always among so many latest keys.
        elif len(keys) == 32:
            keys.popitem(last=False)
        own = keys[key] = Traffic()
        return own
