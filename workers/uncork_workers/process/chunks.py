"""Cut the rows of a batch into chunks, one per handler call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


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
