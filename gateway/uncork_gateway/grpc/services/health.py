"""``grpc.health.v1.Health``: whether the server, a model or a gRPC service can be used now."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

from google.protobuf.message import Message

from uncork_gateway.errors import BadRequest, Unavailable
from uncork_gateway.grpc.interfaces import CallHead, CallStream, Method
from uncork_gateway.grpc.messages import make, message
from uncork_gateway.grpc.methods import unary
from uncork_gateway.grpc.services.models import Models
from uncork_gateway.grpc.services.streaming import StreamingCall
from uncork_gateway.grpc.statuses import CallFailed, Code
from uncork_gateway.pages.models.metadata import default_of
from uncork_gateway.readiness import Readiness

CHECK, WATCH = b"/grpc.health.v1.Health/Check", b"/grpc.health.v1.Health/Watch"
_SERVER = ""
# A watch keeps the name for as long as the client likes, and needs no API key.
_LONGEST_NAME = 1024
_Request: Any = message("grpc.health.v1.HealthCheckRequest")


@dataclass(kw_only=True)
class Health:
    """Answers health checks, and notifies the clients that watch.

    The calls need no API key, so responses contain no names that the client did not send.
    """

    models: Models
    services: Collection[str]
    unready: Callable[[], str]
    readiness: Readiness

    def methods(self) -> dict[bytes, Method]:
        """Return Check and Watch by their paths."""
        watch = partial(_Watch, status=self.status, readiness=self.readiness)
        return {
            CHECK: unary(_Request, self._check, free=True),
            WATCH: Method(watch, free=True),
        }

    def status(self, name: str) -> str:
        """Return the status of a name: SERVICE_UNKNOWN, SERVING or NOT_SERVING."""
        if name == _SERVER or name in self.services:
            return "NOT_SERVING" if self.unready() else "SERVING"
        versions = self.models.present.get(name)
        if versions is None:
            return "SERVICE_UNKNOWN"
        return "NOT_SERVING" if default_of(versions).unready else "SERVING"

    def _check(self, request: Any) -> Message:
        name = _named(request)
        status = self.status(name)
        if status == "SERVICE_UNKNOWN":
            if not self.models.known:
                message = "no model is known before a worker is ready"
                raise Unavailable(message, reason="no_worker")
            raise CallFailed(
                f"unknown service {name!r}; check the empty name (the server), the name of a model, or the "
                "full name of a gRPC service",
                Code.NOT_FOUND,
            )
        return _status(status)


class _Watch(StreamingCall):
    """A Watch call: sends the current status, then each change."""

    def __init__(
        self,
        stream: CallStream,
        head: CallHead,
        status: Callable[[str], str],
        readiness: Readiness,
    ) -> None:
        self._status = status
        self._readiness = readiness
        self._name: str | None = None
        self._sent = ""
        super().__init__(stream, head, _Request)

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
        status = self._status(self._name)
        if status != self._sent:
            self._sent = status
            self.send(_status(status))


def _status(status: str) -> Message:
    return make("grpc.health.v1.HealthCheckResponse", status=status)


def _named(request: Any) -> str:
    name: str = request.service
    if len(name) > _LONGEST_NAME:
        raise BadRequest(
            f"the service's name has {len(name)} characters; at most {_LONGEST_NAME} are accepted"
        )
    return name
