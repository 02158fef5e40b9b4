"""The interface of dialects, which read requests and write responses in one protocol.

All dialects use the codec of the API's input, so clients of several protocols share batches.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Protocol

import msgspec

from uncork_gateway.codecs import Marshalled
from uncork_gateway.errors import GatewayError, HandlerFailed, Refused
from uncork_gateway.headers import Header
from uncork_workers.wire.forms import RowsForm

JSON = b"content-type: application/json\r\n"


class HandlerResult(msgspec.Struct, frozen=True):
    """A worker's result for one request: rows, or the reason for a status other than 200.

    ``form`` is the format of the rows. If ``content_type`` is set, the body is the complete response, of any
    status, and is sent with ``headers``.
    """

    status: int
    body: bytes
    form: RowsForm = None
    content_type: str = ""
    headers: Sequence[tuple[str, str]] = ()


Reply = tuple[bytes, bytes]
"""The header lines that describe a body, and the body."""


class Dialect(Protocol):
    """Reads requests and writes responses in one protocol; :meth:`error` writes its exceptions."""

    def keep(self, headers: Sequence[Header], target: bytes) -> tuple[Header, ...]:
        """Return the headers and the target that :meth:`read` needs, with names in lower case.

        Raises:
            UnsupportedMediaType: if the API does not accept the body's type.
        """

    def read(self, body: bytes, headers: tuple[Header, ...]) -> Marshalled:
        """Read a request.

        Raises:
            BadRequest: if the request is malformed.
        """

    def write(self, reply: HandlerResult, asked: Marshalled, *, batch_id: str) -> Reply:
        """Return the response to a request.

        Raises:
            GatewayError: if the protocol cannot express the handler's result.
        """

    def error(self, error: GatewayError, request_id: bytes = b"") -> Reply:
        """Return an error response in the protocol's format, with the request's id if that has a field."""


def require_rows(reply: HandlerResult) -> None:
    """Raise an error unless a result is rows; only the native dialect can express others.

    Raises:
        Refused: with the handler's status and text, if that is an error.
        HandlerFailed: for any other complete response.
    """
    if reply.content_type and reply.status >= HTTPStatus.BAD_REQUEST:
        raise Refused(_text_of(reply), reply.status)
    if reply.content_type:
        raise HandlerFailed(
            f"the handler returned {reply.content_type}, which this protocol cannot carry; use the API's "
            "own route"
        )


def _text_of(reply: HandlerResult) -> str:
    """Return an error's body as text; if it is not text, its media type."""
    if (
        reply.content_type.startswith(("text/", "application/json", "application/problem+json"))
        and reply.body
    ):
        return reply.body.decode(errors="replace")
    return f"the handler returned status {reply.status} with {reply.content_type}"
