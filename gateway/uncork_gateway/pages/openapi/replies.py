"""Successful responses in the OpenAPI document."""

from uncork_gateway.pages.openapi.bodies import Schema, media_content
from uncork_gateway.pages.openapi.results import ExampleResult, examples_of
from uncork_workers.wire.schema import ApiDescription

_ROWS = "One result, or a list with one result per row."
_OWN = "The handler's own response: JSON, text, bytes, or any other content type."
_STREAM = (
    "A stream of text, bytes, JSON lines, or any other content type. "
    "If it ends before its last chunk, the handler failed."
)
_ANY = "*/*"


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
