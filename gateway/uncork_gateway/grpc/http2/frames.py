"""The frames of HTTP/2 (RFC 9113)."""

import struct
from collections.abc import Iterator
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM = ACK = 0x01
END_HEADERS = 0x04
PADDED = 0x08
HAS_PRIORITY = 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)
MAX_HEADER_LIST_SIZE = 6

DEFAULT_TABLE_BYTES = 4096
DEFAULT_WINDOW_BYTES = 65_535
MAX_WINDOW_BYTES = MAX_STREAM_ID = 2**31 - 1
MAX_FRAME_BYTES = 16_384
"""The largest payload, both ways: larger ones are never announced."""
MAX_ANNOUNCED_FRAME_BYTES = 2**24 - 1

FRAME_HEAD = struct.Struct(">HBBBI")
"""Length in two parts, type, flags, stream."""
FRAME_HEAD_BYTES = FRAME_HEAD.size
_PRIORITY_BYTES = 5
_SETTING = struct.Struct(">HI")


class ErrorCode(IntEnum):
    """The error codes of HTTP/2 that we send: why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class ConnectionFault(Exception):
    """The client broke a rule or a limit. The connection ends with GOAWAY, which contains the message."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class StreamFault(Exception):
    """A frame broke a rule or a limit of its stream. The stream ends with RST_STREAM, without the message."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code


def protocol_error(message: str) -> ConnectionFault:
    """Return the fault for a frame that is never allowed, or not in the current state."""
    return ConnectionFault(ErrorCode.PROTOCOL_ERROR, message)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return FRAME_HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + payload


def data_frames(stream_id: int, data: bytes | memoryview) -> list[bytes | memoryview]:
    """Return DATA frames as pieces: each frame's head, then its payload, which is not copied."""
    left = len(data) % MAX_FRAME_BYTES
    last = [FRAME_HEAD.pack(left >> 8, left & 0xFF, DATA, 0, stream_id), data]
    if left == len(data):
        return last
    head = FRAME_HEAD.pack(MAX_FRAME_BYTES >> 8, MAX_FRAME_BYTES & 0xFF, DATA, 0, stream_id)
    view, end = memoryview(data), len(data) - left
    pieces: list[bytes | memoryview] = []
    for at in range(0, end, MAX_FRAME_BYTES):
        pieces += head, view[at : at + MAX_FRAME_BYTES]
    if left:
        pieces += last[0], view[end:]
    return pieces


def headers(stream_id: int, block: bytes, *, ends: bool) -> bytes:
    """Return the frames of a header block: several if it is large."""
    flags = END_STREAM if ends else 0
    if len(block) <= MAX_FRAME_BYTES:
        return frame(HEADERS, flags | END_HEADERS, stream_id, block)
    pieces = [block[at : at + MAX_FRAME_BYTES] for at in range(0, len(block), MAX_FRAME_BYTES)]
    written = [frame(HEADERS, flags, stream_id, pieces[0])]
    written += [frame(CONTINUATION, 0, stream_id, piece) for piece in pieces[1:-1]]
    return b"".join([*written, frame(CONTINUATION, END_HEADERS, stream_id, pieces[-1])])


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join([_SETTING.pack(*pair) for pair in values.items()]))


def reset(stream_id: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))


def goaway(last_stream_id: int, code: int, message: str = "") -> bytes:
    numbers = last_stream_id.to_bytes(4, "big") + code.to_bytes(4, "big")
    return frame(GOAWAY, 0, 0, numbers + message.encode()[: MAX_FRAME_BYTES // 2])


def window_update(stream_id: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame; stream 0 is the connection."""
    return frame(WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))


def read_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    """Iterate over the settings in a SETTINGS frame, and check them.

    Raises:
        ConnectionFault: if the frame or a value is invalid.
    """
    if len(payload) % _SETTING.size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS are six bytes each")
    for name, value in _SETTING.iter_unpack(payload):
        if name == ENABLE_PUSH and value > 1:
            raise protocol_error(f"ENABLE_PUSH must be 0 or 1, got {value}")
        if name == INITIAL_WINDOW_SIZE and value > MAX_WINDOW_BYTES:
            raise ConnectionFault(
                ErrorCode.FLOW_CONTROL_ERROR,
                f"INITIAL_WINDOW_SIZE must be at most {MAX_WINDOW_BYTES}, got {value}",
            )
        if name == MAX_FRAME_SIZE and not MAX_FRAME_BYTES <= value <= MAX_ANNOUNCED_FRAME_BYTES:
            raise protocol_error(
                f"MAX_FRAME_SIZE must be {MAX_FRAME_BYTES} to {MAX_ANNOUNCED_FRAME_BYTES}, got {value}"
            )
        yield name, value


def without_padding(flags: int, payload: bytes) -> bytes:
    """Return the payload of a DATA or HEADERS frame without padding and priority.

    Raises:
        ConnectionFault: if the padding is longer than the payload, or the frame is too short.
    """
    start, end = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a padded frame is empty")
        start, end = 1, end - payload[0]
    if flags & HAS_PRIORITY:
        start += _PRIORITY_BYTES
        if len(payload) < start:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a frame with priority is too short")
    if end < start:
        raise protocol_error("there is more padding than payload")
    return payload[start:end]
