"""The requests of a batch, and what of their rows the handler gets in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from uncork_workers.frames import Meta


class Requests(NamedTuple):
    """Some requests of a batch: the body of each, its rows, what they cost, and what came with raw bodies."""

    bodies: Sequence[bytes]
    rows: Sequence[int]
    costs: Sequence[float]
    metas: Sequence[Meta]

    def pick(self, group: Sequence[int]) -> Requests:
        """Those at the positions of a group."""
        return Requests(
            [self.bodies[at] for at in group],
            [self.rows[at] for at in group],
            [self.costs[at] for at in group],
            [self.metas[at] for at in group] if self.metas else (),
        )


class Part(NamedTuple):
    """Rows that the handler gets in one call, and what they cost together."""

    rows: int
    cost: float


def cut(rows: Sequence[int], costs: Sequence[float], limit: float) -> list[Part]:
    """Cut the rows of some requests into parts that cost at most ``limit``, or are one row.

    Only what a whole request costs is known: its rows share it equally.
    """
    total = sum(costs)
    if total <= limit:
        return [Part(sum(rows), total)] if rows else []
    parts: list[Part] = []
    size, cost = 0, 0.0
    for count, weight in zip(rows, costs, strict=True):
        each = weight / count
        for _ in range(count):
            if size and cost + each > limit:
                parts.append(Part(size, cost))
                size, cost = 0, 0.0
            size += 1
            cost += each
    return [*parts, Part(size, cost)]
