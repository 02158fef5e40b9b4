"""The interfaces between connections and requests, neither of which imports the other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from uncork_gateway.errors import GatewayError
from uncork_gateway.headers import Header
from uncork_gateway.telemetry.access_log import AccessLog

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import Traces

Head = TypeVar("Head")

SMALL_BODY_BYTES = 64 * 1024
"""Incomplete bodies and messages up to this size are accepted from every client, even if the pool is full."""
_SMALLEST_POOL_BYTES = 64 * 2**20
_BODIES_OF_LARGEST_SIZE = 4


@dataclass(slots=True)
class BodyPool:
    """The memory held by incomplete request bodies, over all connections of a listener."""

    max_bytes: int
    used_bytes: int = 0

    @property
    def is_full(self) -> bool:
        return self.used_bytes > self.max_bytes

    @classmethod
    def for_bodies(cls, max_body_bytes: int) -> BodyPool:
        """Return a pool for four bodies of the largest size, and at least 64 MiB."""
        return cls(max(_BODIES_OF_LARGEST_SIZE * max_body_bytes, _SMALLEST_POOL_BYTES))


class QueuedRequest(Protocol):
    """A request that waits for its turn to reply."""

    keep_alive: bool
    """Whether the connection stays open after the reply."""

    def start(self) -> None:
        """Allow the request to reply: all earlier requests on the connection have been answered."""

    def disconnect(self) -> None:
        """Cancel the request: its client has disconnected."""


class Request(QueuedRequest, Protocol):
    """A request whose body the connection passes on as it arrives.

    With pipelining, :meth:`start` may be called after the end of the body. The request then calls
    :meth:`Connection.reply`, or :meth:`Connection.begin_reply` and :meth:`Connection.end_reply`, once.
    """

    def body_received(self, piece: bytes) -> None:
        """Accept a piece of the body."""

    def body_complete(self) -> None:
        """Accept the end of the body."""

    def reject(self, error: GatewayError) -> None:
        """Accept no more of the body. The request replies with ``error`` once it has started."""


class FastPathRequest(Request, Protocol):
    """A request to a handler of the route table."""

    def execute(self, body: bytes) -> None:
        """Start, given the whole body: ``start``, ``body_received`` and ``body_complete`` in one."""


class Observers(Protocol):
    """The access log and the traces that record a connection's requests."""

    @property
    def access_log(self) -> AccessLog | None:
        """Logs every request, if given; it may be replaced at any time."""

    traces: Traces | None


class Connection(Observers, Protocol):
    """A client's connection, as its requests see it."""

    number: int
    """Identifies the connection; never used twice."""
    transport: asyncio.Transport
    pool: BodyPool
    """The memory that incomplete bodies share."""

    @property
    def http_version(self) -> str:
        """The version of the request that was parsed last, such as ``1.1``."""
        ...

    def reply(self, request: QueuedRequest, status: int, head: bytes, body: bytes) -> None:
        """Answer a request that has started. ``head`` is header lines, each with its line end."""

    def begin_reply(self, request: QueuedRequest, status: int, head: bytes) -> None:
        """Send status and header lines of a reply whose body the request writes to the transport."""

    def end_reply(self, request: QueuedRequest) -> None:
        """Finish a reply that has begun; its body is complete."""

    def send_continue(self) -> None:
        """Ask a client that sent ``Expect: 100-continue`` for the body."""

    def hang_up(self) -> None:
        """Close after the bytes written so far, and give the client time to read them."""


class Handler(Protocol[Head]):
    """Handles the requests to one path."""

    def read_head(self, headers: Sequence[Header], target: bytes) -> Head:
        """Extract the fields that :meth:`open` needs. Header names are as the client wrote them."""
        ...

    def open(self, connection: Connection, head: Head, *, keep_alive: bool) -> FastPathRequest:
        """Create the request of a head. ``head`` may be reused for later requests with the same bytes."""
        ...
