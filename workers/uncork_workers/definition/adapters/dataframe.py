"""The adapter for pandas DataFrames."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from uncork_workers.definition.adapters.base import (
    UNREADABLE,
    Adapter,
    InvalidInput,
    Value,
    decode_leniently,
    json_array,
    message_pieces,
)
from uncork_workers.definition.adapters.tensors import read_columns
from uncork_workers.extras import install_command
from uncork_workers.plural import plural
from uncork_workers.wire.forms import ColumnsForm
from uncork_workers.wire.messages import UNKNOWN_STEP, RowPath
from uncork_workers.wire.values import DefinitionError

# pandas is optional and slow to import: only a worker whose service uses DataFrame loads it.
if TYPE_CHECKING:
    import pandas as pd

_SCHEMAS: dict[str, Any] = {
    "f": {"type": ["number", "null"]},
    "i": {"type": "integer"},
    "u": {"type": "integer", "minimum": 0},
    "b": {"type": "boolean"},
    "U": {"type": ["string", "null"]},
}
_ANY_SCHEMA = {"type": ["number", "boolean", "string", "null"]}
_SHOWN_NAMES = 5

_value_decoder: msgspec.json.Decoder[Value] = msgspec.json.Decoder(Value)
_rows_decoder = msgspec.json.Decoder(list[dict[str, Value]])
_texts_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_columns_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class DataFrame(Adapter):
    """Accepts tables as CSV or JSON; the handler gets all rows as one ``pandas.DataFrame``. Needs pandas.

    The index counts from 0. Values are numbers, booleans, text or missing: null in JSON, and in CSV the
    texts that pandas reads as missing (an empty field, ``NA``, ``NaN`` and so on). Missing values are NaN.
    In a column of dtype ``"str"`` only an empty field of CSV is missing: ``NA`` is text, as in JSON.

    ``dtypes`` sets the dtypes of columns; a value that does not fit gets 400. Other dtypes are inferred for
    each request alone, so no client's values depend on the rest of the batch:

    * Numbers and missing values become float64, also integers. Integers beyond 2**53 are rounded: give
      columns of identifiers a dtype.
    * Booleans alone become bool.
    * Any other column becomes text if it is CSV, also its numbers. In JSON each value keeps its own type.

    Where the requests of a batch differ, the column has dtype object, with each request's own values.

    Args:
        columns: the columns that every request must have, no more and no fewer; the handler gets them in this
            order. By default each request brings its own, and requests with the same columns in the same
            order share batches.
        dtypes: dtypes by column name: a NumPy dtype of floats, integers or bool, or ``"str"`` for text as
            sent. Only floats and text may be missing.

    Raises:
        DefinitionError: if pandas is not installed, or an argument is invalid.
    """

    kind = "dataframe"

    def __init__(
        self, *, columns: Sequence[str] | None = None, dtypes: Mapping[str, str] | None = None
    ) -> None:
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise DefinitionError(f"DataFrame requires pandas; run {install_command('dataframe')}") from error
        self._columns = None if columns is None else _checked_columns(columns)
        self._dtypes = {} if dtypes is None else _checked_dtypes(dtypes, self._columns)
        self._texts = {name: "str" for name, dtype in self._dtypes.items() if dtype.kind == "U"}

    @property
    def dtypes(self) -> dict[str, str]:
        """The dtypes of columns, as they can be given."""
        return {name: "str" if dtype.kind == "U" else dtype.name for name, dtype in self._dtypes.items()}

    def describe(self) -> dict[str, Any]:
        """Return kind and columns."""
        return {"kind": self.kind, "columns": self._columns}

    def schema(self) -> dict[str, Any]:
        """Return the schema of a row: an object of values by column name."""
        named = {name: _SCHEMAS[dtype.kind] for name, dtype in self._dtypes.items()}
        if self._columns is None:
            return {
                "type": "object",
                "properties": named,
                "required": list(named),
                "additionalProperties": _ANY_SCHEMA,
                "minProperties": 1,
            }
        return {
            "type": "object",
            "properties": {name: named.get(name, _ANY_SCHEMA) for name in self._columns},
            "required": self._columns,
            "additionalProperties": False,
        }

    def merge(self, bodies: Sequence[bytes]) -> pd.DataFrame:
        """Return JSON rows as a frame; all must have the columns of the API, or those of the first row."""
        import pandas as pd

        from uncork_workers.definition.adapters.columns import column_of_json

        document = json_array(bodies)
        try:
            rows = decode_leniently(_rows_decoder, document)
        except UNREADABLE as error:
            raise InvalidInput(
                "each row must be an object of numbers, text, true, false or null: ",
                *_with_columns(message_pieces(error), document),
            ) from error
        if not rows:
            raise InvalidInput("the body has no rows")
        names = self._ordered(rows[0])
        wanted = set(names)
        for number, row in enumerate(rows, 1):
            if row.keys() != wanted:
                raise InvalidInput(f"row {number} {_difference(row, wanted)}")
        return pd.DataFrame(
            {
                name: column_of_json(name, [row[name] for row in rows], self._dtypes.get(name))
                for name in names
            }
        )

    def merge_table(self, bodies: Sequence[bytes], header: str, rows: Sequence[int]) -> pd.DataFrame:
        """Return lines of CSV as a frame.

        The gateway's codec has checked that each row has as many fields as the header; pandas would pad
        shorter rows and cut a longer first one.
        """
        import pandas as pd

        from uncork_workers.definition.adapters.columns import column_of_csv

        names = next(csv.reader(io.StringIO(header, newline="")))
        ordered = self._ordered(names)
        # With a header above it, pandas cannot mistake the start of the first row for a byte order mark.
        document = b"".join((header.encode(), b"\n", *bodies))
        try:
            frame = _read_csv(document, names, self._texts, self._texts)
            # In a column with integers of more than 64 bits, pandas reads other texts as numbers too.
            mixed = [name for name in names if frame[name].dtype == "object"]
            if mixed:
                dtypes = {**self._texts, **dict.fromkeys(mixed, "str")}
                frame = _read_csv(document, names, dtypes, self._texts)
        except (pd.errors.ParserError, UnicodeDecodeError) as error:
            raise InvalidInput(f"not valid CSV: {error}") from error
        if len(frame) != sum(rows):
            raise InvalidInput(f"expected {plural(sum(rows), 'row')}, got {len(frame)}")
        return pd.DataFrame(
            {name: column_of_csv(name, frame[name], rows, self._dtypes.get(name)) for name in ordered}
        )

    def merge_columns(self, bodies: Sequence[bytes], form: ColumnsForm, rows: Sequence[int]) -> pd.DataFrame:
        """Return tensors as a frame, whose values are as in JSON; NaN and infinity survive."""
        import pandas as pd

        from uncork_workers.definition.adapters.columns import column_of_json

        columns = read_columns(bodies, form, rows)
        for name, column in columns.items():
            if column.ndim > 1:
                raise InvalidInput(f"{name!r}: a row must be one value, got shape {column.shape[1:]}")
        return pd.DataFrame(
            {
                name: column_of_json(name, columns[name].tolist(), self._dtypes.get(name))
                for name in self._ordered(columns)
            }
        )

    def _ordered(self, names: Iterable[str]) -> list[str]:
        """Return a request's column names in the order of the handler."""
        got = list(names)
        if self._columns is None:
            if lacking := self._dtypes.keys() - set(got):
                raise InvalidInput(f"the first row has no column {', '.join(map(repr, sorted(lacking)))}")
            return got
        if sorted(got) != sorted(self._columns):
            raise InvalidInput(f"the first row {_difference(got, set(self._columns))}")
        return self._columns


