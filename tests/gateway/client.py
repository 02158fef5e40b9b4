"""A client on a connection of its own to some handlers, which can stop sending and disconnect.

The connection is a real :class:`HttpProtocol` over a transport that keeps what is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import httptools
import uvicorn

from uncork_gateway.connection.client_limits import ClientLimits
from uncork_gateway.connection.listener_context import ListenerContext
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.connection.route_table import RouteTable
from uncork_gateway.interfaces import BodyPool, Handler

JSON = (b"content-type", b"application/json")


class Reply(NamedTuple):
    """A reply as the client received it."""

    status: int
    headers: dict[str, str]
    body: bytes


async def no_app(scope: Any, receive: Any, send: Any) -> None:
    """Answer the requests that no handler takes."""
    await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


class Server:
    """The state that connections share."""

    def __init__(
        self,
        handlers: Mapping[bytes, Handler[Any]],
        *,
        app: Any = no_app,
        limits: ClientLimits | None = None,
    ) -> None:
        self.config = uvicorn.Config(app, lifespan="off", log_config=None, interface="asgi3")
        self.config.load()
        self.state = uvicorn.Server(self.config).server_state
        self.routes = RouteTable()
        self.routes.replace(handlers)
        self.listener = ListenerContext(limits=limits or ClientLimits(), pool=BodyPool(10_000_000))

    def protocol(self) -> HttpProtocol:
        return HttpProtocol(
            self.routes, self.listener, config=self.config, server_state=self.state, app_state={}
        )


class Connection(asyncio.Transport):
    """The client's end of a connection. Sent data arrives at once; received data is kept."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.received = b""
        self.closed = self.aborted = False
        """Whether the server sends no more, and whether it discarded unsent data."""
        self.ended = asyncio.Event()
        """Set when the server has ended the connection."""
        self.unread = 0
        self._gone = False
        self.reading = True
        self.protocol = server.protocol()
        self.protocol.connection_made(self)

    def send(self, data: bytes) -> None:
        self.protocol.data_received(data)

    def leave(self) -> None:
        self.close()
        self.protocol.connection_lost(None)

    def end(self) -> None:
        """Close the sending side; a client that has closed looks the same."""
        if not self.protocol.eof_received():
            self.leave()

    def replies(self) -> list[Reply]:
        return parse_replies(self.received)

    # The server's end

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        assert not self.closed
        self.received += data

    def close(self) -> None:
        self.closed = self._gone = True
        self.ended.set()

    def write_eof(self) -> None:
        assert not self.closed
        self.closed = True
        self.ended.set()

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return self._gone

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


def request(body: bytes, *, path: bytes = b"/", headers: Sequence[tuple[bytes, bytes]] = (JSON,)) -> bytes:
    """A POST with the length of its body, and a host unless ``headers`` has one."""
    own = [(b"content-length", b"%d" % len(body))]
    if b"host" not in dict(headers):
        own.append((b"host", b"test"))
    lines = b"".join(b"%b: %b\r\n" % header for header in (*headers, *own))
    return b"POST %b HTTP/1.1\r\n%b\r\n%b" % (path, lines, body)


class Client:
    """One request of one client: ``pieces`` of a body, after which it waits for the reply or disconnects.

    If ``said``, its head declares the length of the body, otherwise it is chunked. The end of an
    ``unfinished`` body never arrives.
    """

    def __init__(
        self,
        *pieces: bytes,
        headers: Sequence[tuple[bytes, bytes]] = (JSON,),
        unfinished: bool = False,
        said: bool = False,
    ) -> None:
        self._pieces = pieces
        self._headers = list(headers)
        self._unfinished = unfinished
        self._said = said
        self._left = asyncio.Event()
        self.sent = 0
        """Number of sent pieces; an early reply stops it."""

    def leave(self) -> None:
        self._left.set()

    async def ask(self, server: Server) -> Reply | None:
        """Send the request and return the reply; None if there was none."""
        connection = Connection(server)
        length = (b"transfer-encoding", b"chunked")
        if self._said:
            length = (b"content-length", b"%d" % sum(map(len, self._pieces)))
        lines = b"".join(b"%b: %b\r\n" % header for header in (*self._headers, length))
        connection.send(b"POST / HTTP/1.1\r\nhost: test\r\n" + lines + b"\r\n")
        for piece in self._pieces:
            if connection.received:
                break
            self.sent += 1
            if self._said:
                connection.send(piece)
            elif piece:
                connection.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        if not (self._said or self._unfinished or connection.received):
            connection.send(b"0\r\n\r\n")
        while not connection.received:
            if self._left.is_set():
                connection.leave()
                return None
            await asyncio.sleep(0)
        [reply] = connection.replies()
        assert ("connection" in reply.headers) == connection.closed
        return reply


class _Reading:
    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self._headers: dict[str, str] = {}
        self._body = b""
        self._parser: Any = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> list[Reply]:
        self._parser.feed_data(data)
        return self.replies

    def on_message_begin(self) -> None:
        self._headers, self._body = {}, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        assert name == name.lower()
        assert name.decode() not in self._headers
        self._headers[name.decode()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() in (204, 304):
            assert "content-length" not in self._headers
        elif "transfer-encoding" not in self._headers:
            assert self._headers["content-length"] == str(len(self._body))
        self.replies.append(Reply(self._parser.get_status_code(), self._headers, self._body))


def parse_replies(data: bytes) -> list[Reply]:
    return _Reading().feed(data)
