"""Which answered clients are expected back, how many rows they will bring, and when.

Many clients send their next request when they have had an answer: all of a batch are answered at once and
come back as a burst. Who has come back is seen from the source of a request (its connection); how long it
takes is learned as a distribution, so that stragglers, clients that think and clients that never
come again need no assumptions.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import accumulate

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
    clients: dict[Hashable, float]
    """The rows of each client's last request, by source."""
    rows: float


class Returns:
    """Expects answered clients back. Times are seconds on the core's clock."""

    def __init__(self) -> None:
        self._edges = [0.0, _SHORTEST_S]
        while self._edges[-1] < _GONE_S:
            self._edges.append(self._edges[-1] * _RATIO)
        # Of each delay between two edges, and last of all longer ones.
        self._weights = [0.0] * len(self._edges)
        self._never = 0.0
        self._weight = 1.0
        # Of the delays: sum of the weights, of the delays, and of their squares.
        self._moments = (0.0, 0.0, 0.0)
        self._back: list[float] = []
        self._total = 0.0
        self._sources: dict[Hashable, _Group] = {}
        # Groups with clients still missing, oldest first. An OrderedDict finds both ends at once; a dict
        # would scan past deleted entries.
        self._groups: OrderedDict[_Group, None] = OrderedDict()
        self._due: list[tuple[float, float, float]] = []
        self._due_at = math.nan

    def answered(self, clients: Iterable[tuple[Hashable, float]], *, now: float) -> None:
        """Clients, each with the rows of its request, have had their answers; None is an unknown one."""
        group = _Group(now, {}, 0.0)
        for source, rows in clients:
            if source is None:
                continue
            self._leave(source)
            self._sources[source] = group
            group.clients[source] = rows
            group.rows += rows
        if group.clients:
            self._groups[group] = None
            self._due_at = math.nan
        self._give_up(now)

    def arrived(self, source: Hashable, *, now: float) -> bool:
        """A client has sent a request; returns whether it was expected back."""
        group = self._leave(source) if source is not None else None
        if group is None:
            return False
        delay_s = now - group.answered_at
        self._weights[bisect_right(self._edges, delay_s) - 1] += self._weight
        weights, delays, squares = self._moments
        weighted = self._weight * delay_s
        self._moments = weights + self._weight, delays + weighted, squares + weighted * delay_s
        self._heavier()
        return True

    def expected(self, within_s: float, *, now: float) -> float:
        """Rows that are expected to be brought within ``within_s`` seconds from now."""
        total = 0.0
        for age, rows, back in self._due_groups(now):
            total += rows * (self._back_within(age + within_s) - back)
        return total

    @property
    def clients(self) -> int:
        """How many are expected back, or have been until lately."""
        return len(self._sources)

    def squared_variation(self) -> float:
        """Squared coefficient of variation of the time until a client is back; 0 while nothing is known.

        Well below 1 for clients that send again as soon as they are answered; 1 or more for independent
        arrivals over a pool of connections.
        """
        weights, delays, squares = self._moments
        return max(0.0, weights * squares / (delays * delays) - 1.0) if delays > 0 else 0.0

    def share(self) -> float:
        """Share of the answered clients that come back at all; 0 when nobody has been seen to."""
        back = self._cumulated()
        return back[-1] / self._total if self._total else 0.0

    def moments(self, *, now: float) -> list[float]:
        """Seconds from now until each group of clients will be as good as complete."""
        if not self._groups:
            return []
        usual = self._usual()
        return [usual - age for age, _, _ in self._due_groups(now) if age < usual]

    def _due_groups(self, now: float) -> list[tuple[float, float, float]]:
        """Of each of the latest groups: age, rows still missing per weight not back yet, weight that is."""
        if self._due_at == now:
            return self._due
        self._due = due = []
        self._due_at = now
        self._cumulated()
        for group in reversed(self._groups):
            age = now - group.answered_at
            back = self._back_within(age)
            due.append((age, group.rows / (self._total - back) if self._total > back else 0.0, back))
            if len(due) == _MOST_GROUPS:
                break
        return due

    def _leave(self, source: Hashable) -> _Group | None:
        """Take a client out of the group in which it is expected back."""
        group = self._sources.pop(source, None)
        if group is None:
            return None
        group.rows -= group.clients.pop(source)
        self._due_at = math.nan
        if not group.clients:
            # Not there yet if the same client occurs twice in the group that is being answered.
            self._groups.pop(group, None)
        return group

    def _give_up(self, now: float) -> None:
        """Expect clients no longer that have been away for too long, or that are too many."""
        while self._groups:
            oldest = next(iter(self._groups))
            if now - oldest.answered_at < _GONE_S and len(self._sources) <= _MOST_SOURCES:
                break
            for source in list(oldest.clients):
                self._leave(source)
                self._never += self._weight
                self._heavier()

    # The distribution of the time until a client is back

    def _heavier(self) -> None:
        self._back = []
        self._weight *= _FRESHER
        if self._weight > _MOST_WEIGHT:
            self._weights = [weight / self._weight for weight in self._weights]
            self._never /= self._weight
            weights, delays, squares = self._moments
            self._moments = weights / self._weight, delays / self._weight, squares / self._weight
            self._weight = 1.0

    def _cumulated(self) -> list[float]:
        """Weight of the answered clients that are back by each edge."""
        if not self._back:
            self._back = [0.0, *accumulate(self._weights[:-1])]
            self._total = self._back[-1] + self._weights[-1] + self._never
        return self._back

    def _back_within(self, delay_s: float) -> float:
        """Weight of the answered clients that are back within ``delay_s``."""
        back = self._back or self._cumulated()
        place = bisect_right(self._edges, delay_s)
        if place == len(self._edges):
            return back[-1]
        low = self._edges[place - 1]
        return back[place - 1] + self._weights[place - 1] * (delay_s - low) / (self._edges[place] - low)

    def _usual(self) -> float:
        """Seconds within which 98 % of those who come back at all are back."""
        back = self._cumulated()
        most = back[-1] * 0.98
        if most <= 0:
            return math.inf
        place = bisect_left(back, most)
        low, below = self._edges[place - 1], back[place - 1]
        return low + (self._edges[place] - low) * (most - below) / (back[place] - below)
