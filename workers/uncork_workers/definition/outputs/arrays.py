"""Values of one NumPy type as one array, whatever contains them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from uncork_workers.wire.tensors import BFLOAT16

_NUMBERS = "biuf"


def as_numpy(values: Any) -> Any:
    """Return values of one NumPy type and shape as one array; return anything else unchanged.

    They may be a list of arrays or of NumPy's numbers, a masked array, or a pandas Series. Missing floats are
    NaN; other missing values leave the array a masked one. JAX's bfloat16 becomes :data:`BFLOAT16`.
    """
    if isinstance(values, np.ndarray):
        if isinstance(values, np.ma.MaskedArray):
            return _filled(values)
        return values.view(BFLOAT16) if _is_bfloat16(values.dtype) else values
    if isinstance(values, list | tuple):
        return _stacked(values)
    if is_series(values):
        return _of_series(values)
    return values


def is_series(values: object) -> bool:
    """Return whether this is a pandas Series, without importing pandas."""
    return _is_pandas(values) and hasattr(values, "to_frame")


def is_frame(values: object) -> bool:
    """Return whether this is a pandas DataFrame, without importing pandas."""
    return _is_pandas(values) and hasattr(values, "to_dict") and not hasattr(values, "to_frame")


def _is_pandas(values: object) -> bool:
    return type(values).__module__.partition(".")[0] == "pandas"


def _filled(values: np.ma.MaskedArray[Any, Any]) -> Any:
    if values.dtype.kind == "f":
        return values.filled(np.nan)
    return values if np.ma.is_masked(values) else values.data


def _stacked(values: Sequence[Any]) -> Any:
    first = values[0] if values else None
    if not isinstance(first, np.ndarray | np.generic) or not _is_number(first.dtype):
        return values
    kind = type(first), first.dtype, first.shape
    if isinstance(first, np.ma.MaskedArray) or any(_kind(value) != kind for value in values):
        return values
    return as_numpy(np.array(values))


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in _NUMBERS or dtype == BFLOAT16 or _is_bfloat16(dtype)


def _is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Return whether this is the type that JAX and TensorFlow add to NumPy."""
    return dtype.kind == "V" and dtype.name == "bfloat16"


def _kind(value: Any) -> object:
    return (type(value), value.dtype, value.shape) if isinstance(value, np.ndarray | np.generic) else None


def _of_series(values: Any) -> Any:
    dtype = values.dtype
    if isinstance(dtype, np.dtype):
        return values.to_numpy() if dtype.kind in _NUMBERS else values
    # pandas' own types of numbers have a mask.
    numbers = getattr(dtype, "numpy_dtype", np.dtype(object))
    if numbers.kind == "f":
        return values.to_numpy(dtype=numbers, na_value=np.nan)
    if numbers.kind not in _NUMBERS:
        return values
    array = values.to_numpy(dtype=numbers, na_value=numbers.type())
    return np.ma.masked_array(array, values.isna().to_numpy()) if values.hasnans else array
