"""Divides requests into parts, which are submitted as requests of their own."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from uncork_gateway.codecs.base import Marshalled, Part
from uncork_gateway.codecs.cost import NO_COST, Cost
from uncork_gateway.codecs.csv import lines_of
from uncork_gateway.protocols.raw_json import elements
from uncork_gateway.protocols.tensors import Tensor, pick_rows, split_rows
from uncork_workers.wire.forms import ColumnsForm, Form, ListForm, TableForm, TensorForm
from uncork_workers.wire.messages import RowPath
from uncork_workers.wire.tensors import join_columns, split_columns


def part_of(whole: Marshalled, rows: Sequence[int], payload: Marshalled, *, group: bytes | None) -> Part:
    """Return a part of a request with some rows, and with the format, parameters and span of the whole."""
    own = replace(
        payload,
        accept=whole.accept,
        raw=whole.raw,
        parameters=whole.parameters,
        headers=whole.headers,
        request_id=whole.request_id,
        rest_bytes=_names_bytes(payload.form) if whole.rest_bytes else 0,
        span=whole.span,
        group=group,
        locate=partial(_in_whole, whole, rows),
    )
    return Part(rows, own)


def _names_bytes(form: Form) -> int:
    match form:
        case ColumnsForm(columns):
            return sum([_most_bytes(name) for name, _ in columns])
        case TableForm(header):
            return _most_bytes(header)
        case _:
            return 0


def _most_bytes(text: str) -> int:
    """Return the most bytes of a text in UTF-8, without a look at it: each part has the same names."""
    return len(text) if text.isascii() else 4 * len(text)


def divided(payload: Marshalled, count: int) -> Marshalled:
    """Return a request in ``count`` parts, or one for each row if it has fewer.

    If rows have costs, rows of similar cost are together, because many models pad to the longest. Parts then
    cost about the same. The number of rows may matter too, so no part has more than twice the average, and
    there may be more parts than ``count``.
    """
    count = min(count, payload.rows)
    groups = _groups(payload.rows, payload.cost.of_rows, count) if count > 1 else []
    if len(groups) < 2:
        return payload
    return replace(payload, parts=_Divided(payload, groups))


class _Divided(Sequence[Part]):
    """The parts of a request, each made when it is asked for.

    Made all at once, they could hold a hundred times the memory of the body until their turn.
    """

    def __init__(self, whole: Marshalled, groups: Sequence[Sequence[int]]) -> None:
        self._whole = whole
        self._groups = groups
        self._bodies = _pick(whole.body, whole.form, whole.rows, groups)

    def __len__(self) -> int:
        return len(self._groups)

    def __getitem__(self, at: Any) -> Any:
        rows, whole = self._groups[at], self._whole
        of_rows = [whole.cost.of_rows[row] for row in rows] if whole.cost.of_rows else ()
        cost = Cost(sum(of_rows), max(of_rows), of_rows) if of_rows else NO_COST
        some = replace(whole, body=self._bodies[at], rows=len(rows), cost=cost)
        return part_of(whole, rows, some, group=whole.group)


def _groups(rows: int, of_rows: Sequence[float], count: int) -> list[Sequence[int]]:
    """Return the numbers of the rows of each part: ranges if all rows cost the same, else lists."""
    if not of_rows or min(of_rows) == max(of_rows):
        ends = [rows * number // count for number in range(count + 1)]
        return [range(start, end) for start, end in pairwise(ends)]
    each, most_rows = sum(of_rows) / count, 2 * rows / count
    groups: list[list[int]] = [[]]
    filled, end = 0.0, each
    for row in sorted(range(rows), key=of_rows.__getitem__):
        is_full = filled + of_rows[row] / 2 > end
        if groups[-1] and (is_full or len(groups[-1]) + 1 > most_rows):
            groups.append([])
            end += each if is_full else 0.0
        groups[-1].append(row)
        filled += of_rows[row]
    return [*groups]


def _pick(body: bytes, form: Form, count: int, groups: Sequence[Sequence[int]]) -> list[bytes]:
    """Return a body with the rows of each group, from a body with ``count`` rows."""
    rows: Sequence[bytes]
    match form:
        case TensorForm(datatype, shape) | ListForm(datatype, shape):
            tensor = Tensor(
                name="",
                datatype=datatype,
                shape=(count, *shape),
                form="binary" if isinstance(form, TensorForm) else "flat",
                data=body,
            )
            # Cut where parts end, not into single rows: all columns together may have very many.
            is_cut = isinstance(groups[0], range)
            pieces = split_rows(tensor, list(map(len, groups))) if is_cut else pick_rows(tensor, groups)
            return [piece.data for piece in pieces]
        case ColumnsForm(columns):
            bodies = zip(columns, split_columns(body), strict=True)
            picked = [_pick(column, each, count, groups) for (_, each), column in bodies]
            return [join_columns(pieces) for pieces in zip(*picked, strict=True)]
        case TableForm():
            separator, rows = b"", lines_of(body)
        case _:
            separator, rows = b",", elements(Raw(b"[%b]" % body))
    return [separator.join([rows[row] for row in group]) for group in groups]


def _in_whole(whole: Marshalled, rows: Sequence[int], asked: Marshalled, place: RowPath) -> str:
    """Convert a path in the rows of a part to the path in the whole request's body."""
    return whole.path_to(RowPath(rows[place.row], place.path))
