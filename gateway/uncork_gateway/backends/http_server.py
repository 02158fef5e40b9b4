"""One model server behind the proxy: its address, an exchange with it, a check of its health."""

from __future__ import annotations

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
"""Longest time that it may take to connect, and that a check may take."""

_LONGEST_REST_S = 30.0
# Of one connection, not of the message (RFC 9110, 7.6.1), or said anew by whoever sends it on.
_PER_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding"),
        *(b"upgrade", b"host", b"expect", b"content-length"),
    )
)
_ENCODINGS = b"accept-encoding"
_BROKEN = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)


class Response(NamedTuple):
    """What a server answered; ``headers`` without those of the connection."""

    status: int
    headers: tuple[Header, ...]
    body: bytes


@dataclass(slots=True, eq=False, kw_only=True)
class HttpServer:
    """One server, and how it is.

    Attributes:
        url: its address.
        transport: carries the calls. It follows no redirects, keeps no cookies, and adds no headers.
        healthy: whether it gets calls.
        fault: why it is not healthy.
        faults: how often it has failed since it last answered a call.
        running: how many calls it runs.
        last_used: number of its latest call, in the order of all calls.
        rests_until: when it is to be checked, by the clock of the loop.
        news: set by what makes a check that was made, or is under way, worth nothing.
    """

    url: httpx.URL
    transport: httpx.AsyncBaseTransport
    healthy: bool = False
    fault: str = "it was not checked yet"
    faults: int = 0
    running: int = 0
    last_used: int = 0
    rests_until: float = 0.0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def exchange(
        self, method: str, target: bytes, content: Content, *, silence_s: float, idempotent: bool = True
    ) -> Response:
        """Send a request to path and query ``target``, and read the whole answer.

        If its connection breaks before the answer begins, what is ``idempotent`` is sent once more: many
        servers close a connection that they have answered 500 on, without a word (uvicorn is one).

        Raises:
            httpx.TransportError: there is no whole answer; a timeout if nothing came for ``silence_s``.
        """
        headers = [header for header in end_to_end(content.headers) if header[0] != _ENCODINGS]
        request = httpx.Request(
            method,
            self.url,
            headers=[*headers, (_ENCODINGS, b"identity")],
            content=content.body if method == "POST" else None,
            extensions={
                "target": target,  # as it came: a URL would be quoted anew
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
        return Response(reply.status_code, end_to_end(reply.headers.raw), body)

    async def check(self, health_path: str | None) -> str | None:
        """What is wrong with it, if anything: it must answer ``health_path`` with 2xx or take connections."""
        try:
            async with asyncio.timeout(CONNECT_S):
                if health_path is None:
                    await self._connect()
                    return None
                response = await self.exchange("GET", health_path.encode(), Content(b""), silence_s=CONNECT_S)
        except Exception as error:  # whatever it is, it is no answer
            return describe(error)
        return None if response.status // 100 == 2 else f"{health_path} answers {response.status}"

    async def _connect(self) -> None:
        port = self.url.port or {"http": 80, "https": 443}[self.url.scheme]
        _, writer = await asyncio.open_connection(self.url.host, port)
        writer.close()
        await writer.wait_closed()


MakeTransport = Callable[[httpx.URL, httpx.Limits], httpx.AsyncBaseTransport]


def make_transport(url: httpx.URL, limits: httpx.Limits) -> httpx.AsyncBaseTransport:
    """HTTP/1.1 with connections that are kept."""
    # To load the certificates of authorities takes longer than all the rest of a start.
    return httpx.AsyncHTTPTransport(verify=url.scheme == "https", trust_env=False, limits=limits)


def end_to_end(headers: Iterable[Header]) -> tuple[Header, ...]:
    """The headers of a message that are passed on, without those of its connection; names in lower case."""
    lower = [(name.lower(), value) for name, value in headers]
    listed = [value for name, value in lower if name == b"connection"]
    dropped = _PER_HOP.union(name.strip().lower() for value in listed for name in value.split(b","))
    return tuple(header for header in lower if header[0] not in dropped)


def retry_after_s(headers: Iterable[Header], *, now: datetime) -> float:
    """Seconds that Retry-After asks for, from 0 to 30; 0 if it is not there or cannot be read."""
    value = next((value for name, value in headers if name == b"retry-after"), b"").decode("latin-1")
    if value.isdecimal():
        seconds = float(value)
    else:
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            return 0.0
        if when.tzinfo is None:  # "-0000": the time is that of UTC, the place is not told
            when = when.replace(tzinfo=UTC)
        seconds = (when - now).total_seconds()
    return min(max(seconds, 0.0), _LONGEST_REST_S)


def describe(error: Exception) -> str:
    """The kind of an error, and what it says if it says anything."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def read_addresses(urls: Sequence[str]) -> list[httpx.URL]:
    """The addresses of servers, each once.

    Raises:
        ValueError: if there is none, or if one is something else.
    """
    addresses = list(dict.fromkeys(_read_address(url) for url in urls))
    if not addresses:
        raise ValueError("there must be at least one server")
    return addresses


def _read_address(text: str) -> httpx.URL:
    wrong = f"{text!r} is not the address of a server; http://HOST:PORT or https://HOST:PORT is accepted"
    try:
        url = httpx.URL(text.rstrip("/"))
    except httpx.InvalidURL as error:
        raise ValueError(f"{wrong}: {error}") from None
    more = url.userinfo or url.raw_path != b"/" or url.fragment
    if url.scheme not in ("http", "https") or not url.host or more or not (url.port or 1) < 2**16:
        raise ValueError(wrong)
    return url
