"""One request on the fast path, from its head to its reply: the part that all backends share."""

import asyncio
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, Generic, Protocol, TypeVar

from uncork_dispatcher import DispatchError, RequestResult
from uncork_gateway.connection.decompression import inflate
from uncork_gateway.errors import (
    CLIENT_GONE,
    BodyTooLarge,
    GatewayError,
    Unavailable,
    from_dispatcher,
    unexpected,
)
from uncork_gateway.headers import header_lines
from uncork_gateway.interfaces import Connection, Span
from uncork_gateway.requests.batch_headers import BatchHeaders
from uncork_gateway.requests.head import Head, too_large
from uncork_gateway.telemetry.metrics import ApiTally

# Inflating 256 KiB takes little longer than the rest of a request; bodies with more steps go to a thread. A
# step ends with a gzip member, too: a small body can have thousands of those, which inflate to nothing.
_STEP_BYTES = 16 * 1024
_STEPS_AT_ONCE = 16
_inflaters = ThreadPoolExecutor(max_workers=2, thread_name_prefix="inflate")
# Incomplete bodies up to this size are accepted from every client, even if the pool is full.
_SMALL_BODY_BYTES = 64 * 1024


class Route(Protocol):
    """The destination of a request, as :class:`BufferedRequest` sees it."""

    executor: str
    """The kind of backend, in a word for clients."""
    max_body_bytes: int
    batch_headers: BatchHeaders

    @property
    def tally(self) -> ApiTally:
        """The counters of its replies."""
        ...

    def error(self, error: GatewayError) -> tuple[bytes, bytes]:
        """Return header lines and body of an error reply."""
        ...


RouteT = TypeVar("RouteT", bound=Route)


class BufferedRequest(ABC, Generic[RouteT]):
    """Collects the body of a request until the request may start, and replies once."""

    # Class attributes, because most requests never change them.
    _is_answered = False
    _started = False
    _is_whole = False
    _answer: RequestResult[Any] | None = None
    """The dispatcher's answer, if the request was executed."""
    _rows = 0
    """Number of rows, once the body has been read."""
    _span: Span | None = None

    def __init__(self, route: RouteT, connection: Connection, head: Head, *, keep_alive: bool) -> None:
        self._arrived = time.perf_counter()
        self._route = route
        self._connection = connection
        self._head = head
        self.keep_alive = keep_alive
        self._pieces: list[bytes] = []
        self._size = 0
        self._rejection = head.rejection
        if connection.traces is not None:
            self._span = connection.traces.begin_request(head.target, head.trace)

    @abstractmethod
    def _dispatch(self, body: bytes) -> None:
        """Submit the request. The client gets exceptions as its reply."""

    @abstractmethod
    def _finish(self, answer: RequestResult[Any]) -> None:
        """Reply with the dispatcher's answer. The client gets exceptions as its reply."""

    @abstractmethod
    def _withdraw(self) -> None:
        """Cancel the request in the dispatcher."""

    # Called by the connection

    def start(self) -> None:
        """Reply if the outcome is known, else ask for the body."""
        self._started = True
        if not self._is_whole and self._rejection is None and not self._fits_into_pool():
            self.keep_alive = False
            self._rejection = pool_full()
        if self._rejection is not None:
            if self._head.expects_continue and not self._is_whole:
                self.keep_alive = False  # The client may send the body or not.
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
            self._pieces.append(piece)
            pool = self._connection.pool
            pool.used_bytes += len(piece)
            if pool.used_bytes > pool.max_bytes and self._size > _SMALL_BODY_BYTES:
                self.reject(pool_full())

    def reject(self, error: GatewayError) -> None:
        """Reply with an error once the request has started; drop the rest of the body."""
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
        if not self._is_answered:
            self._is_answered = True
            self._drop_body()
            self._withdraw()
            self._count(CLIENT_GONE)

    # Replies

    def answered(self, answer: RequestResult[Any]) -> None:
        """Reply with the result, or with the error that this raises."""
        self._answer = answer
        try:
            self._finish(answer)
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Reply with an error in the dialect of the route; after the reply, only log internal errors."""
        failure = self._failure(error)
        if self._is_answered:
            return
        if isinstance(failure, BodyTooLarge):
            self.keep_alive = False  # The rest of the body is not read.
        content_type, body = self._route.error(failure)
        head = header_lines(failure.headers()) + content_type
        self._reply(failure.status, head, body, is_refusal=failure.reason is not None)

    def _failure(self, error: Exception) -> GatewayError:
        if isinstance(error, DispatchError):
            error = from_dispatcher(error, executor=self._route.executor)
        return error if isinstance(error, GatewayError) else unexpected(error)

    def _reply(self, status: int, head: bytes, body: bytes, *, is_refusal: bool = False) -> None:
        self._is_answered = True
        self._connection.reply(self, status, head, body)
        self._count(status, is_refusal=is_refusal)

    def _count(self, status: int, *, is_refusal: bool = False) -> None:
        seconds = time.perf_counter() - self._arrived
        self._route.tally.answered(status, seconds, self._rows, is_refusal=is_refusal)
        access_log, answer = self._connection.access_log, self._answer
        if access_log is not None:
            batch_id = "" if answer is None else self._route.batch_headers.id_of(answer.batch.start.batch)
            size = self._size or self._head.length
            access_log.request("POST", self._head.target, status, seconds, size=size, batch_id=batch_id)
        if self._span is not None:
            self._span.end(status, answer)

    # The body

    def _inflate(self, body: bytes) -> None:
        limit_bytes = self._route.max_body_bytes
        steps = inflate(body, self._head.encoding, max_bytes=limit_bytes, step_bytes=_STEP_BYTES)
        inflated = list(islice(steps, _STEPS_AT_ONCE))
        if len(inflated) < _STEPS_AT_ONCE:
            self._dispatch(b"".join(inflated))
            return
        self._pieces = [body]
        self._connection.pool.used_bytes += len(body)
        inflating = asyncio.get_running_loop().run_in_executor(_inflaters, b"".join, chain(inflated, steps))
        inflating.add_done_callback(self._inflated)

    def _inflated(self, inflating: asyncio.Future[bytes]) -> None:
        self._drop_body()
        try:
            body = inflating.result()
            if not self._is_answered:
                self._dispatch(body)
        except Exception as error:
            self.failed(error)

    def _fits_into_pool(self) -> bool:
        """Return whether the body is small, or the pool has space for the rest of it."""
        pool, length = self._connection.pool, self._head.length
        return length <= _SMALL_BODY_BYTES or pool.used_bytes + length - self._size <= pool.max_bytes

    def _take_body(self) -> bytes:
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._drop_body()
        return body

    def _drop_body(self) -> None:
        self._connection.pool.used_bytes -= sum([len(piece) for piece in self._pieces])
        self._pieces = []


def pool_full() -> Unavailable:
    """Return the error for a body that the pool has no space for."""
    message = "overloaded: too many large bodies are being received"
    return Unavailable(message, reason="no_room", retry_after_s=1)
