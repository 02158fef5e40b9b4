"""The requests of a batch, and what of their rows the handler gets in one call."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import numpy as np

from uncork_workers.wire.messages import Form, Meta

T = TypeVar("T")


class Requests(NamedTuple):
    """Some requests of a batch; every field has a value for each.

    ``metas`` is what came with raw bodies, ``raw`` whether a request gets the rows of an array raw. Either is
    empty if there is none in the batch.
    """

    bodies: Sequence[bytes]
    rows: Sequence[int]
    costs: Sequence[float]
    forms: Sequence[Form]
    metas: Sequence[Meta] = ()
    raw: Sequence[bool] = ()

    def pick(self, group: Sequence[int]) -> Requests:
        """Those at the positions of a group."""
        return Requests(
            bodies=_picked(self.bodies, group),
            rows=_picked(self.rows, group),
            costs=_picked(self.costs, group),
            forms=_picked(self.forms, group),
            metas=_picked(self.metas, group),
            raw=_picked(self.raw, group),
        )

    def by_form(self) -> dict[Form, list[int]]:
        """The positions of the requests of each form."""
        groups: dict[Form, list[int]] = {}
        for at, form in enumerate(self.forms):
            groups.setdefault(form, []).append(at)
        return groups


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


def interleaved(groups: Sequence[Sequence[int]], merged: Sequence[Any], counts: Sequence[int]) -> Any:
    """Merge the rows of several groups of requests, in the order of the requests.

    Args:
        groups: the positions of the requests of each group.
        merged: the rows of each group, all arrays with one shape of a row, or all lists.
        counts: the number of rows of each request, by its position.
    """
    ends = list(accumulate(counts))
    first, total = merged[0], ends[-1]
    is_array = isinstance(first, np.ndarray)
    rows: Any = np.empty((total, *first.shape[1:]), first.dtype) if is_array else [None] * total
    for group, own in zip(groups, merged, strict=True):
        start = 0
        for at in group:
            end = start + counts[at]
            rows[ends[at] - counts[at] : ends[at]] = own[start:end]
            start = end
    return rows


def _picked(values: Sequence[T], group: Sequence[int]) -> Sequence[T]:
    return [values[at] for at in group] if values else ()
