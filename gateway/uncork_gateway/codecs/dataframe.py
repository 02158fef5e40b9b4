"""Tables with named columns, as CSV or JSON."""

import re
from collections.abc import Collection, Hashable, Sequence
from functools import partial

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from uncork_dispatcher.wording import plural
from uncork_gateway.codecs.base import Marshalled, check_weighed, of_columns
from uncork_gateway.codecs.cost import Weigh, reads_rows, unweighed
from uncork_gateway.codecs.csv import Table, first_repeated, pick_lines, read_lines, read_table, write_header
from uncork_gateway.codecs.groups import NO_GROUPS, RowGroups
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.decoding import decode_json
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits
from uncork_gateway.protocols.raw_json import (
    SPACE,
    check_utf8,
    elements,
    is_list,
    is_object,
    members,
    objects,
)
from uncork_gateway.protocols.tensors import Tensor
from uncork_workers.wire.forms import TableForm
from uncork_workers.wire.messages import RowPath, json_path
from uncork_workers.wire.schema import CSV, JSON

_CSV = (CSV, "application/csv")
_SPLIT = ({"columns", "data"}, {"columns", "data", "index"})
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class _Split(msgspec.Struct):
    columns: list[str]
    data: list[list[Raw]]


_list_decoder = msgspec.json.Decoder(list[Raw])
_object_decoder = msgspec.json.Decoder(dict[str, Raw])
_split_decoder = msgspec.json.Decoder(_Split)


class DataFrameCodec:
    """Reads tables as CSV, or as JSON in any of these forms, which become one object per row.

    JSON is a list of objects, one per row (records); an object of ``columns`` and ``data`` (split; an
    ``index`` is ignored); an object of columns, each a list or an object of values by row; or a single row,
    an object of other values, which gets a single result.

    Args:
        columns: required in every request, in any order. None accepts any; requests with the same columns in
            the same order then share batches.
    """

    accepts = (JSON, *_CSV)
    summary = (
        "A table: CSV with a header, or JSON. JSON may be one row, a list of rows, an object of columns, or "
        "an object with `columns` and `data`."
    )
    one_or_many = True

    def __init__(
        self,
        weigh: Weigh = unweighed,
        *,
        columns: Sequence[str] | None,
        limits: Limits = DEFAULT_LIMITS,
        groups: RowGroups = NO_GROUPS,
    ) -> None:
        self._weigh = weigh
        self._groups = groups
        self.limits = limits
        self._columns = None if columns is None else frozenset(columns)

    def decode(self, body: bytes, media_type: str = JSON) -> Marshalled:
        """Check structure and column names (in JSON, those of the first row); the worker checks values."""
        check_utf8(body)
        if media_type in _CSV:
            return self._from_csv(read_table(body, self.limits))
        body = body.strip(SPACE)
        # Each member has a colon: the rows of most tables are searched for commas only once.
        if not body.startswith(b"{") or body.count(b":") > self.limits.rows:
            self.limits.check_items(body)
        if not body.startswith(b"{"):
            listed = decode_json(_list_decoder, body, "a list of rows, or an object")
            return self._from_rows(body[1:-1], listed)
        fields = decode_json(_object_decoder, body, "an object")
        if any(map(is_list, fields.values())) or all(map(is_object, fields.values())):
            self.limits.check_all_values(body)
        if fields.keys() in _SPLIT:
            self.limits.check_items(fields["data"])
            names, rows = _rows_of_split(body)
            return replace(self.marshal(rows), locate=partial(_in_split, tuple(names)))
        if fields and (all(map(is_list, fields.values())) or all(map(is_object, fields.values()))):
            self.limits.check_items(next(iter(fields.values())))
            index, rows = _rows_of_columns(fields)
            return replace(self.marshal(rows), locate=partial(_in_columns, index))
        return replace(self._from_rows(body, [body]), single=True)

    def marshal(self, rows: Sequence[bytes | Raw]) -> Marshalled:
        return self._from_rows(b",".join(rows), rows)

    def marshal_tensor(self, tensor: Tensor) -> Marshalled:
        """Use the tensor as the only column."""
        return self.marshal_columns([tensor])

    def marshal_columns(self, tensors: Sequence[Tensor]) -> Marshalled:
        names = tuple([tensor.name for tensor in tensors])
        self._check_names(names)
        key = names if self._columns is None else None
        check_weighed(tensors, self._weigh, self.limits)
        return self._groups.divide_columns(
            tensors, lambda some: of_columns(some, self._weigh, key=key), self.limits
        )

    def _from_rows(self, body: bytes, rows: Sequence[bytes | Raw]) -> Marshalled:
        if not rows:
            raise BadRequest("the body has no rows")
        return self._groups.divide(body, rows, self._of_rows)

    def _of_rows(self, body: bytes, rows: Sequence[bytes | Raw]) -> Marshalled:
        self.limits.check_items(rows[0])
        fields = _first_row(rows[0])
        if not fields:
            raise BadRequest("the first row has no columns")
        names = tuple(fields)
        self._check_names(names)
        key: Hashable = names if self._columns is None else None
        return Marshalled(body, rows=len(rows), key=key, single=False, cost=self._weigh(rows))

    def _from_csv(self, table: Table) -> Marshalled:
        """Keep the rows as lines. A cost that depends on their content is computed from their JSON."""
        self._check_names(table.names)
        form = TableForm(write_header(table.names))
        fields: list[list[str]] = []
        is_read = reads_rows(self._weigh)
        if self._groups.fields or is_read:
            self.limits.check_values(table.rows * len(table.names))
            fields = read_lines(table.lines)

        def marshal(lines: bytes, rows: Sequence[int]) -> Marshalled:
            texts = [b""] * len(rows)
            if is_read:
                texts = objects(table.names, [[*map(_json_value, fields[at])] for at in rows])
            cost = self._weigh(texts)
            return Marshalled(lines, rows=len(rows), key=form, single=False, cost=cost, form=form)

        if not self._groups.fields:
            return marshal(table.lines, range(table.rows))
        columns = [
            [_json_value(row[table.names.index(name)] or None) for row in fields]
            if name in table.names
            else [None] * table.rows
            for name in self._groups.fields
        ]
        return self._groups.divide_by(
            zip(*columns, strict=True),
            lambda: marshal(table.lines, range(table.rows)),
            lambda groups: map(marshal, pick_lines(table.lines, groups), groups),
        )

    def _check_names(self, names: Collection[str]) -> None:
        wanted = self._columns
        if wanted is None or (len(names) == len(wanted) and wanted.issuperset(names)):
            return
        reasons = [
            f"{what} {', '.join(map(repr, sorted(which)))}"
            for what, which in (("missing", wanted - set(names)), ("unknown", set(names) - wanted))
            if which
        ]
        raise BadRequest(
            f"the body has the wrong columns: {'; '.join(reasons)}; expected "
            f"{', '.join(map(repr, sorted(wanted)))}"
        )


