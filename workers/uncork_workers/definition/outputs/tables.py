"""Results that are tables (pandas objects and dicts of columns), and encoding of results as CSV."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from uncork_workers.definition.outputs.arrays import as_numpy, is_frame, is_series
from uncork_workers.definition.outputs.json import UNWRITABLE, plain, values_of
from uncork_workers.definition.outputs.responses import WrongResult


def columns_of(results: object) -> dict[Any, Any] | None:
    """Return the columns of a table, each a list or an array, by name; None for anything else.

    Raises:
        WrongResult: if columns differ in length, share a name, or are not lists or arrays.
    """
    if isinstance(results, Mapping):
        return _checked({name: _column(values) for name, values in results.items()})
    if is_frame(results):
        if not results.columns.is_unique:  # type: ignore[attr-defined]
            raise WrongResult("the data frame has duplicate column names")
        return {name: _column(results[name]) for name in results.columns}  # type: ignore[attr-defined,index]
    return None


def as_rows(results: object) -> object:
    """Convert a table to a list of dicts and a series to a list; return anything else unchanged.

    Raises:
        WrongResult: as :func:`columns_of`.
    """
    columns = columns_of(results)
    if columns is not None:
        return rows_of(columns)
    return results.tolist() if is_series(results) else results  # type: ignore[attr-defined]


def rows_of(columns: Mapping[Any, Any]) -> list[dict[Any, Any]]:
    """Return the rows of columns as dicts."""
    values = [values_of(each) if isinstance(each, np.ndarray) else each for each in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def encode_csv(results: Sequence[Any]) -> tuple[bytes, list[bytes]]:
    """Return the header of a table and one line per row; rows are dicts with the same keys, lists, or values.

    Values are written as in JSON, but NaN is an empty field. Lists and dicts in a field are JSON.

    Raises:
        WrongResult: if rows differ in their columns, or a value cannot be written.
    """
    try:
        names, rows = _columns(msgspec.to_builtins(list(results), enc_hook=plain))
        return _line(names), [_line([_field(value) for value in row]) for row in rows]
    except UNWRITABLE as error:
        raise WrongResult(f"results cannot be written as CSV: {error}") from error


def _columns(rows: list[Any]) -> tuple[Sequence[Any], Sequence[Sequence[Any]]]:
    first = rows[0]
    if dict in map(type, rows):
        if any(not isinstance(row, dict) or row.keys() != first.keys() for row in rows):
            raise WrongResult("results cannot be written as CSV: rows have different columns")
        return list(first), [[row[name] for name in first] for row in rows]
    rows = [row if isinstance(row, list | tuple) else [row] for row in rows]
    if any(len(row) != len(rows[0]) for row in rows):
        raise WrongResult("results cannot be written as CSV: rows have different lengths")
    return list(range(len(rows[0]))), rows


def _field(value: Any) -> Any:
    if isinstance(value, list | tuple | dict):
        return msgspec.json.encode(value).decode()
    return None if isinstance(value, float) and math.isnan(value) else value


def _checked(columns: dict[Any, Any]) -> dict[Any, Any]:
    if not all(isinstance(column, list | tuple | np.ndarray) for column in columns.values()):
        raise WrongResult(
            "each value of a returned dict must be a column, a list or an array with one value per row; to "
            "return one object per row, use a list of dicts"
        )
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise WrongResult(f"the columns of a returned dict must have equal lengths, got {sorted(lengths)}")
    return columns


def _column(values: Any) -> Any:
    """Return a column as an array if it has one NumPy type, else as a list."""
    array = as_numpy(values)
    if isinstance(array, np.ndarray):
        return array if array.ndim and array.dtype != object else array.tolist()
    return array.tolist() if hasattr(array, "tolist") else array


def _line(values: Sequence[Any]) -> bytes:
    # csv quotes a field with a line break only if the terminator contains that character: CRLF covers both.
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(values)
    return text.getvalue().encode()
