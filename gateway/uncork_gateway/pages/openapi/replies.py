"""Answers in the OpenAPI document: results, and errors by status."""

from collections.abc import Mapping, Sequence

from uncork_gateway.pages.openapi.bodies import Schema, media_content
from uncork_workers.wire.schema import ApiDescription

_PROBLEM_REF = {"$ref": "#/components/schemas/Problem"}
PROBLEM: Schema = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "what was wrong, and what is accepted"},
    },
}
_ERRORS = {
    "400": "Malformed input; only this request fails.",
    "401": "The API key is missing or unknown.",
    "408": "The client sent the request too slowly.",
    "413": "The body is over the limit.",
    "414": "The target is too long.",
    "415": "The api does not accept the content type, or the content encoding is unknown.",
    "431": "The header section is too large.",
    "500": "The handler failed on this request; the log has the traceback under the error id in the answer.",
    "502": "The worker died, and a retry failed or was not allowed.",
    "503": "Refused: overloaded, no worker is ready, or the server is stopping.",
    "504": "The batch ran past its timeout, or the time in X-Request-Timeout-Ms passed.",
}


def _header(kind: str, description: str = "", *, required: bool = True, **limits: int) -> Schema:
    return {
        **({"description": description} if description else {}),
        **({"required": True} if required else {}),
        "schema": {"type": kind, **limits},
    }


REPLY_HEADERS = {
    "X-Batch-Id": _header("string", "The batch that the request was in."),
    "X-Batch-Size": _header("integer", "Rows in that batch.", minimum=1),
    "Server-Timing": _header("string", "Time in milliseconds: queue, batch."),
}
_ACCEPT_ENCODING = _header(
    "string", "The accepted content encodings, if the encoding was unknown.", required=False
)
# Headers of errors besides content type and length.
_ERROR_HEADERS: Mapping[str, Schema] = {
    "401": {"WWW-Authenticate": _header("string")},
    "415": {"Accept-Encoding": _ACCEPT_ENCODING},
    "503": {"Retry-After": _header("integer", "Seconds.", minimum=1)},
}
_REFUSED = "The handler refused this request, with a status of its choice."
_OWN: Schema = {
    "description": "The handler's own answer: JSON, text, bytes, or any other content type.",
    "headers": REPLY_HEADERS,
    "content": {"*/*": {}},
}
_STREAM: Schema = {
    "description": "A stream of text, bytes, lines of JSON, or any other content type. "
    "If it ends before its last chunk, the handler failed.",
    "headers": REPLY_HEADERS,
    "content": {"*/*": {}},
}


def responses_of(api: ApiDescription) -> Schema:
    """Return the answers at the route of an API, by status."""
    own = {"description": "Another status that the handler has chosen.", "content": {"*/*": {}}}
    return {
        "200": _STREAM if api.streams else _OWN if api.answers_each else _results(api.offers),
        **{status: _error(status, text) for status, text in _ERRORS.items()},
        "default": own if api.answers_each or api.streams else _error("default", _REFUSED),
    }


def _results(offers: Sequence[str]) -> Schema:
    return {
        "description": "One result, or one for each row.",
        "headers": REPLY_HEADERS,
        "content": {media_type: media_content(media_type, schema={}) for media_type in offers},
    }


def _error(status: str, description: str) -> Schema:
    headers = _ERROR_HEADERS.get(status)
    return {
        "description": description,
        **({"headers": headers} if headers else {}),
        "content": {"application/problem+json": {"schema": _PROBLEM_REF}},
    }
