"""Raw tensors of the Open Inference Protocol (V2): little-endian, row-major, without padding."""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from uncork_workers.definition.adapters.base import Adapter, InvalidInput
from uncork_workers.definition.adapters.tensor_values import read_values
from uncork_workers.plural import plural
from uncork_workers.wire.forms import ColumnsForm, ListForm, TensorForm
from uncork_workers.wire.messages import RowPath
from uncork_workers.wire.tensors import BFLOAT16, BYTES, LAYOUTS, split_columns, widened

_BF16 = "BF16"
_DTYPES = {name: np.dtype(layout) for name, layout in LAYOUTS.items()}
_NAMES = {(dtype.kind, dtype.itemsize): name for name, dtype in _DTYPES.items() if name != _BF16}
_LENGTH = struct.Struct("<I")


def form_of(results: object) -> ListForm | None:
    """Return the form of an array's rows; None for other results and for dtypes without a V2 datatype.

    Also None for a masked array: its masked values are null in JSON but arbitrary in memory.
    """
    if not isinstance(results, np.ndarray) or isinstance(results, np.ma.MaskedArray):
        return None
    datatype = _datatype(results.dtype)
    return None if datatype is None else ListForm(datatype, results.shape[1:])


def _datatype(dtype: np.dtype[Any]) -> str | None:
    if dtype.kind == "V":
        return _BF16 if dtype == BFLOAT16 else None
    return BYTES if dtype.kind == "U" else _NAMES.get((dtype.kind, dtype.itemsize))


def read_tensors(
    bodies: Sequence[bytes], form: TensorForm | ListForm, rows: Sequence[int]
) -> np.ndarray[Any, Any]:
    """Return the rows of all bodies as one writable array; BF16 becomes float32, BYTES become text.

    In JSON a missing float is NaN. If other values are missing, the array is one of objects, with None.

    Raises:
        InvalidInput: if the datatype is unknown or does not hold a value, or the length of a body does not
            match its rows.
    """
    if min(form.shape, default=1) < 1:
        raise InvalidInput(f"a row of shape {form.shape} has no values")
    if form.datatype not in (*_DTYPES, BYTES):
        known = ", ".join((*_DTYPES, BYTES))
        raise InvalidInput(f"unknown datatype {form.datatype!r}; send one of {known}")
    if isinstance(form, ListForm):
        flat = read_values(bodies, form, sum(rows))
    elif form.datatype == BYTES:
        flat = _read_texts(bodies, form, rows)
    else:
        flat = _read_numbers(bodies, form, rows)
    try:
        return flat.reshape(sum(rows), *form.shape)
    except ValueError as error:
        raise InvalidInput(f"a tensor has too many dimensions: {error}") from error


def read_columns(
    bodies: Sequence[bytes],
    form: ColumnsForm,
    rows: Sequence[int],
    inputs: Mapping[str, Adapter] | None = None,
) -> dict[str, np.ndarray[Any, Any]]:
    """Return the tensors of all bodies by name, read by :func:`read_tensors` or the adapter of the name.

    Raises:
        InvalidInput: if one is not valid; a path begins with the name of the tensor.
    """
    parts = zip(*map(split_columns, bodies), strict=True)
    columns = {}
    for (name, each), of_name in zip(form.columns, parts, strict=True):
        read = read_tensors if inputs is None else inputs[name].merge_tensors
        try:
            columns[name] = read(of_name, each, rows)
        except InvalidInput as error:
            raise about_column(name, error) from error
    return columns


def about_column(name: str, error: InvalidInput, *, row: int = 0) -> InvalidInput:
    """Return the error of a value in an object, with the name of the value in front and in its path."""
    pieces = [
        RowPath(piece.row + row, (name, *piece.path)) if isinstance(piece, RowPath) else piece
        for piece in error.args
    ]
    return InvalidInput(f"{name!r}: ", *pieces)


def _read_numbers(bodies: Sequence[bytes], form: TensorForm, rows: Sequence[int]) -> np.ndarray[Any, Any]:
    dtype = _DTYPES[form.datatype]
    row_bytes = math.prod(form.shape) * dtype.itemsize
    for body, count in zip(bodies, rows, strict=True):
        if len(body) != count * row_bytes:
            raise InvalidInput(
                f"expected {plural(count * row_bytes, 'byte')} for {plural(count, 'row')} of "
                f"{form.datatype} with shape {form.shape}, got {len(body)}"
            )
    # An array over bytes would be read-only; over a bytearray it is writable.
    data = bytearray().join(bodies)
    if form.datatype == _BF16:
        return widened(np.frombuffer(data, dtype))  # type: ignore[no-any-return]
    if form.datatype == "BOOL" and (largest := np.frombuffer(data, np.uint8).max()) > 1:
        raise InvalidInput(f"a BOOL value must be 0 or 1, got {largest}")
    return np.frombuffer(data, dtype)


def _read_texts(bodies: Sequence[bytes], form: TensorForm, rows: Sequence[int]) -> np.ndarray[Any, Any]:
    size = math.prod(form.shape)
    texts = [text for body, count in zip(bodies, rows, strict=True) for text in _texts(body, count * size)]
    return np.array(texts, dtype=object)


def _texts(body: bytes, count: int) -> Iterator[str]:
    """Yield the elements of a BYTES tensor: each is a length, then that many bytes."""
    end = 0
    for at in range(count):
        start = end + _LENGTH.size
        if start <= len(body):
            end = start + _LENGTH.unpack_from(body, end)[0]
        if max(start, end) > len(body):
            raise InvalidInput(f"a tensor of {count} BYTES ends within element {at}")
        try:
            yield body[start:end].decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"element {at} of a tensor of BYTES is not valid UTF-8: {error}") from error
    if end != len(body):
        raise InvalidInput(
            f"a tensor of {count} BYTES has {plural(len(body) - end, 'byte')} after its last element"
        )
