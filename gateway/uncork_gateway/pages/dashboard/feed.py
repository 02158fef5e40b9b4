"""The dashboard's events, encoded once for all viewers and only while there are viewers."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence

import msgspec

from uncork_gateway.pages.dashboard.history import Columns, History
from uncork_gateway.pages.status.document import Status
from uncork_gateway.telemetry.finished_batches import FinishedBatch

log = logging.getLogger("uncork.gateway")

Commands = Callable[[Collection[str]], Mapping[str, str]]
"""Returns shell commands that call the named APIs, where there are any, by API."""

_INTERVAL_S = 1.0
_MOST_VIEWERS = 16
# Batches of each API in an event, and in the first one. More points would overlap in the charts.
_MOST_BATCHES = 10
_MOST_PAST_BATCHES = 600
# A viewer with this many unread events does not read; its queue must not grow.
_MOST_UNREAD = 8
_Viewer = asyncio.Queue[bytes | None]
"""The unread frames of one viewer; None ends the stream."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the dashboard, about once a second.

    Attributes:
        batches: the batches finished since the previous event; in a viewer's first event, all recent ones.
        history: the latest point of each API; in a viewer's first event, all points.
        commands: shell commands that call the APIs without recent requests, by API.
        is_first: True in a viewer's first event.
    """

    status: Status
    batches: list[FinishedBatch]
    history: dict[str, Columns]
    commands: Mapping[str, str]
    is_first: bool


class Feed:
    """Sends events to viewers, as frames of server-sent events, one every second.

    A viewer may receive a batch or a point twice, in its first frame and in the next.

    Args:
        batches_after: returns the recorded batches with a higher number, in order.
    """

    def __init__(
        self,
        status: Callable[[], Status],
        batches_after: Callable[[int], Sequence[FinishedBatch]],
        history: History,
        commands: Commands,
    ) -> None:
        self._status = status
        self._batches_after = batches_after
        self._history = history
        self._commands = commands
        self._viewers: set[_Viewer] = set()
        self._ticking: asyncio.Task[None] | None = None
        self._number = -1
        self._closed = False

    @property
    def why_no_more(self) -> str | None:
        """Return why another viewer cannot connect; None if one can."""
        if self._closed:
            return "the server is shutting down"
        if len(self._viewers) >= _MOST_VIEWERS:
            return f"{_MOST_VIEWERS} dashboards are open already, the most allowed; close one"
        return None

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Yield the frames of one viewer, until it disconnects, stops reading, or the feed is closed."""
        if self.why_no_more:
            return
        viewer: _Viewer = asyncio.Queue()
        self._viewers.add(viewer)
        try:
            yield self._first()
            if self._ticking is None:
                self._ticking = asyncio.create_task(self._tick())
            while (frame := await viewer.get()) is not None:
                yield frame
        finally:
            self._leave(viewer)

    def close(self) -> None:
        """Send a last event to all viewers, and end their streams."""
        if self._viewers and not self._closed:
            self._send()
        self._closed = True
        for viewer in self._viewers:
            viewer.put_nowait(None)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            if self._closed:
                return
            self._send()

    def _leave(self, viewer: _Viewer) -> None:
        self._viewers.discard(viewer)
        if not self._viewers and self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None

    def _first(self) -> bytes:
        batches = self._batches_after(-1)
        if len(self._viewers) == 1:
            self._number = _last(batches, self._number)
        return self._frame(_thinned(batches, _MOST_PAST_BATCHES), is_first=True)

    def _send(self) -> None:
        """Send an event to all viewers. If that fails, the next event includes its batches."""
        try:
            batches = self._batches_after(self._number)
            frame = self._frame(_thinned(batches, _MOST_BATCHES), is_first=False)
        except Exception:
            log.exception("an event for the dashboard could not be made; its viewers get the next")
            return
        self._number = _last(batches, self._number)
        for viewer in list(self._viewers):
            if viewer.qsize() < _MOST_UNREAD:
                viewer.put_nowait(frame)
            else:
                viewer.put_nowait(None)
                # It may be long before its stream ends; its place is free at once.
                self._leave(viewer)

    def _frame(self, batches: list[FinishedBatch], *, is_first: bool) -> bytes:
        status = self._status()
        event = Event(
            status=status,
            batches=batches,
            history=self._history.columns(asyncio.get_running_loop().time(), most=None if is_first else 1),
            commands=self._commands([api.id for api in status.apis if not api.requests]),
            is_first=is_first,
        )
        return b"data: %b\n\n" % msgspec.json.encode(event)


def _last(batches: Sequence[FinishedBatch], before: int) -> int:
    return batches[-1].number if batches else before


def _thinned(batches: Sequence[FinishedBatch], most: int) -> list[FinishedBatch]:
    """Return at most ``most`` batches of each API, evenly spaced, including the latest."""
    by_api: defaultdict[str, list[FinishedBatch]] = defaultdict(list)
    for batch in reversed(batches):
        by_api[batch.api].append(batch)
    kept = [batch for own in by_api.values() for batch in own[:: -(-len(own) // most)]]
    return sorted(kept, key=lambda batch: batch.number)
