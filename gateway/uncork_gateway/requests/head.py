"""Reads the headers that have the same meaning on every route."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from uncork_gateway.errors import BadRequest, BodyTooLarge, GatewayError
from uncork_gateway.headers import Header, value_of

# A client that waits for more than 30 years sets no timeout.
_FOREVER_MS = 1e12


class Head(NamedTuple):
    """The head of a request, as routes need it.

    It is cached by the bytes of the head, so every field must follow from the headers alone, never from the
    time of arrival.

    Attributes:
        timeout_s: the client's timeout; infinite if it sends none.
        expects_continue: True if the client waits for ``100 Continue`` before sending the body.
        rejection: the error response, if the head is invalid.
        flow: the request's flow, if flows share the queues equally.
        headers: the headers that the dialect needs, with names in lower case.
        encoding: the body's content encoding, in lower case; empty if it has none.
        length: the declared length of the body; 0 without one.
        is_chunked: True if the body comes in chunks, so that its length is not known before its end.
        target: path and query.
        trace: the headers that identify the request's trace.
        group: the texts of the values of ``group_by`` that come from headers.
        bulk: True if the headers name the API's second class, None if they name none.
        values: the headers that the handler may read, other than X-Request-Id.
        credentials: the headers that identify the client, if the API runs identical requests once.
    """

    timeout_s: float
    expects_continue: bool
    rejection: GatewayError | None
    flow: bytes | None = None
    headers: tuple[Header, ...] = ()
    encoding: bytes = b""
    length: int = 0
    is_chunked: bool = False
    target: bytes = b""
    trace: tuple[Header, ...] = ()
    group: tuple[bytes, ...] = ()
    bulk: bool | None = None
    values: tuple[tuple[str, str], ...] = ()
    credentials: tuple[Header, ...] = ()


def read_head(
    headers: Sequence[Header], target: bytes, *, max_body_bytes: int, fair_by: bytes | None = None
) -> Head:
    """Read the headers that have the same meaning on every route.

    ``fair_by`` is the header, in lower case, that names the request's flow.
    """
    timeout_s, expects_continue, encoding, length, is_chunked = math.inf, False, b"", 0, False
    rejection: GatewayError | None = None
    trace: tuple[Header, ...] = ()
    for name, value in headers:
        match name.lower():
            case b"content-length":
                length = int(value)
                if length > max_body_bytes:
                    rejection = too_large(max_body_bytes)
            case b"transfer-encoding":
                is_chunked = True
            case b"x-request-timeout-ms":
                try:
                    timeout_s = _timeout_s(value)
                except BadRequest as error:
                    rejection = error.with_traceback(None)  # which would refer to this frame
            case b"expect":
                expects_continue = value.lower() == b"100-continue"
            case b"content-encoding" if value.lower() != b"identity":
                encoding += (b", " if encoding else b"") + value.lower()
            case b"traceparent" | b"tracestate":
                trace += ((name.lower(), value),)
    return Head(
        timeout_s,
        expects_continue,
        rejection,
        value_of(((name.lower(), value) for name, value in headers), fair_by),
        encoding=encoding,
        length=length,
        is_chunked=is_chunked,
        target=target,
        trace=trace,
    )


def too_large(max_body_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body exceeds the limit of {max_body_bytes} bytes")


def _timeout_s(value: bytes) -> float:
    try:
        timeout_ms = float(value)
    except ValueError:
        timeout_ms = math.nan
    if not timeout_ms > 0:
        raise BadRequest(
            f"X-Request-Timeout-Ms must be a positive number of milliseconds, got {value.decode('latin-1')!r}"
        )
    return timeout_ms / 1000 if timeout_ms < _FOREVER_MS else math.inf
