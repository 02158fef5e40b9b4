"""Reads and writes header lines and request targets, as bytes."""

import ipaddress
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count
from typing import Any
from urllib.parse import unquote_to_bytes

import httptools

from uncork_workers.wire import schema

Header = tuple[bytes, bytes]
"""Name and value."""
CONTENT_LENGTH = b"content-length"
CREDENTIALS = frozenset((b"authorization", b"cookie", b"x-api-key"))
"""The headers that may identify a client."""
HOP_BY_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
"""Headers of one connection, not of the message (RFC 9110, 7.6.1); HTTP/2 has none of them."""
JSON_LENGTH = b"inference-header-content-length"
"""The length of the JSON in a binary V2 body."""
PUSHBACK = b"grpc-retry-pushback-ms"
"""The trailer that says when a gRPC retry may succeed (gRFC A6)."""
RETRY_AFTER = b"retry-after"
REQUEST_ID = schema.REQUEST_ID.encode()
"""The header that names a request, from its client or a proxy; every response has it."""
TIMEOUT = b"x-request-timeout-ms"
"""The header with which clients limit their time."""
TRACE = (b"traceparent", b"tracestate")
"""The headers that name the trace of a request."""
IDS = (
    rb"traceparent|tracestate|b3|cf-ray|x-(?:request|correlation)-id|x-request-start|x-amzn-trace-id"
    rb"|x-b3-(?:trace|span|parentspan)id|x-cloud-trace-context|x-datadog-(?:trace|parent)-id|uber-trace-id"
)
"""A pattern of the headers that proxies and tracing libraries add with a new value for each request."""
NO_STORE = {"cache-control": "no-store"}
"""For pages that show a state: a cache would show an earlier one."""

WITHOUT_BODY = (204, 304)
"""The statuses whose responses have no body, and no Content-Length of ours (RFC 9110, 8.6)."""
# A call to a server behind the proxy has these for its own body.
_OF_BODY = (b"content-type", JSON_LENGTH)
LONGEST_REQUEST_ID = 128
_GIVEN_ID = re.compile(rb"[ -~]{1,%d}" % LONGEST_REQUEST_ID)
_OURS = secrets.token_hex(8).encode()
_LAST_BYTES = tuple([b"%02x" % byte for byte in range(256)])


@dataclass(frozen=True, kw_only=True, slots=True)
class HeaderRules:
    """Which headers, or metadata, of requests go into a merged call; names are in lower case.

    Attributes:
        keyed: headers that may identify the caller. Requests share a call only if these are equal; the call
            has them too.
        passed: headers that the call takes from its first request.

    The call has no other headers, because they concern single requests.
    """

    keyed: frozenset[bytes] = CREDENTIALS
    passed: frozenset[bytes] = frozenset(TRACE)

    def sort(self, headers: Sequence[Header]) -> tuple[tuple[Header, ...], tuple[Header, ...]]:
        """Return the headers that requests of a call must share, and the headers that the call sends."""
        keyed = tuple(header for header in headers if header[0] in self.keyed)
        sent = (self.keyed | self.passed).difference(_OF_BODY)
        return keyed, tuple(header for header in headers if header[0] in sent)


def _ids(number: int) -> list[bytes]:
    """Return 256 ids: writing each by itself takes five times as long."""
    start = b"%b-%06x" % (_OURS, number)
    return [start + byte for byte in _LAST_BYTES]


new_request_id: Callable[[], bytes] = chain.from_iterable(map(_ids, count())).__next__
"""Returns an id for a request whose client has sent none."""


@lru_cache(1024)
def length_line(size_bytes: int) -> bytes:
    """Return the header line with the length of a body."""
    return b"content-length: %d\r\n" % size_bytes


def request_id_of(headers: Iterable[Header]) -> bytes:
    """Return the id that a request came with; empty if it has none of 1 to 128 printable ASCII characters.

    Header names may have capitals.
    """
    for name, value in headers:
        if len(name) == len(REQUEST_ID) and name.lower() == REQUEST_ID:
            value = value.strip()
            return value if _GIVEN_ID.fullmatch(value) else b""
    return b""


def with_request_id(headers: Iterable[Header], request_id: bytes) -> tuple[Header, ...]:
    """Return the headers of a request, with names in lower case, with its id for the next server."""
    return (*[header for header in headers if header[0] != REQUEST_ID], (REQUEST_ID, request_id))


def combined(headers: Iterable[Header], names: Collection[bytes]) -> dict[bytes, bytes]:
    """Return some headers by name, in lower case; the values of repeated ones are joined by commas."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if (lower := name.lower()) in names:
            found[lower] = b"%b, %b" % (found[lower], value) if lower in found else value
    return found


def value_of(headers: Iterable[Header], name: bytes | None) -> bytes | None:
    """Return the value of the first header with this name; None if there is none."""
    if name is None:
        return None
    return next((value for key, value in headers if key == name), None)


def printable(text: bytes) -> str:
    """Return a client's text for logs and spans, with characters escaped that could forge or hide text."""
    shown = text.decode(errors="backslashreplace")
    if shown.isprintable():
        return shown
    return "".join([each if each.isprintable() else ascii(each)[1:-1] for each in shown])


def host_name(host: bytes) -> str:
    """Return the name or address in a Host header, in lower case, without the port."""
    text = host.decode("latin-1").lower()
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]


def names_us(host: bytes, allowed: Collection[str]) -> bool:
    """Return True if a Host header has an address, ``localhost`` or an allowed name.

    Another site can point its own name to our address (DNS rebinding), but not these.
    """
    name = host_name(host)
    if name == "localhost" or name in allowed:
        return True
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def header_lines(headers: Iterable[Header]) -> bytes:
    """Return headers as HTTP/1.1 header lines."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def origin_form(target: bytes) -> bytes:
    """Return a request target's path and query, as the client wrote them; empty if it has no path.

    Scheme and host are dropped: they would let a client choose a virtual host of the next server.
    """
    if target.startswith(b"/") and b"#" not in target:
        return target
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserError:
        return b""
    path = url.path or b""
    return path if url.query is None else b"%b?%b" % (path, url.query)


def path_of(target: bytes) -> bytes:
    """Return a request target's path, unescaped and without query; empty if it has none."""
    if not target.startswith(b"/"):
        try:
            target = httptools.parse_url(target).path or b""
        except httptools.HttpParserError:
            return b""
    return unquote_to_bytes(target.partition(b"?")[0])


def route_path(scope: Mapping[str, Any]) -> str:
    """Return the path of an ASGI scope below its ``root_path``, which may be part of the path or not."""
    path: str = scope["path"]
    below = path.removeprefix(scope.get("root_path", ""))
    return below if not below or below.startswith("/") else path
