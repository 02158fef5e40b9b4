"""HTTP/1.1 as uvicorn speaks it, with a short way for the requests that are batched.

Parsing, keep-alive, pipelining, limits and shutdown are uvicorn's. A request to a hot route needs no
ASGI scope, task, event or router between the parser and the dispatcher: what those cost is several
times what is left without them (``docs/performance.md``). All others take uvicorn's own way.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote_to_bytes

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

Header = tuple[bytes, bytes]
Head = TypeVar("Head")
_MOST_KNOWN = 4096
_LONGEST_KNOWN_BYTES = 4096
_numbers = itertools.count(1)


class Exchange(Protocol):
    """One request on the short way; it is the connection's ``cycle``, as uvicorn calls it.

    The connection calls ``start`` when it is the request's turn, which with pipelining may be after its
    body has come; the request calls :meth:`HttpProtocol.reply`, once.
    """

    keep_alive: bool
    response_complete: bool

    def start(self) -> None:
        """All requests before it on the connection have been answered."""

    def take(self, piece: bytes) -> None:
        """A piece of its body."""

    def complete(self) -> None:
        """Its body is whole."""

    def whole(self, body: bytes) -> None:
        """It is its turn, and this is all of its body: ``start``, ``take`` and ``complete`` in one."""

    def leave(self) -> None:
        """Its client has gone."""


class HotHandler(Protocol[Head]):
    """Takes the requests to one path."""

    def read_head(self, headers: Sequence[Header], target: bytes) -> Head:
        """What the handler wants to know of headers and target. Names are as the client wrote them."""

    def open(self, connection: HttpProtocol, head: Head, *, keep_alive: bool) -> Exchange:
        """A request whose head has come."""


class _Known(NamedTuple):
    """What was made of a head that has come before."""

    handler: HotHandler[Any]
    head: Any
    length: int
    """Bytes of the body."""


class HotRoutes:
    """The handlers of POST requests by path, and the heads that clients send again and again.

    Heads are kept as they came, byte by byte, so that another look at them would see the same.

    Args:
        resolve: finds the handler of a target that has none by its path.
        admit: whether a request with these headers may take the short way; one that may not goes to the app,
            which refuses it.
    """

    def __init__(
        self,
        resolve: Callable[[bytes], HotHandler[Any] | None] | None = None,
        *,
        admit: Callable[[Sequence[Header]], bool] | None = None,
    ) -> None:
        self.handlers: dict[bytes, HotHandler[Any]] = {}
        self.admit = admit or (lambda headers: True)
        self._resolve = resolve
        self.known: dict[bytes, _Known] = {}
        self._headers: list[Header] = []
        self._starts: dict[int, bytes] = {}
        self.closing = False
        """Whether connections are closed when what was asked on them has been answered."""

    def replace(self, handlers: Mapping[bytes, HotHandler[Any]]) -> None:
        """Put other handlers in force for the requests to come."""
        self.handlers = dict(handlers)
        self.known = {}

    def find(self, target: bytes) -> HotHandler[Any] | None:
        """The handler of a request target: that of its path, else what ``resolve`` finds for all of it."""
        handler = self.handlers.get(target) or self.handlers.get(path_of(target))
        if handler is None and self._resolve is not None:
            handler = self._resolve(target)
        return handler

    def reply_start(self, status: int, headers: list[Header]) -> bytes:
        """Status line and the server's own header lines; uvicorn gives other ``headers`` every second."""
        if headers is not self._headers:
            self._headers = headers
            self._starts.clear()
        start = self._starts.get(status)
        if start is None:
            start = self._starts[status] = STATUS_LINE[status] + header_lines(headers)
        return start

    def learn(self, head: bytes, known: _Known) -> None:
        """Keep a head, unless it is unusually long."""
        if len(head) <= _LONGEST_KNOWN_BYTES:
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            self.known[head] = known


class HttpProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, routes: HotRoutes, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._routes = routes
        self._exchange: Exchange | None = None
        """The request that is being parsed, if it is on the short way."""
        self._parsed: tuple[HotHandler[Any], Any] | None = None
        self._between = True
        """Whether the parser stands between two requests."""
        self._chunk = b""
        """What the parser is fed, if it stood between two requests before."""
        self._serving: Any = None
        """The request whose turn it is, or was."""
        self._going_on = False
        self._answered = self._answered_before = 0
        self._idle_check: asyncio.TimerHandle | None = None
        self.number = next(_numbers)
        """Names the connection; never used twice."""

    def reply(self, exchange: Exchange, status: int, head: bytes, body: bytes) -> None:
        """Answer a request whose turn it is. ``head`` is header lines, each with its line end."""
        exchange.response_complete = True
        if self.transport.is_closing():
            return
        if self._routes.closing and not self.pipeline:
            exchange.keep_alive = False
        if not exchange.keep_alive:
            head += b"connection: close\r\n"
        start = self._routes.reply_start(status, self.server_state.default_headers)
        self.transport.write(b"%b%bcontent-length: %d\r\n\r\n%b" % (start, head, len(body), body))
        if not exchange.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def begin(self, exchange: Exchange, status: int, head: bytes) -> None:
        """Begin the answer to a request whose turn it is, up to its body; :meth:`end` comes later."""
        if not exchange.keep_alive:
            head += b"connection: close\r\n"
        start = self._routes.reply_start(status, self.server_state.default_headers)
        self.transport.write(b"%b%b\r\n" % (start, head))

    def end(self, exchange: Exchange) -> None:
        """The answer that was begun is whole, as the client can see."""
        exchange.response_complete = True
        if not exchange.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def continue_(self) -> None:
        """Tell a client that waits for it (``Expect: 100-continue``) to send its body."""
        self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Watch for connections that nobody uses."""
        super().connection_made(transport)
        self._idle_check = self.loop.call_later(self.timeout_keep_alive, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the requests that wait for an answer."""
        if self._idle_check is not None:
            self._idle_check.cancel()
        for cycle in (self._serving, *(cycle for cycle, _ in self.pipeline)):
            if _is_exchange(cycle):
                cycle.leave()
        if _is_exchange(self.cycle):
            self.cycle = None  # type: ignore[assignment]
        self._exchange = None
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """The client reads again: go on with what it has pipelined."""
        super().resume_writing()
        self._go_on()

    def _check_idle(self) -> None:
        """Close the connection if none of its requests was answered since the last look.

        So it is closed after one to two times the keep-alive time; a timer for each request would cost more.
        """
        if self._is_idle and self._answered == self._answered_before:
            self.transport.close()
            return
        self._answered_before = self._answered
        self._idle_check = self.loop.call_later(self.timeout_keep_alive, self._check_idle)

    def data_received(self, data: bytes) -> None:
        """Take the short way at once if a whole request has come whose head is known."""
        if self._between and self._is_free:
            end = data.find(b"\r\n\r\n") + 4
            known = self._routes.known.get(data[:end])
            if known is not None and len(data) == end + known.length:
                exchange = known.handler.open(self, known.head, keep_alive=True)
                self.cycle = self._serving = exchange  # type: ignore[assignment]
                exchange.whole(data[end:])
                return
        self._chunk = data if self._between else b""
        super().data_received(data)
        self._chunk = b""

    # What uvicorn's protocol calls

    def on_message_begin(self) -> None:
        """Forget the request before; uvicorn makes its scope here, which only its own way needs."""
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self._exchange = None
        self._between = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header as it came, without the space that the parser leaves behind it (RFC 9110, 5.5)."""
        self.headers.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Choose the way of a request."""
        handler = None
        if self.parser.get_method() == b"POST" and not self.parser.should_upgrade():
            handler = self._routes.find(self.url)
        if handler is None or not self._routes.admit(self.headers):
            self._long_way()
            return
        keep_alive = self.parser.should_keep_alive() and self.parser.get_http_version() != "1.0"
        head = handler.read_head(self.headers, self.url)
        self._parsed = (handler, head)
        self._exchange = handler.open(self, head, keep_alive=keep_alive)
        self._enter(self._exchange)

    def _enter(self, exchange: Exchange) -> None:
        """Start a request, or queue it behind the one before."""
        free = self._is_free
        self.cycle = exchange  # type: ignore[assignment]
        if free:
            self._start_asgi_task(exchange, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    @property
    def _is_free(self) -> bool:
        """Whether a request that comes now has its turn at once."""
        return self._is_idle and not self.flow.write_paused

    @property
    def _is_idle(self) -> bool:
        return not self.pipeline and (self._serving is None or self._serving.response_complete)

    def on_body(self, body: bytes) -> None:
        """Hand a piece of body on."""
        if self._exchange is None:
            super().on_body(body)
        else:
            self._exchange.take(body)

    def on_message_complete(self) -> None:
        """Hand the end of a body on."""
        if self._exchange is None:
            super().on_message_complete()
            return
        self._between = True
        self._learn(self._exchange)
        self._exchange.complete()

    def _learn(self, exchange: Exchange) -> None:
        """Keep the head of the request that was parsed, if all of it came alone and in one piece."""
        end = self._chunk.find(b"\r\n\r\n") + 4
        length = next((int(value) for name, value in self.headers if name.lower() == b"content-length"), 0)
        if exchange.keep_alive and length and len(self._chunk) == end + length and self._parsed is not None:
            handler, head = self._parsed
            self._routes.learn(self._chunk[:end], _Known(handler, head, length))

    def on_response_complete(self) -> None:
        """Go on with the next request, if the client reads its answers."""
        self.server_state.total_requests += 1
        self._answered += 1
        if self.pipeline or self.flow.read_paused:
            self._go_on()

    def _go_on(self) -> None:
        """Start what is queued, if the client reads its answers. A loop: many may be answered at once."""
        if self._going_on:
            return
        self._going_on = True
        while not (self._serving and not self._serving.response_complete):
            if self.flow.write_paused or self.transport.is_closing():
                break
            if len(self.pipeline) < 2:
                self.flow.resume_reading()
            if not self.pipeline:
                break
            self._start_asgi_task(*self.pipeline.pop())
        self._going_on = False

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._serving = cycle
        if _is_exchange(cycle):
            cycle.start()
        else:
            super()._start_asgi_task(cycle, app)

    def _long_way(self) -> None:
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url = url
        for name, value in headers:
            super().on_header(name, value)
        super().on_headers_complete()
        if self._routes.closing:
            self.cycle.keep_alive = False


def _is_exchange(cycle: Any) -> bool:
    return hasattr(cycle, "leave")


def header_lines(headers: Iterable[Header]) -> bytes:
    """Headers as they are sent."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def path_of(target: bytes) -> bytes:
    """The path of a request target, without query and escapes; empty if it has none."""
    if not target.startswith(b"/"):
        try:
            target = httptools.parse_url(target).path or b""
        except httptools.HttpParserError:
            return b""
    return unquote_to_bytes(target.partition(b"?")[0])
