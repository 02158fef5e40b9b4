"""Tables with named columns, which become one DataFrame of pandas."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from uncork_workers.definition.adapters.base import Adapter, InvalidInput, joined, pieces_of
from uncork_workers.plural import plural
from uncork_workers.wire.messages import UNKNOWN_STEP, RowPath
from uncork_workers.wire.schema import DefinitionError

# pandas takes long to import, and not everybody has it: only a worker whose service has a DataFrame loads it.
if TYPE_CHECKING:
    import pandas as pd

    from uncork_workers.definition.adapters.columns import Value

_SCHEMAS: dict[str, Any] = {
    "f": {"type": ["number", "null"]},
    "i": {"type": "integer"},
    "u": {"type": "integer", "minimum": 0},
    "b": {"type": "boolean"},
    "U": {"type": ["string", "null"]},
}
_ANY_SCHEMA = {"type": ["number", "boolean", "string", "null"]}
_SHOWN_NAMES = 5

_value_decoder: msgspec.json.Decoder[Value] = msgspec.json.Decoder(bool | int | float | str | None)
_rows_decoder: msgspec.json.Decoder[list[dict[str, Value]]] = msgspec.json.Decoder(
    list[dict[str, bool | int | float | str | None]]
)
# What a decoder raises for JSON that it cannot read.
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_texts_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_columns_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class DataFrame(Adapter):
    """A request is a table of one or more rows, as CSV or JSON; the handler gets all rows as one DataFrame.

    Its index counts from 0. Values are numbers, true or false, text, or missing: null in JSON, and in CSV
    what pandas takes for it (an empty field, ``NA``, ``NaN`` and so on). Missing is NaN for the handler.

    The dtype of a column that ``dtypes`` does not name comes from its values. So that nobody's values
    depend on who else is in the batch, it comes from those of each request by itself:

    * A column in which everything is a number or missing is float64, whole numbers too. Those beyond 2**53
      are rounded: identifiers need a dtype.
    * A column in which everything is true or false is bool.
    * Any other is text in CSV, also the numbers in it. In JSON each value is what it says it is.

    Where the requests of a batch differ, the column has dtype object, and each has its own values in it.
    What must be of one dtype whatever clients send belongs into ``dtypes``; what does not fit gets 400 then.

    Args:
        columns: the names that a request must have, all and no others; the handler gets them in this order,
            whatever the order in the request. By default each request may have its own, and those that
            have the same in the same order share batches.
        dtypes: by name of column, any real dtype of NumPy (floats, integers, bool), or ``"str"`` for text as
            it was sent. Only floats and text may be missing.

    Raises:
        DefinitionError: if pandas is not installed, or an argument is not of that kind.
    """

    kind = "dataframe"

    def __init__(
        self, *, columns: Sequence[str] | None = None, dtypes: Mapping[str, str] | None = None
    ) -> None:
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise DefinitionError('DataFrame needs pandas: pip install "uncork[dataframe]"') from error
        self._columns = None if columns is None else _checked_columns(columns)
        self._dtypes = {} if dtypes is None else _checked_dtypes(dtypes, self._columns)
        self._texts = {name: "str" for name, dtype in self._dtypes.items() if dtype.kind == "U"}

    def describe(self) -> dict[str, Any]:
        """Kind, and the columns if they are given."""
        return {"kind": self.kind, "columns": self._columns}

    def schema(self) -> dict[str, Any]:
        """A row is an object of values by column."""
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
        """Parse all rows in one go; each is an object with the columns of the api, or of the first."""
        import pandas as pd

        from uncork_workers.definition.adapters.columns import column_of_json

        document = joined(bodies)
        try:
            rows = _rows_decoder.decode(document)
        except _UNREADABLE as error:
            raise InvalidInput(
                "a row must be an object of numbers, text, true, false or null: ",
                *_with_columns(pieces_of(error), document),
            ) from error
        if not rows:
            raise InvalidInput("there are no rows")
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
        """Parse all lines in one go.

        That each row has as many fields as the header is what the gateway's codec has made sure of: pandas
        would fill up one with fewer, and drop what is too much in the first.
        """
        import pandas as pd

        from uncork_workers.definition.adapters.columns import column_of_csv

        names = next(csv.reader(io.StringIO(header, newline="")))
        ordered = self._ordered(names)
        # Below a header nothing in the first row is taken for a byte order mark.
        document = b"".join((header.encode(), b"\n", *bodies))
        try:
            frame = _read_csv(document, names, self._texts)
            # Beside whole numbers of more than 64 bits, pandas takes for numbers what it does not elsewhere.
            strange = [name for name in names if frame[name].dtype == "object"]
            if strange:
                frame = _read_csv(document, names, {**self._texts, **dict.fromkeys(strange, "str")})
        except (pd.errors.ParserError, UnicodeDecodeError) as error:
            raise InvalidInput(f"not valid CSV: {error}") from error
        if len(frame) != sum(rows):
            raise InvalidInput(f"{plural(len(frame), 'row')} where {sum(rows)} were counted")
        return pd.DataFrame(
            {name: column_of_csv(name, frame[name], rows, self._dtypes.get(name)) for name in ordered}
        )

    def _ordered(self, names: Iterable[str]) -> list[str]:
        """The names of a request in the order of the handler."""
        got = list(names)
        if self._columns is None:
            if lacking := self._dtypes.keys() - set(got):
                raise InvalidInput(f"the first row lacks {', '.join(map(repr, sorted(lacking)))}")
            return got
        if sorted(got) != sorted(self._columns):
            raise InvalidInput(f"the first row {_difference(got, set(self._columns))}")
        return self._columns


def _with_columns(pieces: Sequence[str | RowPath], document: bytes) -> Iterator[str | RowPath]:
    """The places with the names of their columns, which the decoder does not tell."""
    for piece in pieces:
        if isinstance(piece, RowPath) and piece.path:
            yield RowPath(piece.row, (_wrong_column(document, piece.row),))
        else:
            yield piece


def _wrong_column(document: bytes, row: int) -> str:
    """Return the first column with a value of another type; unknown if that cannot be read."""
    try:
        columns = _columns_decoder.decode(_texts_decoder.decode(document)[row])
    except _UNREADABLE:
        return UNKNOWN_STEP
    # A column that is there twice may have a last value that is fine.
    return next((name for name, value in columns.items() if not _is_value(value)), UNKNOWN_STEP)


def _is_value(text: msgspec.Raw) -> bool:
    try:
        _value_decoder.decode(text)
    except _UNREADABLE:
        return False
    return True


def _read_csv(document: bytes, names: list[str], dtypes: Mapping[str, str]) -> pd.DataFrame:
    """The lines below the first; ``dtypes`` are those of columns whose values say nothing of theirs."""
    import pandas as pd

    from uncork_workers.definition.adapters.columns import MISSING

    return pd.read_csv(
        io.BytesIO(document),
        header=0,
        names=names,
        dtype=dict(dtypes) or None,
        na_values=list(MISSING),
        keep_default_na=False,
        index_col=False,
        engine="c",
        low_memory=False,  # else dtypes would be inferred from one chunk of rows after the other
    )


def _difference(got: Iterable[str], wanted: set[str]) -> str:
    """How the names of columns in a row are not those wanted."""
    reasons = [
        f"{what} {', '.join(map(repr, sorted(names)[:_SHOWN_NAMES]))}"
        for what, names in (("lacks", wanted - set(got)), ("has unknown", set(got) - wanted))
        if names
    ]
    return f"{' and '.join(reasons)}; its columns must be {', '.join(map(repr, sorted(wanted)))}"


def _checked_columns(columns: object) -> list[str]:
    names = list(columns) if isinstance(columns, list | tuple) else []
    if not names or not all(isinstance(name, str) and name for name in names) or len({*names}) != len(names):
        raise DefinitionError(
            f"DataFrame: columns must be a list of names, at least one and none twice, got {columns!r}"
        )
    return names


def _checked_dtypes(dtypes: object, columns: list[str] | None) -> dict[str, np.dtype[Any]]:
    if not isinstance(dtypes, Mapping):
        raise DefinitionError(f"DataFrame: dtypes must be a mapping of names to dtypes, got {dtypes!r}")
    for name in dtypes:
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"DataFrame: dtypes must have names of columns, got {name!r}")
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
