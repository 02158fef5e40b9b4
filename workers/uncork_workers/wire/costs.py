"""Costs of rows: numbers, or fields of rows; and rows cut into calls by what they cost."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from uncork_workers.wire.json_faults import json_fault

COST_IN_BYTES = "bytes"
MAX_COST = 10**9
# Costs are multiples of 2**-16, so sums up to 2**53 units (over a hundred requests of the largest cost) are
# exact: adding a request's cost to a total and subtracting it later leaves no rounding error.
_COST_UNITS = 2**16
_SHOWN_CHARACTERS = 40

_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def field_cost(row: bytes | msgspec.Raw, field: str) -> float:
    """Return the cost of a row, given as JSON text, from its ``field``.

    A number is the cost itself. A string, list or object costs the bytes of its JSON text, a string without
    its quotes and at least 1.

    Raises:
        ValueError: if the row has no such field, or the field holds none of these.
    """
    try:
        fields = _fields_decoder.decode(row)
    except msgspec.ValidationError:
        raise ValueError(f"each row must be an object with the cost field {field!r}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the body is not valid JSON: {json_fault(bytes(row), error)}") from error
    if field not in fields:
        raise ValueError(f"the field {field!r} is missing")
    text = bytes(fields[field])
    first = text[:1]
    if first in (b"[", b"{"):
        return len(text)
    if first == b'"':
        return max(1, len(text) - len(b'""'))
    number = float(text) if first == b"-" or first.isdigit() else 0.0
    if not 0 < number <= MAX_COST:
        raise ValueError(
            f"the cost field {field!r} must be a number above 0 and at most {MAX_COST}, a string, a list or "
            f"an object, got {text[:_SHOWN_CHARACTERS].decode()}"
        )
    return rounded_cost(number)


def rounded_cost(number: float) -> float:
    """Round a cost to the nearest positive multiple of 2**-16."""
    return max(1, round(number * _COST_UNITS)) / _COST_UNITS


class Extent(NamedTuple):
    """The number of some rows, their total cost, and the largest cost of one; without costs, 0."""

    rows: int = 0
    cost: float = 0.0
    longest: float = 0.0

    def plus(self, other: "Extent") -> "Extent":
        return Extent(self.rows + other.rows, self.cost + other.cost, max(self.longest, other.longest))


def cut(items: Sequence[Extent], fits: Callable[[Extent], bool]) -> list[range]:
    """Return the items of each call, in order, by position; an item that does not fit has its own call."""
    calls: list[range] = []
    begin, total = 0, Extent()
    for at, item in enumerate(items):
        total = total.plus(item)
        if at > begin and not fits(total):
            calls.append(range(begin, at))
            begin, total = at, item
    return [*calls, range(begin, len(items))]
