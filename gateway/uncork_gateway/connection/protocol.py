"""HTTP/1.1 as uvicorn speaks it, with a short way for the requests that are batched.

Parsing, keep-alive, pipelining and shutdown are uvicorn's. A request to a hot route needs no
ASGI scope, task, event or router between the parser and the dispatcher: what those cost is several
times what is left without them (``docs/performance.md``). All others take uvicorn's own way.
What clients may not do is in ``docs/reliability.md``.
"""

from __future__ import annotations

import itertools
from typing import Any

import httptools

from uncork_gateway.connection.client_limits import WaryProtocol, is_exchange
from uncork_gateway.connection.listener_context import ListenerContext
from uncork_gateway.connection.route_table import Known, RouteTable
from uncork_gateway.errors import BadRequest, GatewayError, problem, unexpected
from uncork_gateway.headers import header_lines
from uncork_gateway.interfaces import Handler, Request, StreamedRequest

_numbers = itertools.count(1)


class Refusal:
    """Takes the turn of what could not be read as a request."""

    keep_alive = False

    def __init__(self, connection: HttpProtocol, error: GatewayError) -> None:
        self.response_complete = False
        self._connection = connection
        self._error = error

    def start(self) -> None:
        """All requests before it on the connection have been answered."""
        error, request_log = self._error, self._connection.request_log
        if request_log is not None:
            request_log.request("-", b"-", error.status, 0.0, size=0)
        head = header_lines([*error.headers(), (b"content-type", b"application/problem+json")])
        self._connection.reply(self, error.status, head, problem(error.status, str(error)))

    def leave(self) -> None:
        """Nobody needs to know."""


