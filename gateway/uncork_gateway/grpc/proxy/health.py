"""``grpc.health.v1.Health`` of the proxy: the empty name is the proxy itself, all others its servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uncork_gateway.errors import BadRequest, GatewayError
from uncork_gateway.grpc.interfaces import (
    Call,
    CallHead,
    CallStream,
    OpenCall,
    StreamingMethod,
    UnaryMethod,
)
from uncork_gateway.grpc.messages import message, parse
from uncork_gateway.grpc.methods import SMALL_MESSAGE_BYTES, Method, PlainCall, open_call

_Request: Any = message("grpc.health.v1.HealthCheckRequest")


def health_by_name(own: Mapping[bytes, Method], relay: OpenCall) -> dict[bytes, Method]:
    """Return Check and Watch by their paths.

    They need no API key if the name is empty; other names reach the servers.

    Args:
        own: the same methods of the proxy.
        relay: opens the calls of methods that reach the servers.
    """

    def by_name(method: Method) -> StreamingMethod:
        return StreamingMethod(lambda stream, head: _CallByName(stream, head, method, relay), free=True)

    return {path: by_name(method) for path, method in own.items()}


class _CallByName:
    """A call that its first message assigns to the proxy or to a server."""

    max_message_bytes = SMALL_MESSAGE_BYTES

    def __init__(self, stream: CallStream, head: CallHead, own: Method, relay: OpenCall) -> None:
        self.takes_one = isinstance(own, UnaryMethod)
        self._stream = stream
        self._head = head
        self._own = own
        self._relay = relay
        self._call: Call = PlainCall(stream, head)
        self._is_decided = False

    def message_received(self, message: bytes) -> None:
        self._decide(is_relayed=_names_something(message))
        self._call.message_received(message)

    def end_received(self) -> None:
        self._decide(is_relayed=False)
        self._call.end_received()

    def reject(self, error: GatewayError) -> None:
        self._call.reject(error)

    def cancelled(self) -> None:
        self._call.cancelled()

    def _decide(self, *, is_relayed: bool) -> None:
        if self._is_decided:
            return
        self._is_decided = True
        stream, head = self._stream, self._head
        self._call = self._relay(stream, head) if is_relayed else open_call(self._own, stream, head)


def _names_something(message: bytes) -> bool:
    try:
        return bool(parse(_Request, message).service)
    except BadRequest:
        return False
