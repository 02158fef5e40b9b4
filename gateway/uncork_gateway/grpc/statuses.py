"""The status codes of gRPC, and the code for each error."""

from enum import IntEnum
from http import HTTPStatus

from uncork_gateway.errors import CLIENT_GONE, GatewayError, Unavailable
from uncork_gateway.headers import PUSHBACK, Header


class Code(IntEnum):
    """The codes of ``grpc-status``."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


# 502 means that the request may have killed its worker. Clients retry after UNAVAILABLE, so it is not that.
_CODES = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    408: Code.DEADLINE_EXCEEDED,
    409: Code.ABORTED,
    412: Code.FAILED_PRECONDITION,
    413: Code.RESOURCE_EXHAUSTED,
    415: Code.INVALID_ARGUMENT,
    422: Code.INVALID_ARGUMENT,
    429: Code.UNAVAILABLE,
    431: Code.RESOURCE_EXHAUSTED,
    CLIENT_GONE: Code.CANCELLED,
    500: Code.INTERNAL,
    501: Code.UNIMPLEMENTED,
    502: Code.INTERNAL,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}
_STATUSES: dict[int, int] = {
    Code.OK: HTTPStatus.OK,
    Code.CANCELLED: CLIENT_GONE,
    Code.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    Code.DEADLINE_EXCEEDED: HTTPStatus.GATEWAY_TIMEOUT,
    Code.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.ALREADY_EXISTS: HTTPStatus.CONFLICT,
    Code.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    Code.RESOURCE_EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
    Code.FAILED_PRECONDITION: HTTPStatus.BAD_REQUEST,
    Code.ABORTED: HTTPStatus.CONFLICT,
    Code.OUT_OF_RANGE: HTTPStatus.BAD_REQUEST,
    Code.UNIMPLEMENTED: HTTPStatus.NOT_IMPLEMENTED,
    Code.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
}


class CallFailed(GatewayError):
    """An error with a gRPC code of its own, because no HTTP status corresponds to it.

    Attributes:
        code: the gRPC status code.
        trailers: additional trailers.
    """

    def __init__(self, message: str, code: Code, trailers: tuple[Header, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.status = status_of(code)
        self.trailers = trailers


def code_of(error: GatewayError) -> Code:
    if isinstance(error, CallFailed):
        return error.code
    return _CODES.get(error.status, Code.UNKNOWN)


def status_of(code: int) -> int:
    """Return the HTTP status for a code, for metrics and the access log."""
    return int(_STATUSES.get(code, HTTPStatus.INTERNAL_SERVER_ERROR))


def trailers_of(error: GatewayError) -> tuple[Header, ...]:
    """Return an error's trailers, other than code and text."""
    if isinstance(error, Unavailable):
        return ((PUSHBACK, b"%d" % round(error.retry_after_s * 1000)),)
    return error.trailers if isinstance(error, CallFailed) else ()
