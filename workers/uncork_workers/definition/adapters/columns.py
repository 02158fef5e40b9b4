"""One column of a DataFrame, from the values of several requests.

The values of a request never depend on those of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from types import NoneType
from typing import Any

import numpy as np
import pandas as pd

from uncork_workers.definition.adapters.base import InvalidInput, Value

Array = np.ndarray[Any, Any]
Column = Array | pd.api.extensions.ExtensionArray

# The texts that pandas reads as missing by default.
MISSING = frozenset(
    {
        *("", "<NA>", "NA", "#NA", "N/A", "n/a", "#N/A", "#N/A N/A", "NULL", "null", "None"),
        *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    }
)
_TEXT = "U"
_NUMBERS = "iuf"
_NAMES = {
    "f": "a number or missing",
    "i": "an integer",
    "u": "an integer",
    "b": "true or false",
    _TEXT: "text or missing",
}
_JSON_TYPES: dict[str, set[type]] = {
    "f": {int, float, NoneType},
    "i": {int},
    "u": {int},
    "b": {bool},
    _TEXT: {str, NoneType},
}
_CSV_KINDS = {"f": "fractions or missing values", "i": "numbers", "u": "numbers", "b": "true or false"}
_TRUE, _FALSE = ("True", "TRUE", "true"), ("False", "FALSE", "false")
_SHOWN_CHARACTERS = 60


def column_of_json(name: str, values: list[Value], dtype: np.dtype[Any] | None) -> Column:
    """Return a column of JSON values; without a dtype it is inferred.

    Raises:
        InvalidInput: if a value does not fit the dtype.
    """
    types = set(map(type, values))
    if dtype is None:
        return _infer(name, values, types)
    accepted = _JSON_TYPES[dtype.kind]
    if not types <= accepted:
        wrong = next(value for value in values if type(value) not in accepted)
        raise _wrong(name, dtype, "null" if wrong is None else repr(wrong))
    if dtype.kind == _TEXT:
        return _texts(values)
    try:
        numbers = np.array(values, dtype="f8" if dtype.kind == "f" else dtype)
    except OverflowError:
        if dtype.kind == "f":
            raise _wrong(name, dtype, "a number that is too large") from None
        limits = np.iinfo(dtype)
        wrong = next(value for value in values if not limits.min <= value <= limits.max)  # type: ignore[operator]
        raise _wrong(name, dtype, f"{wrong}, which is out of range") from None
    return _narrowed(name, numbers, dtype)


def column_of_csv(
    name: str, column: pd.Series[Any], rows: Sequence[int], dtype: np.dtype[Any] | None
) -> Column:
    """Return a column of CSV; without a dtype it is inferred for each request.

    Args:
        column: as pandas has read it, with ``MISSING`` as its missing values and dtypes only for text.
        rows: the number of rows of each request.

    Raises:
        InvalidInput: if a value does not fit the dtype.
    """
    if dtype is None:
        return _infer_each(column, rows)
    if dtype.kind == _TEXT:
        return _extension(column)
    if dtype.kind == "f":
        numbers = _numbers(column)
        if np.isnan(numbers).any():
            wrong = [cell for cell in _cells(column)[np.isnan(numbers)] if type(cell) is str]
            if wrong:
                raise _wrong(name, dtype, repr(wrong[0]))
        return _narrowed(name, numbers, dtype)
    if column.dtype.kind in ("b" if dtype.kind == "b" else "iu"):
        return _narrowed(name, column.to_numpy(), dtype)
    raise _wrong(name, dtype, _CSV_KINDS.get(column.dtype.kind, "text"))


def _infer(name: str, values: list[Value], types: set[type]) -> Column:
    if types == {bool}:
        return np.array(values)
    if types <= _JSON_TYPES[_TEXT] and types != {NoneType}:
        return _texts(values)
    try:
        if types <= _JSON_TYPES["f"]:
            return np.array(values, dtype="f8")
        return np.array([_plain(value) for value in values], dtype=object)
    except OverflowError:
        raise InvalidInput(f"column {name!r} has a number that is too large") from None


def _plain(value: Value) -> bool | float | str:
    if value is None:
        return np.nan
    return float(value) if type(value) is int else value


def _infer_each(column: pd.Series[Any], rows: Sequence[int]) -> Column:
    """Infer the dtype as if each request had been read alone.

    pandas infers one dtype for all requests. If that is text, some requests may still be numeric or boolean.
    """
    if column.dtype.kind in _NUMBERS:
        return _numbers(column)
    if column.dtype.kind == "b":
        return column.to_numpy()
    cells = _cells(column)
    numbers = _parsed(cells)
    present = np.array([type(cell) is str for cell in cells])
    is_true = np.array([cell in _TRUE for cell in cells])
    is_truth = is_true | [cell in _FALSE for cell in cells]
    starts = list(accumulate(rows[:-1], initial=0))

    def in_whole_requests(which: Array) -> Array:
        """Return the rows of the requests in which this holds for all present values."""
        return np.repeat(np.logical_and.reduceat(which | ~present, starts), rows)

    numeric = in_whole_requests(~np.isnan(numbers))
    if numeric.all():
        return numbers
    truths = in_whole_requests(is_truth) & present & ~numeric
    if not (truths | (numeric & present)).any():
        return _texts(cells.tolist())
    cells[numeric] = numbers[numeric]
    cells[truths] = is_true[truths]
    return cells


def _numbers(column: pd.Series[Any]) -> Array:
    """Return the column as float64, with NaN for missing values and text."""
    if column.dtype.kind not in _NUMBERS:
        return _parsed(_cells(column))
    # "-0" is 0 in an integer column and -0.0 in a float column; adding 0.0 makes both 0.0.
    return column.to_numpy("f8") + 0.0


def _cells(column: pd.Series[Any]) -> Array:
    """Return the column as text, with NaN for missing values.

    In a column of text pandas keeps numbers as text, but with integers from 2**63 on it may leave missing
    values as text.
    """
    texts = [cell if type(cell) in (str, float) else str(cell) for cell in column.tolist()]
    return np.array([np.nan if text in MISSING else text for text in texts], object)


def _parsed(cells: Array) -> Array:
    # From pandas 3.1 on, to_numeric accepts and rounds the same numbers as read_csv.
    return np.asarray(pd.to_numeric(cells, errors="coerce"), "f8") + 0.0


def _texts(values: Sequence[Value]) -> Column:
    return _extension(pd.Series([np.nan if value is None else value for value in values], dtype="str"))


def _extension(column: pd.Series[Any]) -> Column:
    array: Column = column.array  # without the index
    return array


def _narrowed(name: str, numbers: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):
        converted = numbers.astype(dtype)
    # A value out of range becomes infinite as a float, and another number as an integer.
    fits = np.isfinite(converted) | ~np.isfinite(numbers) if dtype.kind == "f" else converted == numbers
    if not fits.all():
        raise _wrong(name, dtype, f"{numbers[~fits][0]}, which is out of range")
    return converted


def _wrong(name: str, dtype: np.dtype[Any], got: str) -> InvalidInput:
    return InvalidInput(
        f"column {name!r} must be {dtype.name}, each value {_NAMES[dtype.kind]}, "
        f"got {got[:_SHOWN_CHARACTERS]}"
    )
