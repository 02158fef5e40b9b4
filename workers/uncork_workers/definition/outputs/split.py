"""Encoded rows, put together from several calls, and dealt out to the requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import NamedTuple

import numpy as np

from uncork_workers.definition.outputs import Answer, Array, Encoded
from uncork_workers.definition.outputs.answers import WrongResult
from uncork_workers.wire.messages import RowsForm, TensorForm

_OK = 200


class Dealt(NamedTuple):
    """The answer to each request, and the form of its rows."""

    answers: Sequence[bytes | Answer]
    forms: Sequence[RowsForm]


def joined(parts: Sequence[Encoded | Array]) -> Encoded | Array:
    """The rows of several calls as those of one. Arrays that differ in datatype or shape become JSON.

    Raises:
        WrongResult: if they are not of one kind.
    """
    if len(parts) == 1:
        return parts[0]
    arrays = [part for part in parts if isinstance(part, Array)]
    if len(arrays) == len(parts) and len({array.form for array in arrays}) == 1:
        return Array(np.concatenate([array.values for array in arrays]), arrays[0].form)
    texts = [part.as_json() if isinstance(part, Array) else part for part in parts]
    telling = [part for part in texts if part.has_rows] or texts[:1]
    first = telling[0]
    if len({(part.content_type, part.head) for part in telling}) > 1:
        raise WrongResult("the results of several calls of the handler differ in kind or columns")
    starts = accumulate((len(part.rows) for part in texts), initial=0)
    return Encoded(
        rows=list(chain.from_iterable(part.rows for part in texts)),
        content_type=first.content_type,
        head=first.head,
        between=first.between,
        form=first.form if len({part.form for part in telling}) == 1 else None,
        answers={
            start + at: answer
            for start, part in zip(starts, texts, strict=False)
            for at, answer in part.answers.items()
        },
    )


def deal(results: Encoded | Array, counts: Sequence[int], raw: Sequence[bool] = ()) -> Dealt:
    """The answer to each request of so many rows: its rows, or something of its own.

    Args:
        raw: for an array, whether each request gets its rows raw.

    Raises:
        WrongResult: if a request of several rows would get several whole bodies.
    """
    if isinstance(results, Array):
        return _deal_array(results, counts, raw)
    rows = results.rows
    forms = [results.form] * len(counts)
    if not results.answers and not results.content_type and len(rows) == len(counts):
        return Dealt(rows, forms)
    given: list[bytes | Answer] = []
    end = 0
    for count in counts:
        start, end = end, end + count
        given.append(_answer(results, start, end))
    return Dealt(given, forms)


def _deal_array(array: Array, counts: Sequence[int], raw: Sequence[bool]) -> Dealt:
    values = array.values.astype(array.values.dtype.newbyteorder("<"), copy=False)
    texts: Iterator[bytes] = iter(())
    if not all(raw):
        listed = values[np.repeat(np.logical_not(raw), counts)]
        texts = iter(array._replace(values=listed).as_json().rows)
    answers = [
        values[end - count : end].tobytes() if is_raw else b",".join(islice(texts, count))
        for count, end, is_raw in zip(counts, accumulate(counts), raw, strict=True)
    ]
    tensor = TensorForm(array.form.datatype, array.form.shape)
    return Dealt(answers, [tensor if is_raw else array.form for is_raw in raw])


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
