"""The proxy's gRPC port: merges the calls of one protocol, and passes all others through."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from uncork_dispatcher import SettingError
from uncork_gateway.errors import BadRequest, GatewayError
from uncork_gateway.grpc.interfaces import Call, CallHead, CallStream, OpenCall
from uncork_gateway.grpc.messages import message, parse
from uncork_gateway.grpc.methods import SMALL_MESSAGE_BYTES, OpenCalls, PlainCall, open_calls
from uncork_gateway.grpc.protocols.predict import PredictWire
from uncork_gateway.grpc.protocols.v2 import V2GrpcWire
from uncork_gateway.grpc.proxy.call import ProxyCall
from uncork_gateway.grpc.proxy.pass_through import GrpcPassThrough
from uncork_gateway.grpc.services.health import CHECK, FREE, health_methods
from uncork_gateway.grpc.services.models import Models
from uncork_gateway.readiness import Readiness
from uncork_gateway.requests.proxy_target import Merging

_HealthRequest: Any = message("grpc.health.v1.HealthCheckRequest")
_WIRES = {"v2": (V2GrpcWire,), "tfserving": (PredictWire,), "auto": (V2GrpcWire, PredictWire)}


def proxied_calls(
    protocol: str,
    merging: Merging,
    pass_through: GrpcPassThrough,
    *,
    unready: Callable[[], str],
    readiness: Readiness,
    calls: OpenCalls,
) -> tuple[OpenCall, Callable[[], None]]:
    """Return the function that opens calls, and the function that ends the calls that watch health.

    ``calls`` checks the keys, and collects the calls to the servers.

    Raises:
        ValueError: if the protocol has no gRPC methods.
    """
    if protocol not in _WIRES:
        raise SettingError(
            "protocol", says=f" must be auto, v2 or tfserving for gRPC servers, got {protocol}"
        )
    merged: dict[bytes, OpenCall] = {
        wire.method: partial(ProxyCall, wire=wire(), merging=merging, pass_through=pass_through)
        for wire in _WIRES[protocol]
    }
    relay = open_calls(merged, calls=calls, otherwise=pass_through.open)
    watches = OpenCalls(lambda: None)
    health = health_methods(Models(dict, missing=str), services=(), unready=unready, readiness=readiness)
    # Health needs no API key if the name is empty; other names reach the servers, which need one.
    by_name: OpenCall = partial(_CallByName, own=open_calls(health, calls=watches), relay=relay)
    methods = {**merged, **dict.fromkeys(FREE, by_name)}
    return open_calls(methods, calls=calls, free=FREE, otherwise=pass_through.open), watches.close


class _CallByName:
    """A health call: the empty name is the proxy itself, all others its servers."""

    max_message_bytes = SMALL_MESSAGE_BYTES

    def __init__(self, stream: CallStream, head: CallHead, own: OpenCall, relay: OpenCall) -> None:
        self.takes_one = head.path == CHECK
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
        self._call = (self._relay if is_relayed else self._own)(stream, head)


def _names_something(message: bytes) -> bool:
    try:
        return bool(parse(_HealthRequest, message).service)
    except BadRequest:
        return False
