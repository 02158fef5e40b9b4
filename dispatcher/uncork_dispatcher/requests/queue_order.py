"""The queues of one API in the orders in which the scheduler looks at them.

Clients may choose batch keys, so no step may go through all queues.
"""

from __future__ import annotations

import heapq
import math

from uncork_dispatcher.requests.queue import Held, RequestQueue, Retry

# A heap is rebuilt when its outdated items outnumber the others by more than this.
_SLACK = 64
# Whenever something has happened, so many held queues are asked again, the oldest. The others stay held until
# their time has come, or until they change.
_ASKED_AGAIN = 16


class QueueHeap:
    """Queues by a time, the earliest first; of equal times, the queue with the lowest number.

    A queue whose time changes leaves an outdated item in the heap, until it surfaces or the heap is rebuilt.
    """

    def __init__(self) -> None:
        self._filed: dict[int, tuple[float, RequestQueue]] = {}
        """Each queue with its time, by the number of the queue."""
        self._heap: list[tuple[float, int]] = []

    def file(self, queue: RequestQueue, at: float) -> None:
        """Add a queue, or change its time."""
        number = queue.number
        filed = self._filed.get(number)
        if filed is not None and filed[0] == at:
            return
        self._filed[number] = at, queue
        if len(self._heap) > 2 * len(self._filed) + _SLACK:
            self._heap = [(each_at, each) for each, (each_at, _) in self._filed.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (at, number))

    def discard(self, queue: RequestQueue) -> None:
        """Remove a queue, if it is here."""
        if self._filed.pop(queue.number, None) is not None and not self._filed:
            self._heap.clear()

    def top(self) -> tuple[float, RequestQueue] | None:
        """Return the earliest time, and its queue; None if there is no queue."""
        heap = self._heap
        while heap:
            at, number = heap[0]
            filed = self._filed.get(number)
            if filed is not None and filed[0] == at:
                return filed
            heapq.heappop(heap)
        return None

    def first(self, most: int) -> list[RequestQueue]:
        """Return the queues with the earliest times, ``most`` at most."""
        queues: dict[int, tuple[float, RequestQueue]] = {}
        while len(queues) < most and (filed := self.top()) is not None:
            queues[filed[1].number] = filed
            heapq.heappop(self._heap)
        for number, (at, _) in queues.items():
            heapq.heappush(self._heap, (at, number))
        return [queue for _, queue in queues.values()]


class QueueOrder:
    """The queues of one API whose requests have not run yet, or run again in the same way.

    A queue is *held* once its policy has decided so, until it changes or its policy decides again.

    Attributes:
        by_age: all queues, by the arrival of their oldest request.
        by_deadline: all queues, by the deadline of their most urgent request.
        to_ask: the queues that are not held, by the arrival of their oldest request.
    """

    def __init__(self, api: str, retry: Retry | None) -> None:
        self.api = api
        self.retry = retry
        self.by_age = QueueHeap()
        self.by_deadline = QueueHeap()
        self.to_ask = QueueHeap()
        self._held = QueueHeap()
        """By the end of the hold."""

    def changed(self, queue: RequestQueue) -> None:
        """Move a queue to its new place after requests have been added or removed."""
        if queue.is_held:
            queue.is_held = False
            self._held.discard(queue)
        if queue:
            arrival = queue.oldest.arrival
            self.by_age.file(queue, arrival)
            self.to_ask.file(queue, arrival)
            self.by_deadline.file(queue, queue.most_urgent.deadline)
        else:
            self.by_age.discard(queue)
            self.to_ask.discard(queue)
            self.by_deadline.discard(queue)

    def hold(self, queue: RequestQueue, held: Held) -> None:
        """Note that the policy holds a queue."""
        queue.held, queue.is_held = held, True
        self.to_ask.discard(queue)
        self._held.file(queue, held.hold.until)

    def ask_again(self, now: float, most: int = _ASKED_AGAIN) -> None:
        """Let the policy be asked again about held queues: those whose time has come, and the oldest."""
        while (held := self._held.top()) is not None:
            until, queue = held
            if until > now:
                for oldest in self.by_age.first(most):
                    if oldest.is_held:
                        self._ask(oldest)
                return
            self._ask(queue)

    def held_until(self) -> float:
        """Return when the first hold ends; infinity if there is none."""
        held = self._held.top()
        return math.inf if held is None else held[0]

    def _ask(self, queue: RequestQueue) -> None:
        queue.is_held = False
        self._held.discard(queue)
        self.to_ask.file(queue, queue.oldest.arrival)
