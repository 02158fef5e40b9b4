"""From what a handler returned to what each caller gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from uncork_workers.definition.adapters.tensors import BYTES, form_of
from uncork_workers.definition.outputs.answers import Rejected, Response, WrongResult
from uncork_workers.definition.outputs.images import DEFAULT_IMAGE, encode_image, is_image
from uncork_workers.definition.outputs.json import encode_json, values_of
from uncork_workers.definition.outputs.result_errors import no_results, wrong_count
from uncork_workers.definition.outputs.tables import as_rows, encode_csv
from uncork_workers.wire.messages import ListForm, RowResult
from uncork_workers.wire.schema import CSV, JSON

__all__ = ["Answer", "Array", "Encoded", "Rejected", "Response", "WrongResult", "encode", "row_result"]

_OCTETS = "application/octet-stream"
_TEXT = "text/plain; charset=utf-8"
# What is JSON without a second look.
_PLAIN = frozenset((float, int, str, bool, list, dict, type(None)))
_OWN = (Rejected, Response, bytes, bytearray, memoryview)
_OK = 200
# It travels in the header of a frame; the outputs of an api whose rows are larger are learned from answers.
_MOST_RESULT_BYTES = 64 * 1024


class Answer(NamedTuple):
    """What one request gets in the place of results; without a type the body says why it is refused."""

    status: int
    body: bytes
    content_type: str = ""
    headers: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """Results, one text for each row.

    Attributes:
        rows: JSON texts, or lines of CSV.
        content_type: what the body of an answer is; empty for rows that the gateway makes a body of.
        head: what comes before the rows of an answer.
        between: what comes between them.
        form: of the rows, if they are JSON of an array.
        answers: by position, what is given in the place of a row.
    """

    rows: list[bytes]
    content_type: str = ""
    head: bytes = b""
    between: bytes = b","
    form: ListForm | None = None
    answers: Mapping[int, Answer] = field(default_factory=dict)

    @property
    def has_rows(self) -> bool:
        """Whether not every row has an answer in its place."""
        return len(self.answers) < len(self.rows)


class Array(NamedTuple):
    """Results that are one array of numbers or booleans, and what they are as JSON."""

    values: np.ndarray[Any, Any]
    form: ListForm

    def as_json(self) -> Encoded:
        """The same, one JSON text for each row."""
        return encode(self.values, expected=len(self.values))


def as_array(results: object, *, expected: int) -> Array | None:
    """Results whose rows can be dealt out raw; None if they are no array, or one of anything else.

    Raises:
        WrongResult: if there are not ``expected`` rows.
    """
    form = form_of(results)
    if not isinstance(results, np.ndarray) or results.ndim == 0 or form is None or form.datatype == BYTES:
        return None
    _check_count(len(results), expected)
    return Array(results, form)


def encode(results: object, *, expected: int, accept: str = "") -> Encoded:
    """Encode ``expected`` results in the media type ``accept``, if they can be; else as JSON, files or bytes.

    Raises:
        WrongResult: if there are not so many results, or one cannot be written.
    """
    form = form_of(results)
    rows = _listed(results, expected)
    if accept != CSV and (form or _PLAIN.issuperset(map(type, rows))):
        return Encoded(rows=encode_json(rows), form=form)
    answers = {at: _own(row, accept) for at, row in enumerate(rows) if _is_own(row)}
    left = [at for at in range(len(rows)) if at not in answers]
    others = [rows[at] for at in left]
    if accept == CSV and others:
        head, lines = encode_csv(others)
        encoded = Encoded(rows=lines, content_type=CSV, head=head, between=b"")
    else:
        encoded = Encoded(rows=encode_json(others, places=left))
    texts = iter(encoded.rows)
    return replace(
        encoded, rows=[b"" if at in answers else next(texts) for at in range(len(rows))], answers=answers
    )


def row_result(results: object) -> RowResult | None:
    """Return the result for the first row, of results that :func:`encode` has written.

    None if it is a whole answer, such as a file, or its JSON is large.
    """
    if (form := form_of(results)) is not None:
        return RowResult(form=form)
    first = _as_sequence(results)[0]
    if _is_own(first):
        return None
    [body] = encode_json([first])
    return RowResult(body=body) if len(body) <= _MOST_RESULT_BYTES else None


def encode_each(results: object, *, expected: int) -> Encoded:
    """Encode each of ``expected`` results as an answer of its own: bytes, text, JSON or a response.

    Raises:
        WrongResult: if there are not so many results, or one cannot be written.
    """
    rows = _listed(results, expected)
    return Encoded(rows=[b""] * len(rows), answers={at: _own(row) for at, row in enumerate(rows)})


def _is_own(row: Any) -> bool:
    """Whether a result is a whole answer: it shares a body with no other."""
    return isinstance(row, _OWN) or is_image(row)


def _own(row: Any, accept: str = "") -> Answer:
    match row:
        case Rejected(status, detail):
            return Answer(status, detail.encode())
        case Response(body, status, headers, content_type):
            content, kind = (b"", _OCTETS) if row.is_bodiless else _content(body, accept)
            return Answer(status, content, content_type or kind, tuple(headers.items()))
        case _:
            return Answer(_OK, *_content(row, accept))


def _content(body: Any, accept: str) -> tuple[bytes, str]:
    """A body and its media type."""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), _OCTETS
    if isinstance(body, str):
        return body.encode(), _TEXT
    if is_image(body):
        media_type = accept if accept.startswith("image/") else DEFAULT_IMAGE
        return encode_image(body, media_type), media_type
    [text] = encode_json([body])
    return text, JSON


def _listed(results: object, expected: int) -> Sequence[Any]:
    results = _as_sequence(results)
    if not isinstance(results, list | tuple):
        raise no_results(results, expected)
    _check_count(len(results), expected)
    return results


def _as_sequence(results: object) -> Any:
    """Results as a list, if there is one in them."""
    if isinstance(results, np.ndarray) and results.ndim > 0:
        return values_of(results)
    return results if isinstance(results, list) else as_rows(results)


def _check_count(got: int, expected: int) -> None:
    if got != expected:
        raise wrong_count(got, expected)
