"""How much a client may send: the windows of its connection and streams."""

from collections.abc import Mapping

from uncork_gateway.grpc.http2 import frames
from uncork_gateway.grpc.http2.frames import DEFAULT_WINDOW_BYTES, ConnectionFault, ErrorCode
from uncork_gateway.grpc.http2.outbox import Outbox
from uncork_gateway.grpc.http2.starved import Starved
from uncork_gateway.grpc.http2.stream import WINDOW_BYTES, Stream

_CONNECTION_WINDOW_BYTES = 16 * 2**20


class ReceiveWindows:
    """The windows of one connection; they are opened again when half is used, if the pool has space.

    A connection begins with the standard's small window, and gets a large one with its first large message.

    Attributes:
        left_bytes: what the client may send on the connection.
        low_bytes: when less is left, :meth:`widen` must be called.
    """

    __slots__ = ("_outbox", "_starved", "_streams", "left_bytes", "low_bytes")

    def __init__(self, streams: Mapping[int, Stream], outbox: Outbox, starved: Starved) -> None:
        self._streams = streams
        self._outbox = outbox
        self._starved = starved
        self.left_bytes = DEFAULT_WINDOW_BYTES
        self.low_bytes = DEFAULT_WINDOW_BYTES // 2

    def widen(self) -> None:
        """Let the client send more on the connection.

        Raises:
            ConnectionFault: it has sent too much.
        """
        if self.left_bytes < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection's window")
        if not self._starved.must_wait(self):
            self._open()

    def widen_stream(self, stream: Stream) -> None:
        """Let the client send more of a stream."""
        if stream.is_narrow and not self._starved.must_wait(self):
            self._open_stream(stream)

    def widen_all(self) -> None:
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
        """Whether the client cannot send because of the pool."""
        return self._starved.waits(self)

    def forget(self) -> None:
        """Stop opening windows; the connection has ended."""
        self._starved.forget(self)
