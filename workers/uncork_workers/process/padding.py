"""Rows of different lengths as one array."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from uncork_workers.process.context import context

_INTEGERS = "biu"


def pad(
    rows: Sequence[ArrayLike],
    *,
    value: complex = 0,
    dtype: DTypeLike = "int64",
    allowed_lengths: Sequence[float] | None = None,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Pad rows of different lengths, such as token ids, on the right to one array.

    ::

        ids, mask = uncork.pad([[101, 7592, 102], [101, 102]])
        # [[101, 7592, 102], [101, 102, 0]] and [[1, 1, 1], [1, 1, 0]]

    Args:
        rows: lists or one-dimensional arrays of numbers, at least one.
        value: fills the rows.
        dtype: of the first array.
        allowed_lengths: pad to the smallest of these that fits the longest row; if empty, to the longest row.
            Default: the ``allowed_lengths`` of the API whose handler calls this; empty elsewhere. Pass the
            model's lengths if the unit of the API's ``cost`` differs from that of these rows.

    Returns:
        The padded array of the shape (rows, length), and a mask (int64) of the same shape: 1 for the values
        of a row, 0 for its padding.

    Raises:
        ValueError: if there are no rows, a row is not one-dimensional or is longer than every allowed length,
            or its values do not fit ``dtype``.
    """
    if len(rows) == 0:
        raise ValueError("there are no rows to pad; pass at least one")
    target = np.dtype(dtype)
    arrays = [_as_array(row, at, target) for at, row in enumerate(rows)]
    lengths = np.fromiter(map(len, arrays), np.int64, count=len(arrays))
    is_value = np.arange(_width(lengths, allowed_lengths)) < lengths[:, None]
    padded = np.full(is_value.shape, value, target)
    padded[is_value] = np.concatenate(arrays)
    return padded, is_value.astype(np.int64)


def _as_array(row: ArrayLike, at: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(row)
    except ValueError:  # nested lists of different lengths
        raise ValueError(f"row {at} is not one-dimensional; pass one list of numbers per row") from None
    if array.ndim != 1:
        raise ValueError(f"row {at} has {array.ndim} dimensions, not one; pass one list of numbers per row")
    if array.dtype == dtype or not array.size:
        return array.astype(dtype, copy=False)
    if array.dtype.kind in _INTEGERS and dtype.kind in _INTEGERS:
        cast = array.astype(dtype)
        fits = np.array_equal(cast, array)
    else:
        fits = np.can_cast(array.dtype, dtype, "same_kind")
        cast = array.astype(dtype) if fits else array
    if not fits:
        raise ValueError(f"row {at} holds values of type {array.dtype} that do not fit dtype={dtype}")
    return cast


def _width(lengths: np.ndarray[Any, Any], allowed: Sequence[float] | None) -> int:
    """Return the length to which the rows are padded."""
    longest = int(lengths.max())
    if allowed is None:
        allowed = _allowed_by_api()
    if not len(allowed):
        return longest
    fitting = [length for length in allowed if length >= longest]
    if not fitting:
        raise ValueError(
            f"row {int(lengths.argmax())} has {longest} values, more than the largest allowed length, "
            f"{max(allowed):g}; truncate rows to that before padding"
        )
    return int(min(fitting))


def _allowed_by_api() -> Sequence[float]:
    try:
        return context().allowed_lengths
    except LookupError:  # outside a handler
        return ()
