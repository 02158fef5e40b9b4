"""The interfaces between connections and requests, so that neither imports the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from uncork_gateway.errors import GatewayError, no_room
from uncork_gateway.headers import Header

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import Traces

Head = TypeVar("Head")

SMALL_BODY_BYTES = 64 * 1024
"""Incomplete bodies and messages up to this size are accepted from every client, even if the pool is full."""
_SMALLEST_POOL_BYTES = 64 * 2**20
_BODIES_OF_LARGEST_SIZE = 4


@dataclass(slots=True)
class BodyPool:
    """The memory of request bodies that are incomplete or not queued, over all connections of a listener."""

    max_bytes: int
    used_bytes: int = 0

    @property
    def is_full(self) -> bool:
        return self.used_bytes > self.max_bytes

    @contextlib.contextmanager
    def holding(self, size_bytes: int) -> Iterator[None]:
        """Count a complete body, or message, that is not queued, until the block ends.

        Raises:
            Unavailable: if the pool is full and the body is not small.
        """
        if self.is_full and size_bytes > SMALL_BODY_BYTES:
            raise no_room()
        self.used_bytes += size_bytes
        try:
            yield
        finally:
            self.used_bytes -= size_bytes

    @classmethod
    def for_bodies(cls, max_body_bytes: int) -> BodyPool:
        """Return a pool for four bodies of the largest size, or 64 MiB if that is more."""
        return cls(max(_BODIES_OF_LARGEST_SIZE * max_body_bytes, _SMALLEST_POOL_BYTES))


class QueuedRequest(Protocol):
    """A request queued until earlier requests on its connection have responses."""

    keep_alive: bool
    """True if the connection stays open after the response."""
    request_id: bytes
    """The id in the response's X-Request-Id."""
    cors: bytes
    """Header lines of the response, for pages of other origins."""

    def start(self) -> None:
        """Allow the request to respond, because all earlier requests on the connection have responses."""

    def disconnect(self) -> None:
        """Cancel the request: its client has disconnected."""


class Request(QueuedRequest, Protocol):
    """A request that receives its body piece by piece.

    With pipelining, :meth:`start` may be called after the end of the body. The request then calls
    :meth:`Connection.reply`, or :meth:`Connection.begin_reply` and :meth:`Connection.end_reply`, once. The
    connection sets ``request_id`` before it calls a method.
    """

    def body_received(self, piece: bytes) -> None:
        """Handle a piece of the body."""

    def body_complete(self) -> None:
        """Handle the end of the body."""

    def reject(self, error: GatewayError) -> None:
        """Ignore the rest of the body, and respond with ``error`` once the request has started."""


class FastPathRequest(Request, Protocol):
    """A request to a handler in the route table."""

    def execute(self, body: bytes) -> None:
        """Start with the complete body: ``start``, ``body_received`` and ``body_complete`` in one call."""


class Observers(Protocol):
    """What records the requests of a connection. It may change at any time."""

    access_log: bool
    """True if every request is logged."""
    traces: Traces | None


class Connection(Protocol):
    """A client's connection, with the parts that its requests use."""

    observers: Observers
    number: int
    """Identifies the connection; never used twice."""
    pool: BodyPool
    """The memory that incomplete bodies share."""

    @property
    def transport(self) -> asyncio.Transport: ...

    @property
    def has_chunks(self) -> bool:
        """True if a response body of unknown length must be written in chunks."""

    def reply(self, request: QueuedRequest, status: int, head: bytes, body: bytes) -> None:
        """Send the response to a started request. ``head`` is header lines, each with its line end.

        A body is not sent with a status that allows none: the client would take it for the next response.
        """

    def begin_reply(self, request: QueuedRequest, status: int, head: bytes) -> None:
        """Send status and header lines of a response whose body the request writes to the transport."""

    def end_reply(self, request: QueuedRequest) -> None:
        """End a response that has begun; its body is complete."""

    def send_continue(self) -> None:
        """Send ``100 Continue`` to a client that waits for it before sending the body."""

    def hang_up(self) -> None:
        """Close after the bytes written so far; let the client read them first."""


class Handler(Protocol[Head]):
    """Handles the requests to one path."""

    def read_head(self, headers: Sequence[Header], target: bytes) -> Head:
        """Extract the fields that :meth:`open` needs. Header names are in the client's spelling."""

    def open(self, connection: Connection, head: Head, *, keep_alive: bool) -> FastPathRequest:
        """Create the request for a head. ``head`` may be reused for later requests with identical bytes."""
