"""Errors in the OpenAPI document, with the texts that the gateway sends."""

from collections.abc import Iterator, Mapping
from typing import get_args

import msgspec

from uncork_dispatcher import BatchTimedOut, DispatchError, RequestExpired, RequestShed, WorkerLost
from uncork_dispatcher.actions import ShedReason
from uncork_gateway.auth import REFUSAL
from uncork_gateway.connection.client_limits import too_long, wrong_host
from uncork_gateway.connection.decompression import UnknownEncoding
from uncork_gateway.connection.timeouts import slow_body
from uncork_gateway.dialects import Native
from uncork_gateway.dialects.base import Dialect
from uncork_gateway.errors import (
    PROBLEM_JSON,
    GatewayError,
    HandlerFailed,
    RefusalReason,
    Refused,
    UnsupportedMediaType,
    from_dispatcher,
    no_room,
    problem,
)
from uncork_gateway.headers import TIMEOUT, Header
from uncork_gateway.pages.openapi.bodies import Schema
from uncork_gateway.pages.openapi.results import REQUEST_ID, header
from uncork_gateway.requests.head import read_head, too_large
from uncork_gateway.settings import ServerSettings

_REASONS = ", ".join(get_args(RefusalReason))
_ABOUT_REASONS = f"Set if the gateway refused the request: {_REASONS}."
PROBLEM: Schema = {
    "description": "A problem document (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What was wrong, and what is accepted."},
        "reason": {"type": "string", "description": _ABOUT_REASONS},
        "request_id": {"type": "string", "description": "The id in X-Request-Id."},
    },
}
ERROR: Schema = {
    "description": "An error of KServe, TensorFlow Serving and the Open Inference Protocol.",
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string", "description": "What was wrong, and what is accepted."}},
}
OPENAI_ERROR: Schema = {
    "description": "An error as OpenAI's API returns it.",
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
                "code": {"type": ["string", "null"], "description": _ABOUT_REASONS},
            },
        }
    },
}
_TEXTS = {
    400: "The body or a header is malformed. Other requests of the batch are not affected.",
    401: "The API key is missing or unknown.",
    408: "The request arrives too slowly.",
    413: "The body exceeds the size limit.",
    414: "The request target is too long.",
    415: "The API does not accept the content type or the content encoding.",
    421: "The host in the URL is not one of those that the server accepts.",
    431: "The request headers are too large.",
    500: "The handler failed on this request. The server's log has the traceback under the error id.",
    502: "The worker died while it ran the request, and a retry failed or was not allowed.",
    503: "The server is overloaded, not ready or shutting down. Retry after `Retry-After` seconds.",
    504: "The batch exceeded the API's timeout, or the time in `X-Request-Timeout-Ms` passed.",
}
_OTHER = "The handler rejected the request, with a status of its choice."
# The connection finds these before it knows the route.
_BEFORE_ROUTE = (414, 421, 431)
# Headers besides content type and length.
_HEADERS: Mapping[int, Schema] = {
    401: {"WWW-Authenticate": header("string", "The accepted scheme; `X-Api-Key` is accepted as well.")},
    415: {
        "Accept-Encoding": header(
            "string", "The supported content encodings, if the request has another one.", required=False
        )
    },
    503: {"Retry-After": header("integer", "Seconds to wait before a retry.", minimum=1)},
}
_SHED: Mapping[str, ShedReason] = {
    "overloaded": "deadline",
    "queue full": "queue_full",
    "no worker": "no_worker",
    "shutting down": "draining",
}
# Each codec rejects one of these.
_WRONG_BODIES = (b'{"column": 1}', b"{", b"\xff")
_UNKNOWN_TYPE = [(b"content-type", b"application/xml")]
_WRONG_TIMEOUT = [(TIMEOUT, b"soon")]
_NO_KEY = Refused(REFUSAL, 401)
_ERROR_ID = "4d6a9f2c81e0"
_LONG_TARGET = b"/" * 2**15


def errors_of(api: str, dialect: Dialect, settings: ServerSettings) -> Schema:
    """Return the errors that a route of an API can send in this dialect, by status."""
    by_status: dict[int, dict[str, GatewayError]] = {}
    for name, error in _errors(api, dialect, settings):
        by_status.setdefault(error.status, {})[name] = error
    responses: Schema = {
        str(status): _response(status, errors, dialect) for status, errors in sorted(by_status.items())
    }
    return responses


