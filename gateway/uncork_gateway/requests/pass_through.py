"""Requests that the proxy relays one to one, with method, query, headers and body unchanged."""

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from uncork_gateway.backends.model_servers.http_server import (
    KEEP_ALIVE_S,
    HttpServer,
    Transport,
    closing_in_order,
    end_to_end,
    make_transport,
    reply_headers,
)
from uncork_gateway.backends.model_servers.server import CONNECT_S, ServerResponse, describe
from uncork_gateway.backends.model_servers.servers import Servers
from uncork_gateway.connection.listener_context import ListenerContext
from uncork_gateway.errors import BadGateway, BodyTooLarge, GatewayError, TimedOut, draining
from uncork_gateway.headers import CONTENT_LENGTH, Header, value_of
from uncork_gateway.protocols.rows import error_body
from uncork_gateway.requests.head import too_large

log = logging.getLogger("uncork.gateway")

_BODY_HEADERS = (CONTENT_LENGTH, b"transfer-encoding")
_LAST_STATUS = 599


class PassThrough:
    """An ASGI application that relays every request to one of several servers, without batching.

    Args:
        timeout_s: seconds without a byte from a server after which a request fails.
        max_body_bytes: the largest body of a request that is relayed piece by piece.
        ca: the CA certificates (PEM) to trust; see :func:`http_servers`.
    """

    def __init__(
        self,
        servers: Servers[HttpServer],
        listener: ListenerContext,
        *,
        timeout_s: float,
        max_body_bytes: int,
        ca: Path | None = None,
    ) -> None:
        self._servers = servers
        self._listener = listener
        self._retiring: set[asyncio.Task[None]] = set()
        self._relaying: set[asyncio.Task[Any]] = set()
        # A pool of its own: long streams must not occupy the connections of merged calls.
        self._limits = httpx.Limits(
            max_connections=None, max_keepalive_connections=32, keepalive_expiry=KEEP_ALIVE_S
        )
        # By scheme: plain HTTP needs no CA certificates, which take long to load.
        self._transports: dict[str, Transport] = {}
        self.change(timeout_s=timeout_s, max_body_bytes=max_body_bytes, ca=ca)

    def change(self, *, timeout_s: float, max_body_bytes: int, ca: Path | None, renew: bool = False) -> None:
        """Use other limits; with ``renew``, connect to all servers anew, because ``ca`` has changed.

        The former connections may carry streams, and are closed after them.
        """
        self._ca, self._max_body_bytes = ca, max_body_bytes
        self._timeouts = httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S)).as_dict()
        if renew:
            for transport in self._transports.values():
                retiring = asyncio.create_task(transport.retire())
                self._retiring.add(retiring)
                retiring.add_done_callback(self._retiring.discard)
            self._transports = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Relay a server's response piece by piece."""
        task = asyncio.current_task()
        assert task is not None
        self._relaying.add(task)
        task.add_done_callback(self._relaying.discard)
        request = Request(scope, receive)
        query = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        whole = asyncio.Event()
        body = None
        if any(name in _BODY_HEADERS for name, _ in scope["headers"]):
            body = _read(request, whole, max_bytes=self._max_body_bytes)
        else:
            whole.set()
        try:
            if int(value_of(scope["headers"], CONTENT_LENGTH) or 0) > self._max_body_bytes:
                raise too_large(self._max_body_bytes)
            sending = self._send(scope["method"], target, scope["headers"], body)
            reply = await _unless_disconnected(sending, receive, whole)
        except ClientDisconnect:
            return
        except GatewayError as error:
            answer = Response(error_body(str(error)), error.status, media_type="application/json")
            answer.raw_headers += error.headers()
            if isinstance(error, BodyTooLarge):
                answer.raw_headers.append((b"connection", b"close"))  # The rest of the body is not read.
        else:
            answer = StreamingResponse(
                reply.aiter_raw(), reply.status_code, background=BackgroundTask(reply.aclose)
            )
            answer.raw_headers = [*reply_headers(reply), *_length(reply.headers.raw)]
        try:
            await answer(scope, receive, send)
        except httpx.TransportError as error:
            # The client sees by the missing end that the reply is incomplete.
            log.warning("a server cut its response to %r short: %s", scope["path"], describe(error))
            raise BadGateway("the server cut its response short") from error

    async def relay(self, target: bytes, headers: Sequence[Header], body: bytes) -> ServerResponse:
        """Relay a POST request whose body is complete; return the complete response.

        Raises:
            GatewayError: if the server did not respond, or too many large bodies are being relayed.
        """
        with self._listener.pool.holding(len(body)):
            return await closing_in_order(self._relayed(target, headers, body))

    async def _relayed(self, target: bytes, headers: Sequence[Header], body: bytes) -> ServerResponse:
        reply = await self._send("POST", target, headers, body)
        try:
            content = b"".join([piece async for piece in reply.aiter_raw()])
        except httpx.TimeoutException as error:
            raise TimedOut(f"the server sent no data before the timeout: {describe(error)}") from error
        except httpx.TransportError as error:
            raise BadGateway(f"the server cut its response short: {describe(error)}") from error
        finally:
            await reply.aclose()
        return ServerResponse(reply.status_code, reply_headers(reply), content)

    async def close(self) -> None:
        """End all requests, before the connections to the servers close."""
        ending: list[asyncio.Task[Any]] = [*self._retiring, *self._relaying]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        for transport in self._transports.values():
            await transport.aclose()

    async def _send(
        self, method: str, target: bytes, headers: Sequence[Header], body: bytes | AsyncIterable[bytes] | None
    ) -> httpx.Response:
        if self._listener.closing:
            raise draining()
        server = self._servers.for_one_request()
        request = httpx.Request(
            method,
            server.address,
            headers=[*end_to_end(headers), *_length(headers)],
            content=body,
            extensions={"target": target, "timeout": self._timeouts},
        )
        try:
            reply = await self._transport(server.address).handle_async_request(request)
        except httpx.TimeoutException as error:
            raise TimedOut(f"the server did not respond before the timeout: {describe(error)}") from error
        except httpx.TransportError as error:
            raise BadGateway(f"the server did not respond: {describe(error)}") from error
        try:
            check_status(reply.status_code)
        except BadGateway:
            await reply.aclose()
            raise
        return reply

    def _transport(self, url: httpx.URL) -> Transport:
        transport = self._transports.get(url.scheme)
        if transport is None:
            transport = self._transports[url.scheme] = make_transport(url, self._limits, ca=self._ca)
        return transport


