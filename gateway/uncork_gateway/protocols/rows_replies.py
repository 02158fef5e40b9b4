"""Replies of KServe V1 and TensorFlow Serving: split between the requests of a call, and joined."""

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise
from typing import TypeVar

from msgspec import Raw

from uncork_dispatcher.plural import plural
from uncork_gateway.protocols.raw_json import (
    NotJson,
    elements,
    is_list,
    is_object,
    members,
    read_object,
    read_only_list,
    written,
)
from uncork_gateway.protocols.wire import WrongReply

Share = list[Raw] | Raw
"""One request's share of a list: its own rows, or a text that goes to every request."""
Member = Share | dict[str, Share]
"""One request's share of a member of the reply; of an object of columns, its share of each."""
RowsReply = dict[str, Member]
"""One request's share of a reply, by member, in the order of the reply."""

_T = TypeVar("_T")
_BATCHER_MEMBERS = ("message", "batchId")


def split(body: bytes, rows: Sequence[int], *, drop_batch_id: bool) -> list[RowsReply]:
    """Split a reply between requests with ``rows`` rows each.

    With ``drop_batch_id`` the members that KServe's batcher adds are left out.

    Raises:
        WrongReply: if it is no such object, or a list in it has not as many rows as the requests.
    """
    try:
        only = read_only_list(body, "predictions")
        if only is not None and len(only) == sum(rows):
            return [{"predictions": share} for share in _split(only, rows)]
        fields = read_object(body)
        if "predictions" not in fields and "outputs" not in fields:
            raise WrongReply("the response has neither 'predictions' nor 'outputs'")
        shares = {
            name: _shares_of_member(name, text, rows)
            for name, text in fields.items()
            if not (drop_batch_id and name in _BATCHER_MEMBERS)
        }
    except NotJson as error:
        raise WrongReply(f"the response {error}") from error
    except RecursionError as error:
        raise WrongReply("the response is nested too deeply") from error
    return [dict(zip(shares, share, strict=True)) for share in zip(*shares.values(), strict=True)]


def join(parts: Sequence[RowsReply]) -> RowsReply:
    """Join the shares of the parts of one request.

    Raises:
        WrongReply: if their members differ, or values that went to all requests do.
    """
    return _join_each(parts, _join_member)


def _split(rows: list[Raw], counts: Sequence[int]) -> list[list[Raw]]:
    return [rows[start:end] for start, end in pairwise(accumulate(counts, initial=0))]


def _shares_of_member(name: str, text: Raw, counts: Sequence[int]) -> Sequence[Member]:
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
    return _split(rows, counts) if len(rows) == sum(counts) else [text] * len(counts)


def _shares_of_predictions(text: Raw, counts: Sequence[int]) -> Sequence[Share]:
    expected = sum(counts)
    if not is_list(text):
        raise WrongReply(f"expected a list of {expected} predictions, got a value that is not a list")
    rows = elements(text)
    if len(rows) != expected:
        raise WrongReply(f"expected {expected} predictions, got {len(rows)}")
    return _split(rows, counts)


def _shares_of_output(what: str, text: Raw, counts: Sequence[int]) -> Sequence[Share]:
    """Split an output by rows; a list of one goes to all. A single request gets any output."""
    expected = sum(counts)
    rows = elements(text) if is_list(text) else None
    if rows is not None and len(rows) == expected:
        return _split(rows, counts)
    if rows is not None and len(rows) == 1:
        return [Raw(written(rows))] * len(counts)
    if len(counts) == 1:
        return [text]
    got = "a value that is not a list" if rows is None else f"a list of {len(rows)}"
    raise WrongReply(
        f"expected {what} to be a list of {plural(expected, 'value')}, or of 1 for all requests, got {got}"
    )


def _join_each(objects: Sequence[dict[str, _T]], join: Callable[[str, list[_T]], _T]) -> dict[str, _T]:
    """Join objects with the same names, the values of each name by ``join``."""
    names = objects[0].keys()
    if any(each.keys() != names for each in objects):
        raise WrongReply("the responses to the parts of a request have different members")
    return {name: join(name, [each[name] for each in objects]) for name in names}


def _join_member(name: str, parts: list[Member]) -> Member:
    objects = [part for part in parts if isinstance(part, dict)]
    if len(objects) == len(parts):
        return _join_each(objects, _join_share)
    return _join_share(name, parts)


def _join_share(name: str, parts: Sequence[Member]) -> Share:
    """Join rows end to end; a value that went to all requests must be equal in all parts."""
    rows = [part for part in parts if isinstance(part, list)]
    if len(rows) == len(parts):
        return list(chain(*rows))
    texts = {written(part) for part in parts}
    if len(texts) > 1:
        raise WrongReply(
            f"the responses to the parts of a request differ in {name!r}, which has no value per row"
        )
    return Raw(texts.pop())
