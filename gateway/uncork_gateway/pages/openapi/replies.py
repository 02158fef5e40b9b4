"""Answers in the OpenAPI document: results, and errors by status."""

from collections.abc import Mapping, Sequence
from typing import get_args

from uncork_gateway.errors import RefusalReason
from uncork_gateway.pages.openapi.bodies import Schema, media_content
from uncork_workers.wire.schema import ApiDescription

_PROBLEM_REF = {"$ref": "#/components/schemas/Problem"}
_REASONS = ", ".join(get_args(RefusalReason))
PROBLEM: Schema = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What was wrong, and what is accepted."},
        "reason": {
            "type": "string",
            "description": f"Set if the gateway refused to execute the request: {_REASONS}.",
        },
    },
}
_ERRORS = {
    "400": "Malformed input; only this request fails.",
    "401": "The API key is missing or unknown.",
    "408": "The client sent the request too slowly.",
    "413": "The body exceeds the size limit.",
    "414": "The request target is too long.",
    "415": "The API does not accept the content type, or the content encoding is not supported.",
    "431": "The request headers are too large.",
    "500": "The handler failed on this request. Find the traceback in the log by the response's error id.",
    "502": "The worker died, and a retry failed or was not allowed.",
    "503": "Overloaded, no worker is ready, or the server is shutting down. Retry after `Retry-After`.",
    "504": "The batch exceeded the API's timeout, or X-Request-Timeout-Ms expired.",
}


def _header(kind: str, description: str = "", *, required: bool = True, **limits: int) -> Schema:
    return {
        **({"description": description} if description else {}),
        **({"required": True} if required else {}),
        "schema": {"type": kind, **limits},
    }


REPLY_HEADERS = {
    "X-Batch-Id": _header("string", "ID of the batch that contained the request."),
    "X-Batch-Size": _header("integer", "Rows in that batch.", minimum=1),
    "Server-Timing": _header("string", "Time in the queue and in the batch, in milliseconds."),
}
_ACCEPT_ENCODING = _header(
    "string", "The supported content encodings, if the request's is not among them.", required=False
)
# Headers of errors besides content type and length.
_ERROR_HEADERS: Mapping[str, Schema] = {
    "401": {"WWW-Authenticate": _header("string")},
    "415": {"Accept-Encoding": _ACCEPT_ENCODING},
    "503": {"Retry-After": _header("integer", "Seconds to wait before a retry.", minimum=1)},
}
_REFUSED = "The handler rejected this request, with a status of its choice."
_OWN: Schema = {
    "description": "The handler's own response: JSON, text, bytes, or any other content type.",
    "headers": REPLY_HEADERS,
    "content": {"*/*": {}},
}
_STREAM: Schema = {
    "description": "A stream of text, bytes, JSON lines, or any other content type. "
    "If it ends before its last chunk, the handler failed.",
    "headers": REPLY_HEADERS,
    "content": {"*/*": {}},
}


def responses_of(api: ApiDescription) -> Schema:
    """Return the answers at the route of an API, by status."""
    own = {"description": "Another status, chosen by the handler.", "content": {"*/*": {}}}
    return {
        "200": _STREAM if api.streams else _OWN if api.answers_each else _results(api.offers),
        **{status: _error(status, text) for status, text in _ERRORS.items()},
        "default": own if api.answers_each or api.streams else _error("default", _REFUSED),
    }


def _results(offers: Sequence[str]) -> Schema:
    return {
        "description": "One result, or a list with one result per row.",
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
