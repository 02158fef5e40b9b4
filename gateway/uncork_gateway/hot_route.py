"""The way of a request: read, marshal, have it batched, reply. One :class:`HotRoute` per api."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from uncork_dispatcher import Answer, AsyncDispatcher, BatchFacts, DispatchError
from uncork_gateway.codecs import Codec
from uncork_gateway.errors import (
    BadRequest,
    BodyTooLarge,
    GatewayError,
    HandlerFailed,
    UnsupportedMediaType,
    from_dispatcher,
    problem,
)
from uncork_gateway.http import Header, HttpProtocol
from uncork_gateway.metrics import ApiTally

log = logging.getLogger("uncork.gateway")

_CLIENT_GONE = 499
_JSON_TYPES = ("", "application/json")
_JSON = b"content-type: application/json\r\n"
_PROBLEM = b"content-type: application/problem+json\r\n"
_ERRORS_BY_STATUS: dict[int, type[GatewayError]] = {400: BadRequest}


class RowsReply(NamedTuple):
    """What a worker says to one request: rows of the answer, or the reason for another status than 200."""

    status: int
    body: bytes


class Head(NamedTuple):
    """What the headers of a request say; ``refused`` is why it is not taken, if it is not."""

    timeout_s: float
    expects: bool
    refused: GatewayError | None


class HotRoute:
    """Serves one api."""

    def __init__(
        self,
        api: str,
        *,
        codec: Codec,
        dispatcher: AsyncDispatcher[bytes, RowsReply],
        tally: ApiTally,
        max_body_bytes: int,
        batch_id: Callable[[int], str],
    ) -> None:
        self.api = api
        self.codec = codec
        self.dispatcher = dispatcher
        self.tally = tally
        self.max_body_bytes = max_body_bytes
        self._batch_id = batch_id
        self._batch: BatchFacts | None = None
        self._batch_head = (b"", b"")

    def read_head(self, headers: Sequence[Header]) -> Head:
        """Read what the headers say; what is wrong with them is told when it is the request's turn."""
        content_type, timeout_s, expects = "", math.inf, False
        refused: GatewayError | None = None
        for name, value in headers:
            match name.lower():
                case b"content-type":
                    content_type = value.decode("latin-1").partition(";")[0].strip().lower()
                case b"content-length":
                    if int(value) > self.max_body_bytes:
                        refused = self.too_large()
                case b"x-request-timeout-ms":
                    try:
                        timeout_s = _timeout_s(value)
                    except BadRequest as error:
                        refused = error
                case b"expect":
                    expects = value.lower() == b"100-continue"
        if content_type not in _JSON_TYPES:
            refused = UnsupportedMediaType(
                f"content type {content_type!r} is not accepted; send application/json"
            )
        return Head(timeout_s, expects, refused)

    def open(self, connection: HttpProtocol, head: Head, *, keep_alive: bool) -> HotRequest:
        """A request whose head has come."""
        return HotRequest(self, connection, head, keep_alive=keep_alive)

    def too_large(self) -> BodyTooLarge:
        """What to say of a body over the limit."""
        return BodyTooLarge(f"the body is over the limit of {self.max_body_bytes} bytes")

    def answer_head(self, answer: Answer[RowsReply]) -> bytes:
        """Header lines of an answer: what it is, which batch it comes from, and where its time went."""
        batch = answer.batch
        if batch is not self._batch:
            # The answers of a batch come one after the other.
            self._batch = batch
            self._batch_head = (
                b"x-batch-id: %b\r\nx-batch-size: %d\r\nserver-timing: queue;dur="
                % (self._batch_id(batch.start.batch).encode(), batch.rows),
                b", batch;dur=%.2f\r\n%b" % (batch.seconds * 1000, _JSON),
            )
        before, after = self._batch_head
        return b"%b%.2f%b" % (before, answer.held_s * 1000, after)


class HotRequest:
    """One request to an api, from its head to its reply.

    The connection brings it its body and says when it is its turn, the dispatcher what became of it.
    """

    # Most requests never change these.
    response_complete = False
    _started = False
    _whole = False
    _refused: GatewayError | None = None
    _number = 0

    def __init__(self, route: HotRoute, connection: HttpProtocol, head: Head, *, keep_alive: bool) -> None:
        self._arrived = time.perf_counter()
        self._route = route
        self._connection = connection
        self._head = head
        self.keep_alive = keep_alive
        self._pieces: list[bytes] = []
        self._size = 0
        if head.refused is not None:
            self._refused = head.refused

    # What the connection says

    def start(self) -> None:
        """Reply if there is something to reply already, or ask for the body."""
        self._started = True
        if self._refused is not None:
            self.failed(self._refused)
        elif self._whole:
            self._dispatch(self._body())
        elif self._head.expects:
            self._connection.continue_()

    def take(self, piece: bytes) -> None:
        """Keep a piece of the body, unless it is of no use any more."""
        if self._refused is not None:
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > self._route.max_body_bytes:
            self._pieces.clear()
            self._refused = self._route.too_large()
            if self._started:
                self.failed(self._refused)

    def complete(self) -> None:
        """Have the request executed if it is its turn."""
        self._whole = True
        if self._started and self._refused is None:
            self._dispatch(self._body())

    def whole(self, body: bytes) -> None:
        """Have the request executed, without putting its body together."""
        if self._refused is not None:
            self.failed(self._refused)
        else:
            self._dispatch(body)

    def leave(self) -> None:
        """Take the request out of the queue, if it is held."""
        if not self.response_complete:
            self.response_complete = True
            self._route.dispatcher.cancel(self._number)
            self._count(_CLIENT_GONE)

    # What the dispatcher says

    def answered(self, answer: Answer[RowsReply]) -> None:
        """Reply with what the worker said."""
        route, result = self._route, answer.result
        if result.status != 200:
            kind = _ERRORS_BY_STATUS.get(result.status, HandlerFailed)
            self.failed(kind(result.body.decode()))
            return
        try:
            body = route.codec.encode(result.body, single=self._single)
        except Exception as error:
            self.failed(error)
            return
        self._connection.reply(self, 200, route.answer_head(answer), body)
        route.tally.answered(200, time.perf_counter() - self._arrived)

    def failed(self, error: Exception) -> None:
        """Reply with a problem document."""
        if isinstance(error, DispatchError):
            error = from_dispatcher(error)
        failure = error if isinstance(error, GatewayError) else _unexpected(error)
        if isinstance(failure, BodyTooLarge):
            self.keep_alive = False  # the rest of the body is not read
        head = b"".join(b"%b: %b\r\n" % header for header in failure.headers())
        self._connection.reply(self, failure.status, head + _PROBLEM, problem(failure.status, str(failure)))
        self._count(failure.status)

    def _body(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _dispatch(self, body: bytes) -> None:
        route = self._route
        try:
            marshalled = route.codec.decode(body)
            self._single = marshalled.single
            self._number = route.dispatcher.submit(
                self,
                route.api,
                marshalled.body,
                rows=marshalled.rows,
                cost=marshalled.cost,
                size_bytes=len(marshalled.body),
                key=marshalled.key,
                client_timeout_s=self._head.timeout_s,
                source=self._connection.number,
            )
        except Exception as error:
            self.failed(error)

    def _count(self, status: int) -> None:
        self._route.tally.answered(status, time.perf_counter() - self._arrived)


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
