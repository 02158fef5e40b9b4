"""The output of a connection: frames in order, and DATA as fast as the client accepts it."""

import asyncio
from collections.abc import Callable

from uncork_gateway.grpc.http2.frames import DEFAULT_WINDOW_BYTES, MAX_FRAME_BYTES

# One stream sends as much before it is the next one's turn.
_TURN_BYTES = 8 * MAX_FRAME_BYTES
_WRITE_BYTES = 2**20
# A client that reads nothing makes the server answer pings and refuse calls. The bytes allow all open calls
# the longest text of an error, and some metadata of a server behind the proxy.
_MAX_UNREAD_FRAMES = 10_000
_MAX_UNREAD_BYTES = 10 * 2**20


Write = Callable[[int], int]
"""Appends DATA frames of at most so many bytes; returns their bytes, 0 if the stream's window is shut."""


class Outbox:
    """The frames of a connection that are not written yet.

    It writes everything that a turn of the event loop adds at once, and nothing while the transport is
    paused.

    Attributes:
        frames: the frames to write, in order.
        window: the bytes of DATA that the client accepts on the connection.
        blocked: the functions that write more DATA of a stream, by stream number.
        sent_bytes: the total bytes of DATA sent.
        unsent_bytes: the bytes of all messages that the client's windows do not admit yet.
        is_paused: True while the transport's buffer is full.
        is_scheduled: True if :meth:`flush` runs later in this turn of the event loop.
    """

    __slots__ = (
        "_cut_off",
        "_loop",
        "_ready",
        "_transport",
        "_unread_bytes",
        "blocked",
        "frames",
        "is_paused",
        "is_scheduled",
        "sent_bytes",
        "unsent_bytes",
        "window",
    )

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, *, cut_off: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._cut_off = cut_off
        self.frames: list[bytes | memoryview] = []
        self._unread_bytes = 0
        """The bytes added to ``frames`` since the transport last accepted any."""
        self.window = DEFAULT_WINDOW_BYTES
        self.blocked: dict[int, Write] = {}
        self._ready: dict[int, Write] = {}
        """The part of ``blocked`` whose streams have open windows of their own."""
        self.sent_bytes = self.unsent_bytes = 0
        self.is_paused = self.is_scheduled = False

    def add(self, written: bytes) -> None:
        """Queue frames other than DATA."""
        self.frames.append(written)
        self._unread_bytes += len(written)
        if not self.is_scheduled:
            self.schedule()

    def schedule(self) -> None:
        self.is_scheduled = True
        self._loop.call_soon(self.flush)

    def block(self, number: int, write: Write) -> None:
        """Queue a stream, whose ``write`` is called as soon as the client accepts DATA."""
        self.blocked[number] = self._ready[number] = write
        if not self.is_scheduled:
            self.schedule()

    def window_opened(self, number: int) -> None:
        """Retry a stream whose window has grown, if it has more DATA."""
        write = self.blocked.get(number)
        if write is not None:
            self.block(number, write)

    def unblock(self, number: int) -> None:
        self._ready.pop(number, None)
        self.blocked.pop(number, None)

    def flush(self) -> None:
        """Write as much as the transport accepts."""
        self.is_scheduled = False
        if self.is_paused:
            if len(self.frames) > _MAX_UNREAD_FRAMES or self._unread_bytes > _MAX_UNREAD_BYTES:
                self._cut_off()
            return
        self._unread_bytes = 0
        self._write()
        while self._ready and self.window > 0 and not self.is_paused:
            end = self.sent_bytes + _WRITE_BYTES
            while self._ready and self.window > 0 and self.sent_bytes < end:
                self._round()
            # Without a copy: these are the pieces of large messages.
            frames, self.frames = self.frames, []
            if frames and not self._transport.is_closing():
                self._transport.writelines(frames)

    def _round(self) -> None:
        """Let each stream send some DATA; streams that the window leaves out go first in the next round."""
        ready = self._ready
        for number, write in list(ready.items()):
            if self.window <= 0:
                return
            sent = write(min(_TURN_BYTES, self.window))
            self.window -= sent
            self.sent_bytes += sent
            self.unsent_bytes -= sent
            if number in ready:
                del ready[number]
                if sent:
                    ready[number] = write

    def _write(self) -> None:
        frames = self.frames
        if frames:
            data = b"".join(frames) if len(frames) > 1 else frames[0]
            frames.clear()
            # Calls may have answered in the turn in which the connection was lost.
            if not self._transport.is_closing():
                self._transport.write(data)
