"""A client's HTTP/2 connection: the server's side of RFC 9113, as far as gRPC needs it.

Calls need neither a task nor a timer. docs/reference/grpc.md lists what clients may not do.
"""

import asyncio
import re

from uncork_gateway.connection.listener_context import Admission, ListenerContext, connection_numbers
from uncork_gateway.grpc.http2 import frames
from uncork_gateway.grpc.http2.frame_reader import FrameReader
from uncork_gateway.grpc.http2.frames import ConnectionFault, ErrorCode
from uncork_gateway.grpc.http2.limits import GrpcLimits
from uncork_gateway.grpc.http2.outbox import Outbox
from uncork_gateway.grpc.http2.session import Session
from uncork_gateway.grpc.http2.timeouts import Timeouts
from uncork_gateway.grpc.http2.windows import Starved
from uncork_gateway.grpc.interfaces import OpenCall

_WRITE_BUFFER_BYTES = 256 * 1024
# As much of a request line as has come.
_HTTP_1 = re.compile(rb"(?!PRI \*)[A-Z]{1,16}(?: (?:[/*h]|$)|$)")


class GrpcConnection(asyncio.Protocol):
    """One client's connection, as an asyncio protocol.

    Args:
        connections: the listener's open connections, to which this one adds itself.
        lost: an event to set when this one has ended.
        http_text: the response text for HTTP/1.1 clients.
    """

    transport: asyncio.Transport
    outbox: Outbox
    session: Session
    reader: FrameReader
    _timeouts: Timeouts
    _admission: Admission

    def __init__(
        self,
        open_call: OpenCall,
        context: ListenerContext,
        limits: GrpcLimits,
        *,
        connections: set["GrpcConnection"],
        lost: asyncio.Event,
        starved: Starved,
        http_text: str,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.number = next(connection_numbers)
        self._open_call = open_call
        self._context = context
        self._limits = limits
        self._connections = connections
        self._lost = lost
        self._starved = starved
        self._http_text = http_text
        self._loop = loop
        self._is_reading = True
        self._is_behind = False
        """True if input is left for another turn of the event loop."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        transport.set_write_buffer_limits(_WRITE_BUFFER_BYTES)
        self.outbox = Outbox(transport, self._loop, cut_off=self._cut_off)
        self.session = Session(
            self.number,
            self._open_call,
            self._context,
            self._limits,
            outbox=self.outbox,
            starved=self._starved,
            loop=self._loop,
            ended=self._streams_ended,
            fail=self.fail,
            wait=self._wait,
        )
        self.reader = FrameReader(self.session, self._context.turn)
        self._timeouts = Timeouts(
            self.session,
            self.reader,
            transport,
            self._context.limits,
            drain=self.drain,
            close=self.close,
            loop=self._loop,
        )
        self._connections.add(self)
        self._admission = self._context.opened()
        if self._admission == "flooded":
            transport.abort()
        elif self._admission == "too many":
            self.session.begin()
            self.fail(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many connections"))
        elif self._context.closing:
            self.drain()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_reading = False
        self._timeouts.stop()
        self._connections.discard(self)
        self._lost.set()
        self._context.open.closed(self._admission)
        self.session.cancel_all()
        # Reference cycles would keep closed connections until the garbage collector runs.
        del self.outbox, self.reader, self.session, self._timeouts

    def data_received(self, data: bytes) -> None:
        self._context.turn.admit()
        self._read(data)

    def _read(self, data: bytes) -> None:
        if not self._is_reading:
            return
        outbox = self.outbox
        was_scheduled, outbox.is_scheduled = outbox.is_scheduled, True
        try:
            self.session.catch_up()
            self.reader.feed(data)
        except ConnectionFault as fault:
            if self.reader.has_preface or _HTTP_1.match(data) is None:
                self.fail(fault)
            else:
                self._answer_http_1()
        if outbox.frames or outbox.blocked:
            outbox.flush()
        outbox.is_scheduled = was_scheduled
        if self.reader.is_behind:
            self._wait()
        if self._context.closing:
            self.drain()

    def _wait(self) -> None:
        """Stop reading until a later turn of the event loop."""
        if self._is_reading and not self._is_behind:
            self._is_behind = True
            self.transport.pause_reading()
            self._context.turn.wait(self)

    def go_on(self) -> None:
        """Read the input that was left for a later turn of the event loop."""
        self._is_behind = False
        self._read(b"")
        if not (self._is_behind or self.transport.is_closing()):
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self.outbox.is_paused = True

    def resume_writing(self) -> None:
        self.outbox.is_paused = False
        self.outbox.flush()
        self._streams_ended()

    # The end of the connection

    def drain(self, why: str = "the server is shutting down") -> None:
        """Refuse new streams, and close when all calls have ended."""
        if self._is_reading and not self.session.is_draining:
            self.session.drain(why)
            self._streams_ended()

    def _streams_ended(self) -> None:
        if self.session.is_draining and not self.session.streams:
            self._loop.call_soon(self._end)

    def _end(self) -> None:
        """Close when all responses are written."""
        if self._is_reading and not self.session.streams:
            self.outbox.flush()
            if not self.outbox.frames:
                self._hang_up()

    def fail(self, fault: ConnectionFault) -> None:
        """End the connection with the client's fault, and cancel all calls."""
        if self._is_reading:
            self.outbox.add(frames.goaway(self.session.last_number, fault.code, str(fault)))
            self.session.cancel_all()
            self._hang_up()

    def _answer_http_1(self) -> None:
        """Explain to an HTTP/1.1 client that this port serves gRPC."""
        text = self._http_text.encode()
        self.outbox.add(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(text), text)
        )
        self._hang_up()

    def _hang_up(self) -> None:
        """Close, but let the client read first: a reset would discard data that it has not read."""
        self._is_reading = False
        self.outbox.flush()
        if self.transport.is_closing():
            return
        if self.outbox.is_paused or not self.transport.can_write_eof():
            self.transport.close()
        else:
            self._timeouts.linger()

    def _cut_off(self) -> None:
        self._is_reading = False
        self.transport.abort()

    def close(self) -> None:
        """Close after pending data is written, and cancel all calls."""
        self._is_reading = False
        self.session.cancel_all()
        self.outbox.flush()
        self.transport.close()
