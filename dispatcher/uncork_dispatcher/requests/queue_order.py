"""The queues of one API, in the orders in which the scheduler considers them, and their totals.

Clients can choose batch keys, so no step may visit all queues.
"""

from __future__ import annotations

import heapq
import math
from bisect import insort
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Generic, TypeVar

from uncork_dispatcher.requests.queue import RequestQueue

Q = TypeVar("Q", bound=RequestQueue)

# The policy decides about so many queues, the oldest, whenever something has happened.
_FRONT = 16


class QueueHeap(Generic[Q]):
    """Queues, each with a time, the earliest first; of equal times, the queue with the lowest number.

    A queue whose time changes leaves an outdated item in the heap; :meth:`top` or a rebuild removes it.
    """

    def __init__(self) -> None:
        self._filed: dict[int, tuple[float, Q]] = {}
        """Each queue with its time, by the number of the queue."""
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._filed)

    def file(self, queue: Q, at: float) -> None:
        number = queue.number
        filed = self._filed.get(number)
        if filed is not None and filed[0] == at:
            return
        self._filed[number] = at, queue
        if len(self._heap) > 2 * len(self._filed) + 64:
            self._heap = [(each_at, each) for each, (each_at, _) in self._filed.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (at, number))

    def discard(self, queue: Q) -> None:
        if self._filed.pop(queue.number, None) is not None and not self._filed:
            self._heap.clear()

    def top(self) -> tuple[float, Q] | None:
        """Return the earliest time and its queue; None if the heap is empty."""
        heap = self._heap
        while heap:
            at, number = heap[0]
            filed = self._filed.get(number)
            if filed is not None and filed[0] == at:
                return filed
            heapq.heappop(heap)
        return None

    def first(self, most: int) -> list[Q]:
        """Return the queues with the earliest times, ``most`` at most."""
        queues: dict[int, tuple[float, Q]] = {}
        while len(queues) < most and (filed := self.top()) is not None:
            queues[filed[1].number] = filed
            heapq.heappop(self._heap)
        for number, (at, _) in queues.items():
            heapq.heappush(self._heap, (at, number))
        return [queue for _, queue in queues.values()]

    def ascending(self) -> Iterator[tuple[float, Q]]:
        """Iterate over the times and their queues; the heap must not change meanwhile."""
        seen, most = 0, 4
        while True:
            queues = self.first(most)  # drops the outdated items that it passes
            yield from [self._filed[queue.number] for queue in queues[seen:]]
            if len(queues) < most:
                return
            seen, most = most, 4 * most

    def last_filed(self) -> Iterator[Q]:
        """Iterate over all queues, the last filed first; the heap must not change meanwhile."""
        return map(itemgetter(1), reversed(self._filed.values()))


class QueueOrder:
    """The queues of one class of an API that run for the first time, or again in the same way.

    The policy decides about the *front*, the 16 queues with the oldest requests, whenever something happens.
    Once the policy has held another queue, it decides about that queue again only when the hold ends, the
    queue changes, or the queue joins the front.

    Attributes:
        front: the queues with the oldest requests, oldest first.
        by_deadline: all queues, by the deadline of their most urgent request.
    """

    def __init__(self, api: str, held: QueueHeap[RequestQueue]) -> None:
        self.api = api
        self.front: list[RequestQueue] = []
        self.by_deadline: QueueHeap[RequestQueue] = QueueHeap()
        self._held = held
        """The queues of all APIs that are held, by the end of the hold."""
        self._others: QueueHeap[RequestQueue] = QueueHeap()
        """The queues behind the front, by the arrival of their oldest request."""
        self._to_ask: QueueHeap[RequestQueue] = QueueHeap()
        """The queues behind the front that are not held."""

    def changed(self, queue: RequestQueue) -> None:
        """Move a queue to its new place after its first request has changed; drop it if it is empty."""
        if queue in self.front:
            self.front.remove(queue)
            if self._others:
                for other in self._others.first(_FRONT - len(self.front)):
                    self._leave_others(other)
                    self.front.append(other)
        elif self._others:
            self._leave_others(queue)
        if not queue:
            self.by_deadline.discard(queue)
            return
        self.by_deadline.file(queue, queue.most_urgent.deadline)
        insort(self.front, queue, key=_age)
        if len(self.front) > _FRONT:
            last = self.front.pop()
            self._others.file(last, last.oldest.arrival)
            self.ask(last)

    def to_ask(self) -> Iterator[RequestQueue]:
        """Iterate over the queues about which the policy must decide now, the oldest first.

        To continue the iteration means that the policy holds the last queue: call its ``hold`` before. After
        a release, end the iteration.
        """
        yield from self.front
        while (top := self._to_ask.top()) is not None:
            queue = top[1]
            yield queue
            queue.is_held = True
            self._to_ask.discard(queue)
            assert queue.held is not None
            self._held.file(queue, queue.held.until)

    def newest_first(self) -> Iterator[RequestQueue]:
        """Iterate over all queues, about the newest first; they must not change meanwhile."""
        return chain(self._others.last_filed(), reversed(self.front))

    def ask(self, queue: RequestQueue) -> None:
        """Make the policy decide again about a queue behind the front."""
        queue.is_held = False
        self._held.discard(queue)
        self._to_ask.file(queue, queue.oldest.arrival)

    def _leave_others(self, queue: RequestQueue) -> None:
        queue.is_held = False
        for heap in (self._others, self._to_ask, self._held):
            heap.discard(queue)


@dataclass(slots=True)
class Backlog:
    """Totals of the queued requests of one class of an API."""

    requests: int = 0
    rows: float = 0.0
    size_bytes: int = 0
    """Includes the parts of divided requests that are not queued yet."""
    waiting_rows: float = 0.0
    waiting_bytes: int = 0
    """Rows and bytes of those parts."""
    owed_s: float = 0.0
    """Of bulk: the workers' time owed to it, its share less its batches, at ``queued_since``."""
    queued_since: float = 0.0
    """Of bulk: the time from which further time is owed, while some is queued."""
    ran_at: float = -math.inf
    """Not of bulk: when its last batch was released; minus infinity before the first."""
    groups: Counter[Hashable] = field(default_factory=Counter)
    """The number of queues of each group; queues without a group do not count."""
    order: QueueOrder | None = field(default=None, compare=False, repr=False)
    """The queues of the requests that have not run yet; None before the first request."""

    def oldest(self, default: float) -> float:
        """Return the arrival of the oldest request that has not run yet; ``default`` if there is none."""
        return self.order.front[0].oldest.arrival if self.order is not None and self.order.front else default

    def remove(self, requests: int, rows: float, size_bytes: int) -> None:
        self.requests -= requests
        self.rows -= rows
        self.size_bytes -= size_bytes


def _age(queue: RequestQueue) -> tuple[float, int]:
    return queue.oldest.arrival, queue.number
