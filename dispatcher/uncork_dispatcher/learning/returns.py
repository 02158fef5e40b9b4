"""Which answered clients are expected back, how many rows they will bring, and when.

Many clients send their next request when they receive an answer: all clients of a batch are answered at once
and return as a burst. The source of a request (its connection) tells who has returned; ``return_delays.py``
learns how long that takes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import islice

from uncork_dispatcher.learning.return_delays import GONE_S, ReturnDelays

# Most clients that are remembered, and most groups of clients answered together that a forecast looks at.
_MOST_SOURCES = 50_000
_MOST_GROUPS = 6


@dataclass(slots=True, eq=False)
class _Group:
    """Clients that were answered at one moment and have not returned yet."""

    answered_at: float
    clients: dict[Hashable, float]
    """The rows of each client's last request, by source."""
    rows: float


class ReturnForecast:
    """The returns that are expected from ``now`` on. Read-only; valid until the next arrival or answer.

    Its figures are computed when a policy asks for them: most decisions need few.
    """

    __slots__ = ("_delays", "_due", "_groups", "_now")

    def __init__(self, groups: OrderedDict[_Group, None], delays: ReturnDelays, now: float) -> None:
        self._groups = groups
        self._delays = delays
        self._now = now
        self._due: list[tuple[float, float, float]] | None = None

    def expected_rows(self, within_s: float) -> float:
        """Return the rows that are expected within ``within_s`` seconds from now."""
        total = 0.0
        for age, rows, back in self._due_groups():
            total += rows * (self._delays.returned_within(age + within_s) - back)
        return total

    def return_times(self) -> list[float]:
        """Return the seconds from now until each group of clients will be almost complete."""
        if not self._groups:
            return []
        usual = self._delays.usual()
        return [usual - age for age, _, _ in self._due_groups() if age < usual]

    def return_probability(self) -> float:
        """Return the share of the answered clients that return at all."""
        return self._delays.return_probability()

    def squared_variation(self) -> float:
        """Return the squared coefficient of variation of the time until a client is back."""
        return self._delays.squared_variation()

    def _due_groups(self) -> list[tuple[float, float, float]]:
        """Of each group: age, rows still missing per weight not back yet, weight that is."""
        if self._due is None:
            total = self._delays.total
            self._due = []
            for group in islice(reversed(self._groups), _MOST_GROUPS):
                age = self._now - group.answered_at
                back = self._delays.returned_within(age)
                self._due.append((age, group.rows / (total - back) if total > back else 0.0, back))
        return self._due


class Returns:
    """Tracks the answered clients. Times are seconds on the core's clock."""

    def __init__(self) -> None:
        self._delays = ReturnDelays()
        self._sources: dict[Hashable, _Group] = {}
        # Groups with clients still missing, oldest first. An OrderedDict finds both ends at once; a dict
        # would scan past deleted entries.
        self._groups: OrderedDict[_Group, None] = OrderedDict()

    @property
    def clients(self) -> int:
        """How many clients are expected back, or were until recently."""
        return len(self._sources)

    def answered(self, clients: Iterable[tuple[Hashable, float]], *, now: float) -> None:
        """Expect clients back, each given with the rows of its request; a client None is unknown."""
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
        self._give_up(now)

    def arrived(self, source: Hashable, now: float) -> bool:
        """Note a request of a client; return whether it was expected back."""
        group = self._leave(source)
        if group is None:
            return False
        self._delays.observe(now - group.answered_at)
        return True

    def forecast(self, *, now: float) -> ReturnForecast:
        """Return what to expect from the latest groups."""
        return ReturnForecast(self._groups, self._delays, now)

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
        """Stop expecting the clients that have been away for too long, or that are too many."""
        while self._groups:
            oldest = next(iter(self._groups))
            if now - oldest.answered_at < GONE_S and len(self._sources) <= _MOST_SOURCES:
                break
            for source in list(oldest.clients):
                self._leave(source)
                self._delays.observe_none()
