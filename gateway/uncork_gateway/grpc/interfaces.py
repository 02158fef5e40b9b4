"""The interfaces between gRPC connections and the calls on them, neither of which imports the other."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from uncork_gateway.errors import GatewayError
from uncork_gateway.grpc.statuses import Code
from uncork_gateway.headers import Header
from uncork_gateway.interfaces import BodyPool, Observers

if TYPE_CHECKING:
    from google.protobuf.message import Message  # missing without the extra


class CallHead(NamedTuple):
    """The head of a call.

    It is cached by the bytes of the header block, so every field must follow from the headers alone, never
    from the time of arrival.

    Attributes:
        path: of the method, such as ``/inference.GRPCInferenceService/ModelInfer``.
        timeout_s: the time that the client waits; infinite if it does not say.
        encoding: of compressed messages, in lower case; empty if there are none.
        metadata: the client's, in lower case, without pseudo-headers and gRPC's own.
        rejection: the error to end the call with, if the head is wrong.
    """

    path: bytes
    timeout_s: float = math.inf
    encoding: bytes = b""
    metadata: tuple[Header, ...] = ()
    rejection: GatewayError | None = None


class CallConnection(Observers, Protocol):
    """A client's connection, as calls see it."""

    number: int
    """Identifies the connection; never used twice, not even by an HTTP connection."""
    pool: BodyPool
    """The memory that incomplete messages share."""

    @property
    def unsent_bytes(self) -> int:
        """The size of the messages of all calls that the client has not let the server send yet."""
        ...


class CallStream(Protocol):
    """The HTTP/2 stream of one call, as the call sees it.

    A call is finished once, by :meth:`reply` or :meth:`finish`. After that, and after
    :meth:`Call.cancelled`, all methods do nothing.
    """

    @property
    def connection(self) -> CallConnection: ...

    @property
    def lane(self) -> int:
        """The lowest number that no other open stream of the connection has: one caller after the other."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """The size of the messages that the client has not let the server send yet."""
        ...

    def begin(self, metadata: Sequence[Header]) -> None:
        """Send initial metadata, before any message; for calls that have some."""

    def reply(self, message: bytes, trailers: Sequence[Header], *, values: bytes = b"") -> None:
        """Answer a unary call: headers, the message, and status OK, in one write.

        ``values`` is the end of the message; a large one is not copied.
        """

    def send(self, message: bytes) -> None:
        """Send one of several messages."""

    async def sent(self) -> None:
        """Wait until the messages sent so far are with the client; for ever if the call is cancelled."""

    def pause(self) -> None:
        """Let the client send no more messages than fit into its window, until :meth:`resume`."""

    def resume(self) -> None:
        """Let the client send again, if it was paused."""

    def finish(self, code: Code, text: str = "", trailers: Sequence[Header] = ()) -> None:
        """End the call, after the messages sent so far."""


class Call(Protocol):
    """One call. No method may raise.

    Attributes:
        takes_one: whether the client must send exactly one message. The stream then passes the message on
            with the end of the client's side, and rejects the call if there is none, another, or no end.
        max_message_bytes: size limit of each message, besides the listener's.
    """

    takes_one: bool
    max_message_bytes: int

    def message_received(self, message: bytes) -> None:
        """Accept a complete message, decompressed."""

    def end_received(self) -> None:
        """Accept the end of the client's messages."""

    def reject(self, error: GatewayError) -> None:
        """Finish with an error: the client broke a rule of gRPC or a limit. Nothing follows."""

    def cancelled(self) -> None:
        """Note that the client has cancelled the call or has gone. Nothing follows."""


OpenCall = Callable[[CallStream, CallHead], Call]
"""Creates the call of a new stream. It may finish the call at once."""


class UnaryMethod(NamedTuple):
    """A method that answers one message with another, without the dispatcher.

    Attributes:
        request: the class of the client's message.
        answer: returns the response, or what it becomes; it may raise :class:`GatewayError`.
        free: whether the method needs no API key, because its answers reveal nothing about the server.
    """

    request: type[Message]
    answer: Callable[[Any], Message | Awaitable[Message]]
    free: bool = False


class StreamingMethod(NamedTuple):
    """A method with more than one message on either side; ``free`` as in :class:`UnaryMethod`."""

    open: OpenCall
    free: bool = False
