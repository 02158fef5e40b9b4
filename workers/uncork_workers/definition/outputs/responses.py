"""Results that respond to a single request: ``Rejected`` and ``Response``."""

import inspect
import re
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uncork_workers.plural import plural
from uncork_workers.wire.groups import is_header_name

_FIRST_STATUS, _FIRST_ERROR, _LAST_ERROR = 200, 400, 599
_BODILESS = (204, 304)
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# Set by the gateway.
_RESERVED = (
    *("connection", "content-length", "content-type", "transfer-encoding"),
    *("x-request-id", "x-batch-id", "x-batch-size"),
)
_WRITABLE = (
    "numbers, text, True, False, None, bytes, dates, arrays, and lists and dicts (with text as keys) of these"
)


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
        headers: additional headers. The gateway sets content type, length, connection headers,
            X-Request-Id, X-Batch-Id and X-Batch-Size.
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
        self.checked_headers()
        _check_value("content-type", self.content_type)

    @property
    def is_bodiless(self) -> bool:
        """True if the status allows no body."""
        return self.status in _BODILESS

    def checked_headers(self) -> list[tuple[str, str]]:
        """Return the headers, which the handler may have changed since the response was made.

        Raises:
            ValueError: as for the class.
        """
        headers = list(self.headers.items())
        for name, value in headers:
            if not isinstance(name, str) or not is_header_name(name):
                raise ValueError(f"Response: {name!r} is not a valid header name")
            if name.lower() in _RESERVED:
                hint = "; to set the type, use content_type" if name.lower() == "content-type" else ""
                raise ValueError(f"Response: header {name!r} is set by the gateway{hint}")
            _check_value(name, value)
        return headers


def _check_value(name: str, value: object) -> None:
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise ValueError(f"Response: header {name!r} must be one line of Latin-1, got {value!r}")


def no_results(returned: object, expected: int) -> WrongResult:
    """Return the error for a value that is not a list of results."""
    name = returned.dtype.name if isinstance(returned, np.ndarray) else type(returned).__name__
    what = "None" if returned is None else f"a single {name}" if _is_single(returned) else name
    return WrongResult(
        f"the handler must return an array, a table or a list with one result per row, got {what}"
        f"{_advice_on_return(returned, expected)}"
    )


def check_count(got: int, expected: int) -> None:
    """Raise WrongResult if there are too few or too many results."""
    if got == expected:
        return
    if got == 1 < expected:
        advice = "; it receives all rows of a batch and must return one result per row"
    elif expected == 1 < got:
        advice = "; to return several values for one row, nest them in a list: [results]"
    else:
        advice = ""
    raise WrongResult(f"the handler returned {plural(got, 'result')} for {plural(expected, 'row')}{advice}")


def not_json(value: object) -> TypeError:
    """Return the error for a value inside a result that JSON cannot represent."""
    advice = _advice_on_value(value) or f"; use {_WRITABLE}"
    return TypeError(f"{type(value).__name__} is not supported{advice}")


def wrong_key(key: object) -> TypeError:
    """Return the error for a key of a dict that JSON cannot have."""
    kind, as_text = type(key).__name__, str(key)
    return TypeError(
        f"the key {key!r:.80} is a {kind}; use text or integers as keys, such as {as_text!r:.80}"
    )


def _advice_on_return(returned: object, expected: int) -> str:
    if returned is None:
        return "; is a return statement missing?"
    if isinstance(returned, Rejected | Response):
        return "; put it in a list, at the position of its row"
    if advice := _advice_on_value(returned):
        return advice
    if isinstance(returned, Iterable) and not isinstance(returned, Sized):
        return "; convert it with list(...)"
    if isinstance(returned, Iterable) and not _is_single(returned):
        return "; convert it to a list, in the order of the rows"
    return f"; it was called with {plural(expected, 'row')} and must return one result for each"


def _advice_on_value(value: Any) -> str:
    if inspect.isawaitable(value):
        return "; write async def, and await the call"
    # By attribute, as these libraries may not be installed.
    for method in ("to_pandas", "toarray"):  # tables, and sparse matrices
        if hasattr(value, method):
            return f"; convert it with .{method}()"
    return ""


def _is_single(value: object) -> bool:
    return isinstance(value, int | float | complex | str | bytes | np.generic | np.ndarray)
