"""The header blocks of responses.

They contain only literals that are never indexed, so they need no HPACK state, and most are constants.
"""

from collections.abc import Iterable, Sequence
from urllib.parse import quote

from uncork_gateway.grpc.http2.heads import ACCEPTED_ENCODINGS
from uncork_gateway.grpc.protocols.values import varint
from uncork_gateway.grpc.statuses import Code
from uncork_gateway.headers import Header

# Clients accept 8 KiB of headers.
_MAX_TEXT_BYTES = 4096
# All that is printable, but the percent sign.
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_ONE_BYTE = 0x7F
_SIZES = [bytes((size,)) for size in range(_ONE_BYTE)]
NO_TABLE = b"\x20"
"""Sets the size of the dynamic table to 0; for clients that allow less than the standard's 4096 bytes."""


def block(fields: Iterable[Header]) -> bytes:
    """Return header fields as an HPACK block without indexing."""
    return b"".join([b"\0" + _size(name) + name + _size(value) + value for name, value in fields])


def _size(text: bytes) -> bytes:
    size = len(text)
    if size < _ONE_BYTE:
        return _SIZES[size]
    # The rest is written as numbers in messages are.
    return bytes((_ONE_BYTE,)) + varint(size - _ONE_BYTE)


# The status is in the static table.
START = b"\x88" + block(
    [(b"content-type", b"application/grpc"), (b"grpc-accept-encoding", ACCEPTED_ENCODINGS)]
)
"""The head of every response with messages."""
OK = block([(b"grpc-status", b"0")])
_STATUSES = {code: block([(b"grpc-status", b"%d" % code)]) for code in Code}


def trailers(code: Code, text: str, more: Sequence[Header]) -> bytes:
    """Return the trailers that end a response; a long text is truncated."""
    written = _STATUSES[code]
    if text:
        # Cut first: the text may quote a message of many megabytes.
        message = quote(text[:_MAX_TEXT_BYTES], safe=_PLAIN, errors="replace").encode()[:_MAX_TEXT_BYTES]
        # Not in the middle of an escape.
        cut = message.rfind(b"%", max(0, _MAX_TEXT_BYTES - 2))
        written += block([(b"grpc-message", message if cut < 0 else message[:cut])])
    return written + block(more) if more else written


_HTTP = {
    405: (b"use POST: this port speaks gRPC only\n", [(b"allow", b"POST")]),
    415: (b"send content-type application/grpc: this port speaks gRPC only\n", []),
}


def http_answer(status: int, *headers: Header) -> tuple[bytes, bytes]:
    """Return the header block and body of the response to a request that is not a gRPC call.

    ``headers`` are those that do not follow from the status.
    """
    text, more = _HTTP[status]
    fields = [
        (b":status", b"%d" % status),
        (b"content-type", b"text/plain"),
        (b"content-length", b"%d" % len(text)),
    ]
    return block([*fields, *more, *headers]), text
