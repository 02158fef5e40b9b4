"""The outgoing half of a call's stream."""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from uncork_gateway.connection.turn import Turn
from uncork_gateway.grpc.http2 import replies
from uncork_gateway.grpc.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEAD,
    HEADERS,
    MAX_FRAME_BYTES,
    ErrorCode,
    data_frames,
    frame,
    headers,
)
from uncork_gateway.grpc.http2.limits import CONTROL_PER_MESSAGE, Allowance, GrpcLimits
from uncork_gateway.grpc.http2.messages import PREFIX, PREFIX_BYTES
from uncork_gateway.grpc.http2.outbox import Outbox
from uncork_gateway.grpc.interfaces import CallConnection
from uncork_gateway.grpc.statuses import Code
from uncork_gateway.headers import REQUEST_ID, Header

_START_BYTES = len(replies.START)
_SMALL_BYTES = 1024


class StreamConnection(CallConnection, Protocol):
    """The connection, with the parts that its streams use."""

    outbox: Outbox
    control: Allowance
    turn: Turn
    block_prefix: bytes
    limits: GrpcLimits
    inflate_steps: int

    @property
    def is_shared(self) -> bool: ...
    def widen(self, number: int) -> None: ...
    def postpone(self, number: int) -> None: ...
    def stream_ended(self, number: int) -> None: ...
    def reset_stream(self, number: int, code: ErrorCode) -> None: ...


