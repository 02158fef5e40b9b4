"""The adapter for NumPy arrays."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import msgspec
import numpy as np

from uncork_workers.definition.adapters.base import Adapter, InvalidInput, decode_rows
from uncork_workers.definition.adapters.tensors import read_tensors
from uncork_workers.wire.forms import ListForm, TensorForm
from uncork_workers.wire.messages import RowPath
from uncork_workers.wire.tensors import BYTES
from uncork_workers.wire.values import DefinitionError, is_count

_SCALARS: dict[str, type] = {"f": float, "i": int, "u": int, "b": bool}
# The kinds of tensors that each kind of dtype accepts: those whose values it also accepts as JSON.
_TENSORS = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}
_SCHEMAS = {"f": "number", "i": "integer", "u": "integer", "b": "boolean"}
_DTYPES = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
_DTYPES += ("float16", "float32", "float64")
_NAMES = {"f": "a number", "i": "an integer", "u": "an integer", "b": "true or false"}

Shape = tuple[int | None, ...]


class NdArray(Adapter):
    """Accepts numbers as nested JSON lists or tensors; the handler gets an array of shape (rows, ``*shape``).

    A request is one row, or a list of rows. A row of another shape or with a value that does not fit the
    dtype gets 400.

    Args:
        dtype: a NumPy dtype of floats, integers or booleans.
        shape: the shape of one row. ``None`` stands for any length; rows of different lengths do not share a
            batch. Default: a list of any number of values. ``()``: a single number.

    Raises:
        DefinitionError: if dtype or shape is invalid.
    """

    kind = "ndarray"

    def __init__(self, *, dtype: str = "float64", shape: Shape = (None,)) -> None:
        try:
            self._dtype: np.dtype[Any] = np.dtype(dtype)
        except (TypeError, ValueError, SyntaxError) as error:
            near = get_close_matches(str(dtype), _DTYPES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise DefinitionError(f"NdArray: {dtype!r} is not a NumPy dtype{hint}") from error
        if self._dtype.kind not in _SCALARS:
            raise DefinitionError(f"NdArray: dtype must be float, integer or bool, got {dtype!r}")
        if not isinstance(shape, tuple) or not all(map(_is_length, shape)):
            lengths = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
            hint = f"; write shape={lengths!r}" if all(map(_is_length, lengths)) else ""
            raise DefinitionError(
                "NdArray: shape must be a tuple of lengths, each at least 1 or None for any length, "
                f"got {shape!r}{hint}"
            )
        self._shape = shape
        # Numbers in JSON fit into doubles; in narrower floats they may overflow.
        self._narrows = self._dtype.kind == "f" and self._dtype.itemsize < 8
        rows_type: Any = _SCALARS[self._dtype.kind]
        for _ in (*shape, "rows"):
            rows_type = list[rows_type]
        self._decoder: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(rows_type)

    def describe(self) -> dict[str, Any]:
        """Return kind, dtype and shape of a row."""
        return {"kind": self.kind, "dtype": self._dtype.name, "shape": list(self._shape)}

    def schema(self) -> dict[str, Any]:
        """Return the schema of a row: lists nested as the shape says."""
        return schema_of(self._shape, {"type": _SCHEMAS[self._dtype.kind]})

    @np.errstate(over="ignore")  # floats that overflow become infinite, which is checked
    def merge(self, bodies: Sequence[bytes]) -> np.ndarray[Any, Any]:
        """Return the rows as an array of shape (rows, ``*shape``)."""
        rows = decode_rows(self._decoder, bodies, self._wrong)
        try:
            array = np.array(rows, dtype=self._dtype)
        except OverflowError as error:
            raise self._wrong(*self._out_of_range(rows)) from error
        except ValueError as error:
            raise self._wrong("rows have different lengths - at ", RowPath(_first_unlike(rows))) from error
        if array.shape[1:] != self._shape:
            self._check_shape(array.shape[1:])
        if self._narrows and not np.logical_and.reduce(np.isfinite(array), axis=None):
            self._check_narrowed(array, rows)
        return array

    def _check_narrowed(self, array: np.ndarray[Any, Any], rows: list[Any]) -> None:
        """Reject values that became infinite; infinity and NaN of the client stay."""
        overflowed = ~np.isfinite(array) & np.isfinite(np.array(rows, np.float64))
        if overflowed.any():
            row, *path = np.argwhere(overflowed)[0].tolist()
            raise self._wrong(f"a value is too large for {self._dtype.name} - at ", RowPath(row, tuple(path)))

    def _out_of_range(self, rows: list[Any]) -> tuple[str, RowPath]:
        """Return the first integer that the dtype cannot hold, and its place."""
        limits = np.iinfo(self._dtype)
        (row, *path), number = next(
            (place, number)
            for place, number in np.ndenumerate(np.array(rows, dtype=object))
            if not limits.min <= number <= limits.max
        )
        return f"{number} is out of bounds for {self._dtype.name} - at ", RowPath(row, tuple(path))

    def merge_tensors(
        self, bodies: Sequence[bytes], form: TensorForm | ListForm, rows: Sequence[int]
    ) -> np.ndarray[Any, Any]:
        """Return the rows of tensors as an array, as for JSON."""
        self._check_shape(form.shape)
        array = read_tensors(bodies, form, rows)
        if array.dtype.kind not in _TENSORS[self._dtype.kind]:
            is_missing = array.dtype.kind == "O" and form.datatype != BYTES
            raise self._wrong("got null" if is_missing else f"got a tensor of {form.datatype}")
        return self._convert(array)

    @np.errstate(over="ignore", invalid="ignore")
    def _convert(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Convert an array to the dtype of the API, rounding floats as for JSON."""
        if np.can_cast(array.dtype, self._dtype):
            return array.astype(self._dtype, copy=False)
        if self._dtype.kind != "f":
            limits = np.iinfo(self._dtype)
            for value in (int(array.min()), int(array.max())):
                if not limits.min <= value <= limits.max:
                    raise self._wrong(f"{value} out of bounds for {self._dtype.name}")
            return array.astype(self._dtype)
        # Through doubles, so that rounding gives the same values as for JSON.
        array = array.astype(np.float64, copy=False)
        converted = array.astype(self._dtype)
        if (np.isfinite(array) & ~np.isfinite(converted)).any():
            raise self._wrong(f"a value is too large for {self._dtype.name}")
        return converted

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        if not has_shape(shape, self._shape):
            raise self._wrong(f"got a row of shape {shape}")

    def _wrong(self, *reason: str | RowPath) -> InvalidInput:
        lengths = ["any" if length is None else str(length) for length in self._shape]
        shape = f"({', '.join(lengths)}{',' if len(lengths) == 1 else ''})"
        values = _NAMES[self._dtype.kind]
        wanted = f"; a row must have shape {shape}, each value {values} ({self._dtype.name})"
        return InvalidInput(*reason, wanted)


def schema_of(shape: Shape, value: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of lists nested as the shape says, given that of a value."""
    schema = value
    for length in reversed(shape):
        schema = {"type": "array", "items": schema, "minItems": length or 1}
        if length is not None:
            schema["maxItems"] = length
    return schema


def has_shape(got: tuple[int, ...], wanted: Shape) -> bool:
    """Return whether values have a shape, and no length of 0."""
    return len(got) == len(wanted) and all(
        length in (None, own) and own > 0 for length, own in zip(wanted, got, strict=True)
    )


def _first_unlike(rows: list[Any]) -> int:
    """Return the first row whose lists differ in length from those of the first row, or from each other."""
    lengths = [_lengths(row) for row in rows]
    return next(at for at, own in enumerate(lengths) if own is None or own != lengths[0])


def _lengths(value: Any) -> tuple[int, ...] | None:
    """Return the lengths of nested lists, from the outside in; None if those of one level differ."""
    if not isinstance(value, list):
        return ()
    inner = {_lengths(each) for each in value}
    if len(inner) > 1 or None in inner:
        return None
    return (len(value), *next(iter(inner), ()))  # type: ignore[misc]


def _is_length(length: object) -> bool:
    return length is None or is_count(length)
