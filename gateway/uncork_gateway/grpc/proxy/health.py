"""``grpc.health.v1.Health`` of the proxy: its own state by the empty name, and the servers' by all others."""

from __future__ import annotations

from typing import Any

from uncork_gateway.auth import REFUSAL, AcceptedKeys
from uncork_gateway.errors import BadRequest, GatewayError
from uncork_gateway.grpc.interfaces import Call, CallHead, CallStream, OpenCall, StreamingMethod
from uncork_gateway.grpc.messages import message, parse
from uncork_gateway.grpc.methods import SMALL_MESSAGE_BYTES, PlainCall, UnaryCall
from uncork_gateway.grpc.proxy.pass_through import GrpcPassThrough
from uncork_gateway.grpc.services.health import Health
from uncork_gateway.grpc.statuses import CallFailed, Code

_Request: Any = message("grpc.health.v1.HealthCheckRequest")


class HealthByName:
    """Answers checks of the empty name, and relays those of models and services.

    Only the latter need an API key: they reach the servers.

    Args:
        own: the health of the proxy.
        pass_through: relays calls.
        keys: returns the accepted API keys.
    """

    def __init__(self, own: Health, pass_through: GrpcPassThrough, *, keys: AcceptedKeys) -> None:
        self._own = own
        self._pass_through = pass_through
        self._keys = keys

    def methods(self) -> dict[bytes, StreamingMethod]:
        """Return Check and Watch by their paths."""
        openers: dict[bytes, OpenCall] = {
            path: lambda stream, head, method=method: UnaryCall(stream, head, method)  # type: ignore[misc]
            for path, method in self._own.unary().items()
        }
        watch = {path: self._by_name(method.open) for path, method in self._own.streaming().items()}
        return {**watch, **{path: self._by_name(opener, takes_one=True) for path, opener in openers.items()}}

    def _by_name(self, own: OpenCall, *, takes_one: bool = False) -> StreamingMethod:
        return StreamingMethod(
            lambda stream, head: _CallByName(stream, head, own, self._relay, takes_one=takes_one), free=True
        )

    def _relay(self, stream: CallStream, head: CallHead) -> Call:
        keys = self._keys()
        if keys is not None and not keys.admit(head.metadata):
            refused = PlainCall(stream, head)
            refused.reject(CallFailed(REFUSAL, Code.UNAUTHENTICATED))
            return refused
        return self._pass_through.open(stream, head)


class _CallByName:
    """A call that the first message gives to one of two others."""

    max_message_bytes = SMALL_MESSAGE_BYTES

    def __init__(
        self, stream: CallStream, head: CallHead, own: OpenCall, other: OpenCall, *, takes_one: bool
    ) -> None:
        self.takes_one = takes_one
        self._stream = stream
        self._head = head
        self._own = own
        self._other = other
        self._call: Call = PlainCall(stream, head)
        self._is_decided = False

    def message_received(self, message: bytes) -> None:
        self._decide(self._other if _names_something(message) else self._own)
        self._call.message_received(message)

    def end_received(self) -> None:
        self._decide(self._own)
        self._call.end_received()

    def reject(self, error: GatewayError) -> None:
        self._call.reject(error)

    def cancelled(self) -> None:
        self._call.cancelled()

    def _decide(self, opener: OpenCall) -> None:
        if not self._is_decided:
            self._is_decided = True
            self._call = opener(self._stream, self._head)


def _names_something(message: bytes) -> bool:
    try:
        return bool(parse(_Request, message).service)
    except BadRequest:
        return False
