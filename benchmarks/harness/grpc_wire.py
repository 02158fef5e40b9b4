"""A gRPC client that writes its own frames, so that it can misbehave; the server's frames must be valid."""

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from hpack import Decoder, Encoder, HPACKError

from uncork_gateway.grpc.http2 import frames
from uncork_gateway.grpc.http2.frames import FRAME_HEAD, FRAME_HEAD_BYTES, MAX_WINDOW_BYTES

Header = tuple[bytes, bytes]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_PREFIX = struct.Struct(">BI")
_CHUNK_BYTES = 2**16
_GRPC = b"application/grpc"


class WireFault(Exception):
    """The server has sent something that is not gRPC."""


@dataclass(slots=True, eq=False)
class Answer:
    """What has come on one stream.

    Attributes:
        reset: the code of RST_STREAM; None if there was none.
        ended: set when nothing more can come, because the stream or the connection has ended.
        is_complete: whether the server has ended the stream.
    """

    head: dict[bytes, bytes] = field(default_factory=dict)
    trailers: dict[bytes, bytes] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    reset: int | None = None
    is_complete: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def http_status(self) -> int:
        return int(self.head.get(b":status", b"0"))

    @property
    def status(self) -> int | None:
        """The status of gRPC; None if the answer has none."""
        written = self.trailers.get(b"grpc-status", self.head.get(b"grpc-status"))
        return int(written) if self.is_complete and written is not None else None

    @property
    def text(self) -> str:
        """The message of an error, with its escapes."""
        return (self.trailers.get(b"grpc-message") or self.head.get(b"grpc-message") or b"").decode("latin-1")

    @property
    def messages(self) -> list[bytes]:
        """The complete messages.

        Raises:
            WireFault: if a prefix is wrong, or the last message of a complete stream is cut off.
        """
        found, at = [], 0
        while at + _PREFIX.size <= len(self.data):
            flag, length = _PREFIX.unpack_from(self.data, at)
            if flag:
                raise WireFault(f"a message begins with byte {flag}")
            if at + _PREFIX.size + length > len(self.data):
                break
            at += _PREFIX.size + length
            found.append(bytes(self.data[at - length : at]))
        if self.is_complete and at < len(self.data):
            raise WireFault(f"the stream ends {len(self.data) - at} bytes after its last message")
        return found


