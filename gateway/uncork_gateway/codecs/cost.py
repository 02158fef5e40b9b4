"""The cost of a request's rows, by the ``cost`` of ``@api``."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits
from uncork_workers.wire.costs import COST_IN_BYTES, field_cost, rounded_cost

Row = bytes | msgspec.Raw


class Cost(NamedTuple):
    """The cost of a request: the sum, the largest row, and each row. Empty if the API defines no cost."""

    total: float | None = None
    longest: float | None = None
    of_rows: Sequence[float] = ()


Weigh = Callable[[Sequence[Row]], Cost]
"""Returns the cost of rows from their JSON texts; raises BadRequest if it cannot be computed."""


def make_weigh(cost: float | str | None, limits: Limits = DEFAULT_LIMITS) -> Weigh:
    """Return the function that computes the cost of rows, for the ``cost`` of ``@api``.

    It rounds each cost to a multiple of ``1 / 2**16``, about 0.000015, and never returns less than that.
    """
    match cost:
        case None:
            return unweighed
        case str() if cost == COST_IN_BYTES:
            return lambda rows: _cost(map(len, rows))
        case str() as field:
            return lambda rows: _cost(_field_cost(row, field, limits) for row in rows)
        case number:
            return EqualCost(rounded_cost(number))


@dataclass(frozen=True, slots=True)
class EqualCost:
    """Weighs all rows alike, whatever they contain."""

    each: float

    def __call__(self, rows: Sequence[Row]) -> Cost:
        return Cost(self.each * len(rows), self.each, [self.each] * len(rows))


def unweighed(rows: Sequence[Row]) -> Cost:
    """Return no cost, for APIs that count rows."""
    return NO_COST


def reads_rows(weigh: Weigh) -> bool:
    """Return True if the cost of rows depends on their content, not only on their number."""
    return weigh is not unweighed and not isinstance(weigh, EqualCost)


NO_COST = Cost()


def _cost(of_rows: Iterable[float]) -> Cost:
    costs = list(of_rows)
    return Cost(sum(costs), max(costs), costs)


def _field_cost(row: Row, field: str, limits: Limits) -> float:
    limits.check_items(row)
    try:
        return field_cost(row, field)
    except ValueError as error:
        raise BadRequest(str(error)) from error
