"""Cut the rows of a batch into chunks, one per handler call, and pad each to an allowed size."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from uncork_workers.definition.outputs.encoding import Array, Encoded


class Chunk(NamedTuple):
    """The rows of one handler call and their total cost."""

    rows: int
    cost: float


def cut_chunks(rows: Sequence[int], costs: Sequence[float], limit: float) -> list[Chunk]:
    """Cut the rows of some requests into chunks that cost at most ``limit`` or are a single row.

    The rows of a request share its cost equally.
    """
    total = sum(costs)
    if total <= limit:
        return [Chunk(sum(rows), total)] if rows else []
    chunks: list[Chunk] = []
    size, cost = 0, 0.0
    for count, request_cost in zip(rows, costs, strict=True):
        row_cost = request_cost / count
        for _ in range(count):
            if size and cost + row_cost > limit:
                chunks.append(Chunk(size, cost))
                size, cost = 0, 0.0
            size += 1
            cost += row_cost
    return [*chunks, Chunk(size, cost)]


def padded_size(rows: int, allowed: Sequence[int] | None) -> int:
    """Return the smallest allowed size for ``rows`` rows; without allowed sizes, ``rows``."""
    return rows if allowed is None else allowed[bisect_left(allowed, rows)]


def pad(rows: Any, size: int) -> Any:
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


def without_padding(encoded: Encoded | Array, rows: int) -> Encoded | Array:
    """Return the results for the first rows."""
    if isinstance(encoded, Array):
        return encoded._replace(values=encoded.values[:rows])
    if len(encoded.rows) == rows:
        return encoded
    responses = {at: response for at, response in encoded.responses.items() if at < rows}
    return replace(encoded, rows=encoded.rows[:rows], responses=responses)
