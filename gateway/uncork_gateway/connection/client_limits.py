"""Limits on the input that clients may send."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from uncork_gateway.errors import BadRequest, GatewayError, Unreadable
from uncork_gateway.headers import Header, names_us

MOST_REFUSED = 8
"""The most connections that wait for their refusal to be read; further ones are closed without one."""
# Limits beyond those of httptools.
_MAX_TARGET_BYTES = 16 * 1024
_MAX_HEAD_BYTES = 64 * 1024
_MAX_LENGTH_DIGITS = 20

_AUTHORITY = rb"(?:\[[0-9A-Za-z.:_~%-]+\]|(?:[0-9A-Za-z._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)(?::[0-9]*)?"
_HOST = re.compile(_AUTHORITY)
_TARGET = re.compile(rb"(?:/|[Hh][Tt][Tt][Pp][Ss]?://" + _AUTHORITY + rb"[/?])[!-~]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientLimits:
    """The limits that the operator sets for clients.

    Attributes:
        head_timeout_s: the longest time for the first byte of a connection, and for each head once it has
            begun.
        body_timeout_s: the interval over which a body must average 500 bytes per second.
        max_connections: the most open connections; further ones get 503.
        max_header_fields: the most header fields of a request; requests with more get 431.
        allowed_hosts: accepted values of Host, in lower case, besides IP addresses and localhost; others get
            421. If empty, all are accepted.
    """

    head_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    max_connections: int = 10_000
    max_header_fields: int = 100
    allowed_hosts: frozenset[str] = frozenset()


def check_header(name: bytes, value: bytes) -> None:
    """Check the syntax and size of one header.

    Raises:
        GatewayError: if the header breaks a rule or a limit.
    """
    if len(value) > _MAX_LENGTH_DIGITS and name.lower() == b"content-length":
        raise BadRequest(f"Content-Length must have at most {_MAX_LENGTH_DIGITS} digits")
    if name.lower() == b"transfer-encoding" and value.lower() != b"chunked":
        encoding = value.decode("latin-1")
        raise BadRequest(f"transfer encoding {encoding!r} is not supported; send chunked")


def check_head(
    method: bytes, target: bytes, headers: Sequence[Header], *, version: str, allowed_hosts: Collection[str]
) -> None:
    """Check a request's method, target and headers together.

    Raises:
        GatewayError: if they break a rule of HTTP/1.1, or the host is not allowed.
    """
    check_size(sum([len(name) + len(value) for name, value in headers]), target)
    if len(target) > _MAX_TARGET_BYTES:
        raise too_long(target)
    if method == b"CONNECT":
        raise BadRequest("CONNECT is not supported")
    _check_target(method, target)
    hosts = [value for name, value in headers if name.lower() == b"host"]
    _check_host(hosts, version)
    if version == "1.0" and any(name.lower() == b"transfer-encoding" for name, _ in headers):
        raise BadRequest("HTTP/1.0 has no transfer encodings; send Content-Length")
    if allowed_hosts and not all(names_us(host, allowed_hosts) for host in hosts):
        raise wrong_host(hosts[0])


def _check_target(method: bytes, target: bytes) -> None:
    """Check the form of a request target (RFC 9112, 3.2)."""
    shown = repr(target[:100])[1:]
    if b"#" in target:
        raise BadRequest(
            f"a request target cannot have a fragment; leave out what begins with #, got {shown}"
        )
    if _TARGET.fullmatch(target) is None and not (target == b"*" and method == b"OPTIONS"):
        raise BadRequest(
            f"the request target must be a path, such as /predict, or a URL of http or https, got {shown}"
        )


def _check_host(hosts: Sequence[bytes], version: str) -> None:
    """Check the values of Host (RFC 9112, 3.2), which only HTTP/1.0 may omit."""
    if not hosts and version != "1.0":
        raise BadRequest("a request needs the header Host")
    if len(hosts) > 1:
        raise BadRequest(f"a request must have one header Host, got {len(hosts)}")
    if hosts and _HOST.fullmatch(hosts[0]) is None:
        raise BadRequest(
            f"the header Host must be a name or address, and a port if any, got {hosts[0][:100]!r}"
        )


def check_size(size: int, target: bytes) -> None:
    """Limit the bytes of a head, or of other input that completes neither a head nor a piece of a body.

    Raises:
        Unreadable: if ``size`` is over the limit.
    """
    if size > _MAX_HEAD_BYTES:
        raise too_long(target)


def wrong_host(host: bytes) -> GatewayError:
    """Return the error for a host that is not allowed."""
    return Unreadable(f"Host is not one of the server's --allowed-hosts: {host[:100]!r}", 421)


def too_long(target: bytes) -> GatewayError:
    """Return the error for a head over the size limit: it blames the target if that alone is too long."""
    if len(target) > _MAX_TARGET_BYTES:
        return Unreadable(f"the request target exceeds {_MAX_TARGET_BYTES} bytes", 414)
    return Unreadable(f"the request headers exceed {_MAX_HEAD_BYTES} bytes", 431)


def too_many_fields(max_fields: int) -> GatewayError:
    return Unreadable(
        f"the request headers have more than {max_fields} fields; the server's --max-header-fields sets the "
        "limit",
        431,
    )
