"""The HTTP routes of the batching proxy: merges the requests of one protocol, and relays all others."""

import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from uncork_gateway.backends.model_servers.known_models import can_be_known
from uncork_gateway.backends.model_servers.server import ServerResponse
from uncork_gateway.headers import Header, origin_form, path_of
from uncork_gateway.protocols.rows import RowsWire
from uncork_gateway.protocols.v2 import V2Wire
from uncork_gateway.protocols.wire import Wire
from uncork_gateway.requests.proxy_route import ProxyRoute
from uncork_gateway.requests.proxy_target import Merging

_V1 = re.compile(rb"/v1/models/([^/:]+):predict$")
_TF_SERVING = re.compile(rb"/v1/models/([^/:]+)(?:/(?:versions|labels)/[^/:]+)?:predict$", re.IGNORECASE)
_V2 = re.compile(rb"/v2/models/([^/]+)(?:/versions/[^/]+)?/infer$")
# Tried in this order.
_WIRES: dict[str, list[tuple[re.Pattern[bytes], Wire[Any, Any]]]] = {
    "v1": [(_V1, RowsWire(add_batch_id=True))],
    "v2": [(_V2, V2Wire())],
    "tfserving": [(_TF_SERVING, RowsWire(add_batch_id=False))],
}
_WIRES["auto"] = [*_WIRES["v2"], *_WIRES["v1"], *_WIRES["tfserving"]]


class ProxyRoutes:
    """Finds the routes of requests that can be merged.

    Args:
        protocol: the protocol whose requests are merged.
        merging: batches requests into calls.
        relay: relays a request unchanged, given target, headers and body.
        max_body_bytes: the largest body of a merged request.
    """

    def __init__(
        self,
        protocol: str,
        merging: Merging,
        relay: Callable[[bytes, Sequence[Header], bytes], Coroutine[Any, Any, ServerResponse]],
        *,
        max_body_bytes: int,
    ) -> None:
        self._wires = _WIRES[protocol]
        self._merging = merging
        self._relay = relay
        self._max_body_bytes = max_body_bytes

    def resolve(self, target: bytes) -> ProxyRoute | None:
        """Return the route of a POST request; None if the request must pass through."""
        path = path_of(target)
        for pattern, wire in self._wires:
            found = pattern.search(path)
            if found is None:
                continue
            model = found[1].decode("utf-8", "backslashreplace")
            sent_on = origin_form(target)
            if not (can_be_known(model) and sent_on):
                return None
            return ProxyRoute(
                target=sent_on,
                model=model,
                wire=wire,
                merging=self._merging,
                relay=self._relay,
                max_body_bytes=self._max_body_bytes,
            )
        return None
