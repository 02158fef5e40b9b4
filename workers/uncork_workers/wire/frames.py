"""The wire between gateway and worker: frames over a Unix socket.

A frame is two lengths (unsigned 32 bit, network order), a msgpack header of the first length, and raw
payload of the second. The header is one of the messages below; payload is the bodies of a batch, end to end.

    worker                         gateway
      Hello    (apis) ------------>          after the import of the service
      WarmUp ... ----------------->          after its setup, before each size with which it warms up
      Ready ---------------------->          when it has warmed up
             <-------------------- Ping      now and then, while it waits for a batch,
      Pong ----------------------->          which it answers
             <------------------- Batch      one at a time,
      Piece, Piece, ... ---------->          of an answer that is streamed
             <------------------ Cancel      if nobody wants the rest of it
      Reply ---------------------->          until either side closes
      Failed --------------------->          instead of Hello or Ready

Nothing here executes what it reads (no pickle), and lengths are limited before memory is taken for them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from uncork_workers.wire.messages import Message

MAX_HEADER_BYTES = 64 * 2**20
MAX_PAYLOAD_BYTES = 2**31
_LENGTHS = struct.Struct("!II")

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class FrameError(ValueError):
    """The other side sent something that is not a frame, or not one that belongs here."""


class Frame(NamedTuple):
    """A message and the payload that came with it."""

    message: Message
    payload: bytes


def frame_buffers(message: Message, bodies: Iterable[bytes] = ()) -> list[bytes]:
    """A frame as buffers to be sent one after the other; bodies are not copied.

    Raises:
        FrameError: if it is larger than the other side would accept.
    """
    header = _encoder.encode(message)
    buffers = [b"", *bodies]
    payload_bytes = sum(map(len, buffers))
    _check_lengths(len(header), payload_bytes)
    buffers[0] = _LENGTHS.pack(len(header), payload_bytes) + header
    return buffers


def encode_frame(message: Message, bodies: Iterable[bytes] = ()) -> bytes:
    """A frame as bytes, ready to be sent.

    Raises:
        FrameError: if it is larger than the other side would accept.
    """
    return b"".join(frame_buffers(message, bodies))


def split_payload(payload: bytes, lengths: Sequence[int]) -> list[bytes]:
    """Cut a payload into bodies.

    Raises:
        FrameError: if the lengths do not add up to the payload.
    """
    if sum(lengths) != len(payload) or min(lengths, default=0) < 0:
        raise FrameError(f"{len(payload)} bytes of payload cannot be cut into lengths {list(lengths)[:8]}")
    ends = accumulate(lengths)
    return [payload[end - length : end] for length, end in zip(lengths, ends, strict=True)]


class FrameDecoder:
    """Turns bytes as they arrive into frames."""

    def __init__(self) -> None:
        self._start = b""
        """Of a frame whose header is not whole."""
        self._message: Message | None = None
        """Of a frame whose payload is not whole: what there is of it, and how much is missing."""
        self._pieces: list[bytes] = []
        self._missing = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take in some bytes and yield the frames that are complete now.

        Raises:
            FrameError: if the bytes are not frames; the connection is of no use then.
        """
        while True:
            if self._message is None:
                data = self._start + data
                self._start = b""
                header_start = _LENGTHS.size
                if len(data) < header_start:
                    self._start = data
                    return
                header_bytes, self._missing = _LENGTHS.unpack_from(data)
                _check_lengths(header_bytes, self._missing)
                header_end = header_start + header_bytes
                if len(data) < header_end:
                    self._start = data
                    return
                self._message = _decode_header(data[header_start:header_end])
                data = data[header_end:]
            if len(data) < self._missing:
                self._pieces.append(data)
                self._missing -= len(data)
                return
            # Large payloads are copied once, here, when all of them is there.
            payload = b"".join((*self._pieces, data[: self._missing]))
            frame = Frame(self._message, payload)
            data = data[self._missing :]
            self._message, self._pieces = None, []
            yield frame


def _decode_header(header: bytes) -> Message:
    try:
        return _decoder.decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"not a header that is known here: {error}") from error


def _check_lengths(header_bytes: int, payload_bytes: int) -> None:
    if header_bytes > MAX_HEADER_BYTES or payload_bytes > MAX_PAYLOAD_BYTES:
        raise FrameError(
            f"a frame of {header_bytes} + {payload_bytes} bytes is over the limit of "
            f"{MAX_HEADER_BYTES} + {MAX_PAYLOAD_BYTES}"
        )
