"""The HTTP/1.1 connection: passes requests to their handlers, on the fast path without ASGI.

uvicorn owns the sockets, TLS and signals, creates an :class:`HttpProtocol` per connection, and calls
``shutdown`` when it stops. Of ``server_state``, every such class uses connections, tasks and headers.

A POST to a path of the :class:`RouteTable` takes the fast path, from the parser to the dispatcher without an
ASGI scope, task, event or router: those would cost several times the rest. A request whose head is identical
to an earlier one, but for ids, is not even parsed. docs/reference/http.md lists what clients may not do.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.utils import is_ssl
from uvicorn.server import ServerState

from uncork_gateway.connection import state as transitions
from uncork_gateway.connection.asgi_request import AsgiRequest, Refusal, connection_scope, request_scope
from uncork_gateway.connection.bursts import SMALL_BYTES
from uncork_gateway.connection.listener_context import Admission, ListenerContext, connection_numbers
from uncork_gateway.connection.parser import RequestParser, StopParsing
from uncork_gateway.connection.reply_queue import ReplyQueue
from uncork_gateway.connection.route_table import Known, RouteTable
from uncork_gateway.connection.state import BODY, CLOSED, ENDED, HEAD, IDLE, LINGERING, READING, Transitions
from uncork_gateway.connection.timeouts import Timeouts
from uncork_gateway.connection.unparsed import ReadingFlow, Unparsed
from uncork_gateway.errors import BadRequest, GatewayError, Unavailable
from uncork_gateway.headers import WITHOUT_BODY, header_lines, length_line, new_request_id, request_id_of
from uncork_gateway.interfaces import FastPathRequest, Handler, Observers, QueuedRequest, Request


# An asyncio.Protocol in all but its base: below an interpreted one, mypyc would make attributes slow.
class HttpProtocol:
    """One client's connection, as :class:`ConnectionOfParts` describes it."""

    __deletable__ = ("_parser", "_timeouts")  # Compiled classes refuse to delete others.

    transport: asyncio.Transport
    flow: FlowControl
    _parser: RequestParser
    _timeouts: Timeouts
    _admission: Admission

    def __init__(
        self,
        routes: RouteTable,
        listener: ListenerContext,
        *,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.number = next(connection_numbers)
        self.pool = listener.pool
        self.observers: Observers = listener
        self.state = IDLE
        self.begun = self.answered = self.body_bytes = 0
        self.is_waiting = False
        self._routes = routes
        self._listener = listener
        self._bursts = listener.bursts
        self._config = config
        self._app_state = app_state
        self._server_state = server_state
        self._loop = _loop or asyncio.get_running_loop()
        self._incoming: Request | None = None
        """The request that is being read. Dropped once read, as it keeps its body and its result."""
        self._parsed: tuple[Handler[Any], Any, bytes] | None = None
        """The handler, the read head and the CORS lines of the last parsed head; or None."""
        self._body_left = 0
        """The bytes that its body still lacks, if its head was known; they bypass the parser."""
        self._reply_begun = self._says_keep_alive = False
        """``says``: True if the last parsed head is of HTTP/1.0, whose clients expect this header."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.flow = flow = ReadingFlow(transport)
        limits = self._listener.limits
        self._parser = RequestParser(self, limits, self._listener.turn)
        self._replies = ReplyQueue(transport, self.flow)
        self._unparsed = Unparsed(self, self._parser, self._replies, flow=flow, turn=self._listener.turn)
        self._is_tls = is_ssl(transport)
        self._scope = connection_scope(transport, self._app_state)
        self._timeouts = Timeouts(self, limits, keep_alive_s=self._config.timeout_keep_alive, loop=self._loop)
        self._server_state.connections.add(self)  # type: ignore[arg-type]
        self._admission = self._listener.opened()
        if self._admission == "flooded":
            transport.abort()
        elif self._admission == "too many":
            self.give_up(Unavailable("too many connections", reason="too_many_connections"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.state = CLOSED
        self._timeouts.stop()
        self._server_state.connections.discard(self)
        self._listener.open.closed(self._admission)
        self._replies.disconnect()
        self.flow.resume_writing()
        # Reference cycles would keep thousands of closed connections until the garbage collector runs.
        self._parser.close()
        self._incoming = None
        self._unparsed.close()
        del self._parser, self._timeouts

    # Input

    def data_received(self, data: bytes) -> None:
        """Read a request with a known head, or more of its body, on the fast path; parse all other input."""
        if self.is_waiting:
            self._bursts.submit_waiting()
        if self._unparsed.data and self._unparsed.add(data):
            return
        if self._body_left:
            data = self._known_body_received(data)
        if self.state is IDLE and self._replies.is_free:
            end = data.find(b"\r\n\r\n") + 4
            head = data[:end]
            known = self._routes.known.get(head) or self._routes.known_head(head)
            size = len(data)
            if known is not None and size <= (whole := end + known.length):
                if size < whole:
                    self._known_begins(known, data[end:])
                elif size <= SMALL_BYTES:
                    self._bursts.arrived(self, known, data[end:])
                else:
                    self.begin(known, data[end:])
                return
        if data and self.state in READING:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Parse input; if it is one request, or the beginning of one, remember its head."""
        begins, begun, body_bytes = self.state is IDLE, self.begun, self.body_bytes
        self._unparsed.feed(data)
        is_one = begins and self.begun == begun + 1 and self.state in (IDLE, BODY) and not self._unparsed.data
        parsed, parser = self._parsed, self._parser
        if not is_one or parsed is None or self._says_keep_alive:
            return
        # After a reload, an older connection may accept what new ones must refuse.
        if parser.accepts_like(self._listener.limits):
            handler, head, cors = parsed
            length, request_id = parser.content_length, request_id_of(parser.headers)
            known = Known(handler, head, length, parser.target, request_id, cors)
            self._routes.learn(data, self.body_bytes - body_bytes, known, parser.headers)

    def begin(self, known: Known, body: bytes) -> None:
        """Open a request that has arrived completely, unless the connection has closed since."""
        self.is_waiting = False
        if self.state is IDLE:
            self._replies.current = request = self._open(known)
            request.execute(body)

    def _open(self, known: Known) -> FastPathRequest:
        request = known.handler.open(self, known.head, keep_alive=True)
        request.request_id = known.request_id or new_request_id()
        request.cors = known.cors
        return request

    def _known_begins(self, known: Known, data: bytes) -> None:
        """Open a request whose head is known; ``data`` is the first part of its body."""
        self.begun += 1
        self.state = BODY
        self._parsed, self._incoming = None, (request := self._open(known))
        self._body_left = known.length
        self._replies.add(request)
        self._known_body_received(data)

    def _known_body_received(self, data: bytes) -> bytes:
        """Pass on a piece of the body of a request with a known head; return the bytes after the body."""
        piece, rest = data[: self._body_left], data[self._body_left :]
        self._body_left -= len(piece)
        self.body_received(piece)
        if not self._body_left:
            self.message_complete()
        return rest

    def message_begins(self) -> None:
        newest = self._replies.newest
        if self.state in READING and newest is not None and not newest.keep_alive:
            self.state = transitions.READING_STOPS[self.state]
        if self.state not in READING:
            raise StopParsing
        self.state = transitions.MESSAGE_BEGINS[self.state]
        self.begun += 1

    def head_complete(self) -> None:
        """Open the request on the fast path or on the ASGI path."""
        parser = self._parser
        handler = self._routes.find(parser.target) if parser.method == b"POST" else None
        keys = self._listener.keys
        request_id = request_id_of(parser.headers) or new_request_id()
        if handler is not None and (keys is None or keys.admit(parser.headers)):
            head, keep_alive = handler.read_head(parser.headers, parser.target), parser.keep_alive
            self._incoming = handler.open(self, head, keep_alive=keep_alive)
            if (origins := self._listener.origins) is not None:
                self._incoming.cors = header_lines(origins.headers(parser.headers))
            self._parsed = (handler, head, self._incoming.cors) if keep_alive else None
        else:
            self._parsed = None
            scope = request_scope(self._scope, parser, request_id)
            self._incoming = AsgiRequest(self, self._config.loaded_app, scope, keep_alive=parser.keep_alive)
        self._incoming.request_id = request_id
        self._says_keep_alive = parser.http_version == "1.0"
        self.state = transitions.HEAD_COMPLETE[self.state]
        self._replies.add(self._incoming)

    def body_received(self, piece: bytes) -> None:
        self.body_bytes += len(piece)
        if self.state is BODY and self._incoming is not None:
            self._incoming.body_received(piece)

    def message_complete(self) -> None:
        if self.state is BODY and self._incoming is not None:
            self.state = transitions.MESSAGE_COMPLETE[self.state]
            incoming, self._incoming = self._incoming, None
            incoming.body_complete()

    # Replies

    @property
    def has_chunks(self) -> bool:
        # The parser has the version of the last head that it parsed.
        return self._parser.http_version != "1.0"

    def reply(self, request: QueuedRequest, status: int, head: bytes, body: bytes) -> None:
        if not self.transport.is_closing():
            length = length_line(len(body))
            if status in WITHOUT_BODY:
                length = body = b""
            reply = b"".join((self._reply_head(request, status, head), length, b"\r\n", body))
            if request.keep_alive and not (self._replies.queued or self._unparsed.data):
                self._bursts.send(self.transport, reply)
            else:  # Whatever this connection does next must come after the reply.
                self.transport.write(reply)
        self.end_reply(request)

    def begin_reply(self, request: QueuedRequest, status: int, head: bytes) -> None:
        self._reply_begun = True
        self.transport.write(self._reply_head(request, status, head) + b"\r\n")

    def end_reply(self, request: QueuedRequest) -> None:
        self._replies.current = None
        self._reply_begun = False
        self.answered += 1
        if not request.keep_alive:
            self.hang_up()
        if self._replies.queued or self.flow.read_paused:
            self._replies.advance()
        if self._unparsed.data:
            self._unparsed.feed_rest()

    def send_continue(self) -> None:
        if self.has_chunks:  # HTTP/1.0 knows no interim replies either
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _reply_head(self, request: QueuedRequest, status: int, head: bytes) -> bytes:
        if self._listener.retiring and not self._replies.queued and not self._unparsed.data:
            request.keep_alive = False
        start = self._listener.reply_start(status, self._server_state.default_headers)
        end = b""
        if not request.keep_alive:
            end = b"connection: close\r\n"
        elif self._says_keep_alive:
            end = b"connection: keep-alive\r\n"
        return b"".join((start, head, request.cors, b"x-request-id: ", request.request_id, b"\r\n", end))

    def create_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in a task that the server waits for when it shuts down."""
        task = self._loop.create_task(coroutine)
        self._server_state.tasks.add(task)
        task.add_done_callback(self._server_state.tasks.discard)

    def resume_writing(self) -> None:
        """Start queued requests, because the client reads its responses again."""
        self.flow.resume_writing()
        self._replies.advance()
        self._unparsed.feed_rest()

    def pause_writing(self) -> None:
        self.flow.pause_writing()

    # The end of the connection

    def eof_received(self) -> bool:
        """Stay open until all requests have responses, unless the client has certainly gone.

        A client that has closed looks like one that has only stopped sending, until its system resets a ping.
        In the middle of a response, and with TLS, that cannot be known: the client counts as gone.
        """
        self._bursts.submit_waiting()
        if self._is_tls or (self._reply_begun and self.state is not ENDED):
            # Drop the unparsed input: the connection may stay open for some turns of the event loop.
            self.state = transitions.CLOSE[self.state]
            self._unparsed.take()
            return False
        self._unparsed.end()
        before = self.state
        if before in (HEAD, BODY):
            cut = BadRequest("the connection closed before the request was complete")
            self.give_up(cut, transitions.CLIENT_ENDS)
        else:
            self.state = transitions.CLIENT_ENDS[self.state]
        if before is not ENDED and self._replies.newest is not None:
            self._replies.newest.keep_alive = False
            self._ping()
        return self.is_answering

    def shutdown(self) -> None:
        """Close when all requests have responses; uvicorn calls this when it stops."""
        self._bursts.submit_waiting()
        if self._replies.newest is None:
            self.close()
        else:
            self._replies.newest.keep_alive = False

    def close(self) -> None:
        self.state = transitions.CLOSE[self.state]
        self.transport.close()

    def hang_up(self) -> None:
        before = self.state
        self.state = transitions.HANG_UP[self.state]
        self._replies.disconnect()
        if self.state is CLOSED or self._is_tls:
            self.close()
        elif before is not LINGERING:
            self._unparsed.take()
            self.flow.resume_reading()
            self._timeouts.linger(self.transport)

    def give_up(self, error: GatewayError, event: Transitions = transitions.READING_STOPS) -> None:
        """Stop reading, and respond with ``error`` to the request that is being read once it has started."""
        before = self.state
        if before not in READING:
            return
        self.state = event[before]
        if before is not BODY:
            # A head that is not complete may have brought the id.
            request_id = request_id_of(self._parser.headers) if before is HEAD else b""
            self._replies.add(Refusal(self, error, request_id=request_id or new_request_id()))
        elif self._incoming is not None:
            self._incoming.reject(error)

    def _ping(self, again_s: float = 0.01) -> None:
        """Send an interim response to a client that stopped sending; a later ping fails if it has gone."""
        if self.is_answering and not self._reply_begun and not self.transport.is_closing():
            self.send_continue()
            self._loop.call_later(again_s, self._ping, 2 * again_s)

    @property
    def is_answering(self) -> bool:
        return self._replies.newest is not None
