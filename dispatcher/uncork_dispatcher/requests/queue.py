"""The queued requests of one API, group and batch key."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any, Literal

from uncork_dispatcher.learning.measures import BatchSize
from uncork_dispatcher.policies.base import Hold
from uncork_dispatcher.requests.due_rows import DueRows
from uncork_dispatcher.requests.lazy_heap import LazyHeap
from uncork_dispatcher.requests.lengths import RowLengths
from uncork_dispatcher.requests.states import RequestState

_QUEUED = RequestState.QUEUED

Retry = Literal["batch", "alone"]
"""How requests run again after their worker was lost: as the same batch, or each alone."""


class Entry:
    """One request inside the core.

    Attributes:
        number: identifies the request; ascends in the order of arrival.
        request: the request as it was submitted.
        arrival: when it was queued; for a quarantined request, when its batch was lost again.
        rows: the number of rows, or their total cost.
        size_bytes: the size of the body.
        deadline: when the worker should be done with it.
        expires_at: when the client gives up; infinity if it has set no time.
        queue: the queue that it is in, or was taken from.
        count: the number of rows.
        longest: the length of its longest row, see :class:`~uncork_dispatcher.requests.lengths.RowLengths`.
        length: the length to which the model pads or truncates that row.
        padded: ``count * length``.
        source: the client, for the forecast of returns; None if unknown.
        flow: the flow that shares a fair queue with others.
        bulk: True if it belongs to the second class of its API.
        follows: True for a later part of a request that was accepted: no prediction sheds it.
        batch: the number of the batch with which it ran last; 0 before.
        state: where the request is, or how it ended.
    """

    __slots__ = (
        *("number", "request", "arrival", "rows", "size_bytes", "deadline", "expires_at", "queue"),
        *("count", "longest", "length", "padded", "source", "flow", "bulk", "follows", "batch", "state"),
    )

    def __init__(
        self,
        number: int,
        request: Any,
        arrival: float,
        rows: float,
        size_bytes: int,
        deadline: float,
        expires_at: float,
        queue: RequestQueue,
        lengths: RowLengths,
        source: Hashable = None,
        flow: Hashable = None,
        bulk: bool = False,
        follows: bool = False,
    ) -> None:
        self.number = number
        self.request = request
        self.arrival = arrival
        self.rows = rows
        self.size_bytes = size_bytes
        self.deadline = deadline
        self.expires_at = expires_at
        self.queue = queue
        self.count, self.longest, self.length, self.padded = lengths
        self.source = source
        self.flow = flow
        self.bulk = bulk
        self.follows = follows
        self.batch = 0
        self.state = _QUEUED

    @property
    def size(self) -> BatchSize:
        """The size of a batch of this request alone."""
        return BatchSize(self.rows, self.padded, self.size_bytes)


class RequestQueue:
    """Requests in the order of their deadlines, then of arrival. Any request can be removed.

    Deadlines are usually in the order of arrival. While they are, the queue keeps no other order; the first
    request that is more urgent than an earlier one makes it build a heap.

    ``retry`` is None for requests that have not run yet. Otherwise it says how they run again: as one batch,
    which was lost as number ``lost_batch``; or one request at a time, because one of them may kill workers.
    ``number`` ascends in the order in which queues get their first request.
    """

    # Class attributes, because a queue exists only while it is not empty: most have few requests.
    number = 0
    rows = 0.0
    size_bytes = 0
    newest = 0.0
    ran_at = -math.inf
    """When a batch last took bulk from it; minus infinity before the first."""
    has_lengths = False
    """True once requests of different lengths have been queued."""
    held: Hold | None = None
    """The last hold that the policy decided; None before the first."""
    _held_since = 0.0
    """When the policy decided that hold."""
    _held_rows = 0.0
    """The rows that were queued at that time."""
    is_held = False
    """True while the policy need not decide about this queue, see :class:`QueueOrder`."""
    _length: float | None = None
    _deadlines: LazyHeap[Entry] | None = None
    """The requests by deadline, once a request has arrived that is due before an earlier one."""
    _due_rows: DueRows | None = None

    def __init__(
        self,
        api: str,
        key: Hashable,
        group: Hashable = None,
        bulk: bool = False,
        *,
        retry: Retry | None = None,
        lost_batch: int = 0,
    ) -> None:
        self.api = api
        self.group = group
        self.bulk = bulk
        self.key = key
        self.retry = retry
        self.lost_batch = lost_batch
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._latest_deadline = -math.inf

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, entry: Entry) -> bool:
        """Add a new arrival; return True if it is now the most urgent request."""
        self.newest = entry.arrival
        self._entries[entry.number] = entry
        self.rows += entry.rows
        self.size_bytes += entry.size_bytes
        if self._due_rows is not None:
            self._due_rows.add(entry.deadline, entry.rows)
        if entry.length != self._length:
            self.has_lengths = self._length is not None
            self._length = entry.length
        if self._deadlines is not None:
            self._deadlines.push(entry.deadline, entry.number)
        elif entry.deadline < self._latest_deadline:
            deadlines = [(each.deadline, each.number) for each in self._entries.values()]
            self._deadlines = LazyHeap(self._entries, deadlines)
        else:
            self._latest_deadline = entry.deadline
            return len(self._entries) == 1
        return self.most_urgent is entry

    def remove(self, entry: Entry) -> None:
        del self._entries[entry.number]
        self.rows -= entry.rows
        self.size_bytes -= entry.size_bytes
        if self._due_rows is not None:
            self._due_rows.remove(entry.deadline, entry.rows)

    def hold(self, hold: Hold, now: float) -> None:
        """Record that the policy holds the queue."""
        self.held, self._held_since, self._held_rows = hold, now, self.rows

    def stays_held(self, now: float) -> bool:
        """Return True if the last hold continues with the rows that are queued ``now``."""
        if self.held is None or now >= self.held.until:
            return False
        until, before = self.held.until, self._held_rows
        return self.rows < before + (self.held.rows - before) * (until - now) / (until - self._held_since)

    def turns(self) -> Iterator[Entry]:
        """Iterate over all requests in the order in which batches take them; the queue must not change."""
        return iter(self._entries.values()) if self._deadlines is None else self._deadlines.ascending()

    def uniform(self) -> Collection[Entry] | None:
        """Return all requests if they have one length, and batches take them in the order of arrival."""
        return self._entries.values() if self._deadlines is None and not self.has_lengths else None

    def clear(self) -> None:
        """Remove all requests; only for queues for which :meth:`uniform` returned them."""
        self._entries.clear()
        self._due_rows = None
        self.rows, self.size_bytes = 0.0, 0

    def take(self, entry: Entry) -> None:
        self.remove(entry)

    def by_urgency(self) -> list[Entry]:
        """Return all requests, earliest deadline first."""
        if self._deadlines is None:
            return list(self._entries.values())
        return sorted(self._entries.values(), key=lambda entry: (entry.deadline, entry.number))

    def newest_first(self) -> Iterator[Entry]:
        """Iterate over all requests, the newest first; the queue must not change meanwhile."""
        return reversed(self._entries.values())

    def before(self, entry: Entry, *, goal_s: float) -> tuple[float, int]:
        """Return the rows and the number of requests that batches take up to and including a new request."""
        rows, requests = self.rows + entry.rows, len(self) + 1
        if not self or (self._deadlines is None and entry.deadline >= self._latest_deadline):
            return rows, requests
        if entry.deadline < self.most_urgent.deadline:
            return entry.rows, 1
        due_rows = self._due_rows
        if due_rows is None or due_rows.goal_s != goal_s:
            self._due_rows = due_rows = DueRows(goal_s)
            for queued in self._entries.values():
                due_rows.add(queued.deadline, queued.rows)
        later_rows, later = due_rows.after(entry.deadline)
        return rows - later_rows, requests - later

    def skippable(self, entries: Sequence[Entry], *, rows: float, goal_s: float) -> int:
        """Return how many of ``entries``, most urgent first, may be shed to fill a batch.

        Here those before the first that ``follows``, which was accepted with the rest of its request.
        """
        return next((place for place, entry in enumerate(entries) if entry.follows), len(entries))

    @property
    def oldest(self) -> Entry:
        """The request that arrived first. The queue must not be empty."""
        return next(iter(self._entries.values()))

    @property
    def most_urgent(self) -> Entry:
        """The request with the earliest deadline. The queue must not be empty."""
        if self._deadlines is None:
            return next(iter(self._entries.values()))
        entry = self._deadlines.top()
        assert entry is not None
        return entry
