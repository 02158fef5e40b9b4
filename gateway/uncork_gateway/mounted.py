"""The HTTP side of a gateway inside another ASGI application, whose server owns the connections."""

import asyncio
from urllib.parse import quote

from starlette.types import Message, Receive, Scope, Send

from uncork_gateway.connection.listener_context import ListenerContext, connection_numbers
from uncork_gateway.front_end import FrontEnd
from uncork_gateway.headers import (
    CONTENT_LENGTH,
    REQUEST_ID,
    WITHOUT_BODY,
    Header,
    new_request_id,
    request_id_of,
    route_path,
    with_request_id,
)
from uncork_gateway.interfaces import FastPathRequest, Observers, QueuedRequest

_MOST_LENGTH_DIGITS = 20


class ResponseCutShort(Exception):
    """Raised in the server when a response that has begun cannot be completed; the log says why.

    A server then ends the connection, so that the client sees that the response is incomplete.
    """


async def serve_mounted(front_end: FrontEnd, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one request as an ASGI application at the scope's ``root_path``.

    Requests to batched APIs take the same path as over a connection of the gateway, from their route on; the
    pages get all others.

    Raises:
        ResponseCutShort: if a response that has begun cannot be completed.
    """
    if scope["type"] != "http":
        await front_end.app(scope, receive, send)
        return
    headers = scope["headers"]
    request_id = request_id_of(headers) or new_request_id()
    target = quote(route_path(scope)).encode() + b"?" * bool(scope["query_string"]) + scope["query_string"]
    handler = front_end.routes.find(target) if scope["method"] == "POST" else None
    if handler is None:
        scope = {**scope, "headers": list(with_request_id(headers, request_id))}
        await front_end.app(scope, receive, _with_id(send, request_id))
        return
    exchange = _Exchange(front_end.listener, scope)
    # The server has framed the body already, and may not have checked the number.
    checked = [one for one in headers if one[0] != CONTENT_LENGTH or _is_length(one[1])]
    request = handler.open(exchange, handler.read_head(checked, target), keep_alive=True)
    request.request_id = request_id
    await exchange.run(request, receive, send)


def _is_length(value: bytes) -> bool:
    return value.isdigit() and len(value) <= _MOST_LENGTH_DIGITS


def _with_id(send: Send, request_id: bytes) -> Send:
    async def send_with_id(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (REQUEST_ID, request_id)]}
        await send(message)

    return send_with_id


class _Exchange(asyncio.Transport):
    """One request and its response; the :class:`~uncork_gateway.interfaces.Connection` of the request.

    As the transport, it keeps the part of the body that the server has not sent yet.

    Attributes:
        number: identifies the client, as far as the server does.
    """

    # The server writes its own chunks.
    has_chunks = False

    def __init__(self, listener: ListenerContext, scope: Scope) -> None:
        super().__init__()
        client = scope.get("client")
        self.number = next(connection_numbers) if client is None else hash(tuple(client))
        self.pool = listener.pool
        self.observers: Observers = listener
        self._start: tuple[int, list[Header]] | None = None
        """Status and headers; None until the response begins."""
        self._is_whole = False
        """True if nothing more will be written."""
        self._is_cut = False
        """True if the response cannot be completed."""
        self._changed = asyncio.Event()
        """Set when there is something to do."""
        self._unsent = bytearray()

    @property
    def transport(self) -> asyncio.Transport:
        return self

    async def run(self, request: FastPathRequest, receive: Receive, send: Send) -> None:
        """Pass on the body, then the response; cancel the request if the client or the server ends it."""
        try:
            request.start()
            if await self._receive_body(request, receive):
                await self._respond(receive, send)
        except OSError:
            pass  # The server reports that the client has gone.
        finally:
            request.disconnect()  # without effect on a request that has its response

    async def _receive_body(self, request: FastPathRequest, receive: Receive) -> bool:
        """Pass on the body until it is complete or rejected; return False if the client has gone."""
        while self._start is None:
            message = await receive()
            if message["type"] != "http.request":
                return False
            if body := message.get("body"):
                request.body_received(body)
            if not message.get("more_body", False):
                request.body_complete()
                break
        return True

    async def _respond(self, receive: Receive, send: Send) -> None:
        leaving = asyncio.create_task(self._until_left(receive))
        leaving.add_done_callback(self._client_left)
        try:
            await self._send_response(send, leaving)
        finally:
            leaving.cancel()

    async def _until_left(self, receive: Receive) -> None:
        if self._is_whole:
            return  # To receive could ask a client for the body that waits with it.
        message = await receive()
        if message["type"] != "http.disconnect":
            # A middleware that repeats the body would do so forever.
            await asyncio.Event().wait()

    def _client_left(self, leaving: asyncio.Task[None]) -> None:
        if not leaving.cancelled():
            leaving.exception()  # raised where the response is sent, unless that has ended
            self._changed.set()

    async def _send_response(self, send: Send, leaving: "asyncio.Task[None]") -> None:
        await self._changed.wait()
        if self._start is not None:
            status, headers = self._start
            await send({"type": "http.response.start", "status": status, "headers": headers})
            while True:
                self._changed.clear()
                body, is_whole = bytes(self._unsent), self._is_whole
                self._unsent.clear()
                if body or is_whole:
                    await send({"type": "http.response.body", "body": body, "more_body": not is_whole})
                if is_whole:
                    return
                if self._is_cut:
                    raise ResponseCutShort("the response could not be completed; the log says why")
                if leaving.done():
                    break
                await self._changed.wait()
        leaving.result()

    # Called by the request

    def reply(self, request: QueuedRequest, status: int, head: bytes, body: bytes) -> None:
        has_body = status not in WITHOUT_BODY
        length = [(CONTENT_LENGTH, b"%d" % len(body))] if has_body else []
        self._begin(request, status, head, length)
        self.write(body if has_body else b"")
        self.end_reply(request)

    def begin_reply(self, request: QueuedRequest, status: int, head: bytes) -> None:
        self._begin(request, status, head, [])

    def _begin(self, request: QueuedRequest, status: int, head: bytes, others: list[Header]) -> None:
        headers = [(name.lower(), value) for name, value in _split(head)]
        self._start = status, [*headers, *others, (REQUEST_ID, request.request_id)]
        self._changed.set()

    def end_reply(self, request: QueuedRequest) -> None:
        self._is_whole = True
        self._changed.set()

    def send_continue(self) -> None:
        pass  # The server does, when the body is first received.

    def hang_up(self) -> None:
        pass  # Nothing follows on this connection that the server does not know.

    # asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._unsent += data
        self._changed.set()

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def is_closing(self) -> bool:
        return self._is_cut

    def close(self) -> None:
        self._is_cut = True
        self._changed.set()

    def abort(self) -> None:
        self.close()


def _split(head: bytes) -> list[Header]:
    """Return the headers in header lines."""
    pairs = [line.partition(b": ") for line in head.split(b"\r\n")[:-1]]
    return [(name, value) for name, _, value in pairs]
