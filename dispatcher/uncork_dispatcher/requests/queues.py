"""All requests inside the core, and the queues of those that wait."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from uncork_dispatcher.requests.fair_queue import FairQueue
from uncork_dispatcher.requests.fill import Fill
from uncork_dispatcher.requests.queue import Entry, RequestQueue, Retry
from uncork_dispatcher.requests.states import RequestState

_RUNS: dict[Retry | None, RequestState] = {
    None: RequestState.RUNNING,
    "batch": RequestState.REPEATING,
    "alone": RequestState.RETRYING,
}
"""The state of requests that are released from a queue, by its ``retry``."""


@dataclass(slots=True)
class Backlog:
    """Totals of the queued requests of one API."""

    requests: int = 0
    rows: float = 0.0
    size_bytes: int = 0

    def add(self, entry: Entry) -> None:
        self.requests += 1
        self.rows += entry.rows
        self.size_bytes += entry.size_bytes

    def remove(self, requests: int, rows: float, size_bytes: int) -> None:
        self.requests -= requests
        self.rows -= rows
        self.size_bytes -= size_bytes


class QueueOwner(Protocol):
    """An API, as far as the queues know it."""

    backlog: Backlog

    @property
    def is_fair(self) -> bool:
        """Whether flows share each queue equally."""
        ...

    def urgency(self, queue: RequestQueue) -> float:
        """Sort key of its queues among those of all APIs: the lowest goes first."""
        ...


class RequestQueues:
    """One queue for each API and batch key; a queue exists while it is not empty.

    Requests that run again have queues of their own: one for each lost batch, and one for the quarantined
    requests of each API and batch key.
    """

    def __init__(self, apis: Mapping[str, QueueOwner]) -> None:
        self._apis = apis
        self._queues: dict[tuple[str, Hashable], RequestQueue] = {}
        """By API and batch key, of requests that have not run yet."""
        self._retries: dict[tuple[str, Hashable, int], RequestQueue] = {}
        """By API, batch key and number of the lost batch; 0 for quarantined requests."""
        self._entries: dict[int, Entry] = {}
        self._quarantined_went_last = False

    def __bool__(self) -> bool:
        return bool(self._queues or self._retries)

    def __iter__(self) -> Iterator[RequestQueue]:
        """The queues; they may change meanwhile."""
        return iter([*self._queues.values(), *self._retries.values()])

    @property
    def all_ended(self) -> bool:
        """Whether every request has reached a final state."""
        return not self._entries

    def queue(self, api: str, key: Hashable) -> RequestQueue:
        """Return the queue of a batch key. A new one is kept once a request is added to it."""
        queue = self._queues.get((api, key))
        if queue is None:
            kind = FairQueue if self._apis[api].is_fair else RequestQueue
            queue = kind(api, key)
        return queue

    def add(self, entry: Entry) -> None:
        """Queue a request in ``entry.queue``."""
        queue = entry.queue
        if not queue:
            if queue.retry is None:
                self._queues[queue.api, queue.key] = queue
            else:
                self._retries[queue.api, queue.key, queue.lost_batch] = queue
        self._entries[entry.request] = entry
        queue.append(entry)
        self._apis[queue.api].backlog.add(entry)

    def regroup(self, api: str) -> None:
        """Queue the requests of an API again, in their order, after :attr:`QueueOwner.is_fair` has changed.

        Requests that run again stay where they are.
        """
        for (name, key), old in list(self._queues.items()):
            if name != api:
                continue
            del self._queues[name, key]
            self._queues[name, key] = queue = self.queue(api, key)
            for entry in reversed(list(old.newest_first())):
                entry.queue = queue
                queue.append(entry)

    def retry(self, batch: int, entries: Sequence[Entry], *, idempotent: bool, now: float) -> list[Entry]:
        """Queue the requests of a lost batch again; end those that may not run again, and return them.

        After the first loss they are queued as one batch, each in its old place in the order. After the
        second they are quarantined, behind all that are queued now.
        """
        lost: list[Entry] = []
        for entry in sorted(entries, key=lambda entry: entry.arrival):
            if idempotent and entry.state is RequestState.RUNNING:
                self._requeue(entry, RequestState.REQUEUED, "batch", batch)
            elif idempotent and entry.state is RequestState.REPEATING:
                entry.arrival = now
                self._requeue(entry, RequestState.QUARANTINED, "alone", 0)
            elif entry.state is not RequestState.CANCELLED:
                lost.append(entry)
        self.end(lost, RequestState.LOST)
        return lost

    def cancel(self, request: int) -> None:
        """Forget a request, queued or running; ignore one that is unknown or has ended."""
        entry = self._entries.pop(request, None)
        if entry is None:
            return
        if entry.state in (RequestState.QUEUED, RequestState.REQUEUED, RequestState.QUARANTINED):
            self._unqueue(entry)
        entry.state = RequestState.CANCELLED

    def shed(self, entry: Entry) -> None:
        """End a queued request."""
        del self._entries[entry.request]
        self._unqueue(entry)
        entry.state = RequestState.SHED

    def end(self, entries: Iterable[Entry], state: RequestState) -> None:
        """End running requests, except those that were cancelled."""
        for entry in entries:
            if self._entries.pop(entry.request, None) is not None:
                entry.state = state

    def take(self, queue: RequestQueue, fill: Fill) -> list[Entry]:
        """Fill a batch with the requests that are next in a queue, and remove them; they run now."""
        entries = queue.take(fill)
        self._apis[queue.api].backlog.remove(len(entries), fill.taken.rows, fill.body_bytes)
        state = _RUNS[queue.retry]
        for entry in entries:
            entry.state = state
        self._drop_if_empty(queue)
        self._quarantined_went_last = queue.retry == "alone"
        return entries

    def by_urgency(self) -> list[RequestQueue]:
        """Return the queues in the order in which their policies are asked.

        After a quarantined request all other queues come first, so that an only worker is not kept busy by
        requests that kill it.
        """
        queues = [*self._queues.values(), *self._retries.values()]
        if len(queues) > 1:
            queues.sort(key=self._urgency)
        return queues

    def _urgency(self, queue: RequestQueue) -> tuple[bool, float, bool]:
        goes_last = self._quarantined_went_last and queue.retry == "alone"
        # Of requests that arrived at one moment, those that ran first had been first.
        return goes_last, self._apis[queue.api].urgency(queue), queue.retry != "batch"

    def _requeue(self, entry: Entry, state: RequestState, retry: Retry, batch: int) -> None:
        api, key = entry.queue.api, entry.queue.key
        queue = self._retries.get((api, key, batch))
        entry.queue = RequestQueue(api, key, retry=retry, lost_batch=batch) if queue is None else queue
        entry.state = state
        self.add(entry)

    def _unqueue(self, entry: Entry) -> None:
        entry.queue.remove(entry)
        self._apis[entry.queue.api].backlog.remove(1, entry.rows, entry.size_bytes)
        self._drop_if_empty(entry.queue)

    def _drop_if_empty(self, queue: RequestQueue) -> None:
        if queue:
            return
        if queue.retry is None:
            self._queues.pop((queue.api, queue.key), None)
        else:
            del self._retries[queue.api, queue.key, queue.lost_batch]
