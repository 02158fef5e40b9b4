"""Limits how much a client may send: the windows of its connection and streams."""

import asyncio
from collections.abc import Mapping

from uncork_gateway.grpc.http2 import frames
from uncork_gateway.grpc.http2.frames import DEFAULT_WINDOW_BYTES, ConnectionFault, ErrorCode
from uncork_gateway.grpc.http2.outbox import Outbox
from uncork_gateway.grpc.http2.stream import WINDOW_BYTES, Stream
from uncork_gateway.interfaces import BodyPool

_CONNECTION_WINDOW_BYTES = 16 * 2**20
# HTTP requests use the pool, too, and nobody reports that they are complete.
_LOOK_EVERY_S = 0.02


class ReceiveWindows:
    """The windows of one connection. They reopen when half is used, if the pool has space.

    A connection begins with the standard's small window, and gets a large one with its first large message.

    Attributes:
        left_bytes: the bytes that the client may send on the connection.
        low_bytes: the threshold of ``left_bytes`` below which :meth:`widen` must be called.
    """

    __slots__ = ("_outbox", "_starved", "_streams", "left_bytes", "low_bytes")

    def __init__(self, streams: Mapping[int, Stream], outbox: Outbox, starved: "Starved") -> None:
        self._streams = streams
        self._outbox = outbox
        self._starved = starved
        self.left_bytes = DEFAULT_WINDOW_BYTES
        self.low_bytes = DEFAULT_WINDOW_BYTES // 2

    def widen(self) -> None:
        """Let the client send more on the connection.

        Raises:
            ConnectionFault: if the client has exceeded its window.
        """
        if self.left_bytes < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection's window")
        if not self._starved.must_wait(self):
            self._open()

    def widen_stream(self, stream: Stream) -> None:
        """Let the client send more on a stream."""
        if stream.is_narrow and not self._starved.must_wait(self):
            self._open_stream(stream)

    def widen_all(self) -> None:
        """Open all windows that the client needs."""
        for stream in self._streams.values():
            if stream.is_narrow:
                self._open_stream(stream)
        if self.left_bytes < self.low_bytes:
            self._open()

    def _open(self) -> None:
        self._outbox.add(frames.window_update(0, _CONNECTION_WINDOW_BYTES - self.left_bytes))
        self.left_bytes = _CONNECTION_WINDOW_BYTES
        self.low_bytes = _CONNECTION_WINDOW_BYTES // 2

    def _open_stream(self, stream: Stream) -> None:
        self._outbox.add(frames.window_update(stream.number, WINDOW_BYTES - stream.receive_window))
        stream.receive_window = WINDOW_BYTES

    @property
    def has_incomplete_messages(self) -> bool:
        return any(stream.is_incomplete for stream in self._streams.values())

    @property
    def must_wait(self) -> bool:
        """True if the client cannot send because the pool is full."""
        return self._starved.waits(self)

    def forget(self) -> None:
        """Stop opening windows, because the connection has ended."""
        self._starved.forget(self)


class Starved:
    """The connections whose clients wait for windows because the pool is full, in order of arrival.

    They get windows when the pool has space. The first gets them anyway until its messages are complete;
    otherwise incomplete messages could fill the pool forever.
    """

    def __init__(self, pool: BodyPool, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self._loop = loop
        self._waiting: dict[ReceiveWindows, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def waits(self, windows: ReceiveWindows) -> bool:
        """Return True if a client cannot send because the pool is full."""
        return windows in self._waiting and not self._is_first(windows)

    def _is_first(self, windows: ReceiveWindows) -> bool:
        return next(iter(self._waiting)) is windows

    def must_wait(self, windows: ReceiveWindows) -> bool:
        """Return True, and queue the connection, if it must wait for its windows."""
        if self._pool.used_bytes < self._pool.max_bytes:
            return False
        self._waiting[windows] = None
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)
        return not self._is_first(windows)

    def forget(self, windows: ReceiveWindows) -> None:
        self._waiting.pop(windows, None)

    def _look(self) -> None:
        self._timer = None
        for windows in list(self._waiting):
            is_full = self._pool.used_bytes >= self._pool.max_bytes
            if is_full and not self._is_first(windows):
                break
            windows.widen_all()
            if not (is_full and windows.has_incomplete_messages):
                del self._waiting[windows]
        if self._waiting:
            self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)
