"""A strict client, the h2 library, on a connection of its own, which can stop reading and disconnect.

The connection is a real :class:`GrpcConnection` over a transport that keeps what is written.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.events

from uncork_gateway.connection.client_limits import ClientLimits
from uncork_gateway.connection.listener_context import ListenerContext
from uncork_gateway.errors import GatewayError
from uncork_gateway.grpc.http2 import frames
from uncork_gateway.grpc.http2.connection import GrpcConnection
from uncork_gateway.grpc.http2.limits import GrpcLimits
from uncork_gateway.grpc.http2.messages import PREFIX
from uncork_gateway.grpc.interfaces import CallHead, CallStream
from uncork_gateway.grpc.listener import GrpcListener
from uncork_gateway.grpc.statuses import Code, code_of, trailers_of
from uncork_gateway.interfaces import BodyPool

Header = tuple[bytes, bytes]
START = frames.PREFACE + frames.settings({})
LIMITS = GrpcLimits(max_message_bytes=1_000_000)


def message(body: bytes, *, flag: int = 0) -> bytes:
    return PREFIX.pack(flag, len(body)) + body


def gzipped(body: bytes) -> bytes:
    """Return a compressed message with its prefix."""
    compressor = zlib.compressobj(wbits=31)
    return message(compressor.compress(body) + compressor.flush(), flag=1)


def headers(path: bytes = b"/t.T/Echo", *more: Header) -> list[Header]:
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"test"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        *more,
    ]


class EchoCall:
    """A call that answers a unary method with its message, and ``/t.T/Stream`` with each of its messages.

    ``/t.T/Hang`` is not answered, and ``/t.T/None`` at once, with an error. ``/t.T/One`` takes one message.
    """

    max_message_bytes = sys.maxsize

    def __init__(self, stream: CallStream, head: CallHead) -> None:
        self.stream = stream
        self.head = head
        self.takes_one = head.path == b"/t.T/One"
        self.events: list[Any] = []
        self._message = b""
        if head.rejection is not None:
            self.finish(head.rejection)
        elif head.path == b"/t.T/None":
            stream.finish(Code.UNIMPLEMENTED, "no such method")

    def message_received(self, message: bytes) -> None:
        self.events.append(message)
        if self.head.path == b"/t.T/Stream":
            self.stream.send(message)
        self._message = message

    def end_received(self) -> None:
        self.events.append("end")
        if self.head.path == b"/t.T/Stream":
            self.stream.finish(Code.OK)
        elif self.head.path != b"/t.T/Hang":
            self.stream.reply(self._message, ())

    def reject(self, error: GatewayError) -> None:
        self.events.append(str(error))
        self.finish(error)

    def finish(self, error: GatewayError) -> None:
        self.stream.finish(code_of(error), str(error), trailers_of(error))

    def cancelled(self) -> None:
        self.events.append("cancelled")


class Server:
    """The state that connections share, and the calls that they opened."""

    def __init__(
        self,
        *,
        limits: GrpcLimits = LIMITS,
        clients: ClientLimits | None = None,
        pool_bytes: int = 10_000_000,
        make_call: Callable[[CallStream, CallHead], EchoCall] = EchoCall,
    ) -> None:
        self.pool = BodyPool(pool_bytes)
        self.context = ListenerContext(limits=clients or ClientLimits(), pool=self.pool)
        self.calls: list[EchoCall] = []
        self._make_call = make_call
        self.listener = GrpcListener(self._open, self.context, limits=limits, http_text="HTTP is elsewhere\n")

    def _open(self, stream: CallStream, head: CallHead) -> EchoCall:
        call = self._make_call(stream, head)
        self.calls.append(call)
        return call


class Wire(asyncio.Transport):
    """The client's end of the transport. Sent data arrives at once; received data is kept."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.received = b""
        self.writes = 0
        self.ended = self.aborted = self.closed = False
        """Whether the server sends no more, has discarded what it sent, and has closed altogether."""
        self.is_read = True
        """Whether the server reads."""
        self.unread = 0
        self.high = 0
        self.stops_reading_after: int | None = None
        """How many bytes the client reads before it stops."""
        self.protocol: GrpcConnection = server.listener.protocol()
        self.protocol.connection_made(self)

    def send(self, data: bytes) -> None:
        self.protocol.data_received(data)

    def goaways(self) -> list[tuple[int, int, str]]:
        """Return code, last stream and text of each GOAWAY."""
        return [
            (int.from_bytes(data[4:8], "big"), int.from_bytes(data[:4], "big"), data[8:].decode())
            for kind, _, _, data in read_frames(self.received)
            if kind == frames.GOAWAY
        ]

    def resets(self) -> list[tuple[int, int]]:
        """Return stream and code of each RST_STREAM."""
        return [
            (number, int.from_bytes(data, "big"))
            for kind, _, number, data in read_frames(self.received)
            if kind == frames.RST_STREAM
        ]

    def leave(self) -> None:
        self.close()
        self.protocol.connection_lost(None)

    def read_again(self) -> None:
        self.stops_reading_after = None
        self.unread = 0
        self.protocol.resume_writing()

    # The server's end

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        assert not self.ended
        assert data
        self.writes += 1
        self.received += data
        if self.stops_reading_after is not None and len(self.received) > self.stops_reading_after:
            self.unread += len(data)
            if self.unread > self.high:
                self.protocol.pause_writing()

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def get_write_buffer_size(self) -> int:
        return self.unread

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        assert not self.ended
        self.ended = True

    def close(self) -> None:
        self.ended = self.closed = True

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


