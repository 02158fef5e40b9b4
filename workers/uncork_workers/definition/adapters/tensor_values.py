"""Values of tensors in JSON, checked against their datatype."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from uncork_workers.definition.adapters.base import InvalidInput, decode_rows
from uncork_workers.plural import plural
from uncork_workers.wire.forms import ListForm
from uncork_workers.wire.messages import RowPath
from uncork_workers.wire.tensors import BYTES, LAYOUTS

_BF16 = "BF16"
_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    "b": msgspec.json.Decoder(list[bool | None]),
    "f": msgspec.json.Decoder(list[float | None]),
    "i": msgspec.json.Decoder(list[int | None]),
    "O": msgspec.json.Decoder(list[str | None]),
}


def read_values(bodies: Sequence[bytes], form: ListForm, rows: int) -> np.ndarray[Any, Any]:
    """Return the values of all bodies in one axis, as binary tensors of the datatype have them.

    A missing float is NaN. If other values are missing, the array is one of objects, with None.

    Raises:
        InvalidInput: if a value is not of the datatype; the message has its place.
    """
    size = int(np.prod(form.shape, dtype=int))
    kind = _kind(form.datatype)

    def wrong(*pieces: str | RowPath) -> InvalidInput:
        placed = [_placed(piece, form.shape) for piece in pieces]
        return InvalidInput(f"not a value of {form.datatype}: ", *placed)

    values: list[Any] = decode_rows(_decoders[kind], bodies, wrong)
    if len(values) != rows * size:
        raise InvalidInput(f"expected {plural(rows * size, 'value')}, got {len(values)}")
    if kind == "f":
        return _floats(values, form)
    if kind == "i":
        _check_range(values, form)
    if kind == "O" or None in values:
        return np.array(values, dtype=object)
    return np.array(values, LAYOUTS[form.datatype])


def _kind(datatype: str) -> str:
    if datatype == BYTES:
        return "O"
    kind = np.dtype(LAYOUTS[datatype]).kind
    return "f" if datatype == _BF16 else "i" if kind == "u" else kind


def _check_range(values: Sequence[int | None], form: ListForm) -> None:
    limits = np.iinfo(LAYOUTS[form.datatype])
    numbers = [value for value in values if value is not None] if None in values else values
    if not numbers or (limits.min <= min(numbers) and max(numbers) <= limits.max):  # type: ignore[type-var,operator]
        return
    wrong = (value is not None and not limits.min <= value <= limits.max for value in values)
    at = next(at for at, each in enumerate(wrong) if each)
    bounds = f"values of {form.datatype} must be from {limits.min} to {limits.max}"
    raise InvalidInput(f"{bounds}, got {values[at]} - at ", _place(at, form.shape))


def _floats(values: Sequence[float | None], form: ListForm) -> np.ndarray[Any, Any]:
    doubles = np.array(values, np.float64)
    with np.errstate(over="ignore"):
        floats = _rounded(doubles) if form.datatype == _BF16 else doubles.astype(LAYOUTS[form.datatype])
    wrong = np.isinf(floats) & ~np.isinf(doubles)
    if wrong.any():
        at = int(wrong.argmax())
        raise InvalidInput(f"{values[at]} is too large for {form.datatype} - at ", _place(at, form.shape))
    return floats


def _rounded(doubles: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Round to the nearest BF16, or to the even one of two, as float32."""
    bits = doubles.astype(np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
    return np.where(np.isnan(doubles), np.float32(np.nan), rounded)


def _placed(piece: str | RowPath, shape: Sequence[int]) -> str | RowPath:
    return _place(piece.row, shape) if isinstance(piece, RowPath) else piece


def _place(at: int, shape: Sequence[int]) -> RowPath:
    """Return the place of a value in rows of a shape."""
    path: list[int] = []
    for length in reversed(shape):
        at, index = divmod(at, length)
        path.insert(0, index)
    return RowPath(at, tuple(path))
