"""Answers in the OpenAPI document: results, and errors by status."""

from collections.abc import Mapping, Sequence
from typing import get_args

from uncork_gateway.errors import ERROR_WRITERS, RefusalReason
from uncork_gateway.pages.openapi.bodies import Schema, media_content
from uncork_workers.wire.schema import ApiDescription, ErrorFormat

_REASONS = ", ".join(get_args(RefusalReason))
_PROBLEM: Schema = {
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
_OPENAI_ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string", "description": "What was wrong, and what is accepted."},
                "type": {"enum": ["invalid_request_error", "server_error"]},
                "param": {"type": "null"},
                "code": {
                    "type": ["string", "null"],
                    "description": f"Set if the gateway refused to execute the request: {_REASONS}.",
                },
            },
        }
    },
}
_ERROR_SCHEMAS: Mapping[ErrorFormat, tuple[str, Schema]] = {
    "problem": ("Problem", _PROBLEM),
    "openai": ("OpenAIError", _OPENAI_ERROR),
}
# The gateway answers before it looks at the route.
_ALWAYS_PROBLEMS = ("401", "414", "431")
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


def error_schemas(apis: Sequence[ApiDescription]) -> Schema:
    """Return the schemas of the errors of some APIs, by name."""
    used = {"problem", *(api.errors for api in apis)}
    return dict(named for errors, named in _ERROR_SCHEMAS.items() if errors in used)


def responses_of(api: ApiDescription) -> Schema:
    """Return the answers at the route of an API, by status."""
    own = {"description": "Another status, chosen by the handler.", "content": {"*/*": {}}}
    return {
        "200": _STREAM if api.streams else _OWN if api.answers_each else _results(api.offers),
        **{status: _error(status, text, api.errors) for status, text in _ERRORS.items()},
        "default": own if api.answers_each or api.streams else _error("default", _REFUSED, api.errors),
    }


def _results(offers: Sequence[str]) -> Schema:
    return {
        "description": "One result, or a list with one result per row.",
        "headers": REPLY_HEADERS,
        "content": {media_type: media_content(media_type, schema={}) for media_type in offers},
    }


def _error(status: str, description: str, errors: ErrorFormat) -> Schema:
    headers = _ERROR_HEADERS.get(status)
    errors = "problem" if status in _ALWAYS_PROBLEMS else errors
    reference = {"$ref": f"#/components/schemas/{_ERROR_SCHEMAS[errors][0]}"}
    return {
        "description": description,
        **({"headers": headers} if headers else {}),
        "content": {ERROR_WRITERS[errors].media_type: {"schema": reference}},
    }
