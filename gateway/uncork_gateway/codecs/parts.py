"""Divides requests into parts, which are submitted as requests of their own."""

from collections.abc import Sequence
from functools import partial
from itertools import islice, pairwise

from msgspec import Raw
from msgspec.structs import replace

from uncork_gateway.codecs.base import Marshalled, Part
from uncork_gateway.codecs.cost import NO_COST, Cost
from uncork_gateway.codecs.csv import lines_of
from uncork_gateway.protocols.raw_json import elements
from uncork_gateway.protocols.tensors import Tensor, split_rows
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
        span=whole.span,
        group=group,
        locate=partial(_in_whole, whole, rows),
    )
    return Part(rows, own)


def divided(payload: Marshalled, count: int) -> Marshalled:
    """Return a request in ``count`` parts of consecutive rows, or one for each row if it has fewer."""
    count = min(count, payload.rows)
    if count < 2:
        return payload
    ends = [payload.rows * number // count for number in range(count + 1)]
    counts = [end - start for start, end in pairwise(ends)]
    parts = []
    for (start, end), body in zip(pairwise(ends), _cut(payload.body, payload.form, counts), strict=True):
        of_rows = payload.cost.of_rows[start:end]
        cost = Cost(sum(of_rows), max(of_rows), of_rows) if of_rows else NO_COST
        some = replace(payload, body=body, rows=end - start, cost=cost)
        parts.append(part_of(payload, range(start, end), some, group=payload.group))
    return replace(payload, parts=parts)


def _cut(body: bytes, form: Form, counts: Sequence[int]) -> list[bytes]:
    """Cut a body into bodies with ``counts`` rows each."""
    match form:
        case TensorForm(datatype, shape) | ListForm(datatype, shape):
            tensor = Tensor(
                name="",
                datatype=datatype,
                shape=(sum(counts), *shape),
                form="binary" if isinstance(form, TensorForm) else "flat",
                data=body,
            )
            return [piece.data for piece in split_rows(tensor, counts)]
        case ColumnsForm(columns):
            bodies = zip(columns, split_columns(body), strict=True)
            cut = [_cut(column, each, counts) for (_, each), column in bodies]
            return [join_columns(pieces) for pieces in zip(*cut, strict=True)]
        case TableForm():
            separator, rows = b"", lines_of(body)
        case _:
            separator, rows = b",", [bytes(row) for row in elements(Raw(b"[%b]" % body))]
    left = iter(rows)
    return [separator.join(islice(left, count)) for count in counts]


def _in_whole(whole: Marshalled, rows: Sequence[int], asked: Marshalled, place: RowPath) -> str:
    """Convert a path in the rows of a part to the path in the whole request's body."""
    return whole.path_to(RowPath(rows[place.row], place.path))
