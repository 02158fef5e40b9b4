"""Adapters for models whose inputs are named tensors."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from uncork_workers.definition.adapters.base import (
    UNREADABLE,
    Adapter,
    InvalidInput,
    decode_rows,
    may_be_lenient,
)
from uncork_workers.definition.adapters.json import Json
from uncork_workers.definition.adapters.ndarray import NdArray, Shape, has_shape, schema_of
from uncork_workers.definition.adapters.tensors import about_column, read_columns, read_tensors
from uncork_workers.wire.forms import ColumnsForm, ListForm, TensorForm
from uncork_workers.wire.messages import RowPath
from uncork_workers.wire.tensors import BYTES

TEXT = "str"
"""The dtype of inputs of texts."""
Row = Mapping[str, np.ndarray[Any, Any] | str]
"""The values of one row, by input."""

_SHOWN = 10

_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_objects_decoder = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_values_decoder = msgspec.json.Decoder(list[dict[str, Any]])


class NamedArray(NdArray):
    """The adapter for a single input, whose name is the model's."""

    def __init__(self, name: str, *, dtype: str, shape: Shape) -> None:
        super().__init__(dtype=dtype, shape=shape)
        self._name = name

    def describe(self) -> dict[str, Any]:
        """Return kind, name, dtype and shape."""
        return {**super().describe(), "name": self._name}


