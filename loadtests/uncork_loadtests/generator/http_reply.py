"""HTTP/1.1 replies, parsed by httptools.

A reply must state its length or come in chunks: one that ends with its connection looks the same when it was
cut off. One reply is outstanding at a time, so bytes after its end are an error.
"""

from contextlib import suppress
from typing import NamedTuple

import httptools

from uncork_loadtests.generator.samples import SHED, UNKNOWN

_NO_BODY = frozenset({204, 304})


class ReplyError(ValueError):
    """The bytes received are not a reply that can be measured."""


class Reply(NamedTuple):
    """One complete reply; the fields after `body` come from its head."""

    status: int
    body: bytes
    keep_alive: bool = True
    chunks: int = 0
    """Chunks of the body; 0 if the reply stated its length."""
    batch_rows: int = 0
    """`X-Batch-Size`: rows in the batch of the request; 0 if absent or above 999,999,999."""
    queued_ms: float = UNKNOWN
    """`Server-Timing`: time in the queue; NaN if absent."""
    batch_ms: float = UNKNOWN
    """`Server-Timing`: execution time of the batch; NaN if absent."""
    retry_after_s: int | None = None
    """Of a reply with 503."""


class ReplyParser:
    """Parses the replies of one connection, in whatever pieces they arrive."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._reply: Reply | None = None
        self._reset()

    def _reset(self) -> None:
        self._fields: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._chunks = -1  # the empty chunk at the end does not count

    @property
    def has_chunk(self) -> bool:
        """True if part of the body of an incomplete chunked response has arrived."""
        return self._chunks >= 0 and bool(self._pieces)

    def feed(self, data: bytes) -> Reply | None:
        """Return the reply if `data` completes it.

        Raises:
            ReplyError: if the bytes are not a reply, or continue after its end.
        """
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # A callback's own exception is the context of httptools' error.
            reason = error.__context__ if isinstance(error.__context__, ReplyError) else error
            raise ReplyError(f"not an HTTP/1.1 response: {reason}: {data[:60]!r}") from None
        reply, self._reply = self._reply, None
        return reply

    # Callbacks of httptools

    def on_message_begin(self) -> None:
        if self._reply is not None:
            raise ReplyError("received data after the end of the response")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields[name.lower()] = value

    def on_headers_complete(self) -> None:
        status, fields = self._parser.get_status_code(), self._fields
        if b"content-length" in fields or status in _NO_BODY or status < 200:
            return
        encoding = fields.get(b"transfer-encoding", b"")
        if encoding.lower() != b"chunked":
            raise ReplyError(
                "a response must have Content-Length or Transfer-Encoding: chunked"
                + (f", not Transfer-Encoding: {encoding.decode(errors='replace')}" if encoding else "")
            )

    def on_chunk_header(self) -> None:
        self._chunks += 1

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        status, fields = self._parser.get_status_code(), self._fields
        if status >= 200:  # others announce the reply, such as 100 Continue
            size, timing = fields.get(b"x-batch-size", b""), fields.get(b"server-timing")
            retry_after = fields.get(b"retry-after", b"")
            self._reply = Reply(
                status,
                self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces),
                self._parser.should_keep_alive(),
                max(0, self._chunks),
                int(size) if size.isdigit() and len(size) < 10 else 0,  # a sample has 32 bits for it
                _duration_ms(timing, b"queue;dur=") if timing else UNKNOWN,
                _duration_ms(timing, b"batch;dur=") if timing else UNKNOWN,
                int(retry_after) if status == SHED and retry_after.isdigit() else None,
            )
        self._reset()


def _duration_ms(timing: bytes, metric: bytes) -> float:
    """Return one metric of a Server-Timing field."""
    _, found, rest = timing.partition(metric)
    if found:
        with suppress(ValueError):
            return float(rest.partition(b",")[0].partition(b";")[0])
    return UNKNOWN
