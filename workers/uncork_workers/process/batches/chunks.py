"""Cut the rows of a batch into chunks, one per handler call, and pad each to an allowed size."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from uncork_workers.definition.outputs.encoding import Array, Encoded


class Chunk(NamedTuple):
    """The rows of one handler call and their total cost."""

    rows: int
    cost: float


def by_request(costs: Sequence[float], rows: Sequence[int]) -> list[Sequence[float]]:
    """Return the costs of each request's rows, given those of all rows and the rows of each request."""
    return [costs[end - count : end] for count, end in zip(rows, accumulate(rows), strict=True)]


def cut_chunks(rows: int, costs: Sequence[float], *, limit: int, most_rows: int | None) -> list[Chunk]:
    """Cut rows into chunks of at most ``most_rows`` that cost at most ``limit`` or are a single row.

    ``costs`` has the cost of each row; if it is empty, each costs 1.
    """
    most_rows = rows if most_rows is None else most_rows
    if not costs:
        most_rows = min(most_rows, limit)
        counts = [min(most_rows, rows - done) for done in range(0, rows, most_rows)] if rows else []
        return [Chunk(count, count) for count in counts]
    total = sum(costs)
    if total <= limit and rows <= most_rows:
        return [Chunk(rows, total)]
    chunks: list[Chunk] = []
    size, cost = 0, 0.0
    for row_cost in costs:
        if size and (cost + row_cost > limit or size == most_rows):
            chunks.append(Chunk(size, cost))
            size, cost = 0, 0.0
        size += 1
        cost += row_cost
    return [*chunks, Chunk(size, cost)]


def padded_size(rows: int, allowed: Sequence[int] | None) -> int:
    """Return the smallest allowed size for ``rows`` rows; without allowed sizes, ``rows``."""
    return rows if allowed is None else allowed[bisect_left(allowed, rows)]


def with_copies(rows: Any, size: int) -> Any:
    """Repeat the last row until there are ``size`` rows."""
    missing = size - len(rows)
    if missing <= 0:
        return rows
    last = rows[len(rows) - 1 :]
    if isinstance(rows, np.ndarray):
        return np.concatenate([rows, np.repeat(last, missing, axis=0)])
    if hasattr(rows, "iloc"):
        return rows.take([*range(len(rows)), *[len(rows) - 1] * missing]).reset_index(drop=True)
    return [*rows, *[last[0]] * missing]


def without_copies(encoded: Encoded | Array, rows: int) -> Encoded | Array:
    """Return the results for the first rows."""
    if isinstance(encoded, Array):
        return encoded._replace(values=encoded.values[:rows])
    if len(encoded.rows) == rows:
        return encoded
    responses = {at: response for at, response in encoded.responses.items() if at < rows}
    values = None if encoded.values is None else encoded.values.part(0, rows)
    return encoded._replace(rows=encoded.rows[:rows], responses=responses, values=values)
