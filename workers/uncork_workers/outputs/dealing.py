"""Encoded rows, put together from several calls, and dealt out to the requests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain

from uncork_workers.outputs import Answer, Encoded
from uncork_workers.outputs.answers import WrongResult

_OK = 200


def joined(parts: Sequence[Encoded]) -> Encoded:
    """The rows of several calls as those of one.

    Raises:
        WrongResult: if they are not of one kind.
    """
    if len(parts) == 1:
        return parts[0]
    telling = [part for part in parts if part.has_rows] or parts[:1]
    first = telling[0]
    datatypes = {part.datatype for part in telling}
    kinds = {(part.content_type, part.head, part.shape) for part in telling}
    if len(kinds) > 1 or (first.shape is not None and len(datatypes) > 1):
        raise WrongResult("the results of several calls of the handler differ in kind, columns or shape")
    starts = accumulate((len(part.rows) for part in parts), initial=0)
    return Encoded(
        rows=list(chain.from_iterable(part.rows for part in parts)),
        content_type=first.content_type,
        head=first.head,
        between=first.between,
        datatype=first.datatype if len(datatypes) == 1 else "",
        shape=first.shape,
        answers={
            start + at: answer
            for start, part in zip(starts, parts, strict=False)
            for at, answer in part.answers.items()
        },
    )


def deal(encoded: Encoded, counts: Sequence[int]) -> Sequence[bytes | Answer]:
    """The answer to each request of so many rows: its rows, or something of its own.

    Raises:
        WrongResult: if a request of several rows would get several whole bodies.
    """
    rows = encoded.rows
    if not encoded.answers and not encoded.content_type and len(rows) == len(counts):
        return rows
    given: list[bytes | Answer] = []
    end = 0
    for count in counts:
        start, end = end, end + count
        given.append(_answer(encoded, start, end))
    return given


def _answer(encoded: Encoded, start: int, end: int) -> bytes | Answer:
    own = [encoded.answers[at] for at in range(start, end) if at in encoded.answers]
    refusal = next((answer for answer in own if not answer.content_type), None)
    if refusal is not None:
        return refusal
    if own:
        if end - start > 1:
            raise WrongResult("a request of several rows cannot be answered with files or responses")
        return own[0]
    body = encoded.head + encoded.between.join(encoded.rows[start:end])
    return Answer(_OK, body, encoded.content_type) if encoded.content_type else body