def _with_columns(pieces: Sequence[str | RowPath], document: bytes) -> Iterator[str | RowPath]:
    """Add column names to the paths, which the decoder does not report."""
    for piece in pieces:
        if isinstance(piece, RowPath) and piece.path:
            yield RowPath(piece.row, (_wrong_column(document, piece.row),))
        else:
            yield piece


def _wrong_column(document: bytes, row: int) -> str:
    """Return the first column with a value of a wrong type, or ``UNKNOWN_STEP``."""
    try:
        columns = _columns_decoder.decode(_texts_decoder.decode(document)[row])
    except UNREADABLE:
        return UNKNOWN_STEP
    # If a column occurs twice, this sees only its last value, which may be valid.
    return next((name for name, value in columns.items() if not _is_value(value)), UNKNOWN_STEP)


def _is_value(text: msgspec.Raw) -> bool:
    try:
        _value_decoder.decode(text)
    except UNREADABLE:
        return False
    return True


def _read_csv(
    document: bytes, names: list[str], dtypes: Mapping[str, str], texts: Collection[str]
) -> pd.DataFrame:
    """Read all lines below the header.

    Args:
        document: the header and the lines.
        names: of the columns.
        dtypes: of the columns whose dtype is not inferred.
        texts: the columns of which only an empty field is missing.
    """
    import pandas as pd

    from uncork_workers.definition.adapters.columns import MISSING

    return pd.read_csv(
        io.BytesIO(document),
        header=0,
        names=names,
        dtype=dict(dtypes) or None,
        na_values={name: [""] if name in texts else list(MISSING) for name in names},
        keep_default_na=False,
        index_col=False,
        engine="c",
        low_memory=False,  # infer dtypes from all rows, not per chunk
    )


def _difference(got: Iterable[str], wanted: set[str]) -> str:
    """Describe how the columns of a row differ from the wanted ones."""
    reasons = [
        f"{what} {', '.join(map(repr, sorted(names)[:_SHOWN_NAMES]))}"
        for what, names in (("missing", wanted - set(got)), ("unknown", set(got) - wanted))
        if names
    ]
    return f"has the wrong columns: {'; '.join(reasons)}; expected {', '.join(map(repr, sorted(wanted)))}"


def _checked_columns(columns: object) -> list[str]:
    names = list(columns) if isinstance(columns, list | tuple) else []
    if not names or not all(isinstance(name, str) and name for name in names) or len({*names}) != len(names):
        raise DefinitionError(
            f"DataFrame: columns must be a non-empty list of distinct names, got {columns!r}"
        )
    return names


def _checked_dtypes(dtypes: object, columns: list[str] | None) -> dict[str, np.dtype[Any]]:
    if not isinstance(dtypes, Mapping):
        raise DefinitionError(f"DataFrame: dtypes must be a mapping of names to dtypes, got {dtypes!r}")
    for name in dtypes:
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"DataFrame: the keys of dtypes must be column names, got {name!r}")
        if columns is not None and name not in columns:
            raise DefinitionError(f"DataFrame: dtypes has {name!r}, which is not in columns {columns}")
    return {name: _checked_dtype(name, dtype) for name, dtype in dtypes.items()}


def _checked_dtype(name: str, dtype: object) -> np.dtype[Any]:
    try:
        checked: np.dtype[Any] = np.dtype(dtype)  # type: ignore[call-overload]
    except (TypeError, ValueError, SyntaxError):
        checked = np.dtype(object)
    if dtype is None or checked.kind not in _SCHEMAS or (checked.kind == "U" and checked.itemsize):
        raise DefinitionError(
            f"DataFrame: the dtype of {name!r} must be a float, an integer, 'bool' or 'str', got {dtype!r}"
        )
    return checked
