"""Which answered clients are expected back, how many rows they will bring, and when.

Many clients send their next request when they have had an answer: all of a batch are answered at once and
come back as a burst. Who has come back is seen from the source of a request (its connection); how long it
takes is learned as a distribution, so that stragglers, clients that think and clients that never
come again need no assumptions.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

# A client that has not come back after this is not expected any more.
_GONE_S = 2.0
_SHORTEST_S = 50e-6
_RATIO = 1.15
# Weight of an observation against the one before it: half of what is known is from the last 350 or so.
_FRESHER = 1.002
_MOST_WEIGHT = 1e9
# Clients remembered at most, and groups of clients that were answered together looked at for a decision.
_MOST_SOURCES = 50_000
_MOST_GROUPS = 6


@dataclass(slots=True, eq=False)
class _Group:
    """Clients that were answered at one moment and have not come back yet."""

    answered_at: float
    clients: int
    rows: float


class Returns:
    """Expects answered clients back. Times are seconds on the core's clock."""

    def __init__(self) -> None:
        self._edges = [_SHORTEST_S]
        while self._edges[-1] < _GONE_S:
            self._edges.append(self._edges[-1] * _RATIO)
        self._weights = [0.0] * (len(self._edges) + 1)
        self._never = 0.0
        self._weight = 1.0
        self._shares: list[float] | None = None
        self._sources: dict[Hashable, tuple[_Group, float]] = {}
        self._groups: deque[_Group] = deque()

    def answered(self, clients: Iterable[tuple[Hashable, float]], *, now: float) -> None:
        """Clients, each with the rows of its request, have had their answers; None is an unknown one."""
        group = _Group(now, 0, 0.0)
        for source, rows in clients:
            if source is None:
                continue
            self._leave(source)
            self._sources[source] = (group, rows)
            group.clients += 1
            group.rows += rows
        if group.clients:
            self._groups.append(group)
        self._give_up(now)

    def arrived(self, source: Hashable, *, now: float) -> bool:
        """A client has sent a request; returns whether it was expected back."""
        group = self._leave(source) if source is not None else None
        if group is None:
            return False
        self._observe(now - group.answered_at)
        return True

    def expected(self, within_s: float, *, now: float) -> float:
        """Rows that are expected to be brought within ``within_s`` seconds from now."""
        rows = 0.0
        for group in self._recent():
            age = now - group.answered_at
            back = self._share(age)
            if back < 1.0:
                rows += group.rows * (self._share(age + within_s) - back) / (1.0 - back)
        return rows

    def share(self) -> float:
        """Share of the answered clients that come back at all; 0 when nobody has been seen to."""
        return self._cumulated()[-1]

    def moments(self, *, now: float) -> list[float]:
        """Seconds from now until each group of clients will be as good as complete."""
        if not self._groups:
            return []
        usual = self._usual()
        return [wait for group in self._recent() if (wait := group.answered_at + usual - now) > 0]

    def _recent(self) -> list[_Group]:
        groups = self._groups
        while groups and not groups[0].clients:
            groups.popleft()
        recent = []
        for group in reversed(groups):
            if group.clients:
                recent.append(group)
                if len(recent) == _MOST_GROUPS:
                    break
        return recent

    def _leave(self, source: Hashable) -> _Group | None:
        """Take a client out of the group in which it is expected back."""
        known = self._sources.pop(source, None)
        if known is None:
            return None
        group, rows = known
        group.clients -= 1
        group.rows -= rows
        return group

    def _give_up(self, now: float) -> None:
        while self._sources:
            source, (group, _) = next(iter(self._sources.items()))
            if now - group.answered_at < _GONE_S and len(self._sources) <= _MOST_SOURCES:
                break
            self._leave(source)
            self._never += self._weight
            self._heavier()
        while self._groups and not self._groups[0].clients:
            self._groups.popleft()

    # The distribution of the time until a client is back

    def _observe(self, delay_s: float) -> None:
        self._weights[bisect_right(self._edges, delay_s)] += self._weight
        self._heavier()

    def _heavier(self) -> None:
        self._shares = None
        self._weight *= _FRESHER
        if self._weight > _MOST_WEIGHT:
            self._weights = [weight / self._weight for weight in self._weights]
            self._never /= self._weight
            self._weight = 1.0

    def _cumulated(self) -> list[float]:
        """Share of the answered clients that are back by each edge."""
        if self._shares is None:
            total = sum(self._weights) + self._never
            shares = []
            back = 0.0
            for weight in self._weights[:-1]:
                back += weight
                shares.append(back / total if total else 0.0)
            self._shares = shares
        return self._shares

    def _share(self, delay_s: float) -> float:
        """Share of the answered clients that are back within ``delay_s``."""
        shares = self._cumulated()
        place = bisect_right(self._edges, delay_s)
        if place == len(self._edges):
            return shares[-1]
        low, below = (self._edges[place - 1], shares[place - 1]) if place else (0.0, 0.0)
        return below + (shares[place] - below) * (delay_s - low) / (self._edges[place] - low)

    def _usual(self) -> float:
        """Seconds within which 98 % of those who come back at all are back."""
        shares = self._cumulated()
        most = shares[-1] * 0.98
        if most <= 0:
            return math.inf
        place = bisect_left(shares, most)
        low, below = (self._edges[place - 1], shares[place - 1]) if place else (0.0, 0.0)
        return low + (self._edges[place] - low) * (most - below) / (shares[place] - below)
