"""The gRPC methods that execute APIs: find the API and the rows of a request message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Unpack

from google.protobuf.message import Message

from uncork_gateway.codecs import Marshalled
from uncork_gateway.grpc.dialects.predict import Predict
from uncork_gateway.grpc.dialects.v2 import V2Grpc
from uncork_gateway.grpc.known_requests import KnownRequests
from uncork_gateway.grpc.messages import parse
from uncork_gateway.requests.api_target import ApiTarget, Shared
from uncork_gateway.versions import FIRST


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

    Attributes:
        fair_by: the metadata key, in lower case, whose value names a request's flow.

    Args:
        request: the class of the request messages.
        route_of: returns the route of a request; raises GatewayError if none matches.
    """

    def __init__(
        self,
        request: type[Message],
        route_of: Callable[[Any], MessageRoute],
    ) -> None:
        self.fair_by: bytes | None = None
        self._request = request
        self._route_of = route_of
        self._known = KnownRequests(self._read)

    def ask(self, message: bytes) -> Asked:
        """Find the API of a request message.

        Raises:
            GatewayError: if the message is malformed, or the API does not exist.
        """
        known = self._known.find(message)
        if known is not None:
            route, payload = known
            return Asked(route, message, getattr(payload.note, "id", ""), None, payload)
        request = parse(self._request, message)
        return Asked(self._route_of(request), message, getattr(request, "id", ""), request)

    def read(self, asked: Asked) -> Marshalled:
        """Read the rows of a request.

        Raises:
            BadRequest: if the API does not accept the rows.
        """
        if asked.payload is not None:
            return asked.payload
        payload = asked.route.dialect.read(asked.request)
        if not (asked.route.streams or asked.route.has_siblings):
            self._known.note(asked.message, asked.route, payload)
        return payload

    def _read(self, message: bytes) -> tuple[MessageRoute, Marshalled]:
        request = parse(self._request, message)
        route = self._route_of(request)
        return route, route.dialect.read(request)

    def routes_changed(self) -> None:
        """Forget cached messages, because the routes have changed."""
        self._known.clear()
