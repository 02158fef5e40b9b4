"""Tensors between gateway and worker: their bytes, and the datatypes of values."""

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

# NumPy dtypes of binary tensors by datatype; BF16 is the upper half of an FP32.
LAYOUTS = {
    "BOOL": "?",
    **{f"UINT{bits}": f"<u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": f"<i{bits // 8}" for bits in (8, 16, 32, 64)},
    "FP16": "<f2",
    "BF16": "<u2",
    "FP32": "<f4",
    "FP64": "<f8",
}
BYTES = "BYTES"
# Values of BF16 in an array, so that its dtype says what the bits are.
BFLOAT16 = np.dtype([("BF16", LAYOUTS["BF16"])])
# NumPy's limit. Without one, handling a shape could cost more than its tensor.
MAX_AXES = 64
LENGTH_BYTES = 4
_COLUMN_LENGTH_BYTES = 8
_LISTS = (list, tuple)


def prefixed(strings: Iterable[bytes]) -> bytes:
    """Return the data of a binary BYTES tensor: each element is its length in four bytes, then its bytes."""
    return b"".join([len(string).to_bytes(LENGTH_BYTES, "little") + string for string in strings])


def widened(bits: Any) -> Any:
    """Return an array of BF16's bits as float32."""
    return (bits.astype("<u4") << 16).view("<f4")


def join_columns(columns: Iterable[bytes]) -> bytes:
    """Return the data of several tensors as one body."""
    return b"".join(
        chain.from_iterable((len(data).to_bytes(_COLUMN_LENGTH_BYTES, "little"), data) for data in columns)
    )


def split_columns(body: bytes) -> list[bytes]:
    """Return the data of each tensor in a body."""
    columns, at = [], 0
    while at < len(body):
        start = at + _COLUMN_LENGTH_BYTES
        at = start + int.from_bytes(body[at:start], "little")
        columns.append(body[start:at])
    return columns


class Inferred(NamedTuple):
    """Values of one kind and shape; ``values`` are the elements as the datatype has them, row by row."""

    datatype: str
    shape: tuple[int, ...]
    values: list[Any]


def infer(values: list[Any]) -> Inferred | None:
    """Return the first datatype of BOOL, INT64, UINT64, FP64 and BYTES that holds plain values.

    Missing values are NaN among numbers, and empty elements of BYTES among texts. Booleans with missing
    values are BYTES too: ``true``, ``false`` and empty.

    Args:
        values: one per row: numbers, booleans, texts, None, or nested lists or tuples of these.

    Returns:
        None if the values are not of one shape, or not of one kind.
    """
    shape, first = [len(values)], values[0] if values else None
    while isinstance(first, list | tuple):
        shape.append(len(first))
        first = first[0] if first else None
    if len(shape) > MAX_AXES:
        return None
    for length in shape[1:]:
        if any(type(value) not in _LISTS or len(value) != length for value in values):
            return None
        values = list(chain.from_iterable(values))
    kinds = set(map(type, values))
    if float in kinds and kinds & {str, bool}:  # pandas has NaN for a missing text
        values = [None if value != value else value for value in values]
        kinds = set(map(type, values))
    if kinds & {*_LISTS, dict}:
        return None
    datatype = _datatype(kinds, values)
    if datatype is None:
        return None
    try:
        return Inferred(datatype, tuple(shape), _converted(values, datatype))
    except OverflowError:  # an integer that no datatype holds
        return None


def text_of(value: str | bool | None) -> str:
    """Return an element of BYTES."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
    return value


def encoded(values: Sequence[Any], datatype: str) -> bytes:
    """Return elements as the data of a binary tensor."""
    if datatype == BYTES:
        return prefixed([value.encode() for value in values])
    return np.array(values, LAYOUTS[datatype]).tobytes()


def _datatype(kinds: set[type], values: Sequence[Any]) -> str | None:
    if kinds == {bool}:
        return "BOOL"
    if kinds == {int}:
        least, most = min(values), max(values)
        for datatype in ("INT64", "UINT64"):
            limits = np.iinfo(LAYOUTS[datatype])
            if limits.min <= least and most <= limits.max:
                return datatype
    if kinds <= {int, float, type(None)}:
        return "FP64"
    return BYTES if kinds <= {str, type(None)} or kinds <= {bool, type(None)} else None


def _converted(values: list[Any], datatype: str) -> list[Any]:
    if datatype == "FP64":
        return [math.nan if value is None else float(value) for value in values]
    return list(map(text_of, values)) if datatype == BYTES else values
