"""Compressed bodies of requests (``Content-Encoding``)."""

from __future__ import annotations

import zlib

from uncork_gateway.errors import BadRequest, BodyTooLarge, UnknownEncoding

ACCEPTED = b"gzip, deflate"
GZIP = frozenset((b"gzip", b"x-gzip"))
ENCODINGS = GZIP | {b"deflate"}
"""Those that can be undone; in lower case."""
OF_ENCODED = frozenset((b"content-encoding", b"content-length"))
"""Headers that are about the body as it came."""

_GZIP_FORMAT, _ZLIB_FORMAT, _RAW_FORMAT = 31, 15, -15
# The rest of a piece is copied with every member that ends in it.
_PIECE_BYTES = 16 * 1024
_MOST_MEMBERS = 10_000
_ZLIB_METHOD = 8


def unknown_encoding(encoding: bytes) -> UnknownEncoding:
    """What to say of one that is not in :data:`ENCODINGS`."""
    name = encoding.decode("latin-1")
    return UnknownEncoding(f"content encoding {name!r} is not accepted; send gzip, deflate or none", ACCEPTED)


class Inflation:
    """A body that is being inflated, in steps.

    Args:
        body: as it came.
        encoding: one of :data:`ENCODINGS`.
        max_bytes: that the inflated body may have; no more memory is taken.
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

    def go_on(self, most_bytes: int) -> bool:
        """Inflate up to about so many bytes more; whether all is done.

        Raises:
            BadRequest: if the data is broken, incomplete or followed by something else.
            BodyTooLarge: if more than ``max_bytes`` come out.
        """
        stop = self._size + most_bytes
        try:
            while not self._is_whole():
                if self._size >= stop:
                    return False
                self._inflate_piece(min(stop, self._max_bytes + 1) - self._size)
        except zlib.error as error:
            raise BadRequest(f"the compressed body is broken: {error}") from None
        return True

    def result(self) -> bytes:
        """The inflated body, once all is done; or all of it, in one step."""
        self.go_on(self._max_bytes + 1)
        return b"".join(self._inflated)

    def _is_whole(self) -> bool:
        if self._at < len(self._body):
            return False
        if not self._inflater.eof:
            raise BadRequest("the compressed body is incomplete")
        return True

    def _inflate_piece(self, most_bytes: int) -> None:
        if self._inflater.eof:
            self._next_member()
        piece = self._body[self._at : self._at + _PIECE_BYTES]
        inflated = self._inflater.decompress(piece, most_bytes)
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
        if self._members > _MOST_MEMBERS:
            raise BadRequest(f"the compressed body has more than {_MOST_MEMBERS} members")
        self._inflater = zlib.decompressobj(self._format)


def _deflate_format(body: bytes) -> int:
    """That of zlib, as it should be; or without its header, as some clients have it."""
    is_zlib = len(body) >= 2 and body[0] & 0x0F == _ZLIB_METHOD and int.from_bytes(body[:2]) % 31 == 0
    return _ZLIB_FORMAT if is_zlib else _RAW_FORMAT
