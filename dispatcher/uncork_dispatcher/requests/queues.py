"""All requests inside the core, and the queues of those that wait."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from uncork_dispatcher.requests.fair_queue import FairQueue
from uncork_dispatcher.requests.queue import Entry, RequestQueue
from uncork_dispatcher.requests.states import RequestState


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

    def remove(self, entries: Sequence[Entry]) -> None:
        self.requests -= len(entries)
        self.rows -= sum([entry.rows for entry in entries])
        self.size_bytes -= sum([entry.size_bytes for entry in entries])


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

    Quarantined requests have queues of their own: they never share a batch.
    """

    def __init__(self, apis: Mapping[str, QueueOwner]) -> None:
        self._apis = apis
        self._queues: dict[tuple[str, Hashable], RequestQueue] = {}
        """By API and batch key, without the quarantine queues."""
        self._quarantine: dict[tuple[str, Hashable], RequestQueue] = {}
        self._entries: dict[int, Entry] = {}
        self._quarantined_went_last = False

    def __bool__(self) -> bool:
        return bool(self._queues or self._quarantine)

    def __iter__(self) -> Iterator[RequestQueue]:
        """The queues; they may change meanwhile."""
        return iter([*self._queues.values(), *self._quarantine.values()])

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
            self._family(queue)[queue.api, queue.key] = queue
        self._entries[entry.request] = entry
        queue.append(entry)
        self._apis[queue.api].backlog.add(entry)

    def quarantine(self, entry: Entry, *, now: float) -> None:
        """Queue a request whose worker was lost once more, behind all that are queued now."""
        place = (entry.queue.api, entry.queue.key)
        entry.queue = self._quarantine.get(place) or RequestQueue(*place, is_quarantine=True)
        entry.arrival, entry.state = now, RequestState.QUARANTINED
        self.add(entry)

    def cancel(self, request: int) -> None:
        """Forget a request, queued or running; ignore one that is unknown or has ended."""
        entry = self._entries.pop(request, None)
        if entry is None:
            return
        if entry.state in (RequestState.QUEUED, RequestState.QUARANTINED):
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

    def take(self, queue: RequestQueue, *, rows: float, size_bytes: int) -> list[Entry]:
        """Remove the requests that are next from a queue, as many as fit, at least one; they run now."""
        entries = queue.take(rows=rows, size_bytes=size_bytes)
        self._apis[queue.api].backlog.remove(entries)
        state = RequestState.RETRYING if queue.is_quarantine else RequestState.RUNNING
        for entry in entries:
            entry.state = state
        self._drop_if_empty(queue)
        self._quarantined_went_last = queue.is_quarantine
        return entries

    def by_urgency(self) -> list[RequestQueue]:
        """Return the queues in the order in which their policies are asked.

        After a quarantined request all other queues come first, so that an only worker is not kept busy by
        requests that kill it.
        """
        queues = [*self._queues.values(), *self._quarantine.values()]
        if len(queues) > 1:
            queues.sort(key=self._urgency)
        return queues

    def _urgency(self, queue: RequestQueue) -> tuple[bool, float]:
        return queue.is_quarantine and self._quarantined_went_last, self._apis[queue.api].urgency(queue)

    def _unqueue(self, entry: Entry) -> None:
        entry.queue.remove(entry)
        self._apis[entry.queue.api].backlog.remove([entry])
        self._drop_if_empty(entry.queue)

    def _drop_if_empty(self, queue: RequestQueue) -> None:
        if not queue:
            self._family(queue).pop((queue.api, queue.key), None)

    def _family(self, queue: RequestQueue) -> dict[tuple[str, Hashable], RequestQueue]:
        return self._quarantine if queue.is_quarantine else self._queues
