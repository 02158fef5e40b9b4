"""The streams of a connection: acts on each frame of the client."""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from uncork_gateway.connection.decompression import STEPS_AT_ONCE
from uncork_gateway.connection.listener_context import ListenerContext
from uncork_gateway.connection.turn import BLOCK_BYTES_PER_WORK, FIELD_WORK
from uncork_gateway.grpc.http2 import frames, replies
from uncork_gateway.grpc.http2.frames import (
    DEFAULT_WINDOW_BYTES,
    MAX_WINDOW_BYTES,
    ConnectionFault,
    ErrorCode,
    StreamFault,
    protocol_error,
)
from uncork_gateway.grpc.http2.heads import MAX_LIST_BYTES, HeadReader, check_trailers
from uncork_gateway.grpc.http2.limits import (
    CONTROL_PER_CALL,
    CONTROL_PER_S,
    FIELDS_PER_CONTROL,
    FREE_FIELDS,
    RESETS_PER_S,
    WINDOWS_PER_CONTROL,
    Allowance,
    GrpcLimits,
)
from uncork_gateway.grpc.http2.outbox import Outbox
from uncork_gateway.grpc.http2.stream import WINDOW_BYTES, Stream
from uncork_gateway.grpc.http2.windows import ReceiveWindows, Starved
from uncork_gateway.grpc.interfaces import CallHead, OpenCall
from uncork_gateway.interfaces import Observers

_MAX_IGNORED = 4096
_BYTES_PER_CONTROL = 1024


