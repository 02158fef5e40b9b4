"""One request on the short way, from its head to its reply: what is the same whoever executes it."""

from __future__ import annotations

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from uncork_dispatcher import DispatchError, RequestResult
from uncork_gateway.connection.decompression import Inflation
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.connection.route_table import Header, header_lines
from uncork_gateway.errors import (
    CLIENT_GONE,
    BadRequest,
    BodyTooLarge,
    GatewayError,
    Unavailable,
    from_dispatcher,
    unexpected,
)
from uncork_gateway.requests.batch_headers import BatchHead
from uncork_gateway.telemetry.metrics import ApiTally

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import Span

# What hardly takes longer than the rest of a request is inflated at once, the rest beside the loop.
_INFLATED_AT_ONCE_BYTES = 256 * 1024
_inflaters = ThreadPoolExecutor(max_workers=2, thread_name_prefix="inflate")
# Of a body of which more is to come; so much of any client can be kept.
_SMALL_BODY_BYTES = 64 * 1024


class Head(NamedTuple):
    """What the headers of a request say; ``refused`` is why it is not taken, if it is not.

    ``headers`` are those that matter to whoever reads the body, names in lower case. ``encoding`` is that of
    the body, in lower case, or empty; ``length`` its bytes if they were told, else 0. ``flow`` is whom the
    request counts for where queues are shared fairly. ``target`` is path and query, ``trace`` the headers
    that say in which trace the request is.
    """

    timeout_s: float
    expects: bool
    refused: GatewayError | None
    flow: bytes | None = None
    headers: tuple[Header, ...] = ()
    encoding: bytes = b""
    length: int = 0
    target: bytes = b""
    trace: tuple[Header, ...] = ()


class Route(Protocol):
    """Where requests go, as far as every exchange must know it."""

    executor: str
    """What runs its batches, in a word for clients."""
    max_body_bytes: int
    batch_head: BatchHead

    @property
    def tally(self) -> ApiTally:
        """What counts its answers."""
        ...

    def error(self, status: int, detail: str) -> tuple[bytes, bytes]:
        """Header lines and body of an answer other than 200."""
        ...


def read_head(
    headers: Sequence[Header], target: bytes, *, max_body_bytes: int, fair_by: bytes | None = None
) -> Head:
    """Read what headers say to every route; what is wrong with them is told when it is the request's turn.

    ``fair_by`` is the header, in lower case, whose value names the request's flow.
    """
    timeout_s, expects, encoding, length, flow = math.inf, False, b"", 0, None
    refused: GatewayError | None = None
    trace: tuple[Header, ...] = ()
    for name, value in headers:
        match name.lower():
            case b"content-length":
                length = int(value)
                if length > max_body_bytes:
                    refused = too_large(max_body_bytes)
            case b"x-request-timeout-ms":
                try:
                    timeout_s = _timeout_s(value)
                except BadRequest as error:
                    refused = error
            case b"expect":
                expects = value.lower() == b"100-continue"
            case b"content-encoding" if value.lower() != b"identity":
                encoding += (b", " if encoding else b"") + value.lower()
            case b"traceparent" | b"tracestate":
                trace += ((name.lower(), value),)
    if fair_by is not None:
        flow = next((value for name, value in headers if name.lower() == fair_by), None)
    return Head(
        timeout_s, expects, refused, flow, encoding=encoding, length=length, target=target, trace=trace
    )


