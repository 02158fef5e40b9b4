"""The lengths of the rows of requests, for models that pad or truncate rows."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple


class Lengths(NamedTuple):
    """An interval of lengths, both ends included."""

    shortest: float
    longest: float


RowLengths = tuple[float, float, float, float]
"""The rows of one request:

1. the number of rows;
2. the length of the longest row: its cost, or the bytes of the body per row;
3. that length after the model pads or truncates the row by itself;
4. the size of the request alone: the first times the third.

A plain tuple, because a named one takes 0.2 µs more for each request.
"""


def row_lengths(
    rows: float,
    count: float | None,
    longest: float | None,
    size_bytes: int,
    allowed: Sequence[float] = (),
    limit: float = math.inf,
) -> RowLengths:
    """Return the lengths of a request, from the arguments of :meth:`Dispatcher.submit`.

    The length of a row is rounded up to the next of the ``allowed`` lengths, or down to the last, if given;
    otherwise it counts up to ``limit``.
    """
    if count is None:
        if not size_bytes:
            return rows, 1.0, 1.0, rows
        longest = size_bytes / rows
        length = min(longest, limit)
        return rows, longest, length, size_bytes if length == longest else rows * length
    if longest is None:
        longest = rows / count
    length = min(longest, limit)
    if allowed:
        length = allowed[min(bisect_left(allowed, longest), len(allowed) - 1)]
    padded = count * length
    # Rows of equal lengths have no padding, in whatever order their costs were added up.
    return count, longest, length, rows if abs(padded - rows) <= 1e-9 * rows else padded


def padded_count(count: float, allowed: Sequence[int]) -> float:
    """Return how many rows the model computes for ``count`` rows if it pads them to ``allowed`` numbers.

    Rows beyond the largest allowed number go into further calls.
    """
    if not allowed:
        return count
    calls, rest = divmod(count, allowed[-1])
    return calls * allowed[-1] + (allowed[bisect_left(allowed, rest)] if rest else 0)
