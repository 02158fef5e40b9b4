"""Example results: the warm-up's, or made-up values with the type and shape of earlier results.

Clients' results never appear.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from uncork_gateway.dialects.base import Dialect, HandlerResult
from uncork_gateway.errors import GatewayError
from uncork_gateway.pages.models.tensors import Outputs
from uncork_gateway.pages.openapi.bodies import Schema, csv_text, media_content
from uncork_gateway.protocols.tensor_rows import OUTPUT
from uncork_gateway.protocols.tensors import TensorSpec
from uncork_workers.wire.forms import ListForm
from uncork_workers.wire.schema import CSV, JSON, ApiDescription

ONE_ROW = "one row"
"""The name of the example of a request or a response with one row."""

_OF_WARM_UP = "result of the warm-up example"
_MADE_UP = "made-up values with the type and shape of earlier results"
_MOST_BYTES = 16 * 2**10
_MOST_VALUES = 64
_VARYING_LENGTH = 2
_BATCH_ID = "5e0c71b4-12"
_ROWS = "One result, or a list with one result per row."
_OWN = "The handler's own response: JSON, text, bytes, or any other content type."
_STREAM = (
    "A stream of text, bytes, JSON lines, or any other content type. "
    "If it ends before its last chunk, the handler failed."
)
_ANY = "*/*"


class ExampleResult(NamedTuple):
    """The result for one row, and a sentence that says where the result comes from."""

    result: HandlerResult
    origin: str

    @property
    def content_type(self) -> str:
        """The media type of a complete response; empty for a row."""
        return self.result.content_type.partition(";")[0]

    def value(self) -> Any:
        """Return the result as a JSON value, or the text of a complete response of another type."""
        is_json = self.content_type in ("", JSON)
        return msgspec.json.decode(self.result.body) if is_json else self.result.body.decode()


def example_result(outputs: Outputs) -> ExampleResult | None:
    """Return an example of an API's results; None if no result is known, or the example would be large."""
    if outputs.warm_up is None:
        made_up = _made_up(outputs.known())
        return None if made_up is None else ExampleResult(made_up, _MADE_UP)
    example = ExampleResult(outputs.warm_up, _OF_WARM_UP)
    try:
        example.value()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return example if len(example.result.body) <= _MOST_BYTES else None


def examples_of(example: ExampleResult | None, media_type: str) -> Schema:
    """Return the ``examples`` of a media type; empty if it cannot express the result."""
    if example is None:
        return {}
    if media_type == (example.content_type or JSON):
        return {"examples": {ONE_ROW: _named(example.value(), example.origin)}}
    if media_type == CSV and not example.content_type:
        return {"examples": {ONE_ROW: _named(_csv(example.value()), example.origin)}}
    return {}


def reply_example(example: ExampleResult | None, request: Any, dialect: Dialect) -> Schema | None:
    """Return the response to ``request`` as a dialect writes it; None if it cannot express the result."""
    if example is None:
        return None
    try:
        asked = dialect.read(msgspec.json.encode(request), ())
        _, body = dialect.write(example.result, asked, batch_id=_BATCH_ID)
    except GatewayError:
        return None
    return _named(msgspec.json.decode(body), example.origin)


def _named(value: Any, origin: str) -> Schema:
    return {"summary": origin, "value": value}


def _made_up(specs: Sequence[TensorSpec]) -> HandlerResult | None:
    """Return a row with made-up values; None if no output is known, or a value may have any type."""
    if not specs or any(map(_is_too_open, specs)):
        return None
    values = {spec.name: _filled(_value(spec.datatype), spec.shape) for spec in specs}
    if values.keys() != {OUTPUT}:
        return HandlerResult(200, msgspec.json.encode(values))
    [spec] = specs
    form = ListForm(spec.datatype, tuple(map(_length, spec.shape)))
    return HandlerResult(200, msgspec.json.encode(values[OUTPUT]), form)


def _is_too_open(spec: TensorSpec) -> bool:
    """Return True for a large output, or one of BYTES, which may be any JSON as text."""
    return spec.datatype == "BYTES" or math.prod(map(_length, spec.shape)) > _MOST_VALUES


def _length(length: int) -> int:
    return _VARYING_LENGTH if length < 0 else length


def _value(datatype: str) -> bool | float:
    if datatype == "BOOL":
        return True
    return 1 if "INT" in datatype else 0.5


def _filled(value: bool | float, shape: Sequence[int]) -> Any:
    filled: Any = value
    for length in reversed(shape):
        filled = [filled] * _length(length)
    return filled


def _csv(row: Any) -> str:
    """Return a row in the workers' CSV format: columns are named by object keys, or else numbered."""
    values = list(row.values()) if isinstance(row, dict) else row if isinstance(row, list) else [row]
    names = list(row) if isinstance(row, dict) else range(len(values))
    nested = (list, dict)
    cells = [msgspec.json.encode(one).decode() if isinstance(one, nested) else one for one in values]
    return csv_text(names, [cells], line_end="\r\n")


def header(kind: str, description: str = "", *, required: bool = True, **limits: int) -> Schema:
    """Describe a response header; a ``required`` header is always sent."""
    return {
        **({"description": description} if description else {}),
        **({"required": True} if required else {}),
        "schema": {"type": kind, **limits},
    }


REQUEST_ID = {
    "X-Request-Id": header("string", "ID of the request: the client's own, or one that the gateway made."),
}
REPLY_HEADERS = {
    **REQUEST_ID,
    "X-Batch-Id": header("string", "ID of the batch that contained the request."),
    "X-Batch-Size": header("integer", "Rows in that batch.", minimum=1),
    "Server-Timing": header("string", "Time in the queue and in the batch, in milliseconds."),
}


def result_of(api: ApiDescription, example: ExampleResult | None) -> Schema:
    """Describe the successful response at an API's own route."""
    own_type = example.content_type if example is not None else ""
    if api.streams:
        text, media_types = _STREAM, [_ANY]
    elif api.answers_each:
        text, media_types = _OWN, [*([own_type] if own_type else []), _ANY]
    else:
        # The handler of a row may answer with a complete response, too.
        text, media_types = _ROWS, list(dict.fromkeys([*api.offers, *([own_type] if own_type else [])]))
    content = {one: _content(one) | examples_of(example, one) for one in media_types}
    return {"description": text, "headers": REPLY_HEADERS, "content": content}


def any_other() -> Schema:
    """Describe a response whose status the handler chooses."""
    text = "Another status, chosen by the handler."
    return {"description": text, "headers": REQUEST_ID, "content": {_ANY: {}}}


def _content(media_type: str) -> Schema:
    return {} if media_type == _ANY else media_content(media_type, schema={})
