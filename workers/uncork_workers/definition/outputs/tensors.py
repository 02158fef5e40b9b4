"""Results as tensors, whose values keep the type, shape and bits that the handler returned."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from enum import Enum
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np

from uncork_workers.definition.adapters.tensors import form_of
from uncork_workers.definition.outputs.arrays import as_numpy
from uncork_workers.definition.outputs.host import as_host_array
from uncork_workers.definition.outputs.json import plain, values_of
from uncork_workers.definition.outputs.responses import Response
from uncork_workers.wire.forms import ColumnsForm, ListForm, RecordsForm, TensorForm
from uncork_workers.wire.tensors import BYTES, LAYOUTS, encoded, infer, join_columns, prefixed, text_of

_NO_OBJECTS = (bool, int, float, str, list, tuple, type(None), np.ndarray, np.generic)
_FIXED = frozenset((bool, int, float, str, bytes, type(None)))
_ARRAYS: tuple[type[Any], ...] = (np.ndarray, *{np.dtype(layout).type for layout in LAYOUTS.values()})

Column = Sequence[Any] | np.ndarray[Any, Any]
"""A value per row."""
Objects = Mapping[str, Column]
"""Columns by name."""


class Values(NamedTuple):
    """Results before they are encoded: the columns of a table, or a list with a value per row."""

    rows: Column
    columns: Objects | None = None

    def part(self, start: int, end: int) -> "Values":
        """Return some rows."""
        columns = self.columns
        of_rows = None if columns is None else {name: column[start:end] for name, column in columns.items()}
        return Values(self.rows[start:end], of_rows)

    @property
    def form(self) -> ListForm | RecordsForm | None:
        """The form of the rows as JSON, as far as they come from arrays."""
        array = as_numpy(self.rows)
        return form_of(array) if isinstance(array, np.ndarray) else records_form(array, self.columns)

    def copied(self) -> "Values":
        """Return these results with arrays of their own."""
        return Values(copied(self.rows), copied(self.columns))

    def tensors(self) -> tuple[bytes, TensorForm | ColumnsForm]:
        """Encode the rows: a tensor for each name if they are objects with the same names, else one."""
        columns = _by_name(self.rows) if self.columns is None else self.columns
        if columns is None:
            return _tensor(self.rows)
        tensors = {name: _tensor(column) for name, column in columns.items()}
        "".join(tensors).encode()  # raises here, not where the form is sent
        form = ColumnsForm(tuple([(name, form) for name, (_, form) in tensors.items()]))
        return join_columns([data for data, _ in tensors.values()]), form


def named(columns: Mapping[Any, Column]) -> Objects | None:
    """Return columns with the names that they have in JSON; None if a name is neither text nor an integer."""
    if not all(isinstance(name, str | int | np.integer) and type(name) is not bool for name in columns):
        return None
    names = [name.value if isinstance(name, Enum) else name for name in columns]
    return dict(zip(map(str, names), columns.values(), strict=True))


def join_values(parts: Sequence[Values]) -> Values:
    """Join the results of several handler calls; columns that differ in name or type become lists."""
    columns = [part.columns for part in parts if part.columns is not None]
    names = columns[0].keys() if columns else {}
    if len(columns) < len(parts) or any(each.keys() != names for each in columns):
        return Values([row for part in parts for row in _typed_rows(part)])
    rows = [row for part in parts for row in part.rows]
    return Values(rows, {name: _join([each[name] for each in columns]) for name in names})


def _typed_rows(part: Values) -> Column:
    """Return rows; the values of objects have the types of their columns."""
    if part.columns is None:
        return part.rows
    return [dict(zip(part.columns, row, strict=True)) for row in zip(*part.columns.values(), strict=True)]


def records_form(rows: Sequence[Any], columns: Objects | None) -> RecordsForm | None:
    """Return the forms of the columns that come from arrays; None if there are none."""
    if columns is None:
        first = rows[0] if rows else None
        if type(first) is not dict:
            first = {name: value for name, [value] in (_by_name([first]) or {}).items()}
        if not any(map(_is_numpy, first.values())):
            return None
        columns = _by_name(rows)
    found = {name: form_of(as_numpy(column)) for name, column in (columns or {}).items()}
    forms = tuple([(name, form) for name, form in found.items() if form is not None])
    return RecordsForm(forms) if forms else None


def lacks_forms(row: Any, form: ListForm | RecordsForm | None) -> bool:
    """Return True if a row has arrays that are missing in the form of all rows, because other rows differ."""
    own = Values([row]).form
    if not isinstance(own, RecordsForm):
        return own is not None and form is None
    known = dict(form.columns) if isinstance(form, RecordsForm) else {}
    return any(name not in known for name, _ in own.columns)


def any_lacks_forms(values: Values, form: RecordsForm | None) -> bool:
    """Return True if rows may have arrays that are missing in the form of all rows.

    An array without a form has masked values, but perhaps not in the rows of each request.
    """
    if isinstance(values.rows, np.ndarray):
        return True
    known = dict(form.columns) if form else {}
    if values.columns is not None:
        left = [column for name, column in values.columns.items() if name not in known]
        lists = [column for column in left if not isinstance(column, np.ndarray)]
        return len(lists) < len(left) or _has_numpy(chain(*lists))
    rows = [row for row in values.rows if type(row) is dict]
    return _has_numpy(chain.from_iterable([row.values() for row in rows])) and any(
        str(name) not in known and _is_numpy(value) for row in rows for name, value in row.items()
    )


def copied(value: Any) -> Any:
    """Return results with arrays of their own: the next call of the handler may reuse its arrays."""
    match value:
        case np.ndarray():
            return value.copy()
        case dict():
            return {key: copied(inner) for key, inner in value.items()}
        case list() | tuple():
            return list(value) if _FIXED.issuperset(map(type, value)) else list(map(copied, value))
        case bytearray() | memoryview():
            return bytes(value)
        case Response():
            return replace(value, body=copied(value.body))
    array = as_host_array(value)
    if array is not None:
        return array.copy()
    try:
        return deepcopy(value)  # such as an object with arrays, or a table
    except Exception:  # a handler may return anything
        return value


def _is_numpy(value: object) -> bool:
    return _is_numpy_type(type(value))


def _has_numpy(values: Iterable[Any]) -> bool:
    # Values have few types, so most of them cost no call.
    return any(map(_is_numpy_type, set(map(type, values))))


def _is_numpy_type(kind: type) -> bool:
    # NumPy's texts have no form.
    return issubclass(kind, np.ndarray | np.generic) and not issubclass(kind, np.character)


def _by_name(rows: Column) -> Objects | None:
    """Return the values of rows that are objects with the same names, by name; None for other rows."""
    if isinstance(rows, np.ndarray) or isinstance(rows[0], _NO_OBJECTS):
        return None
    if not all(type(row) is dict for row in rows) or not all(
        type(name) is str for row in rows for name in row
    ):
        # Dataclasses and the like become objects, too, whose arrays stay arrays.
        rows = msgspec.to_builtins(list(rows), enc_hook=_array_or_plain, str_keys=True, builtin_types=_ARRAYS)
        if not all(type(row) is dict for row in rows):
            return None
    names = rows[0].keys()
    if not names or any(row.keys() != names for row in rows):
        return None
    return {name: [row[name] for row in rows] for name in names}


def _array_or_plain(value: object) -> Any:
    array = as_host_array(value)
    return plain(value) if array is None else array


def _join(columns: Sequence[Column]) -> Column:
    arrays = [column for column in columns if isinstance(column, np.ndarray)]
    kinds = {(array.dtype, array.shape[1:]) for array in arrays}
    # NumPy would join the values below masks.
    if len(arrays) == len(columns) and len(kinds) == 1 and not any(map(np.ma.is_masked, arrays)):
        return np.concatenate(arrays)
    return [value for column in columns for value in column]


def _tensor(values: Column) -> tuple[bytes, TensorForm]:
    """Encode the values of all rows; other values than numbers and texts of one shape as BYTES."""
    array = as_numpy(values)
    form = form_of(array)
    if form is not None and form.datatype != BYTES:
        data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        return data, TensorForm(form.datatype, form.shape)
    if isinstance(array, np.ndarray):
        if array.dtype.kind in "SU":
            return _texts(array)
        array = values_of(array)
    if all(isinstance(value, bytes) for value in array):
        return prefixed(array), TensorForm(BYTES, ())
    listed = msgspec.to_builtins(list(array), enc_hook=plain, str_keys=True)
    inferred = infer(listed)
    if inferred is None:
        return encoded(list(map(_as_text, listed)), BYTES), TensorForm(BYTES, ())
    return encoded(inferred.values, inferred.datatype), TensorForm(inferred.datatype, inferred.shape[1:])


def _texts(array: np.ndarray[Any, Any]) -> tuple[bytes, TensorForm]:
    elements = array.ravel().tolist()
    data = prefixed(elements) if array.dtype.kind == "S" else encoded(elements, BYTES)
    return data, TensorForm(BYTES, array.shape[1:])


def _as_text(value: Any) -> str:
    if value is None or value != value:
        return text_of(None)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
