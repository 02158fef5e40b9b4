"""A queue that its flows, for example the clients of a gateway, share equally.

While several flows have requests queued, batches take as many rows from each flow, whatever it sends. This is
self-clocked fair queueing (Golestani 1994): deficit round robin without a quantum, because a quantum as large
as the largest request would fill whole batches with one flow. The level of a flow is the number of rows that
batches have taken from it. The next request is the one that leaves its flow at the lowest level. The level of
the queue is the level of the flow of the last request taken. A flow that is new, or was empty, starts at the
level of the queue, so that no flow saves up for later.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import NamedTuple

from uncork_dispatcher.requests.queue import Entry, RequestQueue
from uncork_dispatcher.requests.queue_order import QueueHeap

# Of this many flows with the most rows, `before` counts exactly the requests that go first.
_COUNTED = 16


class Load(NamedTuple):
    """An amount of queued work, or a limit on it."""

    rows: float
    requests: int
    size_bytes: int

    def plus(self, other: Load, sign: int = 1) -> Load:
        """Return the sum, or the difference if ``sign`` is -1."""
        return Load(
            self.rows + sign * other.rows,
            self.requests + sign * other.requests,
            self.size_bytes + sign * other.size_bytes,
        )

    def least(self, other: Load) -> Load:
        return Load(
            min(self.rows, other.rows),
            min(self.requests, other.requests),
            min(self.size_bytes, other.size_bytes),
        )

    def share(self, limits: Load) -> float:
        """Return the largest of the shares that this load takes of each limit."""
        return max(
            self.rows / limits.rows, self.requests / limits.requests, self.size_bytes / limits.size_bytes
        )


class _Flow(RequestQueue):
    """The queued requests of one flow. Of flows with equal levels, the lower ``number`` goes first."""

    def __init__(self, api: str, *, level: float, number: int) -> None:
        super().__init__(api, None)
        self.level = level
        self.number = number

    @property
    def load(self) -> Load:
        return Load(self.rows, len(self), self.size_bytes)


class FairQueue(RequestQueue):
    """Takes requests from its flows in turn; within a flow the earliest deadline goes first.

    Flows share equally among requests of one batch key. A flow exists while it has requests queued. Clients
    can choose flows, so no step may visit all.
    """

    def __init__(self, api: str, key: Hashable, group: Hashable = None, bulk: bool = False) -> None:
        super().__init__(api, key, group, bulk)
        self._flows: dict[Hashable, _Flow] = {}
        self._level = 0.0
        self._last_number = 0
        self._next: QueueHeap[_Flow] = QueueHeap()
        """The flows, by the level at which the next request leaves them."""
        self._longest: QueueHeap[_Flow] = QueueHeap()
        """The flows, by their rows, the most first."""
        self._largest: QueueHeap[_Flow] = QueueHeap()
        """The flows, by their share of ``_limits``, the largest first; empty before the first limits."""
        self._limits: Load | None = None

    def append(self, entry: Entry) -> bool:
        flow = self._flows.get(entry.flow)
        if flow is None:
            self._last_number += 1
            flow = _Flow(self.api, level=self._level, number=self._last_number)
            self._flows[entry.flow] = flow
        flow.append(entry)
        self._file(flow)
        return super().append(entry)

    def remove(self, entry: Entry) -> None:
        super().remove(entry)
        flow = self._flows[entry.flow]
        flow.remove(entry)
        if flow:
            self._file(flow)
            return
        del self._flows[entry.flow]
        self._next.discard(flow)
        self._longest.discard(flow)
        self._largest.discard(flow)

    def _file(self, flow: _Flow) -> None:
        self._next.file(flow, flow.level + flow.most_urgent.rows)
        self._longest.file(flow, -flow.rows)
        if self._limits is not None:
            self._largest.file(flow, -flow.load.share(self._limits))

    def turns(self) -> Iterator[Entry]:
        turns: list[tuple[float, int, Entry, Iterator[Entry]]] = []
        for at, flow in self._next.ascending():
            while turns and turns[0][:2] < (at, flow.number):
                yield _next_turn(turns)
            waiting = flow.turns()
            heapq.heappush(turns, (at, flow.number, next(waiting), waiting))
        while turns:
            yield _next_turn(turns)

    def uniform(self) -> Collection[Entry] | None:
        """Return None: flows take turns, so a batch must take requests in turn."""
        return None

    def take(self, entry: Entry) -> None:
        """Remove a request that goes into a batch; add its rows to the level of its flow."""
        flow = self._flows[entry.flow]
        self._level = flow.level = flow.level + entry.rows
        self.remove(entry)

    def before(self, entry: Entry, *, goal_s: float) -> tuple[float, int]:
        """Return the rows and the number of requests that batches take up to and including a new request.

        In its own flow, requests that are due no later count. The other flows count with all that they have
        queued, up to the same rows and number of requests for each of the longest 16, and for all together.
        """
        own = self._flows.get(entry.flow)
        rows, requests = (entry.rows, 1) if own is None else own.before(entry, goal_s=goal_s)
        mine = Load(0, 0, 0) if own is None else own.load
        others = len(self._flows) - (own is not None)
        long = [one for one in self._longest.first(_COUNTED) if one is not own]
        more_rows = self.rows - mine.rows - sum([max(0.0, one.rows - rows) for one in long])
        more = len(self) - mine.requests - sum([max(0, len(one) - requests) for one in long])
        return rows + min(more_rows, others * rows), requests + min(more, others * requests)

    def skippable(self, entries: Sequence[Entry], *, rows: float, goal_s: float) -> int:
        """Return how many of ``entries``, which start with the most urgent, may be shed to fill a batch.

        A flow that has queued no more than its share of the batch loses no request, unless the client set a
        short deadline: such requests could keep all batches small.
        """
        share = rows / len(self._flows)
        for place, entry in enumerate(entries):
            is_patient = entry.expires_at - entry.arrival >= goal_s
            if is_patient and self._flows[entry.flow].rows <= share:
                return super().skippable(entries[:place], rows=rows, goal_s=goal_s)
        return super().skippable(entries, rows=rows, goal_s=goal_s)

    def displaced(self, flow: Hashable, more: Load, *, over: Load, limits: Load) -> list[Entry]:
        """Return the requests to shed so that ``flow`` can queue ``more``, now ``over`` the limits.

        These are the newest requests of the flows that have queued most, without later parts of accepted
        requests. The list is empty if that would be unfair: ``flow`` must queue no more than its equal share
        of ``limits``, and less than those flows.
        """
        own = self._flows.get(flow)
        mine = (more if own is None else own.load.plus(more)).share(limits)
        if mine * (1 + len(self._flows) - (own is not None)) > 1:
            return []
        if limits != self._limits:
            self._limits, self._largest = limits, QueueHeap()
            for one in self._flows.values():
                self._file(one)
        others = (
            (at, one.number, one.load, filter(_may_go, one.newest_first()))
            for at, one in self._largest.ascending()
            if one is not own
        )
        following = next(others, None)
        largest: list[tuple[float, int, Load, Iterator[Entry]]] = []
        displaced: list[Entry] = []
        while max(over) > 0:
            if following is not None and (not largest or following[:2] < largest[0][:2]):
                heapq.heappush(largest, following)
                following = next(others, None)
                continue
            if not largest or -largest[0][0] <= mine:
                return []
            _, number, load, newest = largest[0]
            entry = next(newest, None)
            if entry is None:
                heapq.heappop(largest)
                continue
            displaced.append(entry)
            gone = Load(entry.rows, 1, entry.size_bytes)
            load, over = load.plus(gone, -1), over.plus(gone, -1)
            heapq.heapreplace(largest, (-load.share(limits), number, load, newest))
        return displaced


def _next_turn(turns: list[tuple[float, int, Entry, Iterator[Entry]]]) -> Entry:
    """Return the next request; put the one behind it in its flow into the heap."""
    level, number, entry, waiting = turns[0]
    following = next(waiting, None)
    if following is None:
        heapq.heappop(turns)
    else:
        heapq.heapreplace(turns, (level + following.rows, number, following, waiting))
    return entry


def _may_go(entry: Entry) -> bool:
    return not entry.follows
