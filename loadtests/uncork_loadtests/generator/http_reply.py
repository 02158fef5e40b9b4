"""A minimal reader of HTTP/1.1 replies, for generators that must cost less than the server.

It knows what the servers we measure send: a status line, fields, and a body of a stated length or in chunks.
A reply whose end is the end of the connection raises: one that was cut off would look the same. One reply is
outstanding at a time, so bytes after the end of a reply raise too.
"""

from typing import NamedTuple

import httptools

from uncork_dispatcher.plural import plural

_LENGTH = b"\r\ncontent-length:"
_ENCODING = b"\r\ntransfer-encoding:"
_CONNECTION = b"\r\nconnection:"
_BATCH_SIZE = b"\r\nx-batch-size:"
_TIMING = b"\r\nserver-timing:"
_RETRY_AFTER = b"\r\nretry-after:"
# What uvicorn, node and nginx allow for a whole head lies between 8 and 64 KiB.
_LONGEST_HEAD = 65536
_NO_BODY = frozenset({204, 304})


class ReplyError(ValueError):
    """The bytes that came are no reply this reader understands."""


class Head(NamedTuple):
    """What is kept of the status line and the fields of one reply."""

    status: int
    length: int | None
    """Bytes of the body; None if it comes in chunks."""
    keep_alive: bool
    batch_size: int | None
    """Rows in the batch the request travelled in, if the reply says so."""
    held_ms: float | None = None
    """How long the request was held before its batch, if the reply says so."""
    batch_ms: float | None = None
    """How long its batch took, if the reply says so."""
    retry_after_s: int | None = None
    """What a reply with 503 says of it, if it does."""


class Reply(NamedTuple):
    """One whole reply."""

    head: Head
    body: bytes
    chunks: int = 0
    """Chunks in which the body came; 0 for a body of a stated length."""


def parse_head(head: bytes) -> Head:
    """Read a status line and fields, each ended by CRLF, without the blank line after them."""
    lowered = head.lower()
    status = lowered[9:12]
    if not (lowered.startswith(b"http/1.") and len(status) == 3 and status.isdigit()):
        raise ReplyError(f"not an HTTP/1.1 status line: {head[:60]!r}")
    length = _length(lowered, status=int(status))
    connection = _field(lowered, _CONNECTION)
    if connection is None:
        keep_alive = not lowered.startswith(b"http/1.0")
    else:
        # HTTP/1.0 stays open only when it says so, HTTP/1.1 unless it says otherwise.
        wanted = b"keep-alive" if lowered.startswith(b"http/1.0") else b"close"
        said = wanted in (token.strip() for token in connection.split(b","))
        keep_alive = said == (wanted == b"keep-alive")
    size = _field(lowered, _BATCH_SIZE)
    batch_size = int(size) if size is not None and size.isdigit() else None
    if status == b"503":
        retry_after = _field(lowered, _RETRY_AFTER)
        retry_after_s = int(retry_after) if retry_after is not None and retry_after.isdigit() else None
        return Head(503, length, keep_alive, batch_size, retry_after_s=retry_after_s)
    timing = _field(lowered, _TIMING)
    if timing is None:
        return Head(int(status), length, keep_alive, batch_size)
    held_ms, batch_ms = _duration(timing, b"queue;dur="), _duration(timing, b"batch;dur=")
    return Head(int(status), length, keep_alive, batch_size, held_ms, batch_ms)


def _length(lowered: bytes, *, status: int) -> int | None:
    length = _field(lowered, _LENGTH)
    if length is None:
        encoding = _field(lowered, _ENCODING)
        if encoding == b"chunked":
            return None
        if status in _NO_BODY:
            return 0
        raise ReplyError(
            "a reply must have Content-Length or Transfer-Encoding: chunked"
            + (f", not Transfer-Encoding: {encoding.decode(errors='replace')}" if encoding else "")
        )
    if not length.isdigit():
        raise ReplyError(f"Content-Length is not a number: {length!r}")
    return int(length)


def _field(lowered: bytes, name: bytes) -> bytes | None:
    at = lowered.find(name)
    if at < 0:
        return None
    start = at + len(name)
    return lowered[start : lowered.index(b"\r\n", start)].strip()


def _duration(timing: bytes, metric: bytes) -> float | None:
    """One metric of a Server-Timing field, in milliseconds; None if it is not there or no number."""
    at = timing.find(metric)
    if at < 0:
        return None
    try:
        return float(timing[at + len(metric) :].partition(b",")[0].partition(b";")[0])
    except ValueError:
        return None


class ReplyParser:
    """Puts replies together from the pieces in which they arrive."""

    __slots__ = ("_chunks", "_head", "_missing", "_pieces", "_start")

    def __init__(self) -> None:
        self._start = b""  # of a head whose end has not come yet
        self._head: Head | None = None  # of a body whose end has not come yet
        self._pieces: list[bytes] = []
        self._missing = 0
        self._chunks: _Chunks | None = None  # of the body, if it comes in chunks

    @property
    def has_chunk(self) -> bool:
        """Whether part of the body of an incomplete chunked reply has arrived."""
        return self._chunks is not None and bool(self._chunks.pieces)

    def feed(self, data: bytes) -> Reply | None:
        """Take the next bytes; answer the reply if they complete it, None if more must come."""
        if self._head is not None:
            return self._feed_body(data, head=self._head)
        if self._start:
            data = self._start + data
            self._start = b""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > _LONGEST_HEAD:
                raise ReplyError(f"no end of the head within {_LONGEST_HEAD} bytes")
            self._start = data
            return None
        if data[9:10] == b"1":  # something to be told before the reply, which every client must skip
            return self.feed(data[end + 4 :])
        head = parse_head(data[: end + 2])
        body = data[end + 4 :]
        # Nearly every reply comes whole in one piece, so that case keeps no state.
        if len(body) == head.length:
            return Reply(head, body)
        self._head, self._pieces = head, []
        if head.length is None:
            self._chunks = _Chunks()
        else:
            self._missing = head.length
        return self._feed_body(body, head=head)

    def _feed_body(self, data: bytes, *, head: Head) -> Reply | None:
        if self._chunks is not None:
            return self._feed_chunks(data, head=head, chunks=self._chunks)
        # Pieces are joined once at the end: adding each to what came before is quadratic.
        self._pieces.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return None
        if self._missing < 0:
            raise ReplyError(f"{plural(-self._missing, 'byte')} came after the end of the reply")
        body = b"".join(self._pieces)
        self._head, self._pieces = None, []
        return Reply(head, body)

    def _feed_chunks(self, data: bytes, *, head: Head, chunks: "_Chunks") -> Reply | None:
        if not chunks.feed(data):
            return None
        self._head = self._chunks = None
        return Reply(head, b"".join(chunks.pieces), chunks.count)


class _Chunks:
    """The body of a reply that comes in chunks."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.count = -1
        """Chunks that have begun; the empty one at the end does not count."""
        self._replies = 0
        self._is_whole = False
        self._parser = httptools.HttpResponseParser(self)
        # The head is read already; what matters of it is the encoding.
        self._parser.feed_data(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    def feed(self, data: bytes) -> bool:
        """Take the next bytes; answer whether they complete the body."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ReplyError(f"not a chunk of a reply: {error}") from None
        if self._replies > 1:
            raise ReplyError("bytes came after the end of the reply")
        return self._is_whole

    # The parser calls these.

    def on_message_begin(self) -> None:
        self._replies += 1

    def on_chunk_header(self) -> None:
        self.count += 1

    def on_body(self, data: bytes) -> None:
        self.pieces.append(data)

    def on_message_complete(self) -> None:
        self._is_whole = True