@dataclass
class Answer:
    """What the client has received on one stream."""

    head: dict[bytes, bytes] = field(default_factory=dict)
    data: bytes = b""
    trailers: dict[bytes, bytes] = field(default_factory=dict)
    is_ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int:
        return int((self.trailers or self.head)[b"grpc-status"])

    @property
    def text(self) -> str:
        return (self.trailers or self.head).get(b"grpc-message", b"").decode()

    @property
    def messages(self) -> list[bytes]:
        found, at = [], 0
        while at < len(self.data):
            flag, length = PREFIX.unpack_from(self.data, at)
            assert flag == 0
            at += PREFIX.size + length
            found.append(self.data[at - length : at])
        assert at == len(self.data)
        return found


def read_frames(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Return type, flags, stream and payload of each frame."""
    found = []
    while data:
        high, low, kind, flags, number = frames.FRAME_HEAD.unpack_from(data)
        size = frames.FRAME_HEAD_BYTES + (high << 8 | low)
        found.append((kind, flags, number, data[frames.FRAME_HEAD_BYTES : size]))
        data = data[size:]
    return found


class Peer:
    """A client that speaks HTTP/2 by the book."""

    def __init__(self, server: Server, *, connect: bool = True) -> None:
        self.wire = Wire(server)
        self.server = server
        self.h2 = h2.connection.H2Connection(
            config=h2.config.H2Configuration(client_side=True, header_encoding=None)
        )
        self.answers: dict[int, Answer] = {}
        self.goaway: tuple[int, int, str] | None = None
        """Code, last stream and text."""
        self.acknowledged_pings: list[bytes] = []
        self.opens_windows = True
        self._read = 0
        if connect:
            self.h2.initiate_connection()
            self.sync()

    def sync(self) -> None:
        """Exchange all that there is to send, until the server says GOAWAY: the library ends with it."""
        while self.goaway is None:
            if self._read < len(self.wire.received):
                self._read_frame()
            elif data := self.h2.data_to_send():
                self.wire.send(data)
            else:
                return

    def _read_frame(self) -> None:
        received, at = self.wire.received, self._read
        self._read += frames.FRAME_HEAD_BYTES + int.from_bytes(received[at : at + 3], "big")
        for event in self.h2.receive_data(received[at : self._read]):
            self._handle(event)

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """Return type, flags, stream and payload of all frames received so far."""
        return read_frames(self.wire.received)

    def call(
        self, body: bytes | None = b"hello", *, path: bytes = b"/t.T/Echo", more: Sequence[Header] = ()
    ) -> int:
        """Send a unary call, or only its head without a body; returns the number of its stream."""
        number = self.h2.get_next_available_stream_id()
        self.h2.send_headers(number, headers(path, *more))
        if body is None:
            self.sync()
        else:
            assert not self.upload(number, message(body), ends=True)
        return number

    def answer(self, number: int) -> Answer:
        return self.answers.setdefault(number, Answer())

    def ask(
        self, body: bytes = b"hello", *, path: bytes = b"/t.T/Echo", more: Sequence[Header] = ()
    ) -> Answer:
        """Send a unary call and return its answer."""
        return self.answer(self.call(body, path=path, more=more))

    def upload(self, number: int, data: bytes, *, ends: bool = False) -> bytes:
        """Send as much DATA as the windows allow, in large frames; returns the rest."""
        while data and self.answer(number).reset is None:
            size = min(len(data), self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size)
            if size == 0:
                return data
            self.h2.send_data(number, data[:size], end_stream=ends and size == len(data))
            data = data[size:]
            self.sync()
        return data

    def _handle(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived():
                self.answer(event.stream_id).head = dict(event.headers)
            case h2.events.TrailersReceived():
                self.answer(event.stream_id).trailers = dict(event.headers)
            case h2.events.DataReceived():
                self.answer(event.stream_id).data += event.data
                if self.opens_windows and event.flow_controlled_length:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded():
                self.answer(event.stream_id).is_ended = True
            case h2.events.StreamReset():
                self.answer(event.stream_id).reset = event.error_code
            case h2.events.PingAckReceived():
                self.acknowledged_pings.append(event.ping_data)
            case h2.events.ConnectionTerminated():
                text = (event.additional_data or b"").decode()
                assert event.error_code is not None
                assert event.last_stream_id is not None
                self.goaway = int(event.error_code), event.last_stream_id, text
