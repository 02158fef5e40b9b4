"""Cut the rows of a batch into chunks, one per handler call, and pad each to an allowed size."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from copy import deepcopy
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
import numpy as np

from uncork_workers.definition.adapters.requests import RequestBatch
from uncork_workers.definition.outputs.encoding import Array, Encoded
from uncork_workers.wire.costs import Extent, cut

T = TypeVar("T")


def by_request(costs: Sequence[float], rows: Sequence[int]) -> list[Sequence[float]]:
    """Return the costs of each request's rows, given those of all rows and the rows of each request."""
    return [costs[end - count : end] for count, end in zip(rows, accumulate(rows), strict=True)]


class CallSizes(msgspec.Struct, frozen=True):
    """How the size of a handler call is counted where memory limits it: in rows, or in cost.

    Attributes:
        allowed: the numbers of rows to which calls are padded; None: any.
        lengths: the lengths to which a model pads its rows; empty: any.
        pads: whether the model pads all rows of a call to the longest.
    """

    allowed: Sequence[int] | None = None
    lengths: Sequence[float] = ()
    pads: bool = False

    def size(self, call: Extent) -> float:
        """Return the size of a call, padding included."""
        rows, cost, longest = call
        if not rows:
            return 0.0
        # More rows than the largest allowed number are those of several calls, which are padded less.
        padded = rows if self.allowed and rows > self.allowed[-1] else padded_size(rows, self.allowed)
        if not longest:
            return padded
        if not self.pads:
            return cost * padded / rows
        return padded * padded_length(longest, self.lengths)

    def of(self, rows: int, costs: Sequence[float]) -> float:
        """Return the size of a call with all these rows; ``costs`` is empty if they have none."""
        return self.size(Extent(rows, sum(costs), max(costs, default=0.0)))

    def cut(
        self, rows: int, costs: Sequence[float], *, limit: int, fits: float = math.inf
    ) -> list[tuple[int, float]]:
        """Cut rows into chunks, one per call; return the rows and the cost of each.

        ``costs`` has the cost of each row; if it is empty, each costs 1. A chunk has at most the largest
        allowed number of rows. One of several rows costs at most ``limit`` and has at most the size ``fits``.
        """
        if not rows:
            return []
        most_rows = self.allowed[-1] if self.allowed else rows
        total = sum(costs) if costs else rows
        if total <= limit and rows <= most_rows and (fits == math.inf or self.of(rows, costs) <= fits):
            return [(rows, total)]
        if not costs:
            most_rows = min(most_rows, limit)
            if fits < math.inf:
                allowed = [size for size in self.allowed or () if size <= fits] or [*(self.allowed or ())[:1]]
                most_rows = min(most_rows, allowed[-1] if allowed else max(1, int(fits)))
            counts = [min(most_rows, rows - done) for done in range(0, rows, most_rows)]
            return [(count, count) for count in counts]

        def fits_in_call(call: Extent) -> bool:
            return (
                call.cost <= limit
                and call.rows <= most_rows
                and (fits == math.inf or self.size(call) <= fits)
            )

        calls = cut([Extent(1, cost, cost) for cost in costs], fits_in_call)
        return [(len(call), sum(costs[call.start : call.stop])) for call in calls]


def padded_size(rows: int, allowed: Sequence[int] | None) -> int:
    """Return the smallest allowed size for ``rows`` rows; without allowed sizes, ``rows``."""
    return rows if allowed is None else allowed[bisect_left(allowed, rows)]


def padded_length(length: float, allowed: Sequence[float]) -> float:
    """Return the smallest allowed length for a row; a longer row counts as the largest. Empty: any length."""
    return next((one for one in allowed if one >= length), allowed[-1] if allowed else length)


def part_of(rows: Any, start: int, end: int) -> Any:
    """Return some rows of a batch; the index of a table counts from 0."""
    part = rows[start:end]
    return part.reset_index(drop=True) if start and hasattr(part, "iloc") else part


def filled(rows: Any, size: int) -> Any:
    """Repeat the last row until there are ``size`` rows. The handler may change the rows, each on its own."""
    if hasattr(rows, "shape"):  # a table, or an array of any library, which a custom adapter may return
        places = np.minimum(np.arange(size), len(rows) - 1)
        return rows.take(places).reset_index(drop=True) if hasattr(rows, "iloc") else rows[places]
    [last], missing = rows[len(rows) - 1 :], size - len(rows)
    try:
        copies = [deepcopy(last) for _ in range(missing)]
    except Exception:  # such an adapter may return anything
        copies = [last] * missing
    all_rows = [*rows, *copies]
    return RequestBatch(all_rows) if isinstance(rows, RequestBatch) else all_rows


def with_copies(values: Sequence[T], size: int) -> Sequence[T]:
    """Repeat the last value until there are ``size`` values."""
    return [*values, *[values[-1]] * (size - len(values))]


def without_copies(encoded: Encoded | Array, rows: int) -> Encoded | Array:
    """Return the results for the first rows."""
    if isinstance(encoded, Array):
        return encoded._replace(values=encoded.values[:rows])
    responses = {at: response for at, response in encoded.responses.items() if at < rows}
    values = None if encoded.values is None else encoded.values.part(0, rows)
    return encoded._replace(rows=encoded.rows[:rows], responses=responses, values=values)
