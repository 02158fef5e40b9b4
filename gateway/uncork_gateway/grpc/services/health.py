"""``grpc.health.v1.Health``: whether the server, a model or a gRPC service can be used now."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from google.protobuf.message import Message

from uncork_gateway.errors import BadRequest, Unavailable
from uncork_gateway.grpc.interfaces import CallHead, CallStream, OpenCall
from uncork_gateway.grpc.messages import make, message
from uncork_gateway.grpc.methods import UnaryCall
from uncork_gateway.grpc.services.models import Models
from uncork_gateway.grpc.services.streaming import StreamingCall
from uncork_gateway.grpc.statuses import CallFailed, Code
from uncork_gateway.pages.models.metadata import default_of
from uncork_gateway.readiness import Readiness

CHECK, WATCH = b"/grpc.health.v1.Health/Check", b"/grpc.health.v1.Health/Watch"
FREE = frozenset((CHECK, WATCH))
"""The methods that need no API key: responses contain no names that the client did not send."""
_SERVER = ""
# A watch keeps the name for as long as the client likes, and needs no API key.
_LONGEST_NAME = 1024
_Request: Any = message("grpc.health.v1.HealthCheckRequest")


def health_methods(
    models: Models, *, services: Collection[str], unready: Callable[[], str], readiness: Readiness
) -> dict[bytes, OpenCall]:
    """Return Check and Watch by path."""

    def status_of(name: str) -> str:
        """Return the status of a name: SERVICE_UNKNOWN, SERVING or NOT_SERVING."""
        if name == _SERVER or name in services:
            return "NOT_SERVING" if unready() else "SERVING"
        versions = models.present.get(name)
        if versions is None:
            return "SERVICE_UNKNOWN"
        return "NOT_SERVING" if default_of(versions).unready else "SERVING"

    return {
        CHECK: partial(UnaryCall, request=_Request, answer=partial(_check, models, status_of)),
        WATCH: partial(_Watch, status_of=status_of, readiness=readiness),
    }


def _check(models: Models, status_of: Callable[[str], str], request: Any) -> Message:
    name = _named(request)
    status = status_of(name)
    if status == "SERVICE_UNKNOWN":
        if not models.known:
            raise Unavailable("no model is known before a worker is ready", reason="no_worker")
        raise CallFailed(
            f"unknown service {name!r}; check the empty name (the server), the name of a model, or the full "
            "name of a gRPC service",
            Code.NOT_FOUND,
        )
    return _response(status)


class _Watch(StreamingCall):
    """A Watch call: sends the current status, then each change."""

    def __init__(
        self, stream: CallStream, head: CallHead, status_of: Callable[[str], str], readiness: Readiness
    ) -> None:
        super().__init__(stream, head, _Request)
        self._status_of = status_of
        self._readiness = readiness
        self._name: str | None = None
        self._sent = ""

    def asked(self, request: Any) -> None:
        if self._name is not None:
            raise CallFailed("Watch takes one message; the client sent another", Code.INTERNAL)
        self._name = _named(request)
        self.on_end = self._readiness.subscribe(self._changed)
        self._changed()

    def complete(self) -> None:
        if self._name is None:
            raise CallFailed("Watch takes one message; the client sent none", Code.INTERNAL)

    def _changed(self) -> None:
        assert self._name is not None
        status = self._status_of(self._name)
        if status != self._sent:
            self._sent = status
            self.send(_response(status))


def _response(status: str) -> Message:
    return make("grpc.health.v1.HealthCheckResponse", status=status)


def _named(request: Any) -> str:
    name: str = request.service
    if len(name) > _LONGEST_NAME:
        raise BadRequest(
            f"the service's name has {len(name)} characters; at most {_LONGEST_NAME} are accepted"
        )
    return name