class BodyExchange(ABC):
    """Collects the body of a request until it is its turn, and replies once.

    The connection brings it its body and says when it is its turn.
    """

    # Most requests never change these.
    response_complete = False
    _started = False
    _whole = False
    _refused: GatewayError | None = None
    _answer: RequestResult[Any] | None = None
    """What the dispatcher said, if it had the request executed."""
    _rows = 0
    """Of the request, once its body has been read."""
    _span: Span | None = None

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
        if connection.traces is not None:
            self._span = connection.traces.begin_request(head.target, head.trace)

    @abstractmethod
    def _dispatch(self, body: bytes) -> None:
        """Have the request executed. Exceptions become its answer."""

    @abstractmethod
    def _finish(self, answer: RequestResult[Any]) -> None:
        """Reply with what the dispatcher has for the request. Exceptions become its answer."""

    @abstractmethod
    def _withdraw(self) -> None:
        """Its client has left: nobody needs the answer."""

    # What the connection says

    def start(self) -> None:
        """Reply if there is something to reply already, or ask for the body."""
        self._started = True
        if not self._whole and self._refused is None and self._has_no_room():
            self.keep_alive = False
            self._refused = _no_room()
        if self._refused is not None:
            if self._head.expects and not self._whole:
                self.keep_alive = False  # nobody knows whether its body will come
            self.failed(self._refused)
        elif self._whole:
            self._begin(self._body())
        elif self._head.expects:
            self._connection.continue_()

    def take(self, piece: bytes) -> None:
        """Keep a piece of the body, unless it is of no use any more."""
        self._size += len(piece)
        if self._size > self._to.max_body_bytes:
            self.broken(too_large(self._to.max_body_bytes))
        elif self._refused is None:
            self._pieces.append(piece)
            pool = self._connection.pool
            pool.used_bytes += len(piece)
            if pool.used_bytes > pool.max_bytes and self._size > _SMALL_BODY_BYTES:
                self.broken(_no_room())

    def broken(self, error: GatewayError) -> None:
        """Reply with an error when it is the request's turn; what still comes is not read."""
        self._forget_body()
        if self.response_complete:
            self._connection.hang_up()
            return
        self.keep_alive = False
        is_first, self._refused = self._refused is None, self._refused or error
        if self._started and is_first:
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
            self._forget_body()
            self._withdraw()
            self._count(CLIENT_GONE)

    # Replies

    def answered(self, answer: RequestResult[Any]) -> None:
        """Reply with the result. If it makes no reply, the client gets the error instead."""
        self._answer = answer
        try:
            self._finish(answer)
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Reply with an error in the route's form; if the client has its reply, only log a fault of ours."""
        failure = self._failure(error)
        if self.response_complete:
            return
        if isinstance(failure, BodyTooLarge):
            self.keep_alive = False  # the rest of the body is not read
        content_type, body = self._to.error(failure.status, str(failure))
        head = header_lines(failure.headers()) + content_type
        self._reply(failure.status, head, body, is_refusal=failure.is_refusal)

    def _failure(self, error: Exception) -> GatewayError:
        """What to tell of an error."""
        if isinstance(error, DispatchError):
            error = from_dispatcher(error, executor=self._to.executor)
        return error if isinstance(error, GatewayError) else unexpected(error)

    def _reply(self, status: int, head: bytes, body: bytes, *, is_refusal: bool = False) -> None:
        self._connection.reply(self, status, head, body)
        self._count(status, is_refusal=is_refusal)

    def _count(self, status: int, *, is_refusal: bool = False) -> None:
        seconds = time.perf_counter() - self._arrived
        self._to.tally.answered(status, seconds, self._rows, is_refusal=is_refusal)
        request_log, traces, answer = self._connection.request_log, self._connection.traces, self._answer
        if request_log is not None:
            batch_id = "" if answer is None else self._to.batch_head.id_of(answer.batch.start.batch)
            size = self._size or self._head.length
            request_log.request("POST", self._head.target, status, seconds, size=size, batch_id=batch_id)
        if traces is not None and self._span is not None:
            traces.end_request(self._span, status, answer)

    def _begin(self, body: bytes) -> None:
        try:
            if self._head.encoding:
                self._inflate(body)
            else:
                self._dispatch(body)
        except Exception as error:
            self.failed(error)

    def _inflate(self, body: bytes) -> None:
        """Have the request executed when its body is inflated."""
        inflation = Inflation(body, self._head.encoding, max_bytes=self._to.max_body_bytes)
        if inflation.go_on(_INFLATED_AT_ONCE_BYTES):
            self._dispatch(inflation.result())
            return
        self._pieces = [body]
        self._connection.pool.used_bytes += len(body)
        inflating = asyncio.get_running_loop().run_in_executor(_inflaters, inflation.result)
        inflating.add_done_callback(self._inflated)

    def _inflated(self, inflating: asyncio.Future[bytes]) -> None:
        self._forget_body()
        try:
            body = inflating.result()
            if not self.response_complete:
                self._dispatch(body)
        except Exception as error:
            self.failed(error)

    def _has_no_room(self) -> bool:
        """Whether the body is large, and its rest has no place beside the others of which more is to come."""
        pool, length = self._connection.pool, self._head.length
        return length > _SMALL_BODY_BYTES and pool.used_bytes + length - self._size > pool.max_bytes

    def _body(self) -> bytes:
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._forget_body()
        return body

    def _forget_body(self) -> None:
        self._connection.pool.used_bytes -= sum([len(piece) for piece in self._pieces])
        self._pieces = []


def too_large(max_body_bytes: int) -> BodyTooLarge:
    """What to say of a body over the limit."""
    return BodyTooLarge(f"the body is over the limit of {max_body_bytes} bytes")


def _no_room() -> Unavailable:
    return Unavailable("overloaded: too many large bodies are being received", retry_after_s=1)


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
