"""The methods of ``inference.GRPCInferenceService`` about the server and its models."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from uncork_gateway.errors import Unavailable
from uncork_gateway.grpc.interfaces import Method
from uncork_gateway.grpc.messages import make, message
from uncork_gateway.grpc.methods import Answer, unary
from uncork_gateway.grpc.services.models import Models
from uncork_gateway.grpc.statuses import CallFailed, Code
from uncork_gateway.pages.models.metadata import UnknownModel, metadata_of, server_of
from uncork_gateway.pages.models.triton import (
    STATISTICS_MOVED,
    config_of,
    every_version,
    index_of,
    statistics_of,
)
from uncork_gateway.repository import RepositoryAccess

NAME = "inference.GRPCInferenceService"

_NO_SHARED_MEMORY = "shared memory is not supported; send tensors in the request"
_SHARED_MEMORY = [
    f"{kind}SharedMemory{action}"
    for kind in ("System", "Cuda")
    for action in ("Status", "Register", "Unregister")
]
NOT_SUPPORTED: Mapping[bytes, str] = {
    f"/{NAME}/{method}".encode(): text
    for method, text in {
        "TraceSetting": "clients cannot read or change trace settings; see --traces of `uncork serve`",
        "LogSettings": "clients cannot read or change log settings; see --log-level of `uncork serve`",
        **dict.fromkeys(_SHARED_MEMORY, _NO_SHARED_MEMORY),
    }.items()
}
"""Why the gateway lacks a method of Triton's, by path."""


@dataclass(kw_only=True)
class Inference:
    """Responds with the same values as the HTTP pages of V2 and of Triton's extensions."""

    models: Models
    repository: RepositoryAccess
    unready: Callable[[], str]
    statistics: bool

    def methods(self) -> dict[bytes, Method]:
        answers: dict[str, Answer] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server,
            "ModelMetadata": self._metadata,
            "ModelConfig": self._config,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }
        return {
            f"/{NAME}/{name}".encode(): unary(
                message(f"inference.{name}Request"), answer, free=name in ("ServerLive", "ServerReady")
            )
            for name, answer in answers.items()
        }

    def _live(self, request: Any) -> Message:
        return make("inference.ServerLiveResponse", live=True)

    def _ready(self, request: Any) -> Message:
        return make("inference.ServerReadyResponse", ready=not self.unready())

    def _model_ready(self, request: Any) -> Message:
        """Return false for an unknown model: clients poll this method while they load and unload models."""
        try:
            ready = not self.models.find(request.name, request.version).unready
        except (UnknownModel, Unavailable):
            ready = False
        return make("inference.ModelReadyResponse", ready=ready)

    def _server(self, request: Any) -> Message:
        return make("inference.ServerMetadataResponse", **server_of(statistics=self.statistics))

    def _metadata(self, request: Any) -> Message:
        model = self.models.find(request.name, request.version)
        versions = self.models.versions(request.name, request.version)
        return make("inference.ModelMetadataResponse", **metadata_of(model, versions))

    def _config(self, request: Any) -> Message:
        model = self.models.find(request.name, request.version)
        return make("inference.ModelConfigResponse", config=config_of(model))

    def _statistics(self, request: Any) -> Message:
        if not self.statistics:
            raise CallFailed(f"{STATISTICS_MOVED}; send GET /v2/models/stats there", Code.UNIMPLEMENTED)
        if request.name:
            models = self.models.versions(request.name, request.version)
        else:
            models = every_version(self.models.require())
        stats = [statistics_of(model) for model in models]
        return make("inference.ModelStatisticsResponse", model_stats=stats)

    def _index(self, request: Any) -> Message:
        unloaded = () if request.ready else self.repository.unloaded()
        index = index_of(self.models.present, unloaded, only_ready=request.ready)
        return make("inference.RepositoryIndexResponse", models=index)

    async def _load(self, request: Any) -> Message:
        await self.repository.load(request.model_name, request.parameters)
        return make("inference.RepositoryModelLoadResponse")

    async def _unload(self, request: Any) -> Message:
        await self.repository.unload(request.model_name, request.parameters)
        return make("inference.RepositoryModelUnloadResponse")
