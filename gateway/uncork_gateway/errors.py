"""Errors that clients receive; each class has its HTTP status.

GatewayError
├── BadRequest           400  malformed input                       (codec, adapter)
├── BodyTooLarge         413  body over the limit                   (reading)
├── Unreadable           any  not HTTP, too long or too slow        (reading)
├── UnsupportedMediaType 415  content type not accepted             (codec)
├── Refused              any  the handler rejected this request    (worker)
├── HandlerFailed        500  the handler raised; text has an id    (worker)
├── BadGateway           502  the worker died                       (dispatcher)
├── Unavailable          503  shed, full, no worker, draining       (dispatcher)
└── TimedOut             504  the batch ran past its timeout        (dispatcher)
    └── ClientTimedOut   504  the client's own deadline has passed  (dispatcher)
"""

import logging
import math
import secrets
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Literal

import msgspec

from uncork_dispatcher import (
    BatchTimedOut,
    DispatchError,
    RequestExpired,
    RequestShed,
    ShedReason,
    WorkerLost,
)
from uncork_dispatcher.actions import SHORTEST_RETRY_S
from uncork_gateway.headers import RETRY_AFTER, Header
from uncork_workers.wire.schema import JSON, ErrorFormat

log = logging.getLogger("uncork.gateway")

TIMEOUT_HEADER = "X-Request-Timeout-Ms"
"""The HTTP header with which clients limit their time."""

CLIENT_GONE = 499
"""Counted and logged when the client has disconnected; never sent."""

RefusalReason = Literal[ShedReason, "no_room", "too_many_connections", "api_removed"]
"""Why the gateway refused a request, for clients to branch on; see docs/reference/http.md."""
PROBLEM_JSON = "application/problem+json"
"""The media type of problem documents."""


class GatewayError(Exception):
    """An error response; the message is for the client.

    Attributes:
        reason: why the gateway refused the request; None for any other error.
    """

    status = 500
    reason: RefusalReason | None = None

    def headers(self) -> list[Header]:
        """Return the headers of the response, except content type and length."""
        return []


class BadRequest(GatewayError):
    status = 400


class BodyTooLarge(GatewayError):
    """The body is over the size limit. The connection must close, because the rest is not read."""

    status = 413


class UnsupportedMediaType(GatewayError):
    status = 415


class _AnyStatus(GatewayError):
    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Unreadable(_AnyStatus):
    """The input is not HTTP, too long or too slow. The connection must close."""


class Refused(_AnyStatus):
    """The handler rejected this request, with a status of its choice."""


class HandlerFailed(GatewayError):
    pass


class BadGateway(GatewayError):
    """A worker died, and a retry failed or was not allowed; or a model server failed."""

    status = 502


class Unavailable(GatewayError):
    """The request was shed. A retry may succeed after ``retry_after_s``."""

    status = 503

    def __init__(
        self, message: str, *, reason: RefusalReason, retry_after_s: float = SHORTEST_RETRY_S
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s

    def headers(self) -> list[Header]:
        """Return Retry-After, in whole seconds."""
        return [(RETRY_AFTER, str(math.ceil(self.retry_after_s)).encode())]


class TimedOut(GatewayError):
    status = 504


class ClientTimedOut(TimedOut):
    """The client's own deadline passed, while the request was queued or while it ran."""

    reason = "client_deadline"


_SHED: dict[ShedReason, str] = {
    "deadline": "overloaded: this request cannot complete within the latency goal or the client's timeout",
    "queue_full": "overloaded: the queue of this API is full",
    "too_many_groups": "overloaded: requests of too many groups are queued",
    "displaced": "overloaded: a request of the first class displaced this one",
    "no_worker": "no {executor} is ready",
    "draining": "the server is shutting down",
}


def draining() -> Unavailable:
    """Return the error for a request that arrives while the server stops."""
    return Unavailable(_SHED["draining"], reason="draining")


def from_dispatcher(error: DispatchError, *, executor: str, timeout: str = TIMEOUT_HEADER) -> GatewayError:
    """Return the client's error for an error of the dispatcher.

    ``executor`` names the kind of backend, and ``timeout`` the header that sets a client's timeout.
    """
    match error:
        case RequestShed(reason="client_deadline"):
            return ClientTimedOut(f"the timeout in {timeout} expired before the request was executed")
        case RequestExpired():
            return ClientTimedOut(f"the timeout in {timeout} expired while the request was running")
        case RequestShed():
            message = _SHED[error.reason].format(executor=executor)
            return Unavailable(message, reason=error.reason, retry_after_s=error.retry_after_s)
        case BatchTimedOut():
            return TimedOut("the batch exceeded the timeout of this API")
        case WorkerLost():
            return BadGateway(f"the {executor} died while running this request")
        case _:
            return HandlerFailed(str(error))


def no_room() -> Unavailable:
    """Return the error for a body or message that the pool has no space for."""
    message = "overloaded: too many large bodies are being received or relayed"
    return Unavailable(message, reason="no_room")


def unexpected(error: BaseException) -> GatewayError:
    """Log a fault of the gateway with a new id; return the error for the client, which quotes the id."""
    error_id = secrets.token_hex(6)
    log.error("internal error [%s]", error_id, exc_info=error)
    return HandlerFailed(f"internal error; error id {error_id}")


PHRASES = {
    **{status.value: status.phrase for status in HTTPStatus},
    413: "Content Too Large",
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    422: "Unprocessable Content",
}
"""Reason phrases of RFC 9110, some of which have other names before Python 3.13."""


def problem(status: int, detail: str, reason: RefusalReason | None = None, request_id: bytes = b"") -> bytes:
    """Return a problem document (RFC 9457), with the ``reason`` of a refusal and the request's id."""
    title = PHRASES.get(status, "Error")
    document: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    if reason is not None:
        document["reason"] = reason
    if request_id:
        document["request_id"] = request_id.decode()
    return msgspec.json.encode(document)


def openai_error(
    status: int, detail: str, reason: RefusalReason | None = None, request_id: bytes = b""
) -> bytes:
    """Return an error in the form of OpenAI's API, with the ``reason`` of a refusal as its code."""
    kind = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    return msgspec.json.encode({"error": {"message": detail, "type": kind, "param": None, "code": reason}})


ErrorWriter = Callable[[int, str, RefusalReason | None, bytes], bytes]
"""Writes an error body from status, detail, reason and the request's id."""
ERROR_WRITERS: Mapping[ErrorFormat, tuple[str, ErrorWriter]] = {
    "problem": (PROBLEM_JSON, problem),
    "openai": (JSON, openai_error),
}
"""The media type of error bodies, and the function that writes one."""
