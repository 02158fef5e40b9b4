"""The proxy's gRPC port: merges the calls of one protocol, and passes all others through."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from uncork_dispatcher import SettingError
from uncork_gateway.auth import AcceptedKeys
from uncork_gateway.grpc.interfaces import OpenCall, StreamingMethod
from uncork_gateway.grpc.methods import Method, Methods
from uncork_gateway.grpc.protocols.predict import PredictWire
from uncork_gateway.grpc.protocols.v2 import V2GrpcWire
from uncork_gateway.grpc.proxy.call import ProxyCall
from uncork_gateway.grpc.proxy.health import health_by_name
from uncork_gateway.grpc.proxy.pass_through import GrpcPassThrough
from uncork_gateway.grpc.services.health import Health
from uncork_gateway.grpc.services.models import Models
from uncork_gateway.grpc.services.streaming import OpenCalls
from uncork_gateway.readiness import Readiness
from uncork_gateway.requests.proxy_target import Merging

_WIRES = {"v2": (V2GrpcWire,), "tfserving": (PredictWire,), "auto": (V2GrpcWire, PredictWire)}


def proxied_calls(
    protocol: str,
    merging: Merging,
    pass_through: GrpcPassThrough,
    *,
    unready: Callable[[], str],
    readiness: Readiness,
    keys: AcceptedKeys,
) -> tuple[OpenCall, Callable[[], None]]:
    """Return the function that opens calls, and the function that ends the calls that watch health.

    Args:
        protocol: the protocol whose calls merge.
        merging: batches requests into calls.
        pass_through: relays all other calls.
        unready: returns why no server is usable; empty if one is.
        readiness: notifies of changes.
        keys: returns the accepted API keys.

    Raises:
        ValueError: if the protocol has no gRPC methods.
    """
    if protocol not in _WIRES:
        raise SettingError(
            "protocol", says=f" must be auto, v2 or tfserving for gRPC servers, got {protocol}"
        )
    merged: dict[bytes, Method] = {}
    for wire in (kind() for kind in _WIRES[protocol]):
        merged[wire.method] = StreamingMethod(
            partial(ProxyCall, wire=wire, merging=merging, pass_through=pass_through)
        )
    relaying = Methods(merged, not_supported={}, keys=keys, otherwise=pass_through.open)
    # The proxy answers for itself; the servers, for their models.
    watches = OpenCalls()
    own = Health(Models(dict, missing=str), watches, services=(), unready=unready, readiness=readiness)
    methods = {**merged, **health_by_name(own.methods(), relaying.open_call)}
    opener = Methods(methods, not_supported={}, keys=keys, otherwise=pass_through.open)
    return opener.open_call, watches.close
