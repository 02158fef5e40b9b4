"""One HTTP model server behind the proxy: calls to it, and its health check."""

import asyncio
import math
import ssl
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import httpcore
import httpx

from uncork_dispatcher import SettingError
from uncork_gateway.backends.model_servers.exact_streams import ExactBackend
from uncork_gateway.backends.model_servers.server import (
    CONNECT_S,
    ConnectionLost,
    NoAnswerInTime,
    Server,
    ServerResponse,
    describe,
    limited_rest_s,
)
from uncork_gateway.headers import HOP_BY_HOP, REQUEST_ID, RETRY_AFTER, TIMEOUT, Header
from uncork_gateway.protocols.wire import Content

# Many servers, such as uvicorn, close idle connections after 5 s; ours must be given up before that.
KEEP_ALIVE_S = 4.0

# Including those that every sender sets itself.
_PER_HOP = HOP_BY_HOP.union((b"te", b"trailer", b"host", b"expect", b"content-length"))
_ADDED = (b"date", REQUEST_ID)
_ENCODINGS = b"accept-encoding"
_BROKEN = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
_OVERLOADED = (429, 503)

T = TypeVar("T")


@dataclass(slots=True, eq=False, kw_only=True)
class HttpServer(Server):
    """One HTTP server and its state.

    Attributes:
        transport: carries the calls. It follows no redirects, keeps no cookies, and adds no headers.
        health_path: the path and query to which a healthy server responds 2xx; None: accepting a connection
            is enough.
    """

    address: httpx.URL
    transport: httpx.AsyncBaseTransport
    health_path: str | None = None

    async def exchange(
        self, target: bytes, content: Content, *, silence_s: float, time_left_s: float, idempotent: bool
    ) -> ServerResponse:
        """POST a request; see :meth:`Server.exchange`.

        An ``idempotent`` request is sent once more if the connection breaks before the response begins: many
        servers, such as uvicorn, silently close a connection after a 500.
        """
        headers = [header for header in content.headers if header[0].lower() != TIMEOUT]
        if time_left_s != math.inf:
            headers.append((TIMEOUT, b"%d" % max(1, int(time_left_s * 1000))))
        content = content._replace(headers=tuple(headers))
        try:
            return await self._exchange("POST", target, content, silence_s=silence_s, idempotent=idempotent)
        except (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout) as error:
            raise ConnectionLost(describe(error)) from error
        except httpx.TimeoutException as error:
            raise NoAnswerInTime(describe(error)) from error

    def asked_rest_s(self, response: ServerResponse) -> float:
        """Return the seconds of Retry-After in a 429 or 503 response; at most 30."""
        if response.status not in _OVERLOADED:
            return 0
        return read_retry_after_s(response.headers, now=datetime.now(UTC))

    async def check(self) -> str | None:
        try:
            async with asyncio.timeout(CONNECT_S):
                if self.health_path is None:
                    await self._connect()
                    return None
                response = await self._exchange(
                    "GET", self.health_path.encode(), Content(b""), silence_s=CONNECT_S, idempotent=True
                )
        except Exception as error:  # any error means no answer
            return describe(error)
        return None if response.status // 100 == 2 else f"GET {self.health_path} returned {response.status}"

    async def close(self) -> None:
        await self.transport.aclose()

    async def _exchange(
        self, method: str, target: bytes, content: Content, *, silence_s: float, idempotent: bool
    ) -> ServerResponse:
        headers = [header for header in end_to_end(content.headers) if header[0] != _ENCODINGS]
        request = httpx.Request(
            method,
            self.address,
            headers=[*headers, (_ENCODINGS, b"identity")],
            content=content.body if method == "POST" else None,
            extensions={
                "target": target,  # verbatim: httpx would quote a URL again
                "timeout": httpx.Timeout(silence_s, connect=min(silence_s, CONNECT_S)).as_dict(),
            },
        )
        return await closing_in_order(self._response(request, idempotent=idempotent))

    async def _response(self, request: httpx.Request, *, idempotent: bool) -> ServerResponse:
        try:
            reply = await self.transport.handle_async_request(request)
        except _BROKEN:
            if not idempotent:
                raise
            reply = await self.transport.handle_async_request(request)
        assert isinstance(reply.stream, httpx.AsyncByteStream)
        try:
            body = b"".join([piece async for piece in reply.stream])
        finally:
            await reply.aclose()
        return ServerResponse(reply.status_code, reply_headers(reply), body)

    async def _connect(self) -> None:
        port = self.address.port or {"http": 80, "https": 443}[self.address.scheme]
        _, writer = await asyncio.open_connection(self.address.host, port)
        writer.close()
        await writer.wait_closed()


