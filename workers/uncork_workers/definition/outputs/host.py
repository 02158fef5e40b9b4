"""Arrays of other libraries, such as PyTorch's tensors, as NumPy arrays in main memory.

Nothing here imports these libraries: their types name them.
"""

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from uncork_workers.definition.outputs.arrays import as_numpy
from uncork_workers.definition.outputs.responses import WrongResult
from uncork_workers.wire.tensors import BFLOAT16

Reader = Callable[[Any], np.ndarray[Any, Any]]

# Of tables, which would lose the names of their columns, and of objects, which are rows themselves.
_NO_ARRAYS = ("columns", "__dataclass_fields__", "__struct_fields__", "__attrs_attrs__")
# Types of rows that are no arrays, and contain none.
_PLAIN = frozenset((float, int, str, bool, bytes, list))


def on_host(results: Any) -> Any:
    """Return a handler's results with NumPy arrays in place of other libraries' arrays.

    Results may be an array, a list of arrays or of dicts with arrays, or a dict of such columns;
    :func:`as_host_array` reads arrays deeper inside rows later.

    Raises:
        WrongResult: if an array cannot be converted.
    """
    if isinstance(results, np.ndarray):
        return results
    if type(results) is list and _PLAIN.issuperset(map(type, results)):
        return results
    try:
        if isinstance(results, Mapping):
            return {name: _rows_on_host(column) for name, column in results.items()}
        return _rows_on_host(results)
    except _Unreadable as error:
        raise WrongResult(f"the results cannot be sent: {error}") from error


def as_host_array(value: object) -> np.ndarray[Any, Any] | None:
    """Return another library's array as a NumPy array; None for any other value.

    Raises:
        TypeError: if the array has no dense form in NumPy.
    """
    read = _reader_of(value)
    if read is None:
        return None
    try:
        return read(value)
    except _Unreadable:
        raise
    except (TypeError, ValueError, BufferError, NotImplementedError) as error:
        # Others, such as failures of a device, have their own consequences.
        name = type(value).__name__
        raise _Unreadable(
            f"{name} cannot be converted to a NumPy array: {error}; return an array of a type that NumPy "
            "has, such as float32, or lists of numbers"
        ) from error


class _Unreadable(TypeError):
    pass


def _rows_on_host(values: Any) -> Any:
    array = as_host_array(values)
    if array is not None:
        return array
    if not isinstance(values, list | tuple) or not values:
        return values
    # Any row may be another client's: none decides for the others.
    kinds = set(map(type, chain(values, *[row.values() for row in values if type(row) is dict])))
    return list(map(_row_on_host, values)) if any(map(_reader, kinds)) else values


def _row_on_host(row: Any) -> Any:
    if type(row) is dict:
        return {name: _value_on_host(value) for name, value in row.items()}
    return _value_on_host(row)


def _value_on_host(value: Any) -> Any:
    array = as_host_array(value)
    return value if array is None else array


def _reader_of(value: object) -> Reader | None:
    return _reader(type(value))  # type: ignore[arg-type]  # a class is hashable


@lru_cache(maxsize=256)
def _reader(kind: type) -> Reader | None:
    names = {(base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__}
    if ("torch", "Tensor") in names:
        return _of_torch
    if ("cupy", "ndarray") in names:
        return lambda array: array.get()
    libraries = {library for library, _ in names}
    is_series = "pandas" in libraries and hasattr(kind, "to_frame")
    if is_series or libraries & {"numpy", "PIL"} or any(hasattr(kind, name) for name in _NO_ARRAYS):
        return None
    if "pandas" in libraries and hasattr(kind, "__array__"):
        return _of_pandas
    if libraries & {"pyarrow", "polars"} and hasattr(kind, "null_count"):
        return _of_nullable
    if hasattr(kind, "__array__"):
        return np.asarray
    return np.from_dlpack if hasattr(kind, "__dlpack__") else None


def _of_torch(tensor: Any) -> np.ndarray[Any, Any]:
    if tensor.is_nested:
        raise _Unreadable("a nested Tensor is not supported; convert it with list(tensor.unbind())")
    if str(tensor.layout) != "torch.strided":
        raise _Unreadable(f"a Tensor of layout {tensor.layout} is not supported; convert it with .to_dense()")
    if tensor.is_quantized:
        raise _Unreadable(f"a Tensor of type {tensor.dtype} is not supported; convert it with .dequantize()")
    if str(tensor.dtype) == "torch.bfloat16":  # which NumPy does not have
        bits = tensor.detach().view(sys.modules["torch"].int16)
        return bits.numpy(force=True).view(BFLOAT16)  # type: ignore[no-any-return]
    return tensor.numpy(force=True)  # type: ignore[no-any-return]


def _of_nullable(array: Any) -> np.ndarray[Any, Any]:
    """Read an array of Arrow or a Series of Polars."""
    count = array.null_count
    found = np.asarray(array)
    if found.ndim != 1 or not (count() if callable(count) else count):
        return found
    present = np.asarray(array.drop_null() if hasattr(array, "drop_null") else array.drop_nulls())
    if present.dtype.kind not in "biu":
        return found
    # NumPy gives them another type where some are missing.
    missing = np.asarray(array.is_null())
    values = np.zeros(len(missing), present.dtype)
    values[~missing] = present
    return np.ma.masked_array(values, missing)


def _of_pandas(array: Any) -> np.ndarray[Any, Any]:
    # NumPy would give integers another type where some are missing.
    found = as_numpy(sys.modules["pandas"].Series(array))
    return found if isinstance(found, np.ndarray) else np.asarray(array)
