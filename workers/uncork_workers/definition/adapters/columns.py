"""One column of a DataFrame, from the values that several requests have sent for it.

What a request's values become never depends on those of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from types import NoneType
from typing import Any

import numpy as np
import pandas as pd

from uncork_workers.definition.adapters.base import InvalidInput

Value = bool | int | float | str | None
Array = np.ndarray[Any, Any]
Column = Array | pd.api.extensions.ExtensionArray

# What pandas takes for missing by default.
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
    "i": "a whole number",
    "u": "a whole number",
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
    """A column of JSON values.

    Raises:
        InvalidInput: if a value does not fit the dtype.
    """
    kinds = set(map(type, values))
    if dtype is None:
        return _infer(name, values, kinds)
    accepted = _JSON_TYPES[dtype.kind]
    if not kinds <= accepted:
        wrong = next(value for value in values if type(value) not in accepted)
        raise _wrong(name, dtype, "null" if wrong is None else repr(wrong))
    if dtype.kind == _TEXT:
        return _texts(values)
    try:
        numbers = np.array(values, dtype="f8" if dtype.kind == "f" else dtype)
    except OverflowError:
        raise _wrong(name, dtype, "a number that is too large") from None
    return _narrowed(name, numbers, dtype)


def column_of_csv(
    name: str, column: pd.Series[Any], rows: Sequence[int], dtype: np.dtype[Any] | None
) -> Column:
    """A column of CSV as pandas has read it, for requests of so many rows each.

    pandas is to be told what is ``MISSING``, and the dtype of text, but not other dtypes.

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


def _infer(name: str, values: list[Value], kinds: set[type]) -> Column:
    """Each value says what it is."""
    if kinds == {bool}:
        return np.array(values)
    if kinds <= _JSON_TYPES[_TEXT] and kinds != {NoneType}:
        return _texts(values)
    try:
        if kinds <= _JSON_TYPES["f"]:
            return np.array(values, dtype="f8")
        return np.array([_plain(value) for value in values], dtype=object)
    except OverflowError:
        raise InvalidInput(f"the column {name!r} has a number that is too large") from None


def _plain(value: Value) -> bool | float | str:
    if value is None:
        return np.nan
    return float(value) if type(value) is int else value


def _infer_each(column: pd.Series[Any], rows: Sequence[int]) -> Column:
    """As if each request had been read by itself.

    pandas infers one dtype for all. Only where that is text must be found out whose values they are.
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
        """The rows of the requests in which this holds for all that is not missing."""
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
    """As float64, NaN for what is missing or no number."""
    if column.dtype.kind not in _NUMBERS:
        return _parsed(_cells(column))
    # -0 is 0 among whole numbers, and -0.0 beside a fraction; added to 0.0 both are 0.0.
    return column.to_numpy("f8") + 0.0


def _cells(column: pd.Series[Any]) -> Array:
    """Text as pandas has read it, NaN for what is missing.

    Beside text numbers are text, too; beside whole numbers from 2**63 what is missing may be text.
    """
    texts = [cell if type(cell) in (str, float) else str(cell) for cell in column.tolist()]
    return np.array([np.nan if text in MISSING else text for text in texts], object)


def _parsed(cells: Array) -> Array:
    """As the reader of CSV would: from pandas 3.1 on it takes the same for numbers, and rounds as well."""
    return np.asarray(pd.to_numeric(cells, errors="coerce"), "f8") + 0.0


def _texts(values: Sequence[Value]) -> Column:
    return _extension(pd.Series([np.nan if value is None else value for value in values], dtype="str"))


def _extension(column: pd.Series[Any]) -> Column:
    """Its array: pandas need not look at an index for that."""
    array: Column = column.array
    return array


def _narrowed(name: str, numbers: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):
        converted = numbers.astype(dtype)
    # What does not fit becomes infinite among floats, and another number among integers.
    fits = np.isfinite(converted) | ~np.isfinite(numbers) if dtype.kind == "f" else converted == numbers
    if not fits.all():
        raise _wrong(name, dtype, f"{numbers[~fits][0]}, which is out of range")
    return converted


def _wrong(name: str, dtype: np.dtype[Any], got: str) -> InvalidInput:
    return InvalidInput(
        f"the column {name!r} must be {dtype.name}, each value {_NAMES[dtype.kind]}, "
        f"got {got[:_SHOWN_CHARACTERS]}"
    )
