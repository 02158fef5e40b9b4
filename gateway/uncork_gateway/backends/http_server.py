"""One model server behind the proxy: its address, calls to it, and its health check."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import httpx

from uncork_gateway.headers import Header
from uncork_gateway.protocols.wire import Content

CONNECT_S = 5.0
"""Timeout of connecting, and of a health check."""

_LONGEST_REST_S = 30.0
# Headers of one connection, not of the message (RFC 9110, 7.6.1), and those that every sender sets itself.
_PER_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding"),
        *(b"upgrade", b"host", b"expect", b"content-length"),
    )
)
_ENCODINGS = b"accept-encoding"
_BROKEN = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)


class ServerResponse(NamedTuple):
    """A server's answer; ``headers`` are those of :func:`reply_headers`."""

    status: int
    headers: tuple[Header, ...]
    body: bytes


@dataclass(slots=True, eq=False, kw_only=True)
class HttpServer:
    """One server and its state.

    Attributes:
        url: its address.
        transport: carries the calls. It follows no redirects, keeps no cookies, and adds no headers.
        healthy: whether it gets calls.
        fault: why it is not healthy.
        faults: failures since it last answered a call.
        running: calls that it runs.
        last_used: number of its latest call, in the order of all calls.
        rests_until: when to check it next, by the loop's clock.
        news: set by an event that makes the last or current check obsolete.
    """

    url: httpx.URL
    transport: httpx.AsyncBaseTransport
    healthy: bool = False
    fault: str = "not checked yet"
    faults: int = 0
    running: int = 0
    last_used: int = 0
    rests_until: float = 0.0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def exchange(
        self, method: str, target: bytes, content: Content, *, silence_s: float, idempotent: bool = True
    ) -> ServerResponse:
        """Send a request to ``target``, path and query, and read the whole answer.

        An ``idempotent`` request is sent once more if the connection breaks before the answer begins: many
        servers, such as uvicorn, silently close a connection after they answered 500.

        Raises:
            httpx.TransportError: no complete answer arrived; a timeout if nothing arrived for ``silence_s``.
        """
        headers = [header for header in end_to_end(content.headers) if header[0] != _ENCODINGS]
        request = httpx.Request(
            method,
            self.url,
            headers=[*headers, (_ENCODINGS, b"identity")],
            content=content.body if method == "POST" else None,
            extensions={
                "target": target,  # verbatim: httpx would quote a URL again
                "timeout": httpx.Timeout(silence_s, connect=min(silence_s, CONNECT_S)).as_dict(),
            },
        )
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

    async def check(self, health_path: str | None) -> str | None:
        """Return why it is unhealthy: it must answer ``health_path`` with 2xx; None: accept connections."""
        try:
            async with asyncio.timeout(CONNECT_S):
                if health_path is None:
                    await self._connect()
                    return None
                response = await self.exchange("GET", health_path.encode(), Content(b""), silence_s=CONNECT_S)
        except Exception as error:  # any error means no answer
            return describe(error)
        return None if response.status // 100 == 2 else f"GET {health_path} returned {response.status}"

    async def _connect(self) -> None:
        port = self.url.port or {"http": 80, "https": 443}[self.url.scheme]
        _, writer = await asyncio.open_connection(self.url.host, port)
        writer.close()
        await writer.wait_closed()


MakeTransport = Callable[[httpx.URL, httpx.Limits], httpx.AsyncBaseTransport]


def make_transport(url: httpx.URL, limits: httpx.Limits) -> httpx.AsyncBaseTransport:
    """Return an HTTP/1.1 transport with persistent connections."""
    # Loading CA certificates takes longer than the rest of a start.
    return httpx.AsyncHTTPTransport(verify=url.scheme == "https", trust_env=False, limits=limits)


def end_to_end(headers: Iterable[Header]) -> tuple[Header, ...]:
    """Return the headers to pass on, without those of the connection; names in lower case."""
    lower = [(name.lower(), value) for name, value in headers]
    listed = [value for name, value in lower if name == b"connection"]
    dropped = _PER_HOP.union(name.strip().lower() for value in listed for name in value.split(b","))
    return tuple(header for header in lower if header[0] not in dropped)


def reply_headers(reply: httpx.Response) -> tuple[Header, ...]:
    """Return the headers of a reply to pass on; the gateway adds length and date itself."""
    return tuple(header for header in end_to_end(reply.headers.raw) if header[0] != b"date")


def retry_after_s(headers: Iterable[Header], *, now: datetime) -> float:
    """Return the seconds of Retry-After, from 0 to 30; 0 if it is missing or invalid."""
    value = next((value for name, value in headers if name == b"retry-after"), b"").decode("latin-1")
    if value.isdecimal():
        seconds = float(value)
    else:
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            return 0.0
        if when.tzinfo is None:  # "-0000" means UTC from an unknown time zone
            when = when.replace(tzinfo=UTC)
        seconds = (when - now).total_seconds()
    return min(max(seconds, 0.0), _LONGEST_REST_S)


def describe(error: Exception) -> str:
    """Return the class of an error and its message, if it has one."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def read_addresses(urls: Sequence[str]) -> list[httpx.URL]:
    """Return the distinct addresses of servers.

    Raises:
        ValueError: if there are none, or one is no address.
    """
    addresses = list(dict.fromkeys(_read_address(url) for url in urls))
    if not addresses:
        raise ValueError("at least one server is required")
    return addresses


def _read_address(text: str) -> httpx.URL:
    wrong = f"{text!r} is not a server address; write http://HOST:PORT or https://HOST:PORT"
    try:
        url = httpx.URL(text.rstrip("/"))
    except httpx.InvalidURL as error:
        raise ValueError(f"{wrong}: {error}") from None
    more = url.userinfo or url.raw_path != b"/" or url.fragment
    if url.scheme not in ("http", "https") or not url.host or more or not (url.port or 1) < 2**16:
        raise ValueError(wrong)
    return url
