"""A queue that its flows, for example the clients of a gateway, share equally.

While several flows have something held, each gets as many rows as the others, whatever it sends. This is
self-clocked fair queueing (Golestani 1994): deficit round robin without a quantum, which would have to be as
large as the largest request, and would then fill whole batches with one flow. Each flow has a level, the rows
that it has had; next is the request with which a flow's level would be lowest. The level of the last request
taken is that of the queue, and a flow that comes, or comes back, begins there: nobody saves up for later.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from uncork_dispatcher.requests.queue import Entry, RequestQueue


class Load(NamedTuple):
    """How much is held; also how much may be."""

    rows: float
    requests: int
    size_bytes: int

    def plus(self, other: Load, sign: int = 1) -> Load:
        """The sum, or the difference if ``sign`` is -1."""
        return Load(
            self.rows + sign * other.rows,
            self.requests + sign * other.requests,
            self.size_bytes + sign * other.size_bytes,
        )

    def share(self, limits: Load) -> float:
        """Which share of the limits this is, of the one that it takes most of."""
        return max(
            self.rows / limits.rows, self.requests / limits.requests, self.size_bytes / limits.size_bytes
        )


class _Flow(RequestQueue):
    """What is held of one flow. ``order`` tells flows of one level apart: the older goes first."""

    def __init__(self, api: str, key: Hashable, *, level: float, order: int) -> None:
        super().__init__(api, key)
        self.level = level
        self.order = order

    @property
    def load(self) -> Load:
        """How much is held of it."""
        return Load(self.rows, len(self), self.size_bytes)


class FairQueue(RequestQueue):
    """Gives flows their turns; within a flow the earliest deadline goes first.

    Shares are equal within a queue, that is, among requests of one batch key. There are never more flows than
    requests held.
    """

    def __init__(self, api: str, key: Hashable) -> None:
        super().__init__(api, key)
        self._flows: dict[Hashable, _Flow] = {}
        self._level = 0.0
        self._order = 0

    def append(self, entry: Entry) -> None:
        """Add a new arrival, to its flow too."""
        super().append(entry)
        flow = self._flows.get(entry.flow)
        if flow is None:
            self._order += 1
            flow = _Flow(self.api, self.key, level=self._level, order=self._order)
            self._flows[entry.flow] = flow
        flow.append(entry)

    def remove(self, entry: Entry) -> None:
        """Take one request out, wherever it stands."""
        super().remove(entry)
        flow = self._flows[entry.flow]
        flow.remove(entry)
        if not flow:
            del self._flows[entry.flow]

    def take(self, *, rows: float, size_bytes: int) -> list[Entry]:
        """Take the requests whose turn it is and that fit into ``rows`` and ``size_bytes``, at least one."""
        turns = [(flow.level + flow.most_urgent.rows, flow.order, flow) for flow in self._flows.values()]
        heapq.heapify(turns)
        taken: list[Entry] = []
        while turns:
            level, order, flow = turns[0]
            entry = flow.most_urgent
            rows -= entry.rows
            size_bytes -= entry.size_bytes
            if taken and (rows < 0 or size_bytes < 0):
                break
            self._level = flow.level = level
            self.remove(entry)
            taken.append(entry)
            if flow:
                heapq.heapreplace(turns, (level + flow.most_urgent.rows, order, flow))
            else:
                heapq.heappop(turns)
        return taken

    def before(self, flow: Hashable, rows: float) -> tuple[float, int]:
        """Rows and requests up to and with one of ``rows`` rows that comes now.

        Of every other flow only as much goes before it as its own flow then holds.
        """
        own = self._flows.get(flow)
        requests = 1
        if own is not None:
            rows, requests = rows + own.rows, requests + len(own)
        others = [one for one in self._flows.values() if one is not own]
        return (
            rows + sum([min(one.rows, rows) for one in others]),
            requests + sum([min(len(one), requests) for one in others]),
        )

    def skippable(self, entries: Sequence[Entry], *, rows: float, goal_s: float) -> int:
        """How many of ``entries``, the most urgent, may be refused so that others fill a batch.

        Not those of a flow that holds no more than its share of its ``rows``: they are in it. Unless they are
        urgent because their client says so, who could else keep all batches small.
        """
        share = rows / len(self._flows)
        for place, entry in enumerate(entries):
            is_patient = entry.expires_at - entry.arrival >= goal_s
            if is_patient and self._flows[entry.flow].rows <= share:
                return place
        return len(entries)

    def displaced(self, flow: Hashable, more: Load, *, over: Load, limits: Load) -> list[Entry]:
        """The requests to refuse so that ``more`` of a flow can be held, where that is ``over`` the limits.

        The newest of those flows that hold most; none if this would be unfair to them: ``flow`` must hold no
        more than its equal share of what may be held, and less than they do.
        """
        own = self._flows.get(flow)
        mine = (more if own is None else own.load.plus(more)).share(limits)
        others = [one for one in self._flows.values() if one is not own]
        if mine * (1 + len(others)) > 1:
            return []
        largest = [(-one.load.share(limits), one.order, one.load, one.newest_first()) for one in others]
        heapq.heapify(largest)
        displaced: list[Entry] = []
        while max(over) > 0:
            if not largest or -largest[0][0] <= mine:
                return []
            _, order, load, newest = largest[0]
            entry = next(newest)
            displaced.append(entry)
            one = Load(entry.rows, 1, entry.size_bytes)
            load, over = load.plus(one, -1), over.plus(one, -1)
            heapq.heapreplace(largest, (-load.share(limits), order, load, newest))
        return displaced