class GrpcWire:
    """One connection of such a client.

    Attributes:
        answers: by stream.
        goaway: code and text of the server's GOAWAY; None if none has come.
        closed: set when the server has closed the connection.
        fault: what the server has sent wrongly; empty if nothing.

    Args:
        window_bytes: how much the server may send on each stream; on the connection, anything.
        any_stream: whether the server may answer streams that :meth:`head` has not opened.
    """

    def __init__(
        self, streams: Streams, *, window_bytes: int = MAX_WINDOW_BYTES, any_stream: bool = False
    ) -> None:
        self._reader, self._writer = streams
        self._window_bytes = window_bytes
        self._any_stream = any_stream
        self._encoder = Encoder()
        self._decoder = Decoder()
        self._next = 1
        self._block: tuple[int, bool, bytes] | None = None
        self.answers: dict[int, Answer] = {}
        self.goaway: tuple[int, str] | None = None
        self.closed = asyncio.Event()
        self.fault = ""
        self._reads = asyncio.Event()
        self._reads.set()

    # Output

    def preface(self) -> bytes:
        """Return the beginning of the connection."""
        opened = frames.window_update(0, MAX_WINDOW_BYTES - frames.DEFAULT_WINDOW_BYTES)
        settings = {frames.ENABLE_PUSH: 0, frames.INITIAL_WINDOW_SIZE: self._window_bytes}
        return frames.PREFACE + frames.settings(settings) + opened

    def head(self, fields: Iterable[Header], *, ends: bool = False) -> tuple[int, bytes]:
        """Return the number of a new stream, and the frames that open it; their order must be kept."""
        number, self._next = self._next, self._next + 2
        self.answers[number] = Answer()
        return number, frames.headers(number, self._encoder.encode(fields), ends=ends)

    def write(self, data: bytes) -> None:
        """Send bytes; does nothing once the connection has ended."""
        if not self._writer.transport.is_closing():
            self._writer.write(data)

    def half_close(self) -> None:
        """End the sending side; does nothing once the connection has ended."""
        if not self._writer.transport.is_closing():
            with suppress(OSError):
                self._writer.write_eof()

    # Input

    def pause(self) -> None:
        """Read nothing until :meth:`resume`."""
        self._reads.clear()

    def resume(self) -> None:
        self._reads.set()

    async def listen(self) -> None:
        """Read what the server sends until it closes the connection."""
        unread = b""
        try:
            while data := await self._reader.read(_CHUNK_BYTES):
                await self._reads.wait()
                unread = self._feed(unread + data)
        except WireFault as fault:
            self.fault = str(fault)
        except (HPACKError, IndexError) as error:
            self.fault = f"broken header block: {error!r}"
        except OSError:
            pass  # reset by the server
        finally:
            self.closed.set()
            for answer in self.answers.values():
                answer.ended.set()

    def _feed(self, data: bytes) -> bytes:
        """Read the complete frames; returns the rest."""
        at = 0
        while len(data) - at >= FRAME_HEAD_BYTES:
            high, low, kind, flags, number = FRAME_HEAD.unpack_from(data, at)
            end = at + FRAME_HEAD_BYTES + (high << 8 | low)
            if end > len(data):
                break
            self._read(kind, flags, number, data[at + FRAME_HEAD_BYTES : end])
            at = end
        return data[at:]

    def _read(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        match kind:
            case frames.HEADERS:
                self._block = (number, bool(flags & frames.END_STREAM), payload)
                self._read_block(flags)
            case frames.CONTINUATION if self._block is not None and self._block[0] == number:
                self._block = (number, self._block[1], self._block[2] + payload)
                self._read_block(flags)
            case frames.DATA:
                answer = self._open(number, "DATA")
                answer.data += payload
                if flags & frames.END_STREAM:
                    self._complete(answer)
            case frames.RST_STREAM:
                self._reset(self.answers.get(number, Answer()), int.from_bytes(payload, "big"))
            case frames.GOAWAY:
                self.goaway = int.from_bytes(payload[4:8], "big"), payload[8:].decode("latin-1")
            case frames.SETTINGS | frames.PING:
                if not flags & frames.ACK:
                    self.write(frames.frame(kind, frames.ACK, 0, payload if kind == frames.PING else b""))
            case frames.WINDOW_UPDATE:
                pass
            case _:
                raise WireFault(f"a frame of type {kind} on stream {number}")

    def _read_block(self, flags: int) -> None:
        if not flags & frames.END_HEADERS or self._block is None:
            return
        (number, ends, block), self._block = self._block, None
        fields = dict(self._decoder.decode(block, raw=True))
        answer = self._open(number, "HEADERS")
        if answer.head:
            answer.trailers = fields
        else:
            answer.head = fields
        if ends:
            self._complete(answer)

    def _open(self, number: int, kind: str) -> Answer:
        if self._any_stream:
            return self.answers.setdefault(number, Answer())
        answer = self.answers.get(number)
        if answer is None or answer.is_complete:
            why = "is not open" if answer is None else "has ended"
            raise WireFault(f"{kind} on stream {number}, which {why}")
        return answer

    def _reset(self, answer: Answer, code: int) -> None:
        """Note the end of a stream; a server that has answered may ask the client to stop sending."""
        if not answer.is_complete:
            answer.reset = code
            answer.ended.set()

    def _complete(self, answer: Answer) -> None:
        answer.is_complete = True
        answer.ended.set()
        if answer.head.get(b"content-type") == _GRPC and answer.status is None:
            raise WireFault("a call ends without grpc-status")


@asynccontextmanager
async def listening(wire: GrpcWire) -> AsyncIterator[GrpcWire]:
    """Begin the connection, and read what the server sends until the block ends."""
    wire.write(wire.preface())
    task = asyncio.create_task(wire.listen())
    try:
        yield wire
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def call_fields(path: bytes, *more: Header) -> list[Header]:
    """Return the fields that open a call."""
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"127.0.0.1"),
        (b"te", b"trailers"),
        (b"content-type", _GRPC),
        *more,
    ]


def prefixed(message: bytes, *, flag: int = 0) -> bytes:
    """Return a message with its prefix; flag 1 says that it is compressed."""
    return _PREFIX.pack(flag, len(message)) + message
