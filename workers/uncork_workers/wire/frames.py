"""Frames: how messages travel between gateway and worker, over a Unix socket or TCP.

A frame is two lengths (unsigned 32 bit, network order), a msgpack header of the first length, and raw
payload of the second. The header is a message; the payload holds the bodies of a batch, end to end, unless
they are in a file that both processes share (:mod:`uncork_workers.wire.shared_file`).

    worker                         gateway
             <---------------- TakeFile      on a Unix socket: the file for large batches and replies
      Hello ---------------------->          the service is imported; lists its APIs
      WarmUp ... ----------------->          the service is set up; one before each warm-up size
      Ready ---------------------->          the warm-up is done
             <-------------------- Ping      now and then while the worker is idle
      Pong ----------------------->          answers a ping
             <------------------- Batch      while one runs, at most one more
      Piece, Piece, ... ---------->          of a streamed response
             <------------------ Cancel      when clients leave whose requests run, now or next
      Reply ---------------------->          ends the batch; more follow until either side closes
      Gpus ----------------------->          after Pong, Piece or Reply, if there is a new reading
      Failed --------------------->          instead of Hello or Ready
      Leaving -------------------->          when the worker is to exit; the gateway closes the connection
             <----------------- Goodbye      why the gateway closes it, to a worker that it did not launch

On TCP, the handshake of :mod:`uncork_workers.wire.handshake` comes first.

Decoding never executes data (no pickle), and lengths are checked before memory is allocated.
"""

import io
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from uncork_workers.wire.messages import Message

# By default, a batch has at most 64 MiB of bodies and of the headers of its requests.
MAX_HEADER_BYTES = 128 * 2**20
MAX_PAYLOAD_BYTES = 2**31
_LENGTHS = struct.Struct("!II")
_HEADER_START = _LENGTHS.size


def plain(value: object) -> object:
    """Return a text or number of a subclass, such as NumPy's, as one that msgspec can encode."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, int):
        return int.__int__(value)
    raise TypeError(f"{type(value).__name__} cannot be sent")


def encodable(text: str) -> str:
    """Escape lone surrogates, which no frame can carry. Paths that are not UTF-8 have some."""
    return text.encode(errors="backslashreplace").decode()


_encoder = msgspec.msgpack.Encoder(enc_hook=plain)
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class FrameError(ValueError):
    """The peer sent bytes that are not a frame, or a message that is not allowed here."""


class Frame(NamedTuple):
    message: Message
    payload: bytes


def frame_buffers(message: Message, bodies: Iterable[bytes] = ()) -> list[bytes]:
    """Encode a frame as buffers to send one after the other, without copying the bodies.

    Raises:
        FrameError: if the frame exceeds a size limit.
    """
    header = _encoder.encode(message)
    buffers = [b"", *bodies]
    payload_bytes = sum(map(len, buffers))
    if len(header) > MAX_HEADER_BYTES or payload_bytes > MAX_PAYLOAD_BYTES:
        raise _too_long(len(header), payload_bytes)
    buffers[0] = _LENGTHS.pack(len(header), payload_bytes) + header
    return buffers


def encode_frame(message: Message, bodies: Iterable[bytes] = ()) -> bytes:
    """Encode a frame as one bytes object; raises as :func:`frame_buffers`."""
    return b"".join(frame_buffers(message, bodies))


def split_payload(payload: bytes, lengths: Sequence[int]) -> list[bytes]:
    """Cut a payload into bodies.

    Raises:
        FrameError: if the lengths do not add up to the payload.
    """
    if sum(lengths) != len(payload) or min(lengths, default=0) < 0:
        raise FrameError(f"{len(payload)} bytes of payload cannot be cut into lengths {list(lengths)[:8]}")
    return list(map(io.BytesIO(payload).read, lengths))


class FrameDecoder:
    """An incremental decoder: feed it bytes as they arrive."""

    def __init__(self) -> None:
        self._start = bytearray()
        """The bytes received of an incomplete header."""
        self._needed = 0
        """How many of them there must be before more can be read."""
        self._message: Message | None = None
        """The message whose payload is incomplete, with the pieces received and the bytes missing."""
        self._pieces: list[bytes] = []
        self._missing = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that ``data`` completes.

        Raises:
            FrameError: if the bytes are not frames; the connection is unusable then.
        """
        while data:
            if self._message is None:
                read = self._read_header(data)
                if read is None:
                    return
                self._message, data = read
            missing = self._missing
            if len(data) < missing:
                self._pieces.append(data)
                self._missing -= len(data)
                return
            payload, data = data[:missing], data[missing:]
            if self._pieces:
                # A large payload is copied once, when it is complete.
                payload = b"".join((*self._pieces, payload))
                self._pieces = []
            frame = Frame(self._message, payload)
            self._message = None
            yield frame

    def _read_header(self, data: bytes) -> tuple[Message, bytes] | None:
        """Return the message and the bytes after its header; None if that is incomplete."""
        if self._start:
            self._start += data
            if len(self._start) < self._needed:
                return None
            data, self._start = bytes(self._start), bytearray()
        if len(data) < _HEADER_START:
            self._start, self._needed = bytearray(data), _HEADER_START
            return None
        header_bytes, missing = _LENGTHS.unpack_from(data)
        if header_bytes > MAX_HEADER_BYTES or missing > MAX_PAYLOAD_BYTES:
            raise _too_long(header_bytes, missing)
        header_end = _HEADER_START + header_bytes
        if len(data) < header_end:
            self._start, self._needed = bytearray(data), header_end
            return None
        try:
            message = _decoder.decode(data[_HEADER_START:header_end])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise FrameError(f"invalid header: {error}") from error
        self._missing = missing
        return message, data[header_end:]


def _too_long(header_bytes: int, payload_bytes: int) -> FrameError:
    return FrameError(
        f"a frame of {header_bytes} + {payload_bytes} bytes is over the limit of "
        f"{MAX_HEADER_BYTES} + {MAX_PAYLOAD_BYTES}"
    )
