"""KServe V1 and TensorFlow Serving REST: JSON rows, or columns of them, for one list of predictions.

``{"instances": [row, ...]}`` or ``{"inputs": [row, ...]}`` gets ``{"predictions": [row, ...]}``;
``{"inputs": {name: [value, ...], ...}}`` gets ``{"outputs": ...}``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from typing import Literal, TypeVar

from msgspec import Raw

from uncork_dispatcher.plural import plural
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.raw_json import (
    NotJson,
    Parts,
    elements,
    form_of,
    is_list,
    is_object,
    members,
    quoted,
    read_object,
    read_only_list,
    written,
)
from uncork_gateway.protocols.wire import Content, Unmergeable, WrongReply

Share = list[Raw] | Raw
"""What one request gets of a list: its own rows, or a text that was not dealt out."""
Member = Share | dict[str, Share]
"""What one request gets of a member of the reply; of an object of columns, its share of each."""

_Lists = tuple[tuple[str, ...] | None, tuple[list[Raw], ...]]
_T = TypeVar("_T")

_JSON = ((b"content-type", b"application/json"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsRequest:
    """A request that was read: rows, or columns of equal length.

    ``names`` are those of the columns, sorted; None if it has rows. ``lists`` are the columns in that order,
    or the rows as the only list; ``forms`` says what the first row of each is. ``others`` are the rest of the
    members, by name.
    """

    member: Literal["instances", "inputs"]
    names: tuple[str, ...] | None
    lists: tuple[list[Raw], ...]
    forms: tuple[Hashable, ...]
    others: tuple[tuple[str, bytes], ...]
    size_bytes: int

    @property
    def rows(self) -> int:
        """How many rows it has, from 1."""
        return len(self.lists[0])

    @property
    def key(self) -> Hashable:
        """All but values: the member, names of columns, forms of rows, other members as they were written."""
        return self.member, self.names, self.forms, self.others


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsReply:
    """What a reply has for one request, by member, in the order of the reply."""

    members: dict[str, Member]


def parse_rows(body: bytes) -> RowsRequest:
    """Read a request. Of two members with one name the last counts, and only that one is sent on.

    Raises:
        BadRequest: if it is malformed.
        Unmergeable: if it has no rows, or inputs that are no lists of equal length: some servers take that.
    """
    try:
        rows = read_only_list(body, "instances")
        if rows:
            return _only_instances(rows, size_bytes=len(body))
        fields = read_object(body)
        instances, inputs = fields.pop("instances", None), fields.pop("inputs", None)
        if (instances is None) == (inputs is None):
            found = "neither" if inputs is None else "both"
            raise BadRequest(f"the body must have either 'instances' or 'inputs', it has {found}")
        names, lists = _read_instances(instances) if inputs is None else _read_inputs(inputs)
        forms = tuple([form_of(rows[0]) if rows else None for rows in lists])
    except NotJson as error:
        raise BadRequest(f"the body {error}") from error
    except RecursionError as error:
        raise BadRequest("the body is nested too deeply") from error
    if not lists[0]:
        raise Unmergeable("the body has no rows")
    return RowsRequest(
        member="instances" if inputs is None else "inputs",
        names=names,
        lists=lists,
        forms=forms,
        others=tuple((name, bytes(fields[name])) for name in sorted(fields)),
        size_bytes=len(body),
    )


def _only_instances(rows: list[Raw], *, size_bytes: int) -> RowsRequest:
    return RowsRequest(
        member="instances",
        names=None,
        lists=(rows,),
        forms=(form_of(rows[0]),),
        others=(),
        size_bytes=size_bytes,
    )


def as_rows(request: RowsRequest) -> list[bytes]:
    """Each row as one JSON text; a row of columns is an object with the value of each."""
    if request.names is None:
        return [bytes(row) for row in request.lists[0]]
    return [
        written(dict(zip(request.names, values, strict=True))) for values in zip(*request.lists, strict=True)
    ]


def error_body(detail: str) -> bytes:
    """The body of an answer that is an error."""
    return written({"error": quoted(detail)})


class RowsWire:
    """Requests of one key become one list of rows, or columns end to end; lists in the reply are dealt out.

    With ``add_batch_id`` an answer says the id of its batch, and an empty message, as KServe's batcher does.
    """

    def __init__(self, *, add_batch_id: bool) -> None:
        self._add_batch_id = add_batch_id

    def parse(self, content: Content) -> RowsRequest:
        """Read a request.

        Raises:
            BadRequest: if it is malformed.
            Unmergeable: if it cannot be said what its rows are.
        """
        return parse_rows(content.body)

    def cut(self, request: RowsRequest, most_rows: int) -> list[RowsRequest]:
        """The request in parts of at most ``most_rows`` rows, in order; itself if it is no larger."""
        if request.rows <= most_rows:
            return [request]
        return [_part(request, start, start + most_rows) for start in range(0, request.rows, most_rows)]

    def merge(self, requests: Sequence[RowsRequest]) -> Content:
        """One call for requests of one key, their rows in order."""
        first = requests[0]
        lists = [list(chain(*parts)) for parts in zip(*(each.lists for each in requests), strict=True)]
        value = lists[0] if first.names is None else dict(zip(first.names, lists, strict=True))
        return Content(written({first.member: value, **dict(first.others)}), _JSON)

    def split(self, reply: Content, requests: Sequence[RowsRequest]) -> list[RowsReply]:
        """What the reply to a merged call has for each request.

        Raises:
            WrongReply: if it is no such object, or a list in it is not of as many rows as were sent.
        """
        rows = [request.rows for request in requests]
        try:
            only = read_only_list(reply.body, "predictions")
            if only is not None and len(only) == sum(rows):
                return [RowsReply(members={"predictions": share}) for share in _deal(only, rows)]
            fields = read_object(reply.body)
            if "predictions" not in fields and "outputs" not in fields:
                raise WrongReply("the reply has neither 'predictions' nor 'outputs'")
            if self._add_batch_id:
                fields = {name: fields[name] for name in fields if name not in ("message", "batchId")}
            shares = {name: _shares_of_member(name, text, rows) for name, text in fields.items()}
        except NotJson as error:
            raise WrongReply(f"the reply {error}") from error
        except RecursionError as error:
            raise WrongReply("the reply is nested too deeply") from error
        return [
            RowsReply(members=dict(zip(shares, share, strict=True)))
            for share in zip(*shares.values(), strict=True)
        ]

    def join(self, parts: Sequence[RowsReply]) -> RowsReply:
        """What the parts of a request that was cut got, as if it had not been.

        Raises:
            WrongReply: if they have not the same members, or differ in what is not dealt out by rows.
        """
        return RowsReply(members=_join_each([part.members for part in parts], _join_member))

    def render(self, reply: RowsReply, request: RowsRequest, *, batch_id: str) -> Content:
        """The answer to one request."""
        fields: dict[str, Parts] = {}
        if self._add_batch_id:
            fields = {"message": quoted(""), "batchId": quoted(batch_id)}
        return Content(written({**fields, **reply.members}), _JSON)


def _read_instances(text: Raw | None) -> _Lists:
    if text is None or not is_list(text):
        raise BadRequest("'instances' must be a list of rows")
    return None, (elements(text),)


def _read_inputs(text: Raw) -> _Lists:
    if is_list(text):
        return None, (elements(text),)
    columns = members(text) if is_object(text) else {}
    if not columns or not all(map(is_list, columns.values())):
        raise Unmergeable("'inputs' must be a list of rows, or an object of lists, one for each column")
    names = tuple(sorted(columns))
    lists = tuple(elements(columns[name]) for name in names)
    lengths = sorted(map(len, lists))
    if lengths[0] != lengths[-1]:
        raise Unmergeable(
            f"the columns of 'inputs' must be of equal length, they have {lengths[0]} to {lengths[-1]} values"
        )
    return names, lists


def _part(request: RowsRequest, start: int, end: int) -> RowsRequest:
    lists = tuple(each[start:end] for each in request.lists)
    return replace(request, lists=lists, size_bytes=sum(map(len, chain(*lists))))


def _deal(rows: list[Raw], counts: Sequence[int]) -> list[list[Raw]]:
    return [rows[start:end] for start, end in pairwise(accumulate(counts, initial=0))]


def _shares_of_member(name: str, text: Raw, counts: Sequence[int]) -> Sequence[Member]:
    """What each request gets of a member of the reply."""
    if name == "predictions":
        return _shares_of_predictions(text, counts)
    if name == "outputs":
        if not is_object(text):
            return _shares_of_output("'outputs'", text, counts)
        columns = {
            column: _shares_of_output(f"the column {column!r} of 'outputs'", values, counts)
            for column, values in members(text).items()
        }
        return [{column: shares[at] for column, shares in columns.items()} for at in range(len(counts))]
    rows = elements(text) if is_list(text) else []
    return _deal(rows, counts) if len(rows) == sum(counts) else [text] * len(counts)


def _shares_of_predictions(text: Raw, counts: Sequence[int]) -> Sequence[Share]:
    expected = sum(counts)
    if not is_list(text):
        raise WrongReply(f"expected a list of {expected} predictions, got no list")
    rows = elements(text)
    if len(rows) != expected:
        raise WrongReply(f"expected {expected} predictions, got {len(rows)}")
    return _deal(rows, counts)


def _shares_of_output(what: str, text: Raw, counts: Sequence[int]) -> Sequence[Share]:
    """By rows; a list of one is for all. A request that was alone gets whatever there is."""
    expected = sum(counts)
    rows = elements(text) if is_list(text) else None
    if rows is not None and len(rows) == expected:
        return _deal(rows, counts)
    if rows is not None and len(rows) == 1:
        return [Raw(written(rows))] * len(counts)
    if len(counts) == 1:
        return [text]
    got = "no list" if rows is None else f"a list of {len(rows)}"
    raise WrongReply(
        f"expected {what} to be a list of {plural(expected, 'value')}, or of one for all, got {got}"
    )


def _join_each(objects: Sequence[dict[str, _T]], join: Callable[[str, list[_T]], _T]) -> dict[str, _T]:
    """Objects of the same names into one, the values of each name by ``join``."""
    names = objects[0].keys()
    if any(each.keys() != names for each in objects):
        raise WrongReply("the parts of the reply differ in the names of their members")
    return {name: join(name, [each[name] for each in objects]) for name in names}


def _join_member(name: str, parts: list[Member]) -> Member:
    objects = [part for part in parts if isinstance(part, dict)]
    if len(objects) == len(parts):
        return _join_each(objects, _join_share)
    return _join_share(name, parts)


def _join_share(name: str, parts: Sequence[Member]) -> Share:
    """Rows one after the other; what was given to all must be the same everywhere."""
    rows = [part for part in parts if isinstance(part, list)]
    if len(rows) == len(parts):
        return list(chain(*rows))
    texts = {written(part) for part in parts}
    if len(texts) > 1:
        raise WrongReply(f"the parts of the reply differ in {name!r}, which is not dealt out by rows")
    return Raw(texts.pop())