def other_errors(dialect: Dialect) -> Schema:
    """Return the response to a request that the handler rejects with a status of its choice."""
    media_type, body = _written(dialect, Refused("", 422))
    return {
        "description": _OTHER,
        "headers": REQUEST_ID,
        "content": {media_type: {"schema": _reference(body)}},
    }


def key_error(dialect: Dialect, settings: ServerSettings) -> Schema:
    """Return the 401 response by status; empty if no key is required."""
    return {} if settings.keys is None else {"401": _response(401, {"key": _NO_KEY}, dialect)}


def _errors(api: str, dialect: Dialect, settings: ServerSettings) -> Iterator[tuple[str, GatewayError]]:
    """Yield an example of each error, with a name that is unique for its status."""
    most = settings.max_body_bytes
    yield from _of_input(dialect)
    if rejection := read_head(_WRONG_TIMEOUT, b"/", max_body_bytes=most).rejection:
        yield "header", rejection
    if settings.keys is not None:
        yield "key", _NO_KEY
    yield "slow", slow_body(0, settings.clients.body_timeout_s)
    yield "size", too_large(most)
    yield "target", too_long(_LONG_TARGET)
    if settings.clients.allowed_hosts:
        yield "host", wrong_host(b"other.example.com")
    yield "content encoding", UnknownEncoding(b"br")
    yield "headers", too_long(b"/")
    yield "handler", HandlerFailed(f"the handler of API {api!r} failed; error id {_ERROR_ID}")
    yield "worker", _dispatched(WorkerLost())
    for name, reason in _SHED.items():
        yield name, _dispatched(RequestShed(reason))
    yield "large bodies", no_room()
    yield "timeout", _dispatched(BatchTimedOut())
    yield "client's timeout", _dispatched(RequestShed("client_deadline"))
    yield "client's timeout, running", _dispatched(RequestExpired())


def _of_input(dialect: Dialect) -> Iterator[tuple[str, GatewayError]]:
    """Yield the errors that malformed requests cause; none for inputs that only the worker reads."""
    rejections = (_rejection(dialect, body) for body in _WRONG_BODIES)
    wrong = next((rejection for rejection in rejections if rejection is not None), None)
    if wrong is not None:
        yield "body", wrong
    unknown = _rejection(dialect, b"", _UNKNOWN_TYPE)
    if isinstance(unknown, UnsupportedMediaType):
        yield "content type", unknown


def _rejection(dialect: Dialect, body: bytes, headers: list[Header] | None = None) -> GatewayError | None:
    try:
        dialect.read(body, dialect.keep(headers or [], b"/"))
    except GatewayError as error:
        return error
    return None


def _dispatched(error: DispatchError) -> GatewayError:
    return from_dispatcher(error, executor="worker")


def _response(status: int, errors: Mapping[str, GatewayError], dialect: Dialect) -> Schema:
    written = {name: _written(dialect, error) for name, error in errors.items()}
    media_type, first = next(iter(written.values()))
    examples = {name: {"value": msgspec.json.decode(body)} for name, (_, body) in written.items()}
    return {
        "description": _TEXTS[status],
        "headers": REQUEST_ID | _HEADERS.get(status, {}),
        "content": {media_type: {"schema": _reference(first), "examples": examples}},
    }


def _written(dialect: Dialect, error: GatewayError) -> tuple[str, bytes]:
    """Return an error's media type and body: a problem document before routing, else the dialect's."""
    # A key is checked before the route is known, too, but the paths of other protocols tell their format.
    if error.status in _BEFORE_ROUTE or (error.status == 401 and isinstance(dialect, Native)):
        return PROBLEM_JSON, problem(error.status, str(error), error.reason)
    head, body = dialect.error(error)
    return head.decode().removeprefix("content-type:").strip(), body


def _reference(body: bytes) -> Schema:
    """Return a reference to the schema that matches an error's body."""
    error = msgspec.json.decode(body).get("error")
    name = "Problem" if error is None else "Error" if isinstance(error, str) else "OpenAIError"
    return {"$ref": f"#/components/schemas/{name}"}
