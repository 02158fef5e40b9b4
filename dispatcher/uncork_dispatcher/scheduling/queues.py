"""All requests inside the core, and the queues of the requests that wait."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, product
from typing import Any

from uncork_dispatcher.api import Api
from uncork_dispatcher.requests.fair_queue import FairQueue
from uncork_dispatcher.requests.fill import Fill
from uncork_dispatcher.requests.lazy_heap import LazyHeap
from uncork_dispatcher.requests.queue import Entry, RequestQueue, Retry
from uncork_dispatcher.requests.queue_order import Backlog, QueueHeap, QueueOrder
from uncork_dispatcher.requests.states import RequestState

_RUNS: dict[Retry | None, RequestState] = {
    None: RequestState.RUNNING,
    "batch": RequestState.REPEATING,
    "alone": RequestState.RETRYING,
}
"""The state of requests that are released from a queue, by its ``retry``."""

_AFTER_LOSS = {
    RequestState.RUNNING: RequestState.REQUEUED,
    RequestState.REPEATING: RequestState.QUARANTINED,
}
"""How requests are queued again whose batch may have killed its worker."""
_AFTER_NEIGHBOR = {
    RequestState.RUNNING: RequestState.REQUEUED,
    RequestState.REPEATING: RequestState.REQUEUED,
    RequestState.RETRYING: RequestState.QUARANTINED,
}
"""The same if another batch is known to have ended the worker."""

# Of requests that arrived at one moment, those that ran first had been first.
_RANKS: dict[Retry | None, int] = {"batch": 0, None: 1, "alone": 2}


class RequestQueues:
    """One queue for each API, group and batch key; a queue exists while it is not empty.

    Requests that run again have queues of their own: one for each lost batch, and one for the quarantined
    requests of each API, group and batch key.
    """

    def __init__(self, apis: Mapping[str, Api]) -> None:
        self._apis = apis
        self._queues: dict[tuple[str, Hashable, Hashable, bool], RequestQueue] = {}
        """The queues of requests that have not run yet, by API, group, batch key, and whether bulk."""
        self._retries: dict[tuple[str, Hashable, Hashable, int], RequestQueue] = {}
        """The other queues, by API, group, batch key and lost batch; 0 for quarantined requests."""
        self._orders: dict[tuple[str, Retry | None, bool], QueueOrder] = {}
        """By API, ``retry`` of the queues, and whether they are bulk."""
        self._held: QueueHeap[RequestQueue] = QueueHeap()
        self._entries: dict[Any, Entry] = {}
        """The entries that have not ended, by request."""
        self._impatient: dict[int, Entry] = {}
        """The requests whose clients have set a time, by number."""
        self._expiries = LazyHeap(self._impatient)
        self._last_number = 0
        self._quarantined_went_last = False

    def __len__(self) -> int:
        return len(self._queues) + len(self._retries)

    def __bool__(self) -> bool:
        return bool(self._queues or self._retries)

    @property
    def orders(self) -> Iterable[QueueOrder]:
        """All orders: each API has one for its requests, one for its bulk, and others for retries."""
        return self._orders.values()

    @property
    def unanswered(self) -> Collection[Any]:
        return self._entries.keys()

    def queue(self, api: str, key: Hashable, group: Hashable = None, *, bulk: bool = False) -> RequestQueue:
        """Return the queue of a batch key, a new one if there is none; :meth:`add` keeps the new one."""
        queue = self._queues.get((api, group, key, bulk))
        if queue is None:
            kind = FairQueue if self._apis[api].rules.fair else RequestQueue
            queue = kind(api, key, group, bulk)
        return queue

    def other_class(self, queue: RequestQueue) -> RequestQueue | None:
        """Return the queue of the other class with the same batch key; None if nothing is queued there."""
        return self._queues.get((queue.api, queue.group, queue.key, not queue.bulk))

    def add(self, entry: Entry) -> bool:
        """Queue a request in ``entry.queue``; return True if it is now the most urgent request there."""
        queue = entry.queue
        self._entries[entry.request] = entry
        if entry.expires_at != math.inf and entry.number not in self._impatient:
            self._expect(entry)
        api = self._apis[queue.api]
        backlog = api.bulk_backlog if entry.bulk else api.backlog
        backlog.requests += 1
        backlog.rows += entry.rows
        backlog.size_bytes += entry.size_bytes
        is_first = queue.append(entry)
        if is_first:
            if len(queue) == 1:
                self._register(queue)
            self._order(queue).changed(queue)
        elif queue.is_held:
            self._order(queue).ask(queue)
        return is_first

    def regroup(self, api: str) -> None:
        """Rebuild the queues of an API after :attr:`ApiRules.fair` has changed; keep the order.

        The queues of requests that run again stay as they are.
        """
        for (name, group, key, bulk), old in list(self._queues.items()):
            if name != api:
                continue
            entries = list(old.newest_first())
            for entry in entries:
                old.remove(entry)
            self._changed(old)
            queue = self.queue(api, key, group, bulk=bulk)
            self._register(queue)
            for entry in reversed(entries):
                entry.queue = queue
                queue.append(entry)
            self._changed(queue)

    def remove_api(self, api: str) -> None:
        for retry, bulk in product(_RUNS, (False, True)):
            self._orders.pop((api, retry, bulk), None)

    def retry(
        self,
        batch: int,
        entries: Sequence[Entry],
        *,
        idempotent: bool,
        now: float,
        is_suspect: bool = True,
    ) -> list[Entry]:
        """Queue the requests of a lost batch again; end and return the requests that may not run again.

        After the first loss, the requests are queued as one batch, in the order of their arrival. After the
        second, they are quarantined, behind all requests that are queued now. Without ``is_suspect``, another
        batch has ended the worker, and the loss does not count.
        """
        lost: list[Entry] = []
        follows = _AFTER_LOSS if is_suspect else _AFTER_NEIGHBOR
        for entry in sorted(entries, key=lambda entry: entry.arrival):
            state = follows.get(entry.state) if idempotent else None
            if state is RequestState.REQUEUED:
                self._requeue(entry, state, "batch", batch)
            elif state is RequestState.QUARANTINED:
                entry.arrival = now
                self._requeue(entry, state, "alone", 0)
            elif entry.state is not RequestState.CANCELLED:
                lost.append(entry)
        self.end(lost, RequestState.LOST)
        return lost

    def cancel(self, request: Any) -> int:
        """Remove a request, queued or running; ignore a request that is unknown or has ended.

        Return the number of the batch with which it runs; 0 if it does not run.
        """
        entry = self._entries.pop(request, None)
        if entry is None:
            return 0
        is_queued = self.is_queued(entry)
        if is_queued:
            self._unqueue(entry)
        self._impatient.pop(entry.number, None)
        entry.state = RequestState.CANCELLED
        return 0 if is_queued else entry.batch

    def shed(self, entry: Entry) -> None:
        del self._entries[entry.request]
        self._unqueue(entry)
        self._impatient.pop(entry.number, None)
        entry.state = RequestState.SHED

    def end(self, entries: Sequence[Entry], state: RequestState) -> None:
        """Set the final state of running requests; ignore cancelled requests."""
        for entry in entries:
            if self._entries.pop(entry.request, None) is not None:
                entry.state = state
        if self._impatient:
            for entry in entries:
                self._impatient.pop(entry.number, None)

    def take(self, queue: RequestQueue, fill: Fill) -> list[Entry]:
        """Move the next requests of a queue into ``fill``, mark them as running, and return them."""
        rows, size_bytes = queue.rows, queue.size_bytes
        entries = fill.take(queue)
        if queue.retry is None:
            backlog = self._backlog(queue.api, bulk=queue.bulk)
            backlog.remove(len(entries), rows - queue.rows, size_bytes - queue.size_bytes)
        else:  # a lost batch may have both classes
            for entry in entries:
                self._backlog(queue.api, bulk=entry.bulk).remove(1, entry.rows, entry.size_bytes)
        state = _RUNS[queue.retry]
        for entry in entries:
            entry.state = state
        self._changed(queue)
        self._quarantined_went_last = queue.retry == "alone"
        return entries

    @property
    def next_to_expire(self) -> Entry | None:
        """The request, queued or running, whose client gives up first; None if no client has set a time."""
        return self._expiries.top() if self._impatient else None

    def is_queued(self, entry: Entry) -> bool:
        """Return True if an entry that has not ended is queued, False if it runs."""
        return entry.state in (RequestState.QUEUED, RequestState.REQUEUED, RequestState.QUARANTINED)

    def expired(self, entry: Entry) -> None:
        """Note that the time of a running request has passed: it does not expire again."""
        del self._impatient[entry.number]
        self._expiries.top()  # drops its time: :meth:`extend` may bring it back with another

    def extend(self, request: Any, expires_at: float) -> None:
        """Set a new time for a running request whose time has passed; ignore a request that has ended."""
        entry = self._entries.get(request)
        if entry is not None and entry.number not in self._impatient:
            entry.expires_at = expires_at
            if expires_at != math.inf:
                self._expect(entry)

    def _expect(self, entry: Entry) -> None:
        self._impatient[entry.number] = entry
        self._expiries.push(entry.expires_at, entry.number)

    def most_urgent(self, apis: Collection[str]) -> RequestQueue | None:
        """Return the most urgent queue of these APIs, held or not; None if nothing is queued.

        After a quarantined request has run, all other queues come first, so that requests that kill workers
        do not keep a lone worker busy.
        """
        orders = self._orders.values()
        firsts = [order.front[0] for order in orders if order.front and order.api in apis]
        if len(firsts) > 1:
            return min(firsts, key=self._urgency)
        return firsts[0] if firsts else None

    def front(self, api: str, *, bulk: bool = False) -> Sequence[RequestQueue]:
        """Return the 16 queues of a class with the oldest requests that have not run yet."""
        order = self._orders.get((api, None, bulk))
        return () if order is None else order.front

    def newest_bulk(self, api: str) -> Iterator[RequestQueue]:
        """Iterate over the queues of bulk, about the newest first; some must have been queued."""
        return self._orders[api, None, True].newest_first()

    def oldest(self, api: str, default: float, *, bulk: bool = False) -> float:
        """Return when the oldest queued request of a class arrived; ``default`` if none is queued."""
        orders = [
            order
            for (name, _, is_bulk), order in self._orders.items()
            if name == api and is_bulk is bulk and order.front
        ]
        return min([order.front[0].oldest.arrival for order in orders], default=default)

    def to_ask(self, apis: Collection[str], now: float) -> Iterator[RequestQueue]:
        """Iterate over the queues of these APIs about which the policies must decide, the most urgent first.

        For the duties of the caller, see :meth:`QueueOrder.to_ask`.
        """
        self.end_holds(now)
        orders = [order.to_ask() for order in self._orders.values() if order.front and order.api in apis]
        return merge(*orders, key=self._urgency) if len(orders) > 1 else chain(*orders)

    def end_holds(self, now: float = math.inf) -> None:
        """Make the policies decide again about the queues held until ``now`` or earlier, by default all."""
        while (top := self._held.top()) is not None and top[0] <= now:
            self._order(top[1]).ask(top[1])

    def held_until(self) -> float:
        """Return when the first hold of a queue behind the fronts ends; infinity if there is none."""
        top = self._held.top()
        return math.inf if top is None else top[0]

    def _urgency(self, queue: RequestQueue) -> tuple[bool, bool, float, int, int]:
        goes_last = self._quarantined_went_last and queue.retry == "alone"
        return queue.bulk, goes_last, self._apis[queue.api].urgency(queue), _RANKS[queue.retry], queue.number

    def _backlog(self, api: str, *, bulk: bool) -> Backlog:
        return self._apis[api].bulk_backlog if bulk else self._apis[api].backlog

    def _order(self, queue: RequestQueue) -> QueueOrder:
        return self._orders[queue.api, queue.retry, queue.bulk]

    def _register(self, queue: RequestQueue) -> None:
        """Keep a queue that is about to get its first request."""
        if queue.retry is None:
            self._queues[queue.api, queue.group, queue.key, queue.bulk] = queue
        else:
            self._retries[queue.api, queue.group, queue.key, queue.lost_batch] = queue
        if (queue.api, queue.retry, queue.bulk) not in self._orders:
            order = QueueOrder(queue.api, self._held)
            self._orders[queue.api, queue.retry, queue.bulk] = order
            if queue.retry is None and not queue.bulk:
                self._apis[queue.api].backlog.order = order
        if queue.group is not None:
            self._backlog(queue.api, bulk=queue.bulk).groups[queue.group] += 1
        self._last_number += 1
        queue.number = self._last_number

    def _requeue(self, entry: Entry, state: RequestState, retry: Retry, batch: int) -> None:
        api, group, key = entry.queue.api, entry.queue.group, entry.queue.key
        queue = self._retries.get((api, group, key, batch))
        if queue is None:
            queue = RequestQueue(api, key, group, retry=retry, lost_batch=batch)
        entry.queue = queue
        entry.state = state
        self.add(entry)

    def _unqueue(self, entry: Entry) -> None:
        entry.queue.remove(entry)
        self._backlog(entry.queue.api, bulk=entry.bulk).remove(1, entry.rows, entry.size_bytes)
        self._changed(entry.queue)

    def _changed(self, queue: RequestQueue) -> None:
        """Move a queue to its new place after requests were removed; drop it if it is empty."""
        self._order(queue).changed(queue)
        if queue:
            return
        if queue.group is not None:
            groups = self._backlog(queue.api, bulk=queue.bulk).groups
            groups[queue.group] -= 1
            if not groups[queue.group]:
                del groups[queue.group]
        if queue.retry is None:
            self._queues.pop((queue.api, queue.group, queue.key, queue.bulk), None)
        else:
            del self._retries[queue.api, queue.group, queue.key, queue.lost_batch]
