"""Results that respond to a single request: ``Rejected`` and ``Response``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_FIRST_STATUS, _FIRST_ERROR, _LAST_ERROR = 200, 400, 599
_BODILESS = (204, 304)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# Set by the gateway.
_RESERVED = ("connection", "content-length", "content-type", "transfer-encoding", "x-request-id")


class WrongResult(Exception):
    """The handler's results cannot be split into responses."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Rejects the request that this row belongs to; the others of the batch get their results.

    Args:
        status: an HTTP status from 400 to 599.
        detail: the message for the client.

    Raises:
        ValueError: if the status is out of range or the detail is not a ``str``.
    """

    status: int
    detail: str

    def __post_init__(self) -> None:
        if not isinstance(self.status, int) or not _FIRST_ERROR <= self.status <= _LAST_ERROR:
            raise ValueError(f"Rejected: status must be an integer from 400 to 599, got {self.status!r}")
        if not isinstance(self.detail, str):
            raise ValueError(f"Rejected: detail must be a str, got {self.detail!r}")


@dataclass(frozen=True, slots=True)
class Response:
    """A complete HTTP response to the request that this row belongs to, which must be its only row.

    Args:
        body: ``bytes``, ``str``, a Pillow image, or any value that converts to JSON; None or empty for status
            204 and 304.
        status: an HTTP status from 200 to 599.
        headers: additional headers. The gateway sets content type, length, connection headers and
            X-Request-Id.
        content_type: content type of the body. Default, by type of the body: ``application/octet-stream``,
            ``text/plain; charset=utf-8``, that of the image, or ``application/json``.

    Raises:
        ValueError: if the status is out of range or allows no body, or a header has a reserved or invalid
            name, or a value that is not one line of Latin-1.
    """

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.status, int) or not _FIRST_STATUS <= self.status <= _LAST_ERROR:
            raise ValueError(f"Response: status must be an integer from 200 to 599, got {self.status!r}")
        is_empty = self.body is None or (isinstance(self.body, bytes | str) and not self.body)
        if self.is_bodiless and not is_empty:
            raise ValueError(f"Response: status {self.status} allows no body")
        for name, value in self.headers.items():
            if not isinstance(name, str) or not _TOKEN.fullmatch(name):
                raise ValueError(f"Response: {name!r} is not a valid header name")
            if name.lower() in _RESERVED:
                hint = "; to set the type, use content_type" if name.lower() == "content-type" else ""
                raise ValueError(f"Response: header {name!r} is set by the gateway{hint}")
            _check_value(name, value)
        _check_value("content-type", self.content_type)

    @property
    def is_bodiless(self) -> bool:
        """True if the status allows no body."""
        return self.status in _BODILESS


def _check_value(name: str, value: object) -> None:
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise ValueError(f"Response: header {name!r} must be one line of Latin-1, got {value!r}")
