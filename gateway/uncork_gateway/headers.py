"""Header lines and request targets, as bytes."""

from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

import httptools

Header = tuple[bytes, bytes]
"""Name and value."""


def header_lines(headers: Iterable[Header]) -> bytes:
    """Write headers as HTTP/1.1 sends them."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def path_of(target: bytes) -> bytes:
    """Return the path of a request target, without query and escapes; empty if it has none."""
    if not target.startswith(b"/"):
        try:
            target = httptools.parse_url(target).path or b""
        except httptools.HttpParserError:
            return b""
    return unquote_to_bytes(target.partition(b"?")[0])
