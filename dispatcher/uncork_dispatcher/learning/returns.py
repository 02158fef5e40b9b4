"""Predicts which answered clients return, with how many rows, and when.

Many clients send their next request when they receive a response: all clients of a batch are answered at once
and return as a burst. The source of a request (its connection) identifies the client; ``return_delays.py``
learns how long returns take.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import islice

from uncork_dispatcher.learning.return_delays import GONE_S, ReturnDelays

# Groups share a mean if their sizes differ by less than about a twentieth.
_SIZES_PER_DOUBLING = 8


@dataclass(slots=True, eq=False)
class _Group:
    """Clients that were answered at one moment and have not returned yet."""

    answered_at: float
    clients: dict[Hashable, float]
    """The rows of the last request of each missing client, by source."""
    rows: float
    all_rows: float = 0.0
    """The rows of the whole group, returned clients included."""
    stragglers: int = -1
    """The group counts as back when only this many clients are missing; -1 to learn nothing from it."""


class GroupTimes:
    """The mean seconds until 98 % of the clients of a group are back, by the rows of the group.

    The time includes writing the responses and reading the next requests. Part of this work is serial, so
    large groups take longer. Each size has its own mean. The time of a new size follows from the nearest
    known size, in proportion; if none is near, from half or twice the size.
    """

    def __init__(self) -> None:
        self._means: dict[int, tuple[float, int]] = {}
        """By size: the mean seconds, and the number of groups that it rests on."""
        self.latest_s = 0.0
        """Seconds until the latest group was back; 0 before the first."""

    def observe(self, rows: float, seconds: float) -> None:
        self.latest_s = seconds
        size = self._size(rows)
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
        size = self._size(rows)
        for distance in range(5):
            for near in (size + distance, size - distance):
                if near in self._means:
                    mean, _ = self._means[near]
                    return mean * 2 ** ((size - near) / _SIZES_PER_DOUBLING)
        return None

    @staticmethod
    def _size(rows: float) -> int:
        return round(_SIZES_PER_DOUBLING * math.log2(rows))


class Returns:
    """Tracks answered clients until they return. Times are seconds on the core's clock.

    Forecasts are computed on request, because most decisions need few.
    """

    def __init__(self) -> None:
        self.delays = ReturnDelays()
        """How long answered clients take to return."""
        self._sources: dict[Hashable, _Group] = {}
        # Groups with clients still missing, oldest first. An OrderedDict finds both ends at once; a dict
        # would scan past deleted entries.
        self._groups: OrderedDict[_Group, None] = OrderedDict()
        self.group_times = GroupTimes()
        """How long groups of clients that were answered together take to return."""
        self._due: list[tuple[float, float, float]] = []
        """See :meth:`_due_groups`; valid at ``_due_at``, until the next arrival or response."""
        self._due_at = -math.inf

    def answered(self, clients: Iterable[tuple[Hashable, float]], *, now: float) -> None:
        """Expect answered clients back, given as (source, rows of the request); ignore the source None."""
        self._due_at = -math.inf
        group = _Group(now, {}, 0.0)
        for source, rows in clients:
            if source is None:
                continue
            if source in self._sources:
                self._leave(source)
            self._sources[source] = group
            group.clients[source] = rows
            group.rows += rows
        if group.clients:
            self._groups[group] = None
            # Smaller groups do not show how long a group stays away.
            if len(group.clients) >= 4:
                # The group is back when no more than 2 % of its clients are missing.
                group.all_rows, group.stragglers = group.rows, int(0.02 * len(group.clients))
        self._give_up(now)

    def arrived(self, source: Hashable, now: float) -> bool:
        """Note a request of a client; return True if the client was expected back."""
        group = self._leave(source)
        if group is None:
            return False
        delay_s = now - group.answered_at
        self.delays.observe(delay_s)
        if len(group.clients) == group.stragglers:
            self.group_times.observe(group.all_rows, delay_s)
        return True

    def expected_rows(self, within_s: float, *, now: float) -> float:
        """Return the rows that returning clients are expected to bring within ``within_s`` seconds."""
        if not self._groups:
            return 0.0
        total = 0.0
        for age, rows, back in self._due_groups(now):
            total += rows * (self.delays.returned_within(age + within_s) - back)
        return total

    def return_times(self, *, now: float) -> list[float]:
        """Return, for each group of clients, the seconds from now until 98 % of them should be back."""
        if not self._groups:
            return []
        usual = self.delays.usual()
        return [usual - age for age, _, _ in self._due_groups(now) if age < usual]

    def away_rows(self, *, now: float) -> float:
        """Return the rows of the clients that were recently answered and are not back yet.

        Recently means within twice the time that the latest group took to return.
        """
        since = now - 2 * self.group_times.latest_s
        rows = 0.0
        # Two for each of eight workers, and some with stragglers.
        for group in islice(reversed(self._groups), 20):
            if group.answered_at < since:
                break
            rows += group.rows
        return rows

    def _due_groups(self, now: float) -> list[tuple[float, float, float]]:
        """Return (age, missing rows per missing weight, weight returned) of each of the latest groups."""
        if self._due_at != now:
            self._due, self._due_at, total = [], now, self.delays.total
            for group in islice(reversed(self._groups), 6):
                age = now - group.answered_at
                back = self.delays.returned_within(age)
                self._due.append((age, group.rows / (total - back) if total > back else 0.0, back))
        return self._due

    def _leave(self, source: Hashable) -> _Group | None:
        """Take a client out of the group in which it is expected back."""
        group = self._sources.pop(source, None)
        if group is None:
            return None
        self._due_at = -math.inf
        group.rows -= group.clients.pop(source)
        if not group.clients:
            # The group is not listed yet if a client occurs twice in the batch that is being answered.
            self._groups.pop(group, None)
        return group

    def _give_up(self, now: float) -> None:
        """Stop expecting clients that were answered more than 2 s ago; the oldest, if too many are away."""
        while self._groups:
            oldest = next(iter(self._groups))
            if now - oldest.answered_at < GONE_S and len(self._sources) <= 50_000:
                break
            for source in list(oldest.clients):
                self._leave(source)
                self.delays.observe_none()
