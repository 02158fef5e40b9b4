"""The gRPC side of a service: all methods of its port."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from uncork_gateway.grpc.apis import ApiFront, ApiMethods, ServedModel
from uncork_gateway.grpc.interfaces import OpenCall
from uncork_gateway.grpc.methods import Method, Methods
from uncork_gateway.grpc.services.table import ServiceFront, ServiceMethods
from uncork_gateway.pages.models.metadata import Model, streaming_models_of
from uncork_gateway.requests.api_target import ApiTarget
from uncork_workers.wire.schema import ServiceDescription


class GrpcFront(ApiFront, ServiceFront, Protocol):
    """A front end, as the gRPC side of a service sees it."""

    def mount_grpc(self, open_call: OpenCall, *, close: Callable[[], object]) -> None:
        """Serve gRPC clients; ``close`` ends the calls that only watch."""


class Served(Protocol):
    """A service, as its gRPC side sees it."""

    @property
    def service(self) -> ServiceDescription | None:
        """None until a worker has described the service."""

    @property
    def not_ready_reason(self) -> str:
        """Why no worker is ready."""
        ...


class GrpcService:
    """Opens the calls of a service's gRPC clients.

    Attributes:
        models: by name; those of HTTP, and APIs that stream.
    """

    def __init__(self, front_end: GrpcFront, served: Served) -> None:
        self._served = served
        self.models: Mapping[str, Model] = {}
        about = ServiceMethods(front_end, self, statistics=not front_end.settings.admin)
        self._apis = ApiMethods(front_end, about.models)
        methods: dict[bytes, Method] = {**about.unary, **about.streaming, **self._apis.methods()}
        opener = Methods(methods, not_supported=about.not_supported, keys=lambda: front_end.settings.keys)
        front_end.mount_grpc(opener.open_call, close=about.close)

    @property
    def service(self) -> ServiceDescription | None:
        return self._served.service

    @property
    def not_ready_reason(self) -> str:
        return self._served.not_ready_reason

    def prepare(self, service: ServiceDescription, models: Mapping[str, Model]) -> dict[str, ServedModel]:
        """Return the models of a service that is about to be in force, given those of HTTP.

        Raises:
            ValueError: if it cannot be served.
        """
        models = {**models, **streaming_models_of(service)}
        return {name: self._apis.prepare(model) for name, model in models.items()}

    def put_in_force(self, served: Mapping[str, ServedModel], *, fair_by: bytes | None) -> list[ApiTarget]:
        """Serve these models from now on; returns all their routes. ``fair_by`` as in the settings."""
        self.models = {name: each.model for name, each in served.items()}
        self._apis.put_in_force(served, fair_by=fair_by)
        return [route for each in served.values() for route in (each.infer, each.predict)]