def _first_row(text: bytes | Raw) -> dict[str, Raw]:
    """Return the first row's values by column. Errors give no byte offset: ``text`` may be part of a body."""
    try:
        return _object_decoder.decode(text)
    except msgspec.ValidationError as error:
        raise BadRequest(f"each row must be an object: {error}") from error
    except msgspec.DecodeError as error:
        # Rows of V1 may have NaN and infinity.
        row = Raw(bytes(text))
        if not is_object(row):
            raise BadRequest("each row must be an object") from error
        return members(row)
    except RecursionError as error:
        raise BadRequest("the first row is nested too deeply") from error


def _rows_of_split(body: bytes) -> tuple[list[str], list[bytes]]:
    split = decode_json(_split_decoder, body, "'columns', a list of names, and 'data', a list of lists")
    names = split.columns
    if (twice := first_repeated(names)) is not None:
        raise BadRequest(f"'columns' repeats {twice!r}")
    for number, row in enumerate(split.data, 1):
        if len(row) != len(names):
            raise BadRequest(
                f"row {number} of 'data' has {plural(len(row), 'value')} for {plural(len(names), 'column')}"
            )
    return names, objects(names, split.data)


def _in_split(names: Sequence[str], asked: Marshalled, place: RowPath) -> str:
    return json_path("data", place.row, *[names.index(str(name)) for name in place.path])


def _rows_of_columns(columns: dict[str, Raw]) -> tuple[Sequence[int | str], list[bytes]]:
    """Return the rows' keys (or positions), and each row as a JSON object.

    All columns are lists, or all are objects by row key; the first column then determines the order of rows.
    """
    first = next(iter(columns.values()))
    values: list[list[Raw]]
    index: Sequence[int | str]
    if is_list(first):
        values = list(map(elements, columns.values()))
        lengths = sorted(map(len, values))
        if lengths[0] != lengths[-1]:
            raise BadRequest(
                f"columns must have equal lengths, got lengths from {lengths[0]} to {lengths[-1]}"
            )
        index = range(lengths[0])
    else:
        by_row = list(map(members, columns.values()))
        index = keys = tuple(by_row[0])
        for name, column in zip(columns, by_row, strict=True):
            if column.keys() != by_row[0].keys():
                raise BadRequest(f"column {name!r} does not have the same rows as the first column")
        values = [[column[key] for key in keys] for column in by_row]
    return index, objects(list(columns), list(zip(*values, strict=True)))


def _in_columns(index: Sequence[int | str], asked: Marshalled, place: RowPath) -> str:
    return json_path(*place.path, index[place.row])


def _json_value(field: str | None) -> bytes:
    """Return the JSON of a field of CSV: a number if it reads as one."""
    return field.encode() if field and _NUMBER.fullmatch(field) else msgspec.json.encode(field)