class HttpProtocol(WaryProtocol):
    """One connection."""

    def __init__(self, routes: RouteTable, listener: ListenerContext, **uvicorn: Any) -> None:
        super().__init__(listener.limits, **uvicorn)
        self._routes = routes
        self._listener = listener
        self._parsed: tuple[Handler[Any], Any] | None = None
        self._chunk = b""
        """What the parser is fed, if it stood between two requests before."""
        self._going_on = False
        self.parser = _make_parser(self)
        self.pool = listener.pool
        self.request_log = listener.access_log
        self.traces = listener.traces
        if self.request_log is not None:
            self.app = self.request_log.wrap(self.app)
        self.number = next(_numbers)
        """Names the connection; never used twice."""

    @property
    def http_version(self) -> str:
        """The version of the request that was parsed last."""
        return self.parser.get_http_version()

    def reply(self, exchange: Request | Refusal, status: int, head: bytes, body: bytes) -> None:
        """Answer a request whose turn it is. ``head`` is header lines, each with its line end."""
        exchange.response_complete = True
        if self.transport.is_closing():
            return
        if self._listener.closing and not self.pipeline:
            exchange.keep_alive = False
        if not exchange.keep_alive:
            head += b"connection: close\r\n"
        start = self._listener.reply_start(status, self.server_state.default_headers)
        self.transport.write(b"%b%bcontent-length: %d\r\n\r\n%b" % (start, head, len(body), body))
        if not exchange.keep_alive:
            self.hang_up()
        self.on_response_complete()

    def begin(self, exchange: StreamedRequest, status: int, head: bytes) -> None:
        """Begin the answer to a request whose turn it is, up to its body; :meth:`end` comes later."""
        if not exchange.keep_alive:
            head += b"connection: close\r\n"
        exchange.response_started = True
        start = self._listener.reply_start(status, self.server_state.default_headers)
        self.transport.write(b"%b%b\r\n" % (start, head))

    def end(self, exchange: Request) -> None:
        """The answer that was begun is whole, as the client can see."""
        exchange.response_complete = True
        if not exchange.keep_alive:
            self.hang_up()
        self.on_response_complete()

    def resume_writing(self) -> None:
        """The client reads again: go on with what it has pipelined."""
        super().resume_writing()
        self._go_on()

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
        if not self._deaf:
            self._chunk = data if self._between else b""
            self._feed(data)
            self._chunk = b""

    def _parse(self, data: bytes) -> None:
        """Have bytes parsed, without offers of another protocol (as ``h2c``): nobody here takes them up."""
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                data = self._head_without_offer() + data[offer.args[0] :]
                self.parser = _make_parser(self)
            else:
                return

    def _head_without_offer(self) -> bytes:
        """The head that was parsed, but the parser takes all that follows for the other protocol."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        kept = [header for header in self.headers if header[0].lower() != b"upgrade"]
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, header_lines(kept))

    # What uvicorn's protocol calls

    def on_message_begin(self) -> None:
        """Forget the request before; uvicorn makes its scope here, which only its own way needs."""
        self._check_begin()
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self._exchange = None
        self._between = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header as it came, without the space that the parser leaves behind it (RFC 9110, 5.5)."""
        if self._in_body:
            return  # a trailer, which must not pass for a header
        value = value.rstrip(b" \t")
        self._check_header(name, value)
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Choose the way of a request."""
        self._check_head()
        if self.parser.should_upgrade():
            return
        handler = None
        if self.parser.get_method() == b"POST":
            handler = self._routes.find(self.url)
        if handler is None or not self._listener.admit(self.headers):
            self._long_way()
            self._in_body = True
            return
        keep_alive = self.parser.should_keep_alive() and self.parser.get_http_version() != "1.0"
        head = handler.read_head(self.headers, self.url)
        self._parsed = (handler, head)
        self._exchange = handler.open(self, head, keep_alive=keep_alive)
        self._in_body = True
        self._enter(self._exchange)

    def _enter(self, exchange: Request | Refusal) -> None:
        """Start a request, or queue it behind the one before."""
        free = self._is_free
        self.cycle = exchange  # type: ignore[assignment]
        if free:
            self._start_asgi_task(exchange, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _refuse(self, error: GatewayError) -> None:
        self._enter(Refusal(self, error))

    @property
    def _is_free(self) -> bool:
        """Whether a request that comes now has its turn at once."""
        return self._is_idle and not self.flow.write_paused

    def on_body(self, body: bytes) -> None:
        """Hand a piece of body on."""
        self._note_body(body)
        if self._exchange is None:
            super().on_body(body)
        else:
            self._exchange.take(body)

    def on_message_complete(self) -> None:
        """Hand the end of a body on."""
        if self.parser.should_upgrade():
            return
        self._between, self._in_body = not self._deaf, False
        if self._exchange is None:
            super().on_message_complete()
            return
        self._learn(self._exchange)
        self._exchange.complete()

    def _learn(self, exchange: Request) -> None:
        """Keep the head of the request that was parsed, if all of it came alone and in one piece."""
        end = self._chunk.find(b"\r\n\r\n") + 4
        length = next((int(value) for name, value in self.headers if name.lower() == b"content-length"), 0)
        if exchange.keep_alive and length and len(self._chunk) == end + length and self._parsed is not None:
            handler, head = self._parsed
            self._routes.learn(self._chunk[:end], Known(handler, head, length))

    def on_response_complete(self) -> None:
        """Go on with the next request, if the client reads its answers."""
        self.server_state.total_requests += 1
        self._answered += 1
        if self.pipeline or self.flow.read_paused:
            self._go_on()

    def _go_on(self) -> None:
        """Start what is queued, if the client reads its answers. A fault in that closes the connection."""
        if self._going_on:
            return
        self._going_on = True
        try:
            self._start_queued()
        except Exception as error:
            # Nothing would answer that request, and those behind it would wait for ever.
            unexpected(error)
            self.transport.close()
        finally:
            self._going_on = False

    def _start_queued(self) -> None:
        """A loop: many may be answered at once."""
        while not (self._serving and not self._serving.response_complete):
            if self.flow.write_paused or self.transport.is_closing():
                break
            if len(self.pipeline) < 2:
                self.flow.resume_reading()
            if not self.pipeline:
                break
            self._start_asgi_task(*self.pipeline.pop())

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._serving = cycle
        if is_exchange(cycle):
            cycle.start()
        else:
            super()._start_asgi_task(cycle, app)

    def _long_way(self) -> None:
        try:
            has_path = httptools.parse_url(self.url).path is not None
        except httptools.HttpParserError:
            has_path = False
        if not has_path:
            raise BadRequest("the request target is neither a path nor a URL with one")
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url = url
        for name, value in headers:
            super().on_header(name, value)
        super().on_headers_complete()
        if self._listener.closing:
            self.cycle.keep_alive = False


def _make_parser(protocol: HttpProtocol) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(protocol)
    # It is for us to say what becomes of requests after the last on a connection.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser
