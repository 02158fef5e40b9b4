"""Encode a handler's results, one text per row."""

import io
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from uncork_workers.definition.adapters.tensors import form_of
from uncork_workers.definition.outputs.arrays import as_numpy
from uncork_workers.definition.outputs.json import encode_json, values_of
from uncork_workers.definition.outputs.responses import (
    Rejected,
    Response,
    WrongResult,
    check_count,
    no_results,
)
from uncork_workers.definition.outputs.tables import as_rows, columns_of, encode_csv, rows_of
from uncork_workers.definition.outputs.tensors import (
    Values,
    any_lacks_forms,
    lacks_forms,
    named,
    records_form,
)
from uncork_workers.wire.forms import ListForm, RecordsForm
from uncork_workers.wire.frames import encodable
from uncork_workers.wire.messages import RowResult
from uncork_workers.wire.schema import CSV, JSON
from uncork_workers.wire.tensors import BYTES

OK = 200
OCTETS = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"
_IMAGE_FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP"}
_DEFAULT_IMAGE = "image/png"
# Types that are always JSON.
_SIMPLE = frozenset((float, int, str, bool, list, type(None)))
_PLAIN = _SIMPLE | {dict}
# The header of a frame carries the result. For larger rows the gateway learns the outputs from responses.
_MOST_RESULT_BYTES = 64 * 1024


class CompleteResponse(NamedTuple):
    """A response that replaces the rows of a request; without a content type the body is an error message."""

    status: int
    body: bytes
    content_type: str = ""
    headers: Sequence[tuple[str, str]] = ()


class Encoded(NamedTuple):
    """Encoded results.

    Attributes:
        rows: one JSON text or line of CSV per row.
        content_type: content type of a response; empty if the gateway composes its body.
        head: bytes before the rows of a response.
        between: bytes between its rows.
        form: the form of JSON rows that come from arrays.
        responses: complete responses, by position of the row that they replace.
        values: the results, if a request wants them raw, or their arrays have no form in common; else None.
        forms: the form of each row, if handler calls differ in it and not all have values; else empty.
    """

    rows: list[bytes]
    content_type: str = ""
    head: bytes = b""
    between: bytes = b","
    form: ListForm | RecordsForm | None = None
    responses: Mapping[int, CompleteResponse] = MappingProxyType({})
    values: Values | None = None
    forms: Sequence[ListForm | RecordsForm | None] = ()

    def copied(self) -> "Encoded":
        """Return these results with arrays of their own."""
        return self if self.values is None else self._replace(values=self.values.copied())

    @property
    def has_rows(self) -> bool:
        """True unless a complete response replaces every row."""
        return len(self.responses) < len(self.rows)


class Array(NamedTuple):
    """Results that are one array of numbers or booleans, with the form of their rows as JSON."""

    values: np.ndarray[Any, Any]
    form: ListForm

    def copied(self) -> "Array":
        """Return these results with an array of their own."""
        return self._replace(values=self.values.copy())

    def as_json(self) -> Encoded:
        """Encode the rows as JSON texts, with their values."""
        return encode(self.values, expected=len(self.values), as_tensors=True)


def as_array(results: object, *, expected: int) -> Array | None:
    """Return results whose rows can be sent raw; None if they are not an array of numbers or booleans.

    Raises:
        WrongResult: if there are not ``expected`` rows.
    """
    results = as_numpy(results)
    form = form_of(results)
    if not isinstance(results, np.ndarray) or results.ndim == 0 or form is None or form.datatype == BYTES:
        return None
    check_count(len(results), expected)
    return Array(results, form)


def encode(
    results: object, *, expected: int, accept: str = "", as_json: bool = True, as_tensors: bool = False
) -> Encoded:
    """Encode ``expected`` results in the media type ``accept`` if possible, else as JSON, files or bytes.

    Args:
        results: what the handler returned.
        expected: how many there must be.
        accept: the media type.
        as_json: whether a request wants JSON; else the texts of rows are empty.
        as_tensors: whether a request wants them raw.

    Raises:
        WrongResult: if the number of results is wrong, or one cannot be written.
    """
    if type(results) is list and not (as_tensors or accept) and _SIMPLE.issuperset(map(type, results)):
        check_count(len(results), expected)
        return Encoded(encode_json(results))
    results = as_numpy(results)
    if isinstance(results, np.ndarray) and results.dtype == object and results.ndim:
        results = as_numpy(results.tolist())
    form = by_name = None
    if isinstance(results, np.ndarray) and results.ndim:
        form = form_of(results)
        rows: Sequence[Any] = values_of(results)
        check_count(len(rows), expected)
    else:
        columns = None if isinstance(results, list) else columns_of(results)
        rows = _listed(results if columns is None else rows_of(columns), expected)
        by_name = None if columns is None else named(columns)
    values = Values(results if isinstance(results, np.ndarray) else rows, by_name)
    if accept != CSV and (form or _PLAIN.issuperset(map(type, rows))):
        lines = encode_json(rows) if as_json else [b""] * len(rows)
        found = None if form else records_form(rows, by_name)
        keeps = as_tensors or (form is None and any_lacks_forms(values, found))
        return Encoded(rows=lines, form=form or found, values=values if keeps else None)
    responses = {at: _response(row, accept) for at, row in enumerate(rows) if _is_response(row)}
    left = [at for at in range(len(rows)) if at not in responses]
    others = [rows[at] for at in left]
    if accept == CSV and others:
        head, lines = encode_csv(others)
        encoded = Encoded(rows=lines, content_type=CSV, head=head, between=b"")
    else:
        lines = encode_json(others, places=left)
        common = Values(others).form
        keeps = as_tensors or any(lacks_forms(row, common) for row in others)
        encoded = Encoded(rows=lines, form=common, values=values if keeps else None)
    texts = iter(encoded.rows)
    all_rows = [b"" if at in responses else next(texts) for at in range(len(rows))]
    return encoded._replace(rows=all_rows, responses=responses)


def row_result(results: object, *, answers_each: bool = False) -> RowResult | None:
    """Return the result for the first row; None if it is an error or a file, or its JSON is large.

    With ``answers_each`` every result is a complete response.
    """
    results = as_numpy(results)
    # A large batch of images as Python lists would take too much memory.
    rows = _as_sequence(results[:1] if isinstance(results, np.ndarray) else results)
    first = rows[0]
    if answers_each or _is_response(first):
        return _text_result(_response(first))
    columns = columns_of(results)
    form = form_of(results) or records_form(rows, None if columns is None else named(columns))
    [body] = encode_json([first])
    if len(body) > _MOST_RESULT_BYTES:
        return None if form is None else RowResult(form=form)
    return RowResult(body=body, form=form)


def _text_result(response: CompleteResponse) -> RowResult | None:
    content_type = response.content_type
    is_text = response.status == OK and content_type.startswith((JSON, "text/"))
    is_small = len(response.body) <= _MOST_RESULT_BYTES
    return RowResult(body=response.body, content_type=content_type) if is_text and is_small else None


def encode_each(results: object, *, expected: int) -> Encoded:
    """Encode each of ``expected`` results as a complete response: bytes, text, JSON or a ``Response``.

    Raises:
        WrongResult: if the number of results is wrong, or one cannot be written.
    """
    rows = _listed(results, expected)
    return Encoded(rows=[b""] * len(rows), responses={at: _response(row) for at, row in enumerate(rows)})


def _is_response(row: Any) -> bool:
    """Return whether a result is a complete response, which shares a body with no other."""
    return isinstance(row, Rejected | Response | bytes | bytearray | memoryview) or is_image(row)


def _response(row: Any, accept: str = "") -> CompleteResponse:
    match row:
        case Rejected(status, detail):
            return CompleteResponse(status, encodable(detail).encode())
        case Response(body, status, _, content_type):
            content, media_type = (b"", OCTETS) if row.is_bodiless else _content(body, accept)
            return CompleteResponse(status, content, content_type or media_type, row.checked_headers())
        case _:
            return CompleteResponse(OK, *_content(row, accept))


def _content(body: Any, accept: str) -> tuple[bytes, str]:
    """Return an encoded body and its media type."""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), OCTETS
    if isinstance(body, str):
        return body.encode(), TEXT
    if is_image(body):
        media_type = accept if accept.startswith("image/") else _DEFAULT_IMAGE
        return _encode_image(body, media_type), media_type
    [text] = encode_json([body])
    return text, JSON


def is_image(result: object) -> bool:
    """Return whether a result is a Pillow image, without importing Pillow."""
    return any(base.__module__ == "PIL.Image" for base in type(result).__mro__)


def _encode_image(image: Any, media_type: str) -> bytes:
    image_format = _IMAGE_FORMATS[media_type]
    file = io.BytesIO()
    try:
        # JPEG has no transparency.
        if image_format == "JPEG" and image.mode not in ("RGB", "L", "CMYK"):
            image = image.convert("RGB")
        image.save(file, image_format)
    except (OSError, ValueError, SystemError) as error:
        raise WrongResult(f"an image cannot be written as {image_format}: {error}") from error
    return file.getvalue()


def _listed(results: object, expected: int) -> Sequence[Any]:
    results = _as_sequence(results)
    if not isinstance(results, list | tuple):
        raise no_results(results, expected)
    check_count(len(results), expected)
    return results


def _as_sequence(results: object) -> Any:
    """Convert arrays and tables to lists; return anything else unchanged."""
    if isinstance(results, list):
        return results
    if isinstance(results, np.ndarray) and results.ndim > 0:
        return values_of(results)
    return as_rows(results)
