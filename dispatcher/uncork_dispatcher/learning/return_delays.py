"""Learns the distribution of the time that answered clients take to send their next request.

It is a histogram with exponential forgetting, so stragglers, think times and clients that never return need
no assumptions.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import accumulate

GONE_S = 2.0
"""A client that has not returned after this many seconds is not expected any more."""
# Weight of an observation relative to the one before: the last 350 or so have half of the total weight.
_FRESHER = 1.002


def _edges() -> list[float]:
    edges = [0.0, 50e-6]
    while edges[-1] < GONE_S:
        edges.append(edges[-1] * 1.15)
    return edges


_EDGES = _edges()


class ReturnDelays:
    """The distribution of the time until an answered client is back; each observation has a weight."""

    def __init__(self) -> None:
        # Of each delay between two edges, and last of all longer ones.
        self._weights = [0.0] * len(_EDGES)
        self._never = 0.0
        self._weight = 1.0
        # Of the delays: sum of the weights, of the delays, and of their squares.
        self._moments = (0.0, 0.0, 0.0)
        self._cumulated: list[float] = []
        self._total = 0.0
        self._new: list[float] = []
        """Delays not counted yet; counting several at a time costs half as much."""

    def observe(self, delay_s: float) -> None:
        self._new.append(delay_s)
        # Delays that are counted at once have weights far below the largest float.
        if len(self._new) >= 256:
            self._count()

    def observe_none(self) -> None:
        self._count()
        self._never += self._weight
        self._grow(self._weight * _FRESHER)

    def _count(self) -> None:
        """Count the new delays, each with more weight than the one before."""
        if not self._new:
            return
        counts, weight = self._weights, self._weight
        weights, delays, squares = self._moments
        for delay_s in self._new:
            counts[bisect_right(_EDGES, delay_s) - 1] += weight
            weighted = weight * delay_s
            weights += weight
            delays += weighted
            squares += weighted * delay_s
            weight *= _FRESHER
        self._new.clear()
        self._moments = (weights, delays, squares)
        self._grow(weight)

    @property
    def total(self) -> float:
        """The total weight of all observations, clients that did not return included."""
        self._accumulate()
        return self._total

    def returned_within(self, delay_s: float) -> float:
        """Return the weight of the clients that returned within ``delay_s`` seconds."""
        back = self._accumulate()
        place = bisect_right(_EDGES, delay_s)
        if place == len(_EDGES):
            return back[-1]
        low = _EDGES[place - 1]
        return back[place - 1] + self._weights[place - 1] * (delay_s - low) / (_EDGES[place] - low)

    def return_probability(self) -> float:
        """Return the share of the answered clients that return; 0 before the first returns."""
        back = self._accumulate()
        return back[-1] / self._total if self._total else 0.0

    def usual(self) -> float:
        """Return the seconds within which 98 % of the returning clients are back; infinity if unknown."""
        back = self._accumulate()
        most = back[-1] * 0.98
        if most <= 0:
            return math.inf
        place = bisect_left(back, most)
        low, below = _EDGES[place - 1], back[place - 1]
        return low + (_EDGES[place] - low) * (most - below) / (back[place] - below)

    def squared_variation(self) -> float:
        """Return the squared coefficient of variation of the delay; 0 while nothing is known.

        It is well below 1 for clients that send again as soon as they are answered; 1 or more for independent
        arrivals over a pool of connections.
        """
        self._count()
        weights, delays, squares = self._moments
        return max(0.0, weights * squares / (delays * delays) - 1.0) if delays > 0 else 0.0

    def _accumulate(self) -> list[float]:
        """Return, for each edge of the histogram, the weight of the clients that returned by then."""
        if self._new:
            self._count()
        if not self._cumulated:
            self._cumulated = [0.0, *accumulate(self._weights[:-1])]
            self._total = self._cumulated[-1] + self._weights[-1] + self._never
        return self._cumulated

    def _grow(self, weight: float) -> None:
        """Set the weight of the next observation; scale all weights down before they get too large."""
        self._cumulated = []
        self._weight = weight
        if weight > 1e9:
            self._weights = [each / weight for each in self._weights]
            self._never /= weight
            weights, delays, squares = self._moments
            self._moments = weights / weight, delays / weight, squares / weight
            self._weight = 1.0
