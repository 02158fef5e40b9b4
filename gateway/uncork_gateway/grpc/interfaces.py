"""The interfaces between gRPC connections and their calls, so that neither imports the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from uncork_gateway.errors import GatewayError
from uncork_gateway.grpc.statuses import Code
from uncork_gateway.headers import Header
from uncork_gateway.interfaces import BodyPool, Observers


class CallHead(NamedTuple):
    """The head of a gRPC call.

    It is cached by the bytes of the header block, so every field must follow from the headers alone, never
    from the time of arrival.

    Attributes:
        path: the path of the method, such as ``/inference.GRPCInferenceService/ModelInfer``.
        timeout_s: the client's timeout; infinite if it sends none.
        encoding: the encoding of compressed messages, in lower case; empty if messages are not compressed.
        request_id: the id that the call came with; empty if it has none.
        metadata: the client's metadata, names in lower case, without pseudo-headers and gRPC's own headers.
        rejection: the error to end the call with, if the head is wrong.
        http_status: the status to respond with if the request is not a gRPC call; else 0.
        is_http_head: True for the HTTP method HEAD, whose response has no body.
        length: the declared length of all DATA in bytes; -1 if the client declares none.
    """

    path: bytes
    timeout_s: float = math.inf
    encoding: bytes = b""
    metadata: tuple[Header, ...] = ()
    request_id: bytes = b""
    rejection: GatewayError | None = None
    http_status: int = 0
    is_http_head: bool = False
    length: int = -1


class CallConnection(Protocol):
    """A client's connection, with the parts that calls use."""

    observers: Observers
    number: int
    """Identifies the connection; never used twice, not even by an HTTP connection."""
    pool: BodyPool
    """The memory that incomplete messages share."""

    @property
    def unsent_bytes(self) -> int:
        """The bytes of all calls' messages that the client's windows do not admit yet."""


class CallStream(Protocol):
    """The HTTP/2 stream of one call, with the methods that the call uses.

    A call is finished once, by :meth:`reply` or :meth:`finish`. After that, and after :meth:`Call.cancelled`,
    all methods do nothing. The stream adds the call's id to the trailers.
    """

    request_id: bytes

    @property
    def connection(self) -> CallConnection: ...

    @property
    def lane(self) -> int:
        """The lowest number that no other open stream of the connection has; names a sequential caller."""

    @property
    def unsent_bytes(self) -> int:
        """The bytes of the call's messages that the client's windows do not admit yet."""

    def begin(self, metadata: Sequence[Header]) -> None:
        """Send initial metadata, before any message; optional."""

    def reply(self, message: bytes, trailers: Sequence[Header], *, values: bytes = b"") -> None:
        """Respond to a unary call with headers, the message, and status OK, in one write.

        ``values`` is the end of the message; large values are not copied.
        """

    def send(self, message: bytes) -> None:
        """Send one message of a streaming response."""

    async def sent(self) -> None:
        """Wait until the client's windows admit all messages sent so far; forever once cancelled."""

    def pause(self) -> None:
        """Stop accepting messages beyond the client's current window, until :meth:`resume`."""

    def resume(self) -> None:
        """Accept messages again after :meth:`pause`."""

    def finish(self, code: Code, text: str = "", trailers: Sequence[Header] = ()) -> None:
        """End the call with a status, after the messages sent so far."""


class Call(Protocol):
    """One call. No method may raise.

    Attributes:
        takes_one: True if the client must send exactly one message. The stream then passes it on when the
            client ends its side, and rejects the call if there is no message, a second one, or no end.
        max_message_bytes: the size limit of a message, in addition to the listener's.
    """

    takes_one: bool
    max_message_bytes: int

    def message_received(self, message: bytes) -> None:
        """Handle a complete, decompressed message."""

    def end_received(self) -> None:
        """Handle the end of the client's messages."""

    def reject(self, error: GatewayError) -> None:
        """Finish with an error, as the client broke a rule or a limit. No other method is called later."""

    def cancelled(self) -> None:
        """Stop, because the client has cancelled or gone. No other call of a method follows."""


OpenCall = Callable[[CallStream, CallHead], Call]
"""Creates the call of a new stream. It may finish the call at once."""
