"""KServe V1 and TensorFlow Serving REST: reads JSON rows or columns, and merges requests.

``{"instances": [row, ...]}`` or ``{"inputs": [row, ...]}`` gets ``{"predictions": [row, ...]}``; ``{"inputs":
{name: [value, ...], ...}}`` gets ``{"outputs": ...}``.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from msgspec import Raw

from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols import rows_replies
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits
from uncork_gateway.protocols.raw_json import (
    Parts,
    elements,
    forms_of,
    is_list,
    is_object,
    members,
    objects,
    quoted,
    read_object,
    read_only_list,
    written,
)
from uncork_gateway.protocols.rows_replies import RowsReply
from uncork_gateway.protocols.wire import JSON, Content, Unmergeable, passing_on

_Lists = tuple[tuple[str, ...] | None, tuple[list[Raw], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsRequest:
    """A parsed request: rows, or columns of equal length.

    Attributes:
        names: the column names, sorted; None if the request has rows.
        lists: the columns in that order, or the rows as the only list.
        others: the other members, sorted by name.
    """

    member: Literal["instances", "inputs"]
    names: tuple[str, ...] | None
    lists: tuple[list[Raw], ...]
    others: tuple[tuple[str, bytes], ...] = ()
    size_bytes: int

    @property
    def rows(self) -> int:
        return len(self.lists[0])

    @property
    def key(self) -> Hashable:
        """The batch key: the member, column names, forms of rows, and all other members verbatim."""
        return self.member, self.names, tuple(map(forms_of, self.lists)), self.others


def parse_rows(body: bytes, limits: Limits = DEFAULT_LIMITS) -> RowsRequest:
    """Parse a request. Of a repeated member, only the last counts and is sent on.

    Raises:
        BadRequest: if the body is malformed.
        TooMany: if the rows or values exceed the limits.
        Unmergeable: if there are no rows, or ``inputs`` is anything but rows or columns of equal length,
            which some servers accept.
    """
    try:
        is_small = body.count(b",") < limits.rows
        if is_small and (rows := read_only_list(body, "instances")):
            return RowsRequest(member="instances", names=None, lists=(rows,), size_bytes=len(body))
        limits.check_items(body)
        fields = read_object(body)
        instances, inputs = fields.pop("instances", None), fields.pop("inputs", None)
        if (instances is None) == (inputs is None):
            found = "neither" if inputs is None else "both"
            raise BadRequest(f"the body must have either 'instances' or 'inputs', got {found}")
        if not is_small:
            _check_size(instances if inputs is None else inputs, limits)
        names, lists = _read_instances(instances) if inputs is None else _read_inputs(inputs)
    except RecursionError as error:
        raise BadRequest("the body is nested too deeply") from error
    if not lists[0]:
        raise Unmergeable("the body has no rows")
    return RowsRequest(
        member="instances" if inputs is None else "inputs",
        names=names,
        lists=lists,
        others=tuple((name, bytes(fields[name])) for name in sorted(fields)),
        size_bytes=len(body),
    )


def _check_size(text: Raw | None, limits: Limits) -> None:
    """Raise TooMany if there are too many rows, columns, or values in all columns."""
    if text is not None:
        limits.check_items(text)
        if is_object(text):
            limits.check_all_values(text)
            for column in members(text).values():
                limits.check_items(column)


def as_rows(request: RowsRequest) -> list[bytes]:
    """Return each row as one JSON text; a row of columns becomes an object with a value from each column."""
    if request.names is None:
        return [bytes(row) for row in request.lists[0]]
    return objects(request.names, list(zip(*request.lists, strict=True)))


def error_body(detail: str) -> bytes:
    return written({"error": quoted(detail)})


class RowsWire:
    """Merges requests into one list of rows, or into columns; splits the lists of the reply.

    With ``add_batch_id``, responses have a batch id and an empty message, as from KServe's batcher.
    """

    join = staticmethod(rows_replies.join)

    def __init__(self, *, add_batch_id: bool) -> None:
        self._add_batch_id = add_batch_id

    def parse(self, content: Content) -> RowsRequest:
        with passing_on():
            return parse_rows(content.body)

    def cut(self, request: RowsRequest, most_rows: int) -> list[RowsRequest]:
        if request.rows <= most_rows:
            return [request]
        return [_part(request, start, start + most_rows) for start in range(0, request.rows, most_rows)]

    def merge(self, requests: Sequence[RowsRequest]) -> Content:
        first = requests[0]
        lists = [list(chain(*parts)) for parts in zip(*(each.lists for each in requests), strict=True)]
        value = lists[0] if first.names is None else dict(zip(first.names, lists, strict=True))
        return Content(written({first.member: value, **dict(first.others)}), (JSON,))

    def split(self, reply: Content, requests: Sequence[RowsRequest]) -> list[RowsReply]:
        rows = [request.rows for request in requests]
        return rows_replies.split(reply.body, rows, drop_batch_id=self._add_batch_id)

    def render(self, reply: RowsReply, request: RowsRequest, *, batch_id: str) -> Content:
        fields: dict[str, Parts] = {}
        if self._add_batch_id:
            fields = {"message": quoted(""), "batchId": quoted(batch_id)}
        return Content(written({**fields, **rows_replies.as_members(reply)}), (JSON,))


def _read_instances(text: Raw | None) -> _Lists:
    if text is None or not is_list(text):
        raise BadRequest("'instances' must be a list of rows")
    return None, (elements(text),)


def _read_inputs(text: Raw) -> _Lists:
    if is_list(text):
        return None, (elements(text),)
    columns = members(text) if is_object(text) else {}
    if not columns or not all(map(is_list, columns.values())):
        raise Unmergeable("'inputs' must be a list of rows, or an object with a list for each column")
    names = tuple(sorted(columns))
    lists = tuple(elements(columns[name]) for name in names)
    lengths = sorted(map(len, lists))
    if lengths[0] != lengths[-1]:
        raise Unmergeable(
            f"the columns of 'inputs' must have equal lengths, got lengths from {lengths[0]} to {lengths[-1]}"
        )
    return names, lists


def _part(request: RowsRequest, start: int, end: int) -> RowsRequest:
    lists = tuple(each[start:end] for each in request.lists)
    size_bytes = sum(map(len, chain(*lists)))
    return replace(request, lists=lists, size_bytes=size_bytes)
