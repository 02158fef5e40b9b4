"""Splits a client's bytes into frames, and checks each frame by itself."""

from uncork_gateway.connection.turn import FRAME_WORK, Turn
from uncork_gateway.grpc.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEAD,
    FRAME_HEAD_BYTES,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    MAX_FRAME_BYTES,
    MAX_STREAM_ID,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ConnectionFault,
    ErrorCode,
    StreamFault,
    protocol_error,
    read_settings,
    without_padding,
)
from uncork_gateway.grpc.http2.session import Session

_MAX_BLOCK_BYTES = 16 * 1024
# A client that sends its messages in smaller pieces costs more than its bytes.
_MIN_DATA_BYTES = 16
_PLAIN_BLOCK = END_HEADERS | PADDED | HAS_PRIORITY
_HAS_BLOCK_FLAGS = PADDED | HAS_PRIORITY
_NAMES = ("DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS", "", "PING", "GOAWAY", "WINDOW_UPDATE")
_ON_STREAMS = frozenset((DATA, HEADERS, PRIORITY, RST_STREAM))
_ON_CONNECTION = frozenset((SETTINGS, PING, GOAWAY))
_SIZES = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
_MIN_GOAWAY_BYTES = 8


class FrameReader:
    """Reads the frames of one client.

    Attributes:
        has_preface: True if the client has sent the preface of HTTP/2.
        has_begun: True if the client has sent the preface and the head of its first SETTINGS frame.
        is_behind: True if complete frames wait for the next :meth:`feed`, because the loop's turn is used up.
        progress: a counter that grows as frames complete.
        blocks: the number of header blocks that arrived in several frames.
    """

    def __init__(self, session: Session, turn: Turn) -> None:
        self._session = session
        self._turn = turn
        self._unread = b""
        self._block: tuple[int, bytes, bool] | None = None
        """Stream, the beginning of a header block, and whether it ends the stream."""
        self.has_preface = self.has_begun = self.is_behind = False
        self.progress = self.blocks = 0

    @property
    def is_within_block(self) -> bool:
        return self._block is not None

    @property
    def is_within_frame(self) -> bool:
        return bool(self._unread)

    def feed(self, data: bytes) -> None:
        """Read the complete frames, and keep an incomplete one for the next call.

        Raises:
            ConnectionFault: if the client broke a rule or a limit; the connection must end.
        """
        at = 0
        if self.is_behind:
            self.is_behind, data, self._unread = False, self._unread + data, b""
        if self._unread:
            # Complete the first frame only, so that the others are not copied.
            at = self._missing_bytes(data)
            self._read_frames(self._unread + data[:at], 0)
        if self.is_behind:
            self._unread += data[at:]
        elif at < len(data):
            self._read_frames(data, at)

    def _missing_bytes(self, data: bytes) -> int:
        """Return how many of the next bytes belong to the incomplete frame."""
        unread = self._unread
        head = unread + data[: max(0, FRAME_HEAD_BYTES - len(unread))]
        if not self.has_begun or len(head) < FRAME_HEAD_BYTES:
            return len(data)
        size = FRAME_HEAD_BYTES + int.from_bytes(head[:3], "big")
        return min(len(data), size - len(unread))

    def _read_frames(self, data: bytes, at: int) -> None:
        begun_at = at
        at = at if self.has_begun else self._begin(data)
        session, turn = self._session, self._turn
        end, last_head = len(data), len(data) - FRAME_HEAD_BYTES
        while 0 <= at <= last_head:
            high, low, kind, flags, number = FRAME_HEAD.unpack_from(data, at)
            size = high << 8 | low
            if size > MAX_FRAME_BYTES:
                raise ConnectionFault(
                    ErrorCode.FRAME_SIZE_ERROR, f"a frame has {size} bytes; send at most {MAX_FRAME_BYTES}"
                )
            start = at + FRAME_HEAD_BYTES
            if start + size > end:
                break
            if turn.left <= 0:
                self.is_behind = True
                break
            turn.left -= FRAME_WORK
            at = start + size
            number &= MAX_STREAM_ID
            try:
                if self._block is not None or not number:
                    self._read(kind, flags, number, data[start:at])
                elif kind == DATA and not flags & PADDED and size >= _MIN_DATA_BYTES:
                    session.data_received_on(number, size, data[start:at], ends=bool(flags & END_STREAM))
                elif kind == HEADERS and flags & _PLAIN_BLOCK == END_HEADERS:
                    session.block_received(number, data[start:at], ends=bool(flags & END_STREAM))
                else:
                    self._read(kind, flags, number, data[start:at])
            except StreamFault as fault:
                session.stream_failed(number, fault.code)
        self._unread = data[at:] if at >= 0 else data
        self.progress += at > begun_at

    def _begin(self, data: bytes) -> int:
        """Read the preface; return the offset of the first frame, or -1 if the preface is incomplete."""
        if not self.has_preface:
            if not data.startswith(PREFACE):
                if PREFACE.startswith(data):
                    return -1
                raise protocol_error("the connection must begin with the preface of HTTP/2")
            self.has_preface = True
            self._session.begin()
        if len(data) < len(PREFACE) + FRAME_HEAD_BYTES:
            return -1
        _, _, kind, flags, _ = FRAME_HEAD.unpack_from(data, len(PREFACE))
        if kind != SETTINGS or flags & ACK:
            raise protocol_error("the first frame must be SETTINGS")
        self.has_begun = True
        return len(PREFACE)

    def _read(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block is not None:
            self._continue_block(kind, flags, number, payload)
        elif kind == DATA and number:
            data = without_padding(PADDED, payload) if flags & PADDED else payload
            ends = bool(flags & END_STREAM)
            if len(data) < _MIN_DATA_BYTES and not ends:
                self._session.charge()
            self._session.data_received_on(number, len(payload), data, ends=ends)
        elif kind == HEADERS and number:
            if flags & _HAS_BLOCK_FLAGS:
                payload = without_padding(flags, payload)
            ends = bool(flags & END_STREAM)
            if flags & END_HEADERS:
                self._session.block_received(number, payload, ends=ends)
            else:
                self._block = number, payload, ends
        else:
            self._read_control(kind, flags, number, payload)

    def _continue_block(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        assert self._block is not None
        expected, block, ends = self._block
        if kind != CONTINUATION or number != expected:
            raise protocol_error(f"only CONTINUATION of stream {expected} may follow its HEADERS")
        self._session.charge()
        block += payload
        if len(block) > _MAX_BLOCK_BYTES:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM, f"a header block exceeds {_MAX_BLOCK_BYTES} bytes"
            )
        if flags & END_HEADERS:
            self._block = None
            self.blocks += 1
            self._session.block_received(number, block, ends=ends)
        else:
            self._block = number, block, ends

    def _read_control(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind in (CONTINUATION, PUSH_PROMISE):
            raise protocol_error("CONTINUATION without HEADERS, or PUSH_PROMISE of a client")
        if (kind in _ON_STREAMS and not number) or (kind in _ON_CONNECTION and number):
            raise protocol_error(f"{_NAMES[kind]} on stream {number}")
        if kind != RST_STREAM:
            self._session.charge()
        expected = _SIZES.get(kind, len(payload))
        if len(payload) != expected or (kind == GOAWAY and len(payload) < _MIN_GOAWAY_BYTES):
            if kind == PRIORITY:
                raise StreamFault(ErrorCode.FRAME_SIZE_ERROR)
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"{_NAMES[kind]} of {len(payload)} bytes")
        match kind:
            case 8:  # WINDOW_UPDATE
                self._session.window_received(number, int.from_bytes(payload, "big") & MAX_STREAM_ID)
            case 6 if not flags & ACK:  # PING
                self._session.ping_received(payload)
            case 4:  # SETTINGS
                self._read_settings(flags, payload)
            case 3:  # RST_STREAM
                self._session.reset_received(number)

    def _read_settings(self, flags: int, payload: bytes) -> None:
        if not flags & ACK:
            self._session.settings_received(list(read_settings(payload)))
        elif payload:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS is empty")
        else:
            self._session.settings_acknowledged()
