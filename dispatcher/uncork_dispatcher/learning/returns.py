"""Predicts which answered clients return, with how many rows, and when.

Many clients send their next request when they receive a response: all clients of a batch are answered at once
and return as a burst. The source of a request (its connection) identifies the client; ``return_delays.py``
learns how long returns take.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import islice

from uncork_dispatcher.learning.group_times import GroupTimes
from uncork_dispatcher.learning.return_delays import GONE_S, ReturnDelays


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


class ReturnForecast:
    """A forecast of returning clients from ``now`` on. Read-only; valid until the next arrival or response.

    Each value is computed on request, because most decisions need few.
    """

    __slots__ = ("_delays", "_due", "_group_times", "_groups", "_now")

    def __init__(
        self, groups: OrderedDict[_Group, None], delays: ReturnDelays, group_times: GroupTimes, now: float
    ) -> None:
        self._groups = groups
        self._delays = delays
        self._group_times = group_times
        self._now = now
        self._due: list[tuple[float, float, float]] | None = None

    def expected_rows(self, within_s: float) -> float:
        """Return the rows that returning clients are expected to bring within ``within_s`` seconds."""
        if not self._groups:
            return 0.0
        total = 0.0
        for age, rows, back in self._due_groups():
            total += rows * (self._delays.returned_within(age + within_s) - back)
        return total

    def return_times(self) -> list[float]:
        """Return, for each group of clients, the seconds from now until 98 % of them should be back."""
        if not self._groups:
            return []
        usual = self._delays.usual()
        return [usual - age for age, _, _ in self._due_groups() if age < usual]

    def group_s(self, rows: float) -> tuple[float, float]:
        """Return how many seconds a group of clients with ``rows`` rows takes to return, and half a group.

        Zeros while no such group has been seen. A group has returned when 98 % of its clients are back.
        """
        return self._group_times.whole_and_half(rows)

    def away_rows(self) -> float:
        """Return the rows of the clients that were recently answered and are not back yet.

        Recently means within twice the time that the latest group took to return.
        """
        since = self._now - 2 * self._group_times.latest_s
        rows = 0.0
        # Two for each of eight workers, and some with stragglers.
        for group in islice(reversed(self._groups), 20):
            if group.answered_at < since:
                break
            rows += group.rows
        return rows

    def return_probability(self) -> float:
        """Return the share of the answered clients that return at all."""
        return self._delays.return_probability()

    def squared_variation(self) -> float:
        """Return the squared coefficient of variation of the time until a client is back."""
        return self._delays.squared_variation()

    def _due_groups(self) -> list[tuple[float, float, float]]:
        """Return (age, missing rows per missing weight, weight returned) of each of the latest groups."""
        if self._due is None:
            total = self._delays.total
            self._due = []
            for group in islice(reversed(self._groups), 6):
                age = self._now - group.answered_at
                back = self._delays.returned_within(age)
                self._due.append((age, group.rows / (total - back) if total > back else 0.0, back))
        return self._due


class Returns:
    """Tracks answered clients until they return. Times are seconds on the core's clock."""

    def __init__(self) -> None:
        self._delays = ReturnDelays()
        self._sources: dict[Hashable, _Group] = {}
        # Groups with clients still missing, oldest first. An OrderedDict finds both ends at once; a dict
        # would scan past deleted entries.
        self._groups: OrderedDict[_Group, None] = OrderedDict()
        self.group_times = GroupTimes()
        """How long groups of clients that were answered together take to return."""

    def answered(self, clients: Iterable[tuple[Hashable, float]], *, now: float) -> None:
        """Expect answered clients back, given as (source, rows of the request); ignore the source None."""
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
        self._delays.observe(delay_s)
        if len(group.clients) == group.stragglers:
            self.group_times.observe(group.all_rows, delay_s)
        return True

    def forecast(self, *, now: float) -> ReturnForecast:
        """Return the forecast of returning clients."""
        return ReturnForecast(self._groups, self._delays, self.group_times, now)

    def _leave(self, source: Hashable) -> _Group | None:
        """Take a client out of the group in which it is expected back."""
        group = self._sources.pop(source, None)
        if group is None:
            return None
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
                self._delays.observe_none()
