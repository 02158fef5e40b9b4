"""One model server behind the proxy, whatever its protocol: its state, its answers, its faults."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import NamedTuple

from uncork_gateway.headers import PUSHBACK, RETRY_AFTER, Header
from uncork_gateway.protocols.rows import error_body
from uncork_gateway.protocols.wire import JSON, Content

CONNECT_S = 5.0
"""Timeout of connecting, and of a health check."""

_LONGEST_REST_S = 30.0
# Of an error for several callers. All others, its body and its text may have the values of one of them.
_FOR_SEVERAL = (RETRY_AFTER, b"www-authenticate", b"location", PUSHBACK)


class CallStatus(NamedTuple):
    """How a gRPC call ended: the code, its text, and the trailers to pass on."""

    code: int
    text: str = ""
    trailers: tuple[Header, ...] = ()


class ServerResponse(NamedTuple):
    """A server's answer.

    Attributes:
        status: its HTTP status, or the one that stands for a gRPC code.
        headers: those to pass on; of a gRPC call its initial metadata.
        call: how a gRPC call ended; None for HTTP.
    """

    status: int
    headers: tuple[Header, ...]
    body: bytes
    call: CallStatus | None = None

    def for_several(self) -> ServerResponse:
        """Return an answer with the same status for all callers of one call, without the values of any."""
        if self.call is not None:
            text = "the model server refused a call with the requests of several clients"
            trailers = _for_several(self.call.trailers)
            return self._replace(headers=(), body=b"", call=CallStatus(self.call.code, text, trailers))
        text = f"the model server returned {self.status} to a call with the requests of several clients"
        return self._replace(headers=(JSON, *_for_several(self.headers)), body=error_body(text))


class ConnectionLost(Exception):
    """No complete answer arrived; the message says why."""


class NoAnswerInTime(Exception):
    """The server was silent for too long."""


@dataclass(slots=True, eq=False, kw_only=True)
class Server(ABC):
    """One server and its state.

    Attributes:
        url: its address.
        healthy: whether it gets calls.
        fault: why it is not healthy.
        faults: failures since it last answered a call.
        running: calls that it runs.
        last_used: number of its latest call, in the order of all calls.
        rests_until: when to check it next, by the loop's clock.
        news: set by an event that makes the last or current check obsolete.
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
        """Send a request to ``target`` and read the whole answer.

        Args:
            target: path and query, or the path of a gRPC method.
            silence_s: give up when nothing arrives for this time.
            time_left_s: the time that clients still wait, for the server to know; may be infinite.
            idempotent: whether the request may be sent once more if the connection breaks.

        Raises:
            ConnectionLost: no complete answer arrived.
            NoAnswerInTime: nothing arrived for ``silence_s``.
        """

    @abstractmethod
    def asked_rest_s(self, response: ServerResponse) -> float:
        """Return the seconds for which an answer asks to send no calls; 0 if it does not."""

    @abstractmethod
    async def check(self) -> str | None:
        """Return why the server is unhealthy; None if it is healthy."""

    @abstractmethod
    async def close(self) -> None:
        """Close its connections. Calls must have ended."""


def _for_several(headers: tuple[Header, ...]) -> tuple[Header, ...]:
    return tuple(header for header in headers if header[0] in _FOR_SEVERAL)


def limited_rest_s(seconds: float) -> float:
    """Return the time for which a server gets no calls if it asks for so many seconds: at most 30."""
    return min(max(seconds, 0.0), _LONGEST_REST_S)


def describe(error: BaseException) -> str:
    """Return the class of an error and its message, if it has one."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