class Outgoing(ABC):
    """The outgoing half of a stream.

    Attributes:
        number: the stream identifier.
        request_id: the call's id, which its trailers carry.
        window: the bytes of DATA that the client accepts on the stream.
        sent_bytes: the bytes sent of DATA that did not fit at once.
        unsent_bytes: the bytes of messages that the client's windows do not admit yet.
        is_open: True until the call is finished or cancelled.
    """

    __slots__ = (
        "_all_sent",
        "_has_head",
        "_trailers",
        "_unsent",
        "connection",
        "is_open",
        "number",
        "request_id",
        "sent_bytes",
        "unsent_bytes",
        "window",
    )

    def __init__(self, connection: StreamConnection, number: int, request_id: bytes, *, window: int) -> None:
        self.connection = connection
        self.number = number
        self.request_id = request_id
        self.window = window
        self.is_open = True
        self.sent_bytes = self.unsent_bytes = 0
        self._has_head = False
        self._all_sent: asyncio.Event | None = None
        """Set when nothing is unsent, for :meth:`sent`."""
        self._unsent: deque[bytes | memoryview] | None = None
        self._trailers: bytes | None = None
        """The last frames, once the call is finished and while DATA is unsent."""

    @abstractmethod
    def _stop_reading(self) -> None:
        """Stop passing messages to the call, which is finished."""

    def begin(self, metadata: Sequence[Header]) -> None:
        if self.is_open and not self._has_head:
            self._begin(replies.block(metadata))

    def _begin(self, metadata: bytes = b"") -> None:
        self._has_head = True
        block = self.connection.block_prefix + replies.START + metadata
        self.connection.outbox.add(headers(self.number, block, ends=False))

    def reply(self, message: bytes, trailers: Sequence[Header], *, values: bytes = b"") -> None:
        if not self.is_open:
            return
        connection = self.connection
        outbox = connection.outbox
        size = len(message) + len(values) + PREFIX_BYTES
        end = replies.OK + replies.block((*trailers, (REQUEST_ID, self.request_id)))
        if (
            size > MAX_FRAME_BYTES
            or len(end) > MAX_FRAME_BYTES
            or size > self.window
            or size > outbox.window
            or outbox.is_paused
            or self._has_head
            or connection.block_prefix
        ):
            is_alone = not (connection.is_shared or outbox.is_scheduled)
            self.send(message, values)
            self.finish(Code.OK, "", trailers)
            if is_alone:
                outbox.flush()
            return
        outbox.window -= size
        outbox.sent_bytes += size
        number, is_shared = self.number, connection.is_shared
        outbox.frames.append(
            b"%b%b%b%b%b%b%b%b"
            % (
                FRAME_HEAD.pack(0, _START_BYTES, HEADERS, END_HEADERS, number),
                replies.START,
                FRAME_HEAD.pack(size >> 8, size & 0xFF, DATA, 0, number),
                PREFIX.pack(0, size - PREFIX_BYTES),
                message,
                values,
                FRAME_HEAD.pack(len(end) >> 8, len(end) & 0xFF, HEADERS, END_HEADERS | END_STREAM, number),
                end,
            )
        )
        self._stop_reading()
        connection.stream_ended(number)
        if not outbox.is_scheduled:
            if is_shared:
                outbox.schedule()
            else:
                outbox.flush()  # nothing else will be sent in this turn

    def send(self, message: bytes, values: bytes = b"") -> None:
        if not self.is_open:
            return
        connection = self.connection
        if connection.outbox.unsent_bytes > connection.limits.max_unsent_bytes:
            connection.reset_stream(self.number, ErrorCode.ENHANCE_YOUR_CALM)
            return
        if not self._has_head:
            self._begin()
        if self._unsent is None:
            self._unsent = deque()
        size = PREFIX_BYTES + len(message) + len(values)
        if not values:
            message, values = b"", message
        # The prefix goes in a frame with the beginning; the rest of large values is not copied for it.
        first = max(0, MAX_FRAME_BYTES - PREFIX_BYTES - len(message))
        piece = PREFIX.pack(0, size - PREFIX_BYTES) + message + values[:first]
        # An object of its own would take many times the memory of an empty message.
        if self._unsent and len(self._unsent[-1]) + len(piece) <= _SMALL_BYTES:
            piece = b"".join((self._unsent.pop(), piece))
        self._unsent.append(piece)
        if len(values) > first:
            self._unsent.append(memoryview(values)[first:])
        self.unsent_bytes += size
        connection.outbox.unsent_bytes += size
        connection.control.tokens += CONTROL_PER_MESSAGE
        connection.outbox.block(self.number, self.write)

    async def sent(self) -> None:
        if self.unsent_bytes or not self.is_open:
            self._all_sent = asyncio.Event()
            await self._all_sent.wait()

    def finish(self, code: Code, text: str = "", trailers: Sequence[Header] = ()) -> None:
        if not self.is_open:
            return
        self._stop_reading()
        block = replies.trailers(code, text, (*trailers, (REQUEST_ID, self.request_id)))
        if not self._has_head:
            block = replies.START + block
        self._finish_with(headers(self.number, self.connection.block_prefix + block, ends=True))

    def answer_http(self, status: int, *, is_head: bool) -> None:
        """Respond with an HTTP status to a request that is not a gRPC call; to HEAD without a body."""
        self.is_open = False
        head, text = replies.http_answer(status, (REQUEST_ID, self.request_id))
        connection = self.connection
        start = headers(self.number, connection.block_prefix + head, ends=is_head)
        if is_head:
            self._finish_with(start)
            return
        connection.outbox.add(start)
        self._unsent, self.unsent_bytes = deque([text]), len(text)
        connection.outbox.unsent_bytes += len(text)
        self._finish_with(frame(DATA, END_STREAM, self.number))
        connection.outbox.block(self.number, self.write)

    def _finish_with(self, last: bytes) -> None:
        if self.unsent_bytes:
            self._trailers = last
        else:
            self.connection.outbox.add(last)
            self.connection.stream_ended(self.number)

    def write(self, max_bytes: int) -> int:
        """Queue up to ``max_bytes`` of DATA, and the trailers after the last; return the bytes of DATA."""
        outbox, unsent = self.connection.outbox, self._unsent
        assert unsent is not None
        size = left = max(0, min(max_bytes, self.window, self.unsent_bytes))
        while left:
            piece = unsent.popleft()
            if len(piece) > left:
                piece = memoryview(piece)
                unsent.appendleft(piece[left:])
                piece = piece[:left]
            left -= len(piece)
            outbox.frames += data_frames(self.number, piece)
        self.window -= size
        self.sent_bytes += size
        self.unsent_bytes -= size
        if not unsent:
            outbox.unblock(self.number)
            if self._all_sent is not None:
                self._all_sent.set()
            if self._trailers is not None:
                outbox.frames.append(self._trailers)
                self.connection.stream_ended(self.number)
        return size

    def _drop(self) -> None:
        outbox = self.connection.outbox
        outbox.unblock(self.number)
        outbox.unsent_bytes -= self.unsent_bytes
        self._unsent, self.unsent_bytes = None, 0
