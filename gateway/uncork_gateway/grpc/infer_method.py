"""The gRPC methods that execute APIs: find the API and the rows of a request message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Unpack

from google.protobuf.message import Message
from msgspec.structs import replace

from uncork_gateway.codecs import Marshalled
from uncork_gateway.codecs.cost import NO_COST
from uncork_gateway.errors import GatewayError
from uncork_gateway.grpc.dialects.predict import Predict
from uncork_gateway.grpc.dialects.v2 import V2Grpc
from uncork_gateway.grpc.messages import parse
from uncork_gateway.requests.api_target import ApiTarget, Shared
from uncork_gateway.versions import FIRST
from uncork_workers.wire.forms import TensorForm

_MOST = 256
# Longer ones come from clients that send parameters, which may differ every time.
_MAX_HEAD_BYTES = 1024
_FLIPPED = bytes(range(255, -1, -1))


class MessageRoute(ApiTarget):
    """The route of one gRPC method to one API.

    Attributes:
        model: the API's model name in this method; ``version`` is its version.
        has_siblings: True if requests without a version may go to another version.
        streams: True if the API streams its responses.
    """

    def __init__(
        self,
        api: str,
        *,
        model: str,
        version: str = FIRST,
        dialect: V2Grpc | Predict,
        streams: bool = False,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(api, **shared)
        self.model = model
        self.version = version
        self.dialect = dialect
        self.has_siblings = False
        self.streams = streams


class Asked(NamedTuple):
    """A request message whose API is known.

    Attributes:
        message: the message in the form received.
        id: the client's id for the request, if the method has ids.
        request: the parsed message; None if ``payload`` is known without parsing.
        payload: the rows, if known already.
    """

    route: MessageRoute
    message: bytes
    id: str = ""
    request: Any = None
    payload: Marshalled | None = None


class InferMethod:
    """A gRPC method whose request messages name an API.

    It remembers the bytes before the values in requests, to skip parsing others like them. A client repeats
    these bytes: model, name, datatype and shape. A message that has the same beginning and length as an
    earlier one differs from it only in the values of its tensor.

    Attributes:
        fair_by: the metadata key, in lower case, whose value names a request's flow.

    Args:
        request: the class of the request messages.
        route_of: returns the route of a request; raises GatewayError if none matches.
    """

    def __init__(self, request: type[Message], route_of: Callable[[Any], MessageRoute]) -> None:
        self.fair_by: bytes | None = None
        self._request = request
        self._route_of = route_of
        self._known: dict[int, list[tuple[bytes, MessageRoute, Marshalled]]] = {}
        """By the size of the message: heads, each with its route and rows without values."""
        self._is_decided: dict[tuple[int, bytes], bool] = {}
        """By size and head of a message: False after the first, True after the second, which decides."""

    def ask(self, message: bytes) -> Asked:
        """Find the API of a request message.

        Raises:
            GatewayError: if the message is malformed, or the API does not exist.
        """
        for head, route, payload in self._known.get(len(message), ()):
            if message.startswith(head):
                payload = replace(payload, body=message[len(head) :])
                return Asked(route, message, getattr(payload.note, "id", ""), None, payload)
        request = parse(self._request, message)
        return Asked(self._route_of(request), message, getattr(request, "id", ""), request)

    def id_of(self, message: bytes) -> str:
        """Return the client's id in a request message; empty if it has none, or is malformed."""
        try:
            return getattr(parse(self._request, message), "id", "")
        except GatewayError:
            return ""

    def read(self, asked: Asked) -> Marshalled:
        """Read the rows of a request.

        Raises:
            BadRequest: if the API does not accept the rows.
        """
        if asked.payload is not None:
            return asked.payload
        payload = asked.route.dialect.read(asked.request)
        payload.came_in(len(asked.message))
        if not (asked.route.streams or asked.route.has_siblings):
            self._remember(asked.message, asked.route, payload)
        return payload

    def _remember(self, message: bytes, route: MessageRoute, payload: Marshalled) -> None:
        """Remember the head of a parsed message when it comes for the second time."""
        head = _head(message, payload)
        if head is None:
            return
        key = len(message), head
        is_decided = self._is_decided.get(key)
        if is_decided:
            return
        if is_decided is None and len(self._is_decided) >= _MOST:
            self.forget()
        self._is_decided[key] = is_decided is not None
        if is_decided is not None and self._differs_by_values_only(head, route, payload):
            self._known.setdefault(len(message), []).append((head, route, replace(payload, body=b"")))

    def _differs_by_values_only(self, head: bytes, route: MessageRoute, payload: Marshalled) -> bool:
        """Return True if the head fixes all but the values: parse it with other values to find out."""
        values = payload.body.translate(_FLIPPED)
        try:
            request = parse(self._request, head + values)
            found = self._route_of(request)
            return (found, found.dialect.read(request)) == (route, replace(payload, body=values))
        except GatewayError:
            return False

    def forget(self) -> None:
        """Forget the messages, because the routes have changed or there are too many."""
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
