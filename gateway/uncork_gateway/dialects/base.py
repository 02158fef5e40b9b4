"""What a dialect is: how clients ask an api of ours, and are answered.

All dialects bring a request down to what the codec of the api's input makes of rows, so that clients of
several protocols share a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from uncork_gateway.codecs import Marshalled
from uncork_gateway.errors import HandlerFailed
from uncork_gateway.headers import Header
from uncork_workers.wire.frames import RowsForm

JSON = b"content-type: application/json\r\n"


class RequestResult(NamedTuple):
    """What a worker says to one request: rows of the answer, or the reason for a status other than 200.

    ``form`` says how rows are written. Where ``content_type`` is given, the body is the whole answer, of any
    status, and goes with ``headers``.
    """

    status: int
    body: bytes
    form: RowsForm = None
    content_type: str = ""
    headers: Sequence[tuple[str, str]] = ()


class Reply(NamedTuple):
    """Header lines that say what a body is, and the body."""

    head: bytes
    body: bytes


class Dialect(Protocol):
    """One protocol, for one api. What it raises is told to the client as :meth:`error` writes it."""

    def keep(self, headers: Sequence[Header], target: bytes) -> tuple[Header, ...]:
        """What :meth:`read` needs of headers and target, names in lower case; they come as they were sent.

        Raises:
            UnsupportedMediaType: if the body is of a type that is not taken.
        """
        ...

    def read(self, body: bytes, headers: tuple[Header, ...]) -> Marshalled:
        """Read a request.

        Raises:
            BadRequest: if it is malformed.
        """
        ...

    def write(self, reply: RequestResult, asked: Marshalled, *, batch_id: str) -> Reply:
        """The answer to what was asked.

        Raises:
            GatewayError: if what the handler returned cannot be said in the dialect.
        """
        ...

    def error(self, status: int, detail: str) -> Reply:
        """The answer of another status than 200."""
        ...


def require_rows(reply: RequestResult) -> None:
    """Raise HandlerFailed if an answer is not rows, which are all that other protocols than ours can say."""
    if reply.content_type:
        raise HandlerFailed(f"the answer is {reply.content_type}, which this protocol has no words for")
