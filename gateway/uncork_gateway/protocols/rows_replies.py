"""Replies of KServe V1 and TensorFlow Serving: splits them between requests, and joins them."""

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, pairwise

from msgspec import Raw

from uncork_dispatcher.wording import plural
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.raw_json import (
    Parts,
    elements,
    is_list,
    is_object,
    members,
    read_object,
    read_only_list,
    written,
)
from uncork_gateway.protocols.wire import WrongReply, if_certain, is_certain

Path = tuple[str, ...]
"""The name of a member of a reply, or ``outputs`` and the name of a column."""
Share = list[Raw] | Raw
"""One request's share of a value: its own rows, or a text that goes to every request."""
RowsReply = dict[Path, Share]
"""One request's share of a reply, in the order of the reply."""

_BATCHER_MEMBERS = ("message", "batchId")
_PREDICTIONS: Path = ("predictions",)
_RESULTS = ("predictions", "outputs")


def split(body: bytes, rows: Sequence[int], *, drop_batch_id: bool) -> list[RowsReply]:
    """Split a reply between requests with ``rows`` rows each.

    With ``drop_batch_id``, omit the members that KServe's batcher adds.

    Raises:
        WrongReply: if the reply has no predictions or outputs, or they do not have a value for each row.
    """
    try:
        only = read_only_list(body, "predictions")
        if only is not None and len(only) == sum(rows):
            return [{_PREDICTIONS: share} for share in _split(only, rows)]
        values = _values(read_object(body, "the response"), drop_batch_id=drop_batch_id)
        shares = {path: _shares(path, text, rows) for path, text in values.items()}
    except BadRequest as error:
        raise WrongReply(str(error)) from error
    except RecursionError as error:
        raise WrongReply("the response is nested too deeply") from error
    if len(rows) > 1 and not any(isinstance(shares[path][0], list) for path in _results(shares)):
        raise WrongReply(f"expected {plural(sum(rows), 'value')} in 'outputs', or in one of its columns")
    return [dict(zip(shares, share, strict=True)) for share in zip(*shares.values(), strict=True)]


def join(parts: Sequence[RowsReply]) -> RowsReply:
    """Join the replies to the parts of one request; raises as :meth:`Wire.join`.

    Lists with a value for each row of their part are concatenated. All other values must be equal in all
    parts.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    if any(part.keys() != first.keys() for part in parts):
        raise WrongReply("the responses to the parts of a request have different members")
    equal = {path: len({_text(part[path]) for part in parts}) == 1 for path in first}
    equal[_PREDICTIONS] = False  # They are for each row, equal or not.
    joined: RowsReply = {}
    by_rows: dict[Path, bool] = {}
    for path, share in first.items():
        pieces = [piece for part in parts if isinstance(piece := part[path], list)]
        by_rows[path] = len(pieces) == len(parts)
        if not (by_rows[path] or equal[path]):
            raise WrongReply(
                f"the responses to the parts of a request differ in {path[-1]!r}, which has no value per row"
            )
        joined[path] = list(chain(*pieces)) if by_rows[path] else share
    if not any(by_rows[path] for path in _results(first)):
        raise WrongReply("the responses to the parts of a request have no results for each row")
    return if_certain(joined, is_certain([*by_rows.values()], [equal[path] for path in first]))


def as_members(reply: RowsReply) -> dict[str, Parts]:
    """Return the members of a reply; columns become an object."""
    fields: dict[str, Parts] = {}
    columns: dict[str, Parts] = {}
    for path, share in reply.items():
        if len(path) == 1:
            fields[path[0]] = share
        else:
            fields[path[0]] = columns
            columns[path[1]] = share
    return fields


def _values(fields: dict[str, Raw], *, drop_batch_id: bool) -> dict[Path, Raw]:
    if fields.keys().isdisjoint(_RESULTS):
        raise WrongReply("the response has neither 'predictions' nor 'outputs'")
    values: dict[Path, Raw] = {}
    for name, text in fields.items():
        if drop_batch_id and name in _BATCHER_MEMBERS:
            continue
        columns = members(text) if name == "outputs" and is_object(text) else {}
        for column, value in columns.items():
            values[name, column] = value
        if not columns:
            values[name,] = text
    return values


def _results(paths: Iterable[Path]) -> list[Path]:
    return [path for path in paths if path[0] in _RESULTS]


def _split(rows: list[Raw], counts: Sequence[int]) -> list[list[Raw]]:
    return [rows[start:end] for start, end in pairwise(accumulate(counts, initial=0))]


def _shares(path: Path, text: Raw, counts: Sequence[int]) -> Sequence[Share]:
    """Split a list with a value for each row; repeat a list of one value, or a member about the call.

    A single request gets any other value unchanged, except in ``predictions``.
    """
    expected = sum(counts)
    rows = elements(text) if is_list(text) else None
    if rows is not None and len(rows) == expected:
        return _split(rows, counts)
    is_for_all = len(rows) == 1 if rows is not None else path[0] not in _RESULTS
    if path != _PREDICTIONS and (is_for_all or len(counts) == 1):
        return [text] * len(counts)
    got = "a value that is not a list" if rows is None else f"a list of {len(rows)}"
    if path == _PREDICTIONS:
        raise WrongReply(
            f"expected a list of {expected} predictions, got {got}"
            if rows is None
            else f"expected {expected} predictions, got {len(rows)}"
        )
    raise WrongReply(
        f"expected {_name(path)} to be a list of {plural(expected, 'value')}, or of 1 for all requests, "
        f"got {got}"
    )


def _name(path: Path) -> str:
    return repr(path[0]) if len(path) == 1 else f"the column {path[1]!r} of {path[0]!r}"


def _text(share: Share) -> bytes:
    """Return a share as JSON text. Equal shares give equal text, as an unsplit list or as its elements."""
    return written(elements(share) if isinstance(share, Raw) and is_list(share) else share)
