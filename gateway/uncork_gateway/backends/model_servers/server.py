"""One model server behind the proxy, for all protocols: its address, state, responses and faults."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import httpx

from uncork_gateway.headers import PUSHBACK, RETRY_AFTER, Header
from uncork_gateway.protocols.rows import error_body
from uncork_gateway.protocols.wire import JSON, Content

CONNECT_S = 5.0
"""Timeout of connecting, and of a health check."""

_LONGEST_REST_S = 30.0
# Of an error for several callers. All others, its body and its text may have the values of one of them.
_FOR_SEVERAL = (RETRY_AFTER, b"www-authenticate", b"location", PUSHBACK)
_SCHEMES = ("http", "https", "grpc", "grpcs")
_GRPC = ("grpc", "grpcs")


class CallStatus(NamedTuple):
    """The end of a gRPC call: its code, its text, and the trailers to pass on."""

    code: int
    text: str = ""
    trailers: tuple[Header, ...] = ()


class ServerResponse(NamedTuple):
    """A server's response.

    Attributes:
        status: the HTTP status; for gRPC, the HTTP status for its code.
        headers: the headers to pass on; for gRPC, the initial metadata.
        call: the end of a gRPC call; None for HTTP.
    """

    status: int
    headers: tuple[Header, ...]
    body: bytes
    call: CallStatus | None = None

    def for_several(self) -> ServerResponse:
        """Return a response with the same status, and without text that may quote a client's request."""
        if self.call is not None:
            text = "the model server refused a call with the requests of several clients"
            trailers = _for_several(self.call.trailers)
            return self._replace(headers=(), body=b"", call=CallStatus(self.call.code, text, trailers))
        text = f"the model server returned {self.status} to a call with the requests of several clients"
        return self._replace(headers=(JSON, *_for_several(self.headers)), body=error_body(text))


class ConnectionLost(Exception):
    """The connection ended before the response was complete; the message says why."""


class NoAnswerInTime(Exception):
    """The server was silent for too long."""


@dataclass(slots=True, eq=False, kw_only=True)
class Server(ABC):
    """One server and its state.

    Attributes:
        healthy: True if the server gets calls.
        fault: why the server is not healthy.
        faults: the failures since the server last responded to a call.
        last_used: the number of its latest call, in the order of all calls.
        rests_until: the time of the next check, by the event loop's clock.
        news: set if an event makes the last or current check obsolete.
    """

    url: str
    healthy: bool = False
    fault: str = "not checked yet"
    faults: int = 0
    running: int = 0
    last_used: int = 0
    rests_until: float = 0.0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @abstractmethod
    async def exchange(
        self, target: bytes, content: Content, *, silence_s: float, time_left_s: float, idempotent: bool
    ) -> ServerResponse:
        """Send a request to ``target``, and read the complete response.

        Args:
            target: path and query, or the path of a gRPC method.
            silence_s: the longest time without a byte from the server.
            time_left_s: the clients' remaining timeout, to send to the server; may be infinite.
            idempotent: True if the request may be sent again after the connection breaks.

        Raises:
            ConnectionLost: if no complete response arrived.
            NoAnswerInTime: if nothing arrived for ``silence_s``.
        """

    @abstractmethod
    def asked_rest_s(self, response: ServerResponse) -> float:
        """Return for how many seconds the server asks not to be called; 0 if it does not ask."""

    @abstractmethod
    async def check(self) -> str | None:
        """Return why the server is unhealthy; None if it is healthy."""

    async def retire(self) -> None:
        """Close the connections of a server that gets no calls any more. Relayed streams may be open."""
        await self.close()

    @abstractmethod
    async def close(self) -> None:
        """Close the server's connections. Its calls must have ended."""


def _for_several(headers: tuple[Header, ...]) -> tuple[Header, ...]:
    return tuple(header for header in headers if header[0] in _FOR_SEVERAL)


def limited_rest_s(seconds: float) -> float:
    """Limit a pause that a server asks for to the range 0 to 30 s."""
    return min(max(seconds, 0.0), _LONGEST_REST_S)


def describe(error: BaseException) -> str:
    """Return an error's class name, and its message if it has one."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def read_addresses(urls: Sequence[str]) -> list[httpx.URL]:
    """Return the servers' addresses without duplicates.

    Raises:
        ValueError: if there are none, a URL is invalid, or HTTP and gRPC are mixed.
    """
    addresses = list(dict.fromkeys(_read_address(url) for url in urls))
    if not addresses:
        raise ValueError("at least one server is required")
    if len({are_grpc([address]) for address in addresses}) > 1:
        raise ValueError(
            "all servers must speak the same protocol, either HTTP (http://, https://) or gRPC (grpc://, "
            f"grpcs://), got {', '.join(map(str, addresses))}; run a proxy for each"
        )
    return addresses


def are_grpc(addresses: Sequence[httpx.URL]) -> bool:
    """Return True if the addresses are gRPC servers."""
    return addresses[0].scheme in _GRPC


def _read_address(text: str) -> httpx.URL:
    wrong = (
        f"{text!r} is not a server address; write http://HOST:PORT or https://HOST:PORT, or grpc://HOST:PORT "
        "or grpcs://HOST:PORT for gRPC"
    )
    try:
        url = httpx.URL(text.rstrip("/"))
    except httpx.InvalidURL as error:
        raise ValueError(f"{wrong}: {error}") from None
    more = url.userinfo or url.raw_path != b"/" or url.fragment
    if url.scheme not in _SCHEMES or not url.host or more or not (url.port or 1) < 2**16:
        raise ValueError(wrong)
    if url.scheme in _GRPC and url.port is None:
        raise ValueError(f"{wrong}: a port is missing; gRPC has none by default, many servers use 8001")
    return url
