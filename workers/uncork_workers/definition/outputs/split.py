"""Join the encoded results of several handler calls, and split them into responses."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import NamedTuple

import numpy as np

from uncork_workers.definition.outputs.encoding import OK, Array, CompleteResponse, Encoded
from uncork_workers.definition.outputs.json import UNWRITABLE, encode_json
from uncork_workers.definition.outputs.responses import WrongResult
from uncork_workers.definition.outputs.tensors import Values, join_values
from uncork_workers.wire.forms import ListForm, RecordsForm, RowsForm, TensorForm, Wanted, common_form
from uncork_workers.wire.tensors import BYTES


class SplitResults(NamedTuple):
    """For each request its encoded rows, or a complete response, and the form of its rows."""

    bodies: Sequence[bytes | CompleteResponse]
    forms: Sequence[RowsForm]


def join_chunks(chunks: Sequence[Encoded | Array]) -> Encoded | Array:
    """Join the results of several handler calls. Arrays that differ in datatype or shape become lists.

    Raises:
        WrongResult: if the calls' results differ in content type or columns.
    """
    arrays = [chunk for chunk in chunks if isinstance(chunk, Array)]
    if len(arrays) == len(chunks) and len({array.form for array in arrays}) == 1:
        return Array(np.concatenate([array.values for array in arrays]), arrays[0].form)
    texts = [chunk.as_json() if isinstance(chunk, Array) else chunk for chunk in chunks]
    with_rows = [chunk for chunk in texts if chunk.has_rows] or texts[:1]
    first = with_rows[0]
    if len({(chunk.content_type, chunk.head) for chunk in with_rows}) > 1:
        raise WrongResult(
            "the handler's results differ in content type or columns between calls for one batch"
        )
    starts = accumulate((len(chunk.rows) for chunk in texts), initial=0)
    values = [chunk.values for chunk in texts if chunk.values is not None]
    alike = len({chunk.form for chunk in with_rows}) == 1
    is_settled = len(values) == len(texts) or (alike and not values)
    return Encoded(
        rows=list(chain.from_iterable(chunk.rows for chunk in texts)),
        content_type=first.content_type,
        head=first.head,
        between=first.between,
        form=first.form if alike else None,
        responses={
            start + at: response
            for start, chunk in zip(starts, texts, strict=False)
            for at, response in chunk.responses.items()
        },
        values=join_values(values) if len(values) == len(texts) else None,
        forms=() if is_settled else list(chain.from_iterable(map(_forms, texts))),
    )


def split_results(
    results: Encoded | Array, counts: Sequence[int], raw: Sequence[Wanted] = ()
) -> SplitResults:
    """Split results into one body per request.

    Args:
        results: of all requests.
        counts: the number of rows of each request.
        raw: how each request gets its rows; empty if all get JSON.

    Raises:
        WrongResult: if a request of several rows would get a complete response.
    """
    if isinstance(results, Array):
        return _split_array(results, counts, raw)
    forms: list[RowsForm] = [results.form] * len(counts)
    if (
        results.values is None
        and not results.forms
        and not results.responses
        and not results.content_type
        and len(results.rows) == len(counts)
    ):
        return SplitResults(results.rows, forms)
    bodies: list[bytes | CompleteResponse] = []
    for at, (count, end) in enumerate(zip(counts, accumulate(counts), strict=True)):
        body = _body(results, end - count, end)
        if not isinstance(body, bytes):
            forms[at] = None
        elif results.values is not None:
            body, forms[at] = _as_wanted(results.values, end - count, end, raw[at] if raw else "", body)
        elif results.forms and not (raw and raw[at]):
            forms[at] = common_form(results.forms[end - count : end])
        bodies.append(body)
    return SplitResults(bodies, forms)


def _forms(chunk: Encoded) -> list[ListForm | RecordsForm | None]:
    """Return the form that each row has alone."""
    values = chunk.values
    if values is None:
        return [chunk.form] * len(chunk.rows)
    return [None if at in chunk.responses else values.part(at, at + 1).form for at in range(len(chunk.rows))]


def _as_wanted(values: Values, start: int, end: int, wanted: Wanted, text: bytes) -> tuple[bytes, RowsForm]:
    """Return the rows of a request as it wants them, and their form; ``text`` is their JSON."""
    if wanted == "tensors":
        return _tensors(values, start, end)
    form = values.part(start, end).form
    is_array = isinstance(form, ListForm) and form.datatype != BYTES
    return _tensors(values, start, end) if wanted == "npy" and is_array else (text, form)


def _tensors(values: Values, start: int, end: int) -> tuple[bytes, RowsForm]:
    part = values.part(start, end)
    try:
        return part.tensors()
    except UNWRITABLE as error:
        encode_json(list(part.rows), places=range(start, end))  # names the value and its place
        raise WrongResult(f"the results cannot be written as tensors: {error}") from error


def _split_array(array: Array, counts: Sequence[int], raw: Sequence[Wanted]) -> SplitResults:
    values = array.values.astype(array.values.dtype.newbyteorder("<"), copy=False)
    texts: Iterator[bytes] = iter(())
    if not all(raw):
        listed = values[np.repeat([not wanted for wanted in raw], counts)]
        texts = iter(array._replace(values=listed).as_json().rows)
    bodies = [
        values[end - count : end].tobytes() if is_raw else b",".join(islice(texts, count))
        for count, end, is_raw in zip(counts, accumulate(counts), raw, strict=True)
    ]
    tensor = TensorForm(array.form.datatype, array.form.shape)
    return SplitResults(bodies, [tensor if is_raw else array.form for is_raw in raw])


def _body(encoded: Encoded, start: int, end: int) -> bytes | CompleteResponse:
    responses = [encoded.responses[at] for at in range(start, end) if at in encoded.responses]
    rejection = next((response for response in responses if not response.content_type), None)
    if rejection is not None:
        return rejection
    if responses:
        if end - start > 1:
            raise WrongResult("a request with several rows cannot be answered with a file or a Response")
        return responses[0]
    body = encoded.head + encoded.between.join(encoded.rows[start:end])
    return CompleteResponse(OK, body, encoded.content_type) if encoded.content_type else body
