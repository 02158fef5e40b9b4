"""Limits on the rows and values that one request may have, counted before they become objects.

Nothing is built to count: a body of 16 MiB can have eight million values, of which each takes a hundred bytes
as an object.
"""

from typing import NamedTuple

import msgspec
import numpy as np

from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.raw_text import without_strings

_CHUNK_BYTES = 2**18
# Change of the depth of nesting after each byte.
_DEPTHS = np.zeros(256, np.int8)
_DEPTHS[list(b"[{")] = 1
_DEPTHS[list(b"]}")] = -1


class TooMany(BadRequest):
    """A request has more rows or values than the gateway takes apart."""


class Limits(NamedTuple):
    """The most that one request may have.

    Attributes:
        rows: rows, and members or elements of what is read one by one.
        values: values that are read one by one: those of columns in JSON, of CSV with quotes, of texts in
            tensors, and of numbers in the typed fields of gRPC.
    """

    rows: int = 100_000
    values: int = 1_000_000

    def check_rows(self, rows: int) -> None:
        """Raise TooMany if a request has too many rows."""
        if rows > self.rows:
            raise _too_many("rows", rows, self.rows)

    def check_values(self, values: int) -> None:
        """Raise TooMany if a request has too many values."""
        if values > self.values:
            raise _too_many("values", values, self.values)

    def check_items(self, text: bytes | msgspec.Raw) -> None:
        """Raise TooMany if a JSON list or object has too many elements or members, whatever they are."""
        body = bytes(text)
        if body.count(b",") >= self.rows:
            items = _count_items(body, self.rows)
            if items > self.rows:
                raise _too_many("rows", items, self.rows, at_least=True)

    def check_all_values(self, text: bytes | msgspec.Raw) -> None:
        """Raise TooMany if JSON has too many values in all."""
        body = bytes(text)
        if body.count(b",") >= self.values:
            self.check_values(without_strings(body).count(b",") + 1)


DEFAULT_LIMITS = Limits()


def _too_many(what: str, got: int, most: int, *, at_least: bool = False) -> TooMany:
    return TooMany(
        f"a request may have at most {most} {what}, got {'at least ' if at_least else ''}{got}; send several "
        f"requests, or raise --max-request-{what}"
    )


def _count_items(text: bytes, most: int) -> int:
    """Return the number of elements or members, or more than ``most`` as soon as that is certain."""
    text = without_strings(text)
    depth, items = 0, 1
    for start in range(0, len(text), _CHUNK_BYTES):
        chunk = np.frombuffer(text, np.uint8, min(_CHUNK_BYTES, len(text) - start), start)
        depths = np.cumsum(_DEPTHS[chunk], dtype=np.int32) + depth
        items += int(np.count_nonzero((chunk == ord(",")) & (depths == 1)))
        depth = int(depths[-1])
        if items > most:
            break
    return items
