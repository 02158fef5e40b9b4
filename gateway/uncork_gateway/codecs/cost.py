"""What the rows of a request weigh, if their api says by what: the ``cost`` of ``@api``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from uncork_gateway.errors import BadRequest
from uncork_workers.description import COST_IN_BYTES, MAX_COST

Row = bytes | msgspec.Raw
Weigh = Callable[[Sequence[Row]], float | None]
"""Gives what rows weigh together, from their JSON texts. Raises BadRequest for rows that it cannot weigh."""

# Multiples of a power of two add up without rounding, up to 2**53 of them, which is more than a hundred
# requests of the largest cost: what is put on the dispatcher's totals and taken off again leaves nothing
# behind, whatever clients say that their requests weigh.
_UNITS = 2**16
_SHOWN_CHARACTERS = 40

_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def make_weigh(cost: float | str | None) -> Weigh:
    """How to weigh rows for an api whose ``cost`` is this.

    A number, in the setting or in a field, is rounded to a multiple of ``1 / 2**16``, about 0.000015, and is
    at least that.
    """
    match cost:
        case None:
            return unweighed
        case str() if cost == COST_IN_BYTES:
            return _bytes
        case str() as field:
            return lambda rows: sum(_field_cost(row, field) for row in rows)
        case number:
            each = _rounded(number)
            return lambda rows: each * len(rows)


def unweighed(rows: Sequence[Row]) -> None:
    """Weigh nothing: rows are counted."""


def _bytes(rows: Sequence[Row]) -> float:
    return sum(map(len, rows))


def _field_cost(row: Row, field: str) -> float:
    """A number is the weight itself; a string, list or object weighs its JSON text, a string without quotes.

    An empty string weighs 1: nothing can be had for nothing.
    """
    try:
        fields = _fields_decoder.decode(row)
    except msgspec.ValidationError:
        raise BadRequest(
            f"a row must be an object with the field {field!r}, by which it is weighed"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    if field not in fields:
        raise BadRequest(f"a row lacks the field {field!r}, by which it is weighed")
    text = bytes(fields[field])
    first = text[:1]
    if first in (b"[", b"{"):
        return len(text)
    if first == b'"':
        return max(1, len(text) - len(b'""'))
    number = float(text) if first == b"-" or first.isdigit() else 0.0
    if not 0 < number <= MAX_COST:
        raise BadRequest(
            f"the field {field!r}, by which a row is weighed, must be a number above 0 and at most "
            f"{MAX_COST}, a string, a list or an object, got {text[:_SHOWN_CHARACTERS].decode()}"
        )
    return _rounded(number)


def _rounded(number: float) -> float:
    return max(1, round(number * _UNITS)) / _UNITS
