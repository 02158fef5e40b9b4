"""The gRPC side of a gateway: all methods of its port."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from uncork_gateway.batching import Batching
from uncork_gateway.grpc.apis import ApiMethods, ServedModel
from uncork_gateway.grpc.interfaces import OpenCall
from uncork_gateway.grpc.methods import Method, Methods
from uncork_gateway.grpc.services.table import ModelMethods, ServiceFront
from uncork_gateway.pages.models.metadata import Model, ModelSource, ModelVersions, streaming_models_of
from uncork_gateway.repository import RepositoryAccess
from uncork_gateway.settings import ServerSettings
from uncork_gateway.versions import Candidate, ServiceName
from uncork_workers.wire.schema import ServiceDescription


class GrpcFront(ServiceFront, Protocol):
    """A front end, as its gRPC side sees it."""

    settings: ServerSettings

    def mount_grpc(self, open_call: OpenCall, *, close: Callable[[], object]) -> None:
        """Serve gRPC clients; ``close`` ends the calls that only watch."""


class GrpcService:
    """Opens the calls of a gateway's gRPC clients.

    Args:
        repository: loads and unloads services for clients.
        missing: returns why some models are not known yet; empty once each service is described.

    Attributes:
        models: of all services; those of HTTP, and APIs that stream.
    """

    def __init__(
        self, front_end: GrpcFront, repository: RepositoryAccess, *, missing: Callable[[], str]
    ) -> None:
        self.models: ModelVersions = {}
        about = ModelMethods(
            front_end,
            models=lambda: self.models,
            missing=missing,
            repository=repository,
            statistics=not front_end.settings.admin,
        )
        self._apis = ApiMethods(about.models)
        methods: dict[bytes, Method] = {**about.unary, **about.streaming, **self._apis.methods()}
        self._apis.change(fair_by=front_end.settings.fair_by)
        opener = Methods(methods, not_supported=about.not_supported, keys=lambda: front_end.settings.keys)
        front_end.mount_grpc(opener.open_call, close=about.close)

    def prepare(
        self,
        name: ServiceName,
        service: ServiceDescription,
        models: Mapping[str, Model],
        *,
        source: ModelSource,
        batching: Batching,
    ) -> dict[str, ServedModel]:
        """Return the models of a service that is about to be in force, given those of HTTP.

        Raises:
            ValueError: if it cannot be served.
        """
        streaming = streaming_models_of(name.name, service, source, version=name.version)
        return {model: self._apis.prepare(one, batching) for model, one in {**models, **streaming}.items()}

    def put_in_force(self, served: Mapping[str, Sequence[tuple[Candidate, ServedModel]]]) -> None:
        """Serve the models of all services from now on, by name, in these versions, the lowest first."""
        self.models = {
            name: {one.model.version: one.model for _, one in versions} for name, versions in served.items()
        }
        self._apis.put_in_force(served)

    def change(self, *, fair_by: bytes | None) -> None:
        """Put another header in force that names the flow of a request."""
        self._apis.change(fair_by=fair_by)
