"""Decompresses bodies and messages (``Content-Encoding``), in a thread if it takes long."""

import asyncio
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice

from uncork_gateway.errors import BadRequest, BodyTooLarge, UnsupportedMediaType
from uncork_gateway.headers import Header
from uncork_gateway.interfaces import BodyPool

GZIP = frozenset((b"gzip", b"x-gzip"))
ENCODINGS = GZIP | {b"deflate"}
"""Accepted encodings, in lower case."""
ENCODING_HEADERS = frozenset((b"content-encoding", b"content-length"))
"""Headers that describe the body as it was sent."""

_GZIP_FORMAT, _ZLIB_FORMAT, _RAW_FORMAT = 31, 15, -15
# Small, because zlib copies the rest of a piece with every gzip member that ends in it.
_PIECE_BYTES = 16 * 1024
_MAX_MEMBERS = 10_000
# Reading a body takes time in proportion to its inflated size.
_MAX_RATIO = 100
_SMALL_BYTES = 8 * 2**20
_ZLIB_METHOD = 8
# Inflating 256 KiB takes little longer than the rest of a request; bodies with more steps go to a thread. A
# step ends with a gzip member, too: a small body can have thousands of those, which inflate to nothing.
_STEP_BYTES = 16 * 1024
STEPS_AT_ONCE = 16
_inflaters = ThreadPoolExecutor(max_workers=2, thread_name_prefix="inflate")


class UnknownEncoding(UnsupportedMediaType):
    """The content encoding is not in :data:`ENCODINGS`."""

    def __init__(self, encoding: bytes) -> None:
        name = encoding.decode("latin-1")
        super().__init__(f"content encoding {name!r} is not supported; send gzip, deflate or none")

    def headers(self) -> list[Header]:
        """Return the known encodings (RFC 9110, 15.5.16)."""
        return [(b"accept-encoding", b"gzip, deflate")]


def inflate(body: bytes, encoding: bytes, *, max_bytes: int, step_bytes: int) -> Iterator[bytes]:
    """Inflate a body in steps, each of at most 16 KiB of input and one gzip member.

    Args:
        encoding: a key of :data:`ENCODINGS`.
        max_bytes: the most bytes of the inflated body, and of the memory used.
        step_bytes: the most bytes that one step yields.

    Raises:
        BadRequest: if the data is broken, incomplete or followed by other data.
        BodyTooLarge: over the limit, or over 8 MiB and 100 times the size of ``body``.
    """
    wbits = _GZIP_FORMAT if encoding in GZIP else _deflate_format(body)
    inflater = zlib.decompressobj(wbits)
    limit_bytes = min(max_bytes, max(_SMALL_BYTES, _MAX_RATIO * len(body)))
    at, members, left_bytes = 0, 1, limit_bytes
    while at < len(body) or not inflater.eof:
        if inflater.eof:
            members += 1
            _check_next_member(wbits, members)
            inflater = zlib.decompressobj(wbits)
        piece = body[at : at + _PIECE_BYTES]
        try:
            inflated = inflater.decompress(piece, min(step_bytes, left_bytes + 1))
        except zlib.error as error:
            raise BadRequest(f"cannot decompress the body: {error}") from None
        # zlib may have consumed all input and still have output.
        if not (piece or inflated or inflater.eof):
            raise BadRequest("the compressed body is incomplete")
        at += len(piece) - len(inflater.unconsumed_tail) - len(inflater.unused_data)
        left_bytes -= len(inflated)
        if left_bytes < 0:
            raise _too_large(limit_bytes, max_bytes)
        yield inflated


def _too_large(limit_bytes: int, max_bytes: int) -> BodyTooLarge:
    if limit_bytes == max_bytes:
        return BodyTooLarge(f"the decompressed body exceeds the limit of {max_bytes} bytes")
    return BodyTooLarge(
        f"the decompressed body exceeds {limit_bytes} bytes, {_MAX_RATIO} times its compressed size; send it "
        "uncompressed or in several requests"
    )


def _check_next_member(wbits: int, members: int) -> None:
    if wbits != _GZIP_FORMAT:
        raise BadRequest("the compressed body is followed by other data")
    if members > _MAX_MEMBERS:
        raise BadRequest(f"the compressed body has more than {_MAX_MEMBERS} gzip members")


def _deflate_format(body: bytes) -> int:
    """Return the format of a deflated body: with zlib's header, as the standard requires, or without."""
    is_zlib = len(body) >= 2 and body[0] & 0x0F == _ZLIB_METHOD and int.from_bytes(body[:2]) % 31 == 0
    return _ZLIB_FORMAT if is_zlib else _RAW_FORMAT


class Inflating:
    """Inflates one compressed body or message; the constructor makes the first steps.

    Args:
        body, encoding, max_bytes: as for :func:`~uncork_gateway.connection.decompression.inflate`, which also
            lists the errors.
        at_once: the number of steps that the constructor may make.

    Attributes:
        inflated: the result if those steps completed it, else None.
    """

    def __init__(self, body: bytes, encoding: bytes, *, max_bytes: int, at_once: int) -> None:
        steps = inflate(body, encoding, max_bytes=max_bytes, step_bytes=_STEP_BYTES)
        begun = list(islice(steps, at_once))
        self.steps = len(begun)
        self.inflated = b"".join(begun) if self.steps < at_once else None
        self._pieces = chain(begun, steps)
        self._size = len(body) + sum([len(piece) for piece in begun])

    def finish_in_thread(self, pool: BodyPool, done: Callable[[asyncio.Future[bytes]], object]) -> None:
        """Make the remaining steps in a thread; ``done`` receives a future with the result or the error.

        Until then, ``pool`` counts the memory of the compressed body and of the steps made.
        """
        pool.used_bytes += self._size

        def finished(inflating: asyncio.Future[bytes]) -> None:
            pool.used_bytes -= self._size
            done(inflating)

        loop = asyncio.get_running_loop()
        loop.run_in_executor(_inflaters, b"".join, self._pieces).add_done_callback(finished)