class Session:
    """One connection's streams and flow control, without its transport.

    The methods that accept frames may raise ConnectionFault and StreamFault.

    Attributes:
        number: the number of the connection.
        streams: the open streams by number.
        last_number: the number of the last stream that the client has opened.
        is_draining: True if new streams are refused.
        block_prefix: begins every header block, if the client allows less than the standard's dynamic table.
        limits: the limits on the client.
        fail: ends the connection.
        inflate_steps: the number of steps of messages that may be inflated before the next input.

    Args:
        ended: called whenever the last stream has ended.
        wait: schedules :meth:`catch_up` for a later turn of the event loop.
    """

    def __init__(
        self,
        number: int,
        open_call: OpenCall,
        context: ListenerContext,
        limits: GrpcLimits,
        *,
        outbox: Outbox,
        starved: Starved,
        loop: asyncio.AbstractEventLoop,
        ended: Callable[[], None],
        fail: Callable[[ConnectionFault], None],
        wait: Callable[[], None],
    ) -> None:
        self.number = number
        self.observers: Observers = context
        self.pool = context.pool
        self.turn = context.turn
        self.outbox = outbox
        self.streams: dict[int, Stream] = {}
        self.windows = ReceiveWindows(self.streams, outbox, starved)
        self.last_number = 0
        self.is_draining = False
        self.block_prefix = b""
        self.inflate_steps = STEPS_AT_ONCE
        self.control = Allowance(CONTROL_PER_S, CONTROL_PER_S, loop.time)
        self._resets = Allowance(RESETS_PER_S, max(RESETS_PER_S, limits.max_streams), loop.time)
        self._earned_bytes = 0
        self._open_call = open_call
        self._context = context
        self.limits = limits
        self._max_streams = limits.max_streams
        self._loop = loop
        self._ended = ended
        self.fail = fail
        self._wait = wait
        self._heads = HeadReader(max_fields=context.limits.max_header_fields)
        self._behind: dict[int, Stream] = {}
        """Streams whose next messages wait for another turn of the loop."""
        self._free_lanes: list[int] = []
        self._ignored: dict[int, None] = {}
        """Streams that the server has reset, of which the client may not know yet."""
        self._stream_window = DEFAULT_WINDOW_BYTES
        self._has_begun = self._has_acknowledged = False

    @property
    def unsent_bytes(self) -> int:
        return self.outbox.unsent_bytes

    def begin(self) -> None:
        """Respond to the client's preface with the server's."""
        if self._has_begun:
            return
        self._has_begun = True
        self.outbox.add(
            frames.settings(
                {
                    frames.MAX_CONCURRENT_STREAMS: self._max_streams,
                    frames.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
                    frames.MAX_HEADER_LIST_SIZE: MAX_LIST_BYTES,
                }
            )
        )

    def drain(self, why: str) -> None:
        """Refuse new streams, with a GOAWAY that gives the reason."""
        self.begin()
        self.is_draining = True
        self.outbox.add(frames.goaway(self.last_number, ErrorCode.NO_ERROR, why))

    # Streams

    def block_received(self, number: int, block: bytes, *, ends: bool) -> None:
        """Open a stream, or end the client's side of it."""
        if not number & 1:
            raise protocol_error(f"clients open streams of odd numbers, got {number}")
        if number <= self.last_number:
            self._read_trailers(number, block, ends=ends)
            return
        self.last_number = number
        heads = self._heads
        try:
            head = heads.read(block)
        finally:
            self._charge_block()
        if self.is_draining or self._context.closing or len(self.streams) >= self._max_streams:
            self._refuse(number)
        elif self._open(number, head, ends=ends):
            heads.admitted()

    def _charge_block(self) -> None:
        """Charge the last header block to the turn and the client, for its fields and its Huffman codes."""
        fields = self._heads.decoded
        self.turn.left -= fields * FIELD_WORK + self._heads.decoded_bytes // BLOCK_BYTES_PER_WORK
        if fields > FREE_FIELDS:
            self._spend((fields - FREE_FIELDS) / FIELDS_PER_CONTROL, "too many header fields")

    def _spend(self, tokens: float, fault: str) -> None:
        """Charge the client for work that exceeds its bytes."""
        if not self.control.spend(tokens):
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, fault)

    def postpone(self, number: int) -> None:
        """Read the remaining messages of a stream in a later turn of the event loop."""
        self._behind[number] = self.streams[number]
        self._wait()

    def catch_up(self) -> None:
        self.inflate_steps = STEPS_AT_ONCE
        while self._behind and self.turn.left > 0:
            self._behind.pop(next(iter(self._behind))).catch_up()

    def _open(self, number: int, head: CallHead, *, ends: bool) -> bool:
        """Open the call of a stream; return False if the call fails at once."""
        streams, free = self.streams, self._free_lanes
        lane = heappop(free) if free else len(streams)
        stream = Stream(self, number, lane, head, window=self._stream_window)
        streams[number] = stream
        stream.is_half_closed = ends
        self.control.tokens += CONTROL_PER_CALL
        if head.http_status:
            stream.answer_http(head.http_status, is_head=head.is_http_head)
            return False
        call = self._open_call(stream, head)
        is_admitted = stream.is_open
        if is_admitted:
            stream.call = call
        if ends:
            stream.end()
        return is_admitted

    def _refuse(self, number: int) -> None:
        """Refuse a new stream, at no charge if the client may not have seen the limit in SETTINGS yet."""
        self._reset(number, ErrorCode.REFUSED_STREAM)
        if self._has_acknowledged and not (self.is_draining or self._context.closing):
            self._charge_reset()

    def _read_trailers(self, number: int, block: bytes, *, ends: bool) -> None:
        fields = self._heads.decode(block)
        self._charge_block()
        stream = self.streams.get(number)
        if stream is None:
            if number not in self._ignored:
                raise ConnectionFault(ErrorCode.STREAM_CLOSED, f"HEADERS on stream {number}, which has ended")
            return
        if stream.is_half_closed:
            raise StreamFault(ErrorCode.STREAM_CLOSED)
        check_trailers(fields)
        if not ends:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR)
        stream.end()

    def data_received_on(self, number: int, size: int, data: bytes, *, ends: bool) -> None:
        """Handle a DATA frame; ``size`` is the size of its payload with padding."""
        windows = self.windows
        windows.left_bytes -= size
        if windows.left_bytes < windows.low_bytes:
            windows.widen()
        stream = self.streams.get(number)
        if stream is None:
            self._check_ignored(number)
        elif stream.is_half_closed:
            raise StreamFault(ErrorCode.STREAM_CLOSED)
        else:
            stream.receive_window -= size
            if stream.receive_window < 0:
                raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR)
            stream.data_received(data, ends=ends)

    def _check_ignored(self, number: int) -> None:
        if number > self.last_number:
            raise protocol_error(f"DATA on stream {number}, which has not begun")
        if number not in self._ignored:
            raise StreamFault(ErrorCode.STREAM_CLOSED)

    def widen(self, number: int) -> None:
        """Let the client send more on a stream, unless the stream has ended."""
        stream = self.streams.get(number)
        if stream is not None:
            self.windows.widen_stream(stream)

    def reset_received(self, number: int) -> None:
        if number > self.last_number:
            raise protocol_error(f"RST_STREAM on stream {number}, which has not begun")
        self._ignored.pop(number, None)
        stream = self.streams.get(number)
        if stream is None:
            self.charge()
            return
        self._remove(stream)
        stream.cancel()
        self._charge_reset()

    @property
    def is_shared(self) -> bool:
        """True if several streams are open, so that others may send in this turn of the event loop."""
        return len(self.streams) > 1

    def stream_ended(self, number: int) -> None:
        """Remove a stream whose call has its complete response."""
        stream = self.streams[number]
        self._remove(stream)
        self._resets.tokens += 1
        if not stream.is_half_closed:
            self._reset(number, ErrorCode.NO_ERROR)

    def stream_failed(self, number: int, code: ErrorCode) -> None:
        self._reset(number, code)
        self._charge_reset()

    def reset_stream(self, number: int, code: ErrorCode) -> None:
        """Cancel a call, without raising; for use by calls and timers."""
        self._reset(number, code)
        if not self._resets.spend():
            self._loop.call_soon(self.fail, _too_many_resets())

    def _reset(self, number: int, code: ErrorCode) -> None:
        self.outbox.add(frames.reset(number, code))
        self._ignored[number] = None
        if len(self._ignored) > _MAX_IGNORED:
            del self._ignored[next(iter(self._ignored))]
        stream = self.streams.get(number)
        if stream is not None:
            self._remove(stream)
            stream.cancel()

    def _remove(self, stream: Stream) -> None:
        del self.streams[stream.number]
        heappush(self._free_lanes, stream.lane)
        if not self.streams:
            self._ended()

    def cancel_all(self) -> None:
        """Cancel all calls, because the connection has ended."""
        self.windows.forget()
        streams = list(self.streams.values())
        self.streams.clear()
        self._behind.clear()
        for stream in streams:
            stream.cancel()

    # The connection

    def settings_received(self, values: list[tuple[int, int]]) -> None:
        window = self._stream_window
        for name, value in values:
            if name == frames.HEADER_TABLE_SIZE and value < frames.DEFAULT_TABLE_BYTES:
                self.block_prefix = replies.NO_TABLE
            if name == frames.INITIAL_WINDOW_SIZE:
                window = value
        if window != self._stream_window:
            self._change_windows(window)
        self.outbox.add(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _change_windows(self, window: int) -> None:
        self._spend(len(self.streams) / WINDOWS_PER_CONTROL, "the windows of many streams change too often")
        difference, self._stream_window = window - self._stream_window, window
        for stream in self.streams.values():
            stream.window += difference
            if stream.window > MAX_WINDOW_BYTES:
                raise _window_too_large()
        for number in list(self.outbox.blocked):
            self.outbox.window_opened(number)

    def settings_acknowledged(self) -> None:
        self._has_acknowledged = True

    def ping_received(self, payload: bytes) -> None:
        self.outbox.add(frames.frame(frames.PING, frames.ACK, 0, payload))

    def window_received(self, number: int, increment: int) -> None:
        """Grow the window of a stream or, with number 0, of the connection."""
        if not number:
            if not increment:
                raise protocol_error("WINDOW_UPDATE of 0 bytes")
            self.outbox.window += increment
            if self.outbox.window > MAX_WINDOW_BYTES:
                raise _window_too_large()
            return
        if number > self.last_number:
            raise protocol_error(f"WINDOW_UPDATE on stream {number}, which has not begun")
        stream = self.streams.get(number)
        if stream is not None:
            if not increment:
                raise StreamFault(ErrorCode.PROTOCOL_ERROR)
            stream.window += increment
            if stream.window > MAX_WINDOW_BYTES:
                raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR)
            self.outbox.window_opened(number)

    def charge(self) -> None:
        """Charge a frame that advances no call. Sent DATA pays for window updates."""
        sent_bytes = self.outbox.sent_bytes
        if sent_bytes > self._earned_bytes:
            self.control.tokens += (sent_bytes - self._earned_bytes) / _BYTES_PER_CONTROL
            self._earned_bytes = sent_bytes
        self._spend(1, "too many frames that are not part of calls")

    def _charge_reset(self) -> None:
        if not self._resets.spend():
            raise _too_many_resets()


def _window_too_large() -> ConnectionFault:
    return ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, f"a window exceeds {MAX_WINDOW_BYTES} bytes")


def _too_many_resets() -> ConnectionFault:
    return ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many streams are reset")
