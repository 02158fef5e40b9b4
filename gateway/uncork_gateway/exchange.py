"""One request on the short way, from its head to its reply: what is the same whoever executes it."""

from __future__ import annotations

import logging
import math
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from uncork_dispatcher import BatchFacts, DispatchError
from uncork_gateway.errors import BadRequest, BodyTooLarge, GatewayError, HandlerFailed, from_dispatcher
from uncork_gateway.http import Header, HttpProtocol, header_lines
from uncork_gateway.metrics import ApiTally

log = logging.getLogger("uncork.gateway")

_CLIENT_GONE = 499


class Head(NamedTuple):
    """What the headers of a request say; ``refused`` is why it is not taken, if it is not.

    ``flow`` is whom the request counts for where queues are shared fairly. ``headers`` are those that matter
    to whoever reads the body, names in lower case.
    """

    timeout_s: float
    expects: bool
    refused: GatewayError | None
    flow: bytes | None = None
    headers: tuple[Header, ...] = ()


class Route(Protocol):
    """Where requests go, as far as every exchange must know it."""

    executor: str
    """What runs its batches, in a word for clients."""
    max_body_bytes: int
    tally: ApiTally

    def error(self, status: int, detail: str) -> tuple[bytes, bytes]:
        """Header lines and body of an answer other than 200."""
        ...


def read_head(headers: Sequence[Header], *, max_body_bytes: int, fair_by: bytes | None = None) -> Head:
    """Read what headers say to every route; what is wrong with them is told when it is the request's turn.

    ``fair_by`` is the header, in lower case, whose value names the request's flow.
    """
    timeout_s, expects = math.inf, False
    refused: GatewayError | None = None
    for name, value in headers:
        match name.lower():
            case b"content-length":
                if int(value) > max_body_bytes:
                    refused = too_large(max_body_bytes)
            case b"x-request-timeout-ms":
                try:
                    timeout_s = _timeout_s(value)
                except BadRequest as error:
                    refused = error
            case b"expect":
                expects = value.lower() == b"100-continue"
    flow = None
    if fair_by is not None:
        flow = next((value for name, value in headers if name.lower() == fair_by), None)
    return Head(timeout_s, expects, refused, flow)


class BatchHead:
    """Header lines that say which batch an answer comes from, and where its time went."""

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._batch: BatchFacts | None = None
        self._lines = (b"", b"")
        self.batch_id = ""

    def id_of(self, batch: int) -> str:
        """What callers and logs know a batch by."""
        return f"{self._instance}-{batch}"

    def lines(self, batch: BatchFacts, held_s: float) -> bytes:
        """The lines for one of the answers of a batch; they come one after the other."""
        if batch is not self._batch:
            self._batch = batch
            self.batch_id = self.id_of(batch.start.batch)
            self._lines = (
                b"x-batch-id: %b\r\nx-batch-size: %d\r\nserver-timing: queue;dur="
                % (self.batch_id.encode(), batch.rows),
                b", batch;dur=%.2f\r\n" % (batch.seconds * 1000),
            )
        before, after = self._lines
        return b"%b%.2f%b" % (before, held_s * 1000, after)


class BodyExchange(ABC):
    """Collects the body of a request until it is its turn, and replies once.

    The connection brings it its body and says when it is its turn.
    """

    # Most requests never change these.
    response_complete = False
    _started = False
    _whole = False
    _refused: GatewayError | None = None

    def __init__(self, route: Route, connection: HttpProtocol, head: Head, *, keep_alive: bool) -> None:
        self._arrived = time.perf_counter()
        self._to = route
        self._connection = connection
        self._head = head
        self.keep_alive = keep_alive
        self._pieces: list[bytes] = []
        self._size = 0
        if head.refused is not None:
            self._refused = head.refused

    @abstractmethod
    def _dispatch(self, body: bytes) -> None:
        """Have the request executed. Exceptions become its answer."""

    @abstractmethod
    def _withdraw(self) -> None:
        """Its client has left: nobody needs the answer."""

    # What the connection says

    def start(self) -> None:
        """Reply if there is something to reply already, or ask for the body."""
        self._started = True
        if self._refused is not None:
            self.failed(self._refused)
        elif self._whole:
            self._begin(self._body())
        elif self._head.expects:
            self._connection.continue_()

    def take(self, piece: bytes) -> None:
        """Keep a piece of the body, unless it is of no use any more."""
        if self._refused is not None:
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > self._to.max_body_bytes:
            self._pieces.clear()
            self._refused = too_large(self._to.max_body_bytes)
            if self._started:
                self.failed(self._refused)

    def complete(self) -> None:
        """Have the request executed if it is its turn."""
        self._whole = True
        if self._started and self._refused is None:
            self._begin(self._body())

    def whole(self, body: bytes) -> None:
        """Have the request executed, without putting its body together."""
        if self._refused is not None:
            self.failed(self._refused)
        else:
            self._begin(body)

    def leave(self) -> None:
        """Take the request out of the queue, if it is held."""
        if not self.response_complete:
            self.response_complete = True
            self._withdraw()
            self._count(_CLIENT_GONE)

    # Replies

    def failed(self, error: Exception) -> None:
        """Reply with what went wrong, in the form that the route has for it."""
        if isinstance(error, DispatchError):
            error = from_dispatcher(error, executor=self._to.executor)
        failure = error if isinstance(error, GatewayError) else _unexpected(error)
        if isinstance(failure, BodyTooLarge):
            self.keep_alive = False  # the rest of the body is not read
        content_type, body = self._to.error(failure.status, str(failure))
        self._reply(failure.status, header_lines(failure.headers()) + content_type, body)

    def _reply(self, status: int, head: bytes, body: bytes) -> None:
        self._connection.reply(self, status, head, body)
        self._count(status)

    def _count(self, status: int) -> None:
        self._to.tally.answered(status, time.perf_counter() - self._arrived)

    def _begin(self, body: bytes) -> None:
        try:
            self._dispatch(body)
        except Exception as error:
            self.failed(error)

    def _body(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def too_large(max_body_bytes: int) -> BodyTooLarge:
    """What to say of a body over the limit."""
    return BodyTooLarge(f"the body is over the limit of {max_body_bytes} bytes")


def _unexpected(error: Exception) -> GatewayError:
    """A fault of ours: the client gets an id, under which the log has the rest."""
    error_id = secrets.token_hex(6)
    log.error("internal error [%s]", error_id, exc_info=error)
    return HandlerFailed(f"internal error; error id {error_id}")


def _timeout_s(value: bytes) -> float:
    try:
        timeout_ms = float(value)
    except ValueError:
        timeout_ms = math.nan
    if not timeout_ms > 0:
        raise BadRequest(
            f"X-Request-Timeout-Ms must be a number of milliseconds above 0, got {value.decode('latin-1')!r}"
        )
    return timeout_ms / 1000
