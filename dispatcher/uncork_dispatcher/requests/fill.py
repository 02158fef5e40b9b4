"""A batch that is filled from a queue, request by request, up to its limits."""

from __future__ import annotations

import math
from typing import NamedTuple

from uncork_dispatcher.requests.queue import Entry

# The most requests of other lengths that a batch passes over.
_MOST_PASSED = 512


class Lengths(NamedTuple):
    """An interval of lengths, both ends included."""

    shortest: float
    longest: float


class Fill:
    """A batch that is being filled. It takes at least one request, and no more than its limits allow.

    Args:
        rows: the most rows, or their total cost.
        size_bytes: the most bytes of bodies.
        pads: whether padding counts towards ``rows``.
        lengths: passes over requests whose longest row lies outside, if given.

    Attributes:
        entries: the requests that it has taken.
    """

    def __init__(
        self, *, rows: float, size_bytes: float = math.inf, pads: bool = False, lengths: Lengths | None = None
    ) -> None:
        self.entries: list[Entry] = []
        self._rows_left = rows
        self._bytes_left = size_bytes
        self._pads = pads
        self._lengths = lengths
        self._count = 0.0
        self._longest = 0.0
        self._padding = 0.0
        self._passed = 0

    def offer(self, entry: Entry) -> bool:
        """Take a request, or pass it over; return False if the batch takes no more."""
        lengths = self._lengths
        if lengths is not None and not lengths.shortest <= entry.longest <= lengths.longest:
            self._passed += 1
            return self._passed < _MOST_PASSED
        if entry.longest > self._longest:
            longest = entry.longest
            padding = self._padding + (longest - self._longest) * self._count
        else:
            longest = self._longest
            padding = self._padding + (longest - entry.longest) * entry.count
        rows_left = self._rows_left - (entry.padded if self._pads else entry.rows)
        bytes_left = self._bytes_left - entry.size_bytes
        if self.entries and (rows_left < (padding if self._pads else 0) or bytes_left < 0):
            return False
        self.entries.append(entry)
        self._rows_left, self._bytes_left = rows_left, bytes_left
        self._count += entry.count
        self._longest, self._padding = longest, padding
        return True

    @property
    def rows(self) -> float:
        """The number of rows taken, or their total cost."""
        return sum([entry.rows for entry in self.entries])

    @property
    def padded(self) -> float:
        """Their cost if every row were as long as the longest."""
        return sum([entry.padded for entry in self.entries]) + self._padding