class _Texts(Adapter):
    """Accepts texts as nested lists, or tensors of them; the handler gets an array of objects."""

    kind = "json"

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        nested: Any = str
        for _ in shape:
            nested = list[nested]
        self._json = Json(type=nested)

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "dtype": TEXT, "shape": list(self._shape)}

    def schema(self) -> dict[str, Any]:
        return schema_of(self._shape, {"type": "string"})

    def merge(self, bodies: Sequence[bytes]) -> np.ndarray[Any, Any]:
        # Lists of different lengths stay lists, which the check of the shape finds.
        return self._checked([np.array(row, object) for row in self._json.merge(bodies)])

    def merge_tensors(
        self, bodies: Sequence[bytes], form: TensorForm | ListForm, rows: Sequence[int]
    ) -> np.ndarray[Any, Any]:
        if form.datatype != BYTES:
            raise InvalidInput(f"got a tensor of {form.datatype}; send {BYTES}")
        array = read_tensors(bodies, form, rows).astype(object)
        if any(value is None for value in array.ravel()):
            raise InvalidInput("got null; send texts")
        return self._checked([np.array(row, object) for row in array])

    def _checked(self, rows: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        for at, row in enumerate(rows):
            if not has_shape(row.shape, self._shape) or row.shape != rows[0].shape:
                wanted = repr(self._shape).replace("None", "any")
                raise InvalidInput(f"got texts of shape {row.shape}, expected {wanted} - at ", RowPath(at))
        return np.stack(rows)


class NamedTensors(Adapter):
    """Accepts objects with a value for each input; the handler gets a list of rows, of any shapes.

    Args:
        inputs: dtype and shape of each input, by name; the dtype of texts is ``TEXT``.
    """

    kind = "json"

    def __init__(self, inputs: Mapping[str, tuple[str, Shape]]) -> None:
        self._inputs: dict[str, Adapter] = {
            name: _Texts(shape) if dtype == TEXT else NdArray(dtype=dtype, shape=shape)
            for name, (dtype, shape) in inputs.items()
        }

    def describe(self) -> dict[str, Any]:
        """Return kind, and the dtype and shape of each input."""
        inputs = {name: adapter.describe() for name, adapter in self._inputs.items()}
        return {"kind": self.kind, "tensors": inputs}

    def schema(self) -> dict[str, Any]:
        """Return the schema of an object with a value for each input."""
        return {
            "type": "object",
            "properties": {name: adapter.schema() for name, adapter in self._inputs.items()},
            "required": list(self._inputs),
            "additionalProperties": False,
        }

    def merge(self, bodies: Sequence[bytes]) -> list[Row]:
        """Return rows of JSON objects."""
        if not any(map(may_be_lenient, bodies)):
            objects = decode_rows(_objects_decoder, bodies, self._no_object)
            return self._read(objects)
        return self._read([row for body in bodies for row in self._members(body)])

    def _members(self, body: bytes) -> Sequence[Mapping[str, bytes | msgspec.Raw]]:
        if not may_be_lenient(body):
            objects = decode_rows(_objects_decoder, [body], self._no_object)
            return objects
        # msgspec has no raw text of NaN and infinity.
        values = decode_rows(_values_decoder, [body], self._no_object)
        return [{name: json.dumps(row[name]).encode() for name in row} for row in values]

    def merge_values(self, bodies: Sequence[bytes]) -> list[Row]:
        """Return rows of JSON objects whose syntax has not been checked."""
        rows = []
        for body in bodies:
            try:
                rows.append(_object_decoder.decode(body))
            except UNREADABLE as error:
                raise self._no_object(f"not valid JSON: {error}") from error
        return self._read(rows)

    def merge_columns(self, bodies: Sequence[bytes], form: ColumnsForm, rows: Sequence[int]) -> list[Row]:
        """Return rows of a tensor for each input."""
        self._check_names([name for name, _ in form.columns], "the request")
        columns = read_columns(bodies, form, rows, self._inputs)
        return _rows_of({name: columns[name] for name in self._inputs})

    def _read(self, rows: Sequence[Mapping[str, bytes | msgspec.Raw]]) -> list[Row]:
        for at, row in enumerate(rows, 1):
            self._check_names(row, f"row {at}")
        try:
            columns = {
                name: adapter.merge([bytes(row[name]) for row in rows])
                for name, adapter in self._inputs.items()
            }
        except InvalidInput:  # a row is not valid, or their shapes differ
            return [self._read_alone(at, row) for at, row in enumerate(rows)]
        return _rows_of(columns)

    def _read_alone(self, at: int, row: Mapping[str, bytes | msgspec.Raw]) -> Row:
        values = {}
        for name, adapter in self._inputs.items():
            try:
                [values[name]] = adapter.merge([bytes(row[name])])
            except InvalidInput as error:
                raise about_column(name, error, row=at) from error
        return values

    def _check_names(self, got: Sequence[str] | Mapping[str, Any], where: str) -> None:
        if missing := [name for name in self._inputs if name not in got]:
            raise InvalidInput(f"{where} lacks {_quoted(missing)}; send {self._names}")
        if unknown := [name for name in got if name not in self._inputs]:
            raise InvalidInput(f"{where} has unknown inputs: {_quoted(unknown)}; send {self._names}")

    def _no_object(self, *reason: str | RowPath) -> InvalidInput:
        return InvalidInput(f"each row must be an object with {self._names}: ", *reason)

    @property
    def _names(self) -> str:
        return _quoted(list(self._inputs))


def _rows_of(columns: Mapping[str, np.ndarray[Any, Any]]) -> list[Row]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def by_shape(
    rows: Sequence[Row], *, least: int = 0
) -> list[tuple[list[int], dict[str, np.ndarray[Any, Any]]]]:
    """Return the rows grouped by shape, each group as arrays by input, with the positions of its rows.

    The last row of a group is repeated, also its position, until the group has the ``least`` number of rows.
    """
    groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for at, row in enumerate(rows):
        groups.setdefault(tuple(map(_shape_of, row.values())), []).append(at)
    for places in groups.values():
        places.extend(places[-1:] * (least - len(places)))
    return [
        (places, {name: _stacked([rows[at][name] for at in places]) for name in rows[places[0]]})
        for places in groups.values()
    ]


def _shape_of(value: np.ndarray[Any, Any] | str) -> tuple[int, ...]:
    return () if isinstance(value, str) else np.shape(value)


def _stacked(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    # NumPy's own texts are all as wide as the longest, and end before zeros.
    return np.array(values, object) if isinstance(values[0], str) else np.stack(values)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:_SHOWN]))
