"""Converts call metadata between headers and grpcio's form, in which ``-bin`` names have bytes."""

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable

from uncork_gateway.errors import BadRequest
from uncork_gateway.headers import HOP_BY_HOP, REQUEST_ID, Header

Metadata = tuple[tuple[str, str | bytes], ...]

# Including those that every sender sets itself.
_PER_HOP = HOP_BY_HOP.union(
    (
        *(b"te", b"host", b"expect", b"content-length", b"content-type", b"accept-encoding", b"user-agent"),
        *(b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding", b"grpc-status", b"grpc-message"),
    )
)
_BINARY = b"-bin"
_NAME = re.compile(rb"[0-9a-z_.-]+")
_TEXT = re.compile(rb"[ -~]*")


def to_metadata(headers: Iterable[Header]) -> Metadata:
    """Convert headers to the metadata to send on, without headers that concern only the connection.

    Raises:
        BadRequest: if a name or a value cannot be sent.
    """
    metadata: list[tuple[str, str | bytes]] = []
    for name, value in headers:
        if name in _PER_HOP:
            continue
        if not _NAME.fullmatch(name):
            raise BadRequest(
                f"the metadata name {name[:100].decode('latin-1')!r} is not valid; use letters, digits, _ - "
                "and ."
            )
        key = name.decode()
        if name.endswith(_BINARY):
            metadata += [(key, _decoded(key, part)) for part in value.split(b",")]
        elif _TEXT.fullmatch(value):
            metadata.append((key, value.decode()))
        else:
            raise BadRequest(
                f"the metadata {key[:100]!r} has characters other than printable ASCII; send other bytes "
                "under a name that ends in -bin"
            )
    return tuple(metadata)


def from_metadata(metadata: Iterable[tuple[str, str | bytes]] | None) -> tuple[Header, ...]:
    """Return the headers for metadata that a server sent, without a request id: the gateway adds its own."""
    headers = ((key.encode(), _encoded(value)) for key, value in metadata or ())
    return tuple(header for header in headers if header[0] not in _PER_HOP and header[0] != REQUEST_ID)


def _decoded(key: str, value: bytes) -> bytes:
    value = value.strip()
    try:
        # Senders may leave out the padding.
        return b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error as error:
        raise BadRequest(f"the metadata {key[:100]!r} is not base64: {error}") from None


def _encoded(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else b64encode(value).rstrip(b"=")
