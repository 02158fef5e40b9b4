"""The requests held for one (api, batch key)."""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Entry:
    """One request inside the core. ``rows`` is what it counts: its rows, or their cost.

    ``deadline`` is when it should be answered, ``expires_at`` when its client gives up (seconds). A worker
    was lost while it ran a ``suspect``, which is held again since ``arrival``.
    """

    request: int
    arrival: float
    rows: float
    size_bytes: int
    deadline: float
    expires_at: float
    queue: RequestQueue
    source: Hashable = None
    flow: Hashable = None
    suspect: bool = False
    cancelled: bool = False


class RequestQueue:
    """Earliest deadline first; of equal deadlines the oldest. Removal from anywhere.

    Deadlines usually come in the order of arrival. While they do, that order is all there is; the first
    request that is more urgent than one before it brings a heap into being.
    """

    def __init__(self, api: str, key: Hashable, *, suspects: bool = False) -> None:
        self.api = api
        self.key = key
        self.suspects = suspects
        """Whether its requests are to be run one by one, because one of them may be what kills workers."""
        self.rows = 0.0
        self.size_bytes = 0
        self.newest = 0.0
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._latest_deadline = -math.inf
        # By deadline (None while it is not needed), and by when the client gives up. Removed entries stay
        # until they come to the top.
        self._deadlines: list[tuple[float, int]] | None = None
        self._expiries: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request: int) -> bool:
        return request in self._entries

    def append(self, entry: Entry) -> None:
        """Add a new arrival."""
        self.newest = entry.arrival
        self._entries[entry.request] = entry
        self.rows += entry.rows
        self.size_bytes += entry.size_bytes
        if self._deadlines is not None:
            heapq.heappush(self._deadlines, (entry.deadline, entry.request))
        elif entry.deadline < self._latest_deadline:
            self._deadlines = [(each.deadline, each.request) for each in self._entries.values()]
            heapq.heapify(self._deadlines)
        else:
            self._latest_deadline = entry.deadline
        if entry.expires_at != math.inf:
            heapq.heappush(self._expiries, (entry.expires_at, entry.request))

    def remove(self, entry: Entry) -> None:
        """Take one request out, wherever it stands."""
        del self._entries[entry.request]
        self.rows -= entry.rows
        self.size_bytes -= entry.size_bytes

    def take(self, *, rows: float, size_bytes: int) -> list[Entry]:
        """Take the most urgent requests that fit into ``rows`` and ``size_bytes``, at least one."""
        taken: list[Entry] = []
        while self._entries:
            entry = self.most_urgent
            rows -= entry.rows
            size_bytes -= entry.size_bytes
            if taken and (rows < 0 or size_bytes < 0):
                break
            if self._deadlines is not None:
                heapq.heappop(self._deadlines)
            self.remove(entry)
            taken.append(entry)
        return taken

    def by_urgency(self) -> list[Entry]:
        """All requests, earliest deadline first."""
        if self._deadlines is None:
            return list(self._entries.values())
        return sorted(self._entries.values(), key=lambda entry: (entry.deadline, entry.request))

    def newest_first(self) -> Iterator[Entry]:
        """All requests, the newest first. The queue must not be changed meanwhile."""
        return reversed(self._entries.values())

    def before(self, flow: Hashable, rows: float) -> tuple[float, int]:
        """Rows and requests up to and with one of ``rows`` rows that comes now: here all there are."""
        return self.rows + rows, len(self) + 1

    def skippable(self, entries: Sequence[Entry], *, rows: float, goal_s: float) -> int:
        """How many of ``entries``, the most urgent, may be refused so that others fill a batch: here any."""
        return len(entries)

    @property
    def oldest(self) -> Entry:
        """The request at the head. The queue must not be empty."""
        return next(iter(self._entries.values()))

    @property
    def most_urgent(self) -> Entry:
        """The request with the earliest deadline. The queue must not be empty."""
        if self._deadlines is None:
            return self.oldest
        entry = self._top(self._deadlines)
        assert entry is not None
        return entry

    @property
    def soonest_to_leave(self) -> Entry | None:
        """The request whose client gives up first; None if nobody has said when."""
        return self._top(self._expiries)

    def _top(self, heap: list[tuple[float, int]]) -> Entry | None:
        while heap:
            entry = self._entries.get(heap[0][1])
            if entry is not None:
                return entry
            heapq.heappop(heap)
        return None
