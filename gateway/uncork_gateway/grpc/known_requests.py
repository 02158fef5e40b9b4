"""Skips parsing requests that differ from an earlier one only in the values of their tensor.

A client repeats the bytes before the values: model, name, datatype and shape. A message that has the same
beginning and length as an earlier one therefore needs no parsing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec.structs import replace

from uncork_gateway.codecs import Marshalled
from uncork_gateway.codecs.cost import NO_COST
from uncork_gateway.errors import GatewayError
from uncork_workers.wire.messages import TensorForm

RouteT = TypeVar("RouteT")

_MOST = 256
# Longer ones come from clients that send parameters, which may differ every time.
_MAX_HEAD_BYTES = 1024
_FLIPPED = bytes(range(255, -1, -1))


class KnownRequests(Generic[RouteT]):
    """Remembers the bytes before the values in the requests of one method.

    Args:
        read: reads a message in full; raises GatewayError if malformed.
    """

    def __init__(self, read: Callable[[bytes], tuple[RouteT, Marshalled]]) -> None:
        self._read = read
        self._known: dict[int, list[tuple[bytes, RouteT, Marshalled]]] = {}
        """By the size of the message: heads, each with its route and rows without values."""
        self._is_decided: dict[tuple[int, bytes], bool] = {}
        """By size and head of a message: False after the first, True after the second, which decides."""

    def find(self, message: bytes) -> tuple[RouteT, Marshalled] | None:
        """Return the route and the rows of a message; None if it must be parsed."""
        for head, route, payload in self._known.get(len(message), ()):
            if message.startswith(head):
                return route, replace(payload, body=message[len(head) :])
        return None

    def note(self, message: bytes, route: RouteT, payload: Marshalled) -> None:
        """Remember the head of a parsed message when it comes for the second time."""
        head = _head(message, payload)
        if head is None:
            return
        key = len(message), head
        is_decided = self._is_decided.get(key)
        if is_decided:
            return
        if is_decided is None and len(self._is_decided) >= _MOST:
            self.clear()
        self._is_decided[key] = is_decided is not None
        if is_decided is not None and self._differs_by_values_only(head, route, payload):
            self._known.setdefault(len(message), []).append((head, route, replace(payload, body=b"")))

    def _differs_by_values_only(self, head: bytes, route: RouteT, payload: Marshalled) -> bool:
        """Return True if the head fixes all but the values: parse it with other values to find out."""
        values = payload.body.translate(_FLIPPED)
        try:
            return self._read(head + values) == (route, replace(payload, body=values))
        except GatewayError:
            return False

    def clear(self) -> None:
        self._known.clear()
        self._is_decided.clear()


def _head(message: bytes, payload: Marshalled) -> bytes | None:
    """Return the bytes before the values, if the values are numbers at the end and are sent unchanged."""
    values, form = payload.body, payload.form
    if not isinstance(form, TensorForm) or form.datatype == "BYTES" or payload.cost is not NO_COST:
        return None
    size = len(message) - len(values)
    if not values or size > _MAX_HEAD_BYTES or not message.endswith(values):
        return None
    return message[:size]
