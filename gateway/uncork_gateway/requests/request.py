"""One request on the fast path, from head to response: the common part for all backends."""

import asyncio
from abc import abstractmethod
from typing import Generic, Protocol, TypeVar

from mypy_extensions import mypyc_attr

from uncork_gateway.connection.decompression import STEPS_AT_ONCE, Inflating
from uncork_gateway.connection.pieces import Pieces
from uncork_gateway.errors import TIMEOUT_HEADER, BodyTooLarge, GatewayError, RefusalReason, no_room
from uncork_gateway.headers import header_lines
from uncork_gateway.interfaces import SMALL_BODY_BYTES, Connection
from uncork_gateway.requests.answered_request import AnsweredRequest
from uncork_gateway.requests.batch_headers import BatchHeaders
from uncork_gateway.requests.head import Head, too_large
from uncork_gateway.telemetry.metrics import ApiTally


class Route(Protocol):
    """The destination of a request, with the parts that :class:`BufferedRequest` uses."""

    max_body_bytes: int

    @property
    def batch_headers(self) -> BatchHeaders:
        """Writes the response headers that describe the batch."""

    @property
    def tally(self) -> ApiTally:
        """The counters for responses."""

    def error(self, error: GatewayError, request_id: bytes) -> tuple[bytes, bytes]:
        """Return the header lines and body of an error response to the request with an id."""


RouteT = TypeVar("RouteT", bound=Route)


@mypyc_attr(allow_interpreted_subclasses=True)
class BufferedRequest(AnsweredRequest, Generic[RouteT]):
    """Collects the body of a request until the request may start, and responds once."""

    protocol = "http"
    timeout_header = TIMEOUT_HEADER

    _started = False
    _is_whole = False
    _pieces: Pieces | None = None

    def __init__(self, route: RouteT, connection: Connection, head: Head, *, keep_alive: bool) -> None:
        super().__init__(connection.observers, head.target, head.trace)
        self._route = route
        self._connection = connection
        self._head = head
        self.keep_alive = keep_alive
        self._rejection = head.rejection

    @abstractmethod
    def _dispatch(self, body: bytes) -> None:
        """Submit the request to the dispatcher. An exception becomes the response."""

    # Called by the connection

    def start(self) -> None:
        """Send the rejection, execute a complete request, or ask a client that waits for its body."""
        self._started = True
        if not self._is_whole and self._rejection is None and not self._fits_into_pool():
            self.keep_alive = False
            self._drop_body()
            self._rejection = no_room()
        if self._rejection is not None:
            if (self._head.expects_continue or self._head.is_chunked) and not self._is_whole:
                # The client may send the body or not; and one of unknown length may become too large.
                self.keep_alive = False
            self.failed(self._rejection)
        elif self._is_whole:
            self.execute(self._take_body())
        elif self._head.expects_continue:
            self._connection.send_continue()

    def body_received(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._route.max_body_bytes:
            self.reject(too_large(self._route.max_body_bytes))
        elif self._rejection is None:
            if self._pieces is None:
                self._pieces = Pieces()
            self._pieces.add(piece)
            pool = self._connection.pool
            pool.used_bytes += len(piece)
            if pool.is_full and self._size > SMALL_BODY_BYTES:
                self.reject(no_room())

    def reject(self, error: GatewayError) -> None:
        """Respond with an error once the request has started, and drop the rest of the body."""
        self._drop_body()
        if self._is_answered:
            self._connection.hang_up()
            return
        self.keep_alive = False
        is_first, self._rejection = self._rejection is None, self._rejection or error
        if self._started and is_first:
            self.failed(self._rejection)

    def body_complete(self) -> None:
        self._is_whole = True
        if self._started and self._rejection is None:
            self.execute(self._take_body())

    def execute(self, body: bytes) -> None:
        try:
            if self._rejection is not None:
                self.failed(self._rejection)
            elif self._head.encoding:
                self._inflate(body)
            else:
                self._dispatch(body)
        except Exception as error:
            self.failed(error)

    def disconnect(self) -> None:
        self._drop_body()
        super().disconnect()

    # Replies

    @property
    def _tally(self) -> ApiTally:
        return self._route.tally

    def _batch_id(self, batch: int) -> str:
        return self._route.batch_headers.id_of(batch)

    def _body_bytes(self) -> int:
        return self._size or self._head.length

    def _refuse(self, failure: GatewayError) -> None:
        """Send an error response in the route's dialect."""
        if isinstance(failure, BodyTooLarge):
            self.keep_alive = False  # The rest of the body is not read.
        content_type, body = self._route.error(failure, self.request_id)
        head = header_lines(failure.headers()) + content_type
        self._reply(failure.status, head, body, refusal=failure.reason)

    def _reply(self, status: int, head: bytes, body: bytes, *, refusal: RefusalReason | None = None) -> None:
        self._is_answered = True
        self._connection.reply(self, status, head, body)
        self._count(status, refusal=refusal)

    # The body

    def _inflate(self, body: bytes) -> None:
        limit_bytes = self._route.max_body_bytes
        inflating = Inflating(body, self._head.encoding, max_bytes=limit_bytes, at_once=STEPS_AT_ONCE)
        if inflating.inflated is not None:
            self._dispatch(inflating.inflated)
        elif self._connection.pool.is_full:
            raise no_room()
        else:
            inflating.finish_in_thread(self._connection.pool, self._inflated)

    def _inflated(self, inflating: asyncio.Future[bytes]) -> None:
        try:
            body = inflating.result()
            if not self._is_answered:
                self._dispatch(body)
        except Exception as error:
            self.failed(error)

    def _fits_into_pool(self) -> bool:
        """Return True if the body is small, or the pool has space for the rest of it."""
        pool, length = self._connection.pool, self._head.length
        return length <= SMALL_BODY_BYTES or pool.used_bytes + length - self._size <= pool.max_bytes

    def _take_body(self) -> bytes:
        pieces = self._pieces
        if pieces is None:
            return b""
        self._drop_body()
        return pieces.take()

    def _drop_body(self) -> None:
        if self._pieces is not None:
            self._connection.pool.used_bytes -= self._pieces.size
            self._pieces = None