class Transport(httpx.AsyncHTTPTransport):
    """Sends requests over HTTP/1.1, and raises httpx's errors.

    A connection is reused only if the server has sent exactly one response per request.
    """

    def __init__(self, *, verify: bool | ssl.SSLContext, limits: httpx.Limits) -> None:
        context = httpx.create_ssl_context(verify=verify, trust_env=False)
        super().__init__(verify=context, trust_env=False, limits=limits)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=ExactBackend(),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request.

        Raises:
            httpx.TransportError: if sending or reading fails.
        """
        try:
            return await super().handle_async_request(request)
        except (OSError, AttributeError) as error:
            # httpx asks a new connection for its address. If the server has reset it, the operating system
            # reports an error, or the event loop has already dropped the socket.
            raise httpx.ConnectError(f"connection lost at once: {error}", request=request) from error

    async def retire(self) -> None:
        """Close the connections when all responses have been read, or the caller is cancelled."""
        try:
            # A connection with a new request looks idle until the request is sent.
            while self._pool._requests:  # noqa: ASYNC110  # nothing reports the end of a response
                await asyncio.sleep(KEEP_ALIVE_S)
        finally:
            await self.aclose()


MakeTransport = Callable[[httpx.URL, httpx.Limits], httpx.AsyncBaseTransport]


def make_transport(url: httpx.URL, limits: httpx.Limits, *, ca: Path | None = None) -> Transport:
    """Return an HTTP/1.1 transport with persistent connections; ``ca`` is as in :func:`http_servers`."""
    # Loading CA certificates takes longer than the rest of a start.
    verify: bool | ssl.SSLContext = url.scheme == "https"
    if verify and ca is not None:
        verify = ssl.create_default_context(cafile=ca)
    return Transport(verify=verify, limits=limits)


def http_servers(
    addresses: Sequence[httpx.URL],
    *,
    concurrency: int,
    health_path: str | None = None,
    ca: Path | None = None,
    transport: MakeTransport | None = None,
) -> list[HttpServer]:
    """Return the servers at some addresses, each with connections for ``concurrency`` calls.

    The servers' certificates must be signed by ``ca`` (PEM), by default by a public authority.

    Raises:
        ValueError: if ``health_path`` is not a path.
    """
    if health_path is not None and not health_path.startswith("/"):
        raise SettingError("health_path", says=f" must begin with /, got {health_path!r}")
    # One more than calls: a health check must not wait for them.
    limits = httpx.Limits(
        max_connections=concurrency + 1,
        max_keepalive_connections=concurrency + 1,
        keepalive_expiry=KEEP_ALIVE_S,
    )
    transport = transport or partial(make_transport, ca=ca)
    return [
        HttpServer(
            url=str(address), address=address, transport=transport(address, limits), health_path=health_path
        )
        for address in addresses
    ]


async def closing_in_order(call: Coroutine[Any, Any, T]) -> T:
    """Await a call of httpcore; if this task is cancelled, return when the call has cleaned up.

    httpcore shields its cleanup from anyio's cancellation only. A task's would end it half-way, and the
    connection would take a place in the pool forever.
    """
    scope = anyio.CancelScope()

    async def run() -> T:
        with scope:
            return await call
        raise asyncio.CancelledError

    calling = asyncio.create_task(run())
    try:
        await asyncio.wait([calling])  # Python 3.14 logs what fails in a shield that was cancelled.
    except asyncio.CancelledError:
        scope.cancel()
        await asyncio.wait([calling])
        if not calling.cancelled():
            calling.exception()  # else asyncio logs it
        raise
    return calling.result()


def end_to_end(headers: Iterable[Header]) -> tuple[Header, ...]:
    """Return the headers that are not hop-by-hop, with names in lower case."""
    lower = [(name.lower(), value) for name, value in headers]
    dropped = _PER_HOP | named_by_connection(lower)
    return tuple(header for header in lower if header[0] not in dropped)


def named_by_connection(headers: Iterable[Header]) -> set[bytes]:
    """Return the names of the headers that ``Connection`` keeps from the next server; all in lower case."""
    listed = [value for name, value in headers if name == b"connection"]
    return {name.strip().lower() for value in listed for name in value.split(b",")}


def reply_headers(reply: httpx.Response) -> tuple[Header, ...]:
    """Return the headers of a reply to pass on, without those that the gateway adds itself."""
    return tuple(header for header in end_to_end(reply.headers.raw) if header[0] not in _ADDED)


def read_retry_after_s(headers: Iterable[Header], *, now: datetime) -> float:
    """Return the seconds of Retry-After, from 0 to 30; 0 if it is missing or invalid."""
    value = next((value for name, value in headers if name == RETRY_AFTER), b"").decode("latin-1")
    if value.isdecimal():
        seconds = float(value)
    else:
        try:
            when = parsedate_to_datetime(value)
        except (ValueError, OverflowError):  # OverflowError: a year too large for C
            return 0.0
        if when.tzinfo is None:  # "-0000" means UTC from an unknown time zone
            when = when.replace(tzinfo=UTC)
        seconds = (when - now).total_seconds()
    return limited_rest_s(seconds)