async def _read(request: Request, whole: asyncio.Event, *, max_bytes: int) -> AsyncIterator[bytes]:
    left_bytes = max_bytes
    async for piece in request.stream():
        left_bytes -= len(piece)
        if left_bytes < 0:
            raise too_large(max_bytes)
        yield piece
    whole.set()


async def _unless_disconnected(
    sending: Coroutine[Any, Any, httpx.Response], receive: Receive, whole: asyncio.Event
) -> httpx.Response:
    """Return the server's response, unless the client disconnects after its body is ``whole``."""
    answering = asyncio.create_task(sending)
    disconnecting = asyncio.create_task(_disconnected(receive, whole))
    try:
        await asyncio.wait((answering, disconnecting), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ClientDisconnect
        return answering.result()
    finally:
        answering.cancel()
        disconnecting.cancel()
        await asyncio.gather(answering, disconnecting, return_exceptions=True)


async def _disconnected(receive: Receive, whole: asyncio.Event) -> None:
    await whole.wait()
    while (await receive())["type"] != "http.disconnect":
        pass


def check_status(status: int) -> None:
    """Check that a server's status can be relayed to a client.

    Raises:
        BadGateway: if it is not a valid HTTP status.
    """
    if status > _LAST_STATUS:
        raise BadGateway(
            f"the server returned status {status}, which is not valid in HTTP; the highest is {_LAST_STATUS}"
        )


def _length(headers: Iterable[Header]) -> list[Header]:
    """Return the Content-Length header, unless Transfer-Encoding overrides it."""
    lengths = [(name.lower(), value) for name, value in headers if name.lower() in _BODY_HEADERS]
    return lengths if all(name == CONTENT_LENGTH for name, _ in lengths) else []
