"""Compressed bodies of requests (``Content-Encoding``)."""

from __future__ import annotations

import zlib

from uncork_gateway.errors import BadRequest, BodyTooLarge, UnknownEncoding

ACCEPTED = b"gzip, deflate"
GZIP = frozenset((b"gzip", b"x-gzip"))
ENCODINGS = GZIP | {b"deflate"}
"""Accepted encodings, in lower case."""
ENCODING_HEADERS = frozenset((b"content-encoding", b"content-length"))
"""Headers that describe the body as it was sent."""

_GZIP_FORMAT, _ZLIB_FORMAT, _RAW_FORMAT = 31, 15, -15
# Small, because zlib copies the rest of a piece with every gzip member that ends in it.
_PIECE_BYTES = 16 * 1024
_MAX_MEMBERS = 10_000
_ZLIB_METHOD = 8


def unknown_encoding(encoding: bytes) -> UnknownEncoding:
    """Return the error for an encoding that is not in :data:`ENCODINGS`."""
    name = encoding.decode("latin-1")
    return UnknownEncoding(f"content encoding {name!r} is not accepted; send gzip, deflate or none", ACCEPTED)


class Inflation:
    """The step-by-step decompression of a body.

    Args:
        body: the compressed body.
        encoding: one of :data:`ENCODINGS`.
        max_bytes: limit of the inflated body, and of the memory used.
    """

    def __init__(self, body: bytes, encoding: bytes, *, max_bytes: int) -> None:
        self._body = body
        self._at = 0
        self._format = _GZIP_FORMAT if encoding in GZIP else _deflate_format(body)
        self._max_bytes = max_bytes
        self._inflated: list[bytes] = []
        self._size = 0
        self._members = 1
        self._inflater = zlib.decompressobj(self._format)

    def inflate(self, max_bytes: int) -> bool:
        """Inflate up to about ``max_bytes`` more; return whether the body is complete.

        Raises:
            BadRequest: the data is broken, incomplete or followed by other data.
            BodyTooLarge: the inflated body is over the limit.
        """
        stop = self._size + max_bytes
        try:
            while not self._is_whole():
                if self._size >= stop:
                    return False
                self._inflate_piece(min(stop, self._max_bytes + 1) - self._size)
        except zlib.error as error:
            raise BadRequest(f"the compressed body is broken: {error}") from None
        return True

    def result(self) -> bytes:
        """Return the inflated body; inflate the rest if it is not complete."""
        self.inflate(self._max_bytes + 1)
        return b"".join(self._inflated)

    def _is_whole(self) -> bool:
        return self._at >= len(self._body) and self._inflater.eof

    def _inflate_piece(self, max_bytes: int) -> None:
        if self._inflater.eof:
            self._next_member()
        piece = self._body[self._at : self._at + _PIECE_BYTES]
        inflated = self._inflater.decompress(piece, max_bytes)
        # zlib may have consumed all input and still have output.
        if not (piece or inflated or self._inflater.eof):
            raise BadRequest("the compressed body is incomplete")
        self._at += len(piece) - len(self._inflater.unconsumed_tail) - len(self._inflater.unused_data)
        self._size += len(inflated)
        if self._size > self._max_bytes:
            raise BodyTooLarge(f"the inflated body is over the limit of {self._max_bytes} bytes")
        if inflated:
            self._inflated.append(inflated)

    def _next_member(self) -> None:
        if self._format != _GZIP_FORMAT:
            raise BadRequest("the compressed body is followed by something else")
        self._members += 1
        if self._members > _MAX_MEMBERS:
            raise BadRequest(f"the compressed body has more than {_MAX_MEMBERS} members")
        self._inflater = zlib.decompressobj(self._format)


def _deflate_format(body: bytes) -> int:
    """Detect zlib's header, which the standard requires and some clients omit."""
    is_zlib = len(body) >= 2 and body[0] & 0x0F == _ZLIB_METHOD and int.from_bytes(body[:2]) % 31 == 0
    return _ZLIB_FORMAT if is_zlib else _RAW_FORMAT
