"""The events of the dashboard: made once for all who look, and not at all when nobody does."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from uncork_gateway.pages.status.document import Event, Status
from uncork_gateway.telemetry.recorder import FinishedBatch

log = logging.getLogger("uncork.gateway")

_INTERVAL_S = 1.0
_MOST_VIEWERS = 16
# Of each api, in an event and in the first one. More points on a page would only lie on each other.
_MOST_BATCHES = 10
_MOST_PAST_BATCHES = 600
# A viewer who is so many events behind does not read; what waits for it must not grow.
_MOST_UNREAD = 8


class Source(Protocol):
    """What is told."""

    def status(self) -> Status:
        """How things are."""
        ...

    def batches_after(self, number: int) -> Sequence[FinishedBatch]:
        """Batches that are still known and have a higher number, by number."""
        ...


class Feed:
    """Sends events to viewers, as frames of a stream of server-sent events.

    Each is encoded once, whoever looks. A batch may be in the first frame of a viewer and in the next.

    Args:
        source: what is told.
        interval_s: seconds from event to event.
    """

    def __init__(self, source: Source, *, interval_s: float = _INTERVAL_S) -> None:
        self._source = source
        self._interval_s = interval_s
        self._viewers: set[_Viewer] = set()
        self._ticking: asyncio.Task[None] | None = None
        self._number = -1
        self._closed = False

    @property
    def why_no_more(self) -> str | None:
        """Why there may not be one more viewer; None if there may."""
        if self._closed:
            return "the server is shutting down"
        if len(self._viewers) >= _MOST_VIEWERS:
            return f"{_MOST_VIEWERS} dashboards are open, which is as many as there may be"
        return None

    async def frames(self) -> AsyncIterator[bytes]:
        """What one viewer gets, until it leaves, reads nothing for a while, or the feed is closed."""
        if self.why_no_more:
            return
        viewer = _Viewer()
        self._viewers.add(viewer)
        try:
            yield self._first()
            if self._ticking is None:
                self._ticking = asyncio.create_task(self._tick())
            while (frame := await viewer.get()) is not None:
                yield frame
        finally:
            self._viewers.discard(viewer)
            if not self._viewers and self._ticking is not None:
                self._ticking.cancel()
                self._ticking = None

    def close(self) -> None:
        """Tell all how it is a last time, and end."""
        if self._viewers and not self._closed:
            self._send()
        self._closed = True
        for viewer in self._viewers:
            viewer.end()

    async def _tick(self) -> None:
        while not self._closed:
            await asyncio.sleep(self._interval_s)
            self._send()

    def _first(self) -> bytes:
        """For a viewer who knows nothing yet; others stay as they are."""
        batches = self._source.batches_after(-1)
        if len(self._viewers) == 1:
            self._number = _last(batches, self._number)
        return _frame(self._source.status(), _thinned(batches, _MOST_PAST_BATCHES))

    def _send(self) -> None:
        """Send an event to all viewers. One that cannot be made is logged; its batches are in the next."""
        try:
            batches = self._source.batches_after(self._number)
            frame = _frame(self._source.status(), _thinned(batches, _MOST_BATCHES))
        except Exception:
            log.exception("an event for the dashboard could not be made; its viewers get the next")
            return
        self._number = _last(batches, self._number)
        for viewer in self._viewers:
            viewer.put(frame)


class _Viewer:
    """Frames that one viewer has not taken yet; None is the end."""

    def __init__(self) -> None:
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.get = self._frames.get

    def put(self, frame: bytes) -> None:
        if self._frames.qsize() < _MOST_UNREAD:
            self._frames.put_nowait(frame)
        else:
            self.end()

    def end(self) -> None:
        self._frames.put_nowait(None)


def _last(batches: Sequence[FinishedBatch], before: int) -> int:
    return batches[-1].number if batches else before


def _thinned(batches: Sequence[FinishedBatch], most: int) -> list[FinishedBatch]:
    """At most so many of each api, at even distances, the latest among them."""
    by_api: defaultdict[str, list[FinishedBatch]] = defaultdict(list)
    for batch in reversed(batches):
        by_api[batch.api].append(batch)
    kept = [batch for own in by_api.values() for batch in own[:: -(-len(own) // most)]]
    return sorted(kept, key=lambda batch: batch.number)


def _frame(status: Status, batches: list[FinishedBatch]) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(Event(status=status, batches=batches))
