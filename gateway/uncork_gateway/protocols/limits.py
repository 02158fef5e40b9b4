"""Limits on the rows and values that one request may have, counted before they become objects.

Counting builds no objects: a body of 16 MiB can have eight million values, each of which takes 100 bytes as
an object.
"""

from typing import NamedTuple

import msgspec
import numpy as np

from uncork_gateway.protocols.raw_json import TooMany, without_strings

_CHUNK_BYTES = 2**18
# Change of the depth of nesting after each byte.
_DEPTHS = np.zeros(256, np.int8)
_DEPTHS[list(b"[{")] = 1
_DEPTHS[list(b"]}")] = -1


class Limits(NamedTuple):
    """The most rows and values that one request may have.

    Attributes:
        rows: the most rows, and the most members or elements of any object or list that is read.
        values: the most values that are read one by one: in columns of JSON, in CSV with quotes, texts in
            tensors, numbers in gRPC's typed fields, members of V2's JSON, and all that are weighed by content
            or divided into groups.
        counted: the values of the request that were counted before.
    """

    rows: int = 100_000
    values: int = 1_000_000
    counted: int = 0

    def check_rows(self, rows: int) -> None:
        """Raise TooMany if a request has too many rows."""
        if rows > self.rows:
            raise _too_many("rows", rows, self.rows)

    def check_values(self, values: int) -> None:
        """Raise TooMany if a request has too many values."""
        values += self.counted
        if values > self.values:
            raise _too_many("values", values, self.values)

    def after(self, values: int) -> "Limits":
        """Count values of a request; return the limits for the rest of it, or raise TooMany."""
        self.check_values(values)
        return self._replace(counted=self.counted + values)

    def check_items(self, text: bytes | msgspec.Raw) -> None:
        """Raise TooMany if a JSON list or object has too many elements or members at its top level."""
        body = bytes(text)
        if body.count(b",") >= self.rows:
            items = _count_items(body, self.rows)
            if items > self.rows:
                raise _too_many("rows", items, self.rows, at_least=True)

    def check_all_values(self, text: bytes | msgspec.Raw) -> None:
        """Raise TooMany if JSON has too many values at all levels together."""
        body = bytes(text)
        if body.count(b",") >= self.values:
            self.check_values(without_strings(body).count(b",") + 1)

    def check_members(self, text: bytes) -> None:
        """Raise TooMany if JSON has too many members in all its objects together."""
        if text.count(b":") > self.values:
            self.check_values(without_strings(text).count(b":"))


DEFAULT_LIMITS = Limits()


def _too_many(what: str, got: int, most: int, *, at_least: bool = False) -> TooMany:
    return TooMany(
        f"a request may have at most {most} {what}, got {'at least ' if at_least else ''}{got}; send several "
        f"requests, or raise --max-request-{what}"
    )


def _count_items(text: bytes, most: int) -> int:
    """Return the number of elements or members; more than ``most`` as soon as the limit is exceeded."""
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
