"""The requests held for one (api, batch key)."""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
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


# A heap is rebuilt when its removed entries outnumber the queued ones by more than this.
_SLACK = 64


class _LazyHeap:
    """Queued requests by a time, the earliest first.

    A removed request stays until it surfaces, or until most of the heap is such requests.
    """

    def __init__(self, queued: Mapping[int, Entry], times: Iterable[tuple[float, int]] = ()) -> None:
        self._queued = queued
        self._times = list(times)
        heapq.heapify(self._times)

    def __len__(self) -> int:
        return len(self._times)

    def push(self, at: float, request: int) -> None:
        """Add a queued request."""
        if len(self._times) > 2 * len(self._queued) + _SLACK:
            self._times = [each for each in self._times if each[1] in self._queued]
            heapq.heapify(self._times)
        heapq.heappush(self._times, (at, request))

    def top(self) -> Entry | None:
        """The queued request with the earliest time; None if there is none."""
        while self._times:
            entry = self._queued.get(self._times[0][1])
            if entry is not None:
                return entry
            heapq.heappop(self._times)
        return None


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
        self._deadlines: _LazyHeap | None = None
        self._expiries = _LazyHeap(self._entries)

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
            self._deadlines.push(entry.deadline, entry.request)
        elif entry.deadline < self._latest_deadline:
            deadlines = [(each.deadline, each.request) for each in self._entries.values()]
            self._deadlines = _LazyHeap(self._entries, deadlines)
        else:
            self._latest_deadline = entry.deadline
        if entry.expires_at != math.inf:
            self._expiries.push(entry.expires_at, entry.request)

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
        entry = self._deadlines.top()
        assert entry is not None
        return entry

    @property
    def soonest_to_leave(self) -> Entry | None:
        """The request whose client gives up first; None if nobody has said when."""
        return self._expiries.top()
