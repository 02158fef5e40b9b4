"""The requests inside the core: all that are not over, and the queues of those that are held."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping

from uncork_dispatcher.api import Api
from uncork_dispatcher.requests.fair_queue import FairQueue
from uncork_dispatcher.requests.queue import Entry, RequestQueue


class Held:
    """A queue for each api and batch key; it exists while there is something in it.

    Suspects, requests whose worker was lost while it ran them, have queues of their own: they are never in
    one batch with anything else.
    """

    def __init__(self, apis: Mapping[str, Api]) -> None:
        self._apis = apis
        self._queues: dict[tuple[str, Hashable], RequestQueue] = {}
        """By api and batch key. Those of suspects are not among them."""
        self._suspects: dict[tuple[str, Hashable], RequestQueue] = {}
        self._entries: dict[int, Entry] = {}
        self._suspect_went_last = False

    def __bool__(self) -> bool:
        return bool(self._queues or self._suspects)

    def __iter__(self) -> Iterator[RequestQueue]:
        """The queues; they may be changed meanwhile."""
        return iter([*self._queues.values(), *self._suspects.values()])

    @property
    def nobody_waits(self) -> bool:
        """Whether every request is over."""
        return not self._entries

    def queue(self, api: str, key: Hashable) -> RequestQueue:
        """The queue of a batch key; a new one, which is kept once it is added to, if there is none."""
        queue = self._queues.get((api, key))
        if queue is None:
            kind = FairQueue if self._apis[api].rules.fair else RequestQueue
            queue = kind(api, key)
        return queue

    def add(self, entry: Entry, api: Api) -> None:
        """Hold a request of an api in its queue."""
        queue = entry.queue
        if not queue:
            self._of_kind(queue)[queue.api, queue.key] = queue
        self._entries[entry.request] = entry
        queue.append(entry)
        api.count(entry, 1)

    def suspect(self, entry: Entry, *, now: float) -> None:
        """Hold a request again whose worker was lost: behind all that is held now."""
        place = (entry.queue.api, entry.queue.key)
        queue = self._suspects.get(place) or RequestQueue(*place, suspects=True)
        entry.queue, entry.arrival, entry.suspect = queue, now, True
        self.add(entry, self._apis[queue.api])

    def cancel(self, request: int) -> None:
        """Forget a request, held or running; one that is unknown or over is passed over."""
        entry = self._entries.pop(request, None)
        if entry is None:
            return
        entry.cancelled = True
        if request in entry.queue:
            self._unqueue(entry)

    def remove(self, entry: Entry) -> None:
        """A request that is held is over."""
        del self._entries[entry.request]
        self._unqueue(entry)

    def forget(self, entries: Iterable[Entry]) -> None:
        """Requests that are not held any more are over."""
        for entry in entries:
            self._entries.pop(entry.request, None)

    def take(self, queue: RequestQueue, *, rows: float, size_bytes: int) -> list[Entry]:
        """Take the requests whose turn it is, as many as fit, at least one."""
        entries = queue.take(rows=rows, size_bytes=size_bytes)
        self._drop_if_empty(queue)
        self._suspect_went_last = queue.suspects
        return entries

    def by_urgency(self) -> list[RequestQueue]:
        """The queues in the order in which they are asked.

        After a suspect others come first, if there are any: many suspects must not stop an only worker.
        """
        queues = [*self._queues.values(), *self._suspects.values()]
        if len(queues) > 1:
            queues.sort(key=self._urgency)
        return queues

    def _urgency(self, queue: RequestQueue) -> tuple[bool, float]:
        return queue.suspects and self._suspect_went_last, self._apis[queue.api].urgency(queue)

    def _unqueue(self, entry: Entry) -> None:
        entry.queue.remove(entry)
        self._apis[entry.queue.api].count(entry, -1)
        self._drop_if_empty(entry.queue)

    def _drop_if_empty(self, queue: RequestQueue) -> None:
        if not queue:
            self._of_kind(queue).pop((queue.api, queue.key), None)

    def _of_kind(self, queue: RequestQueue) -> dict[tuple[str, Hashable], RequestQueue]:
        return self._suspects if queue.suspects else self._queues
