"""The methods of ``inference.GRPCInferenceService`` about the server and its models."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from google.protobuf.message import Message

from uncork_gateway.errors import Unavailable
from uncork_gateway.grpc.interfaces import OpenCall
from uncork_gateway.grpc.messages import make, message
from uncork_gateway.grpc.methods import Answer, UnaryCall
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
FREE = frozenset((f"/{NAME}/ServerLive".encode(), f"/{NAME}/ServerReady".encode()))
"""The methods that need no API key."""

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


def inference_methods(
    models: Models, repository: RepositoryAccess, *, unready: Callable[[], str], statistics: bool
) -> dict[bytes, OpenCall]:
    """Return the methods by path, with the values of the HTTP pages of V2 and of Triton's extensions."""
    answers: dict[str, Answer] = {
        "ServerLive": _live,
        "ServerReady": partial(_ready, unready),
        "ModelReady": partial(_model_ready, models),
        "ServerMetadata": partial(_server, statistics),
        "ModelMetadata": partial(_metadata, models),
        "ModelConfig": partial(_config, models),
        "ModelStatistics": partial(_statistics, models, statistics),
        "RepositoryIndex": partial(_index, models, repository),
        "RepositoryModelLoad": partial(_load, repository),
        "RepositoryModelUnload": partial(_unload, repository),
    }
    return {
        f"/{NAME}/{name}".encode(): partial(
            UnaryCall, request=message(f"inference.{name}Request"), answer=answer
        )
        for name, answer in answers.items()
    }


def _live(request: Any) -> Message:
    return make("inference.ServerLiveResponse", live=True)


def _ready(unready: Callable[[], str], request: Any) -> Message:
    return make("inference.ServerReadyResponse", ready=not unready())


def _model_ready(models: Models, request: Any) -> Message:
    """Return false for an unknown model: clients poll this method while they load and unload models."""
    try:
        ready = not models.find(request.name, request.version).unready
    except (UnknownModel, Unavailable):
        ready = False
    return make("inference.ModelReadyResponse", ready=ready)


def _server(statistics: bool, request: Any) -> Message:
    return make("inference.ServerMetadataResponse", **server_of(statistics=statistics))


def _metadata(models: Models, request: Any) -> Message:
    model = models.find(request.name, request.version)
    versions = models.versions(request.name, request.version)
    return make("inference.ModelMetadataResponse", **metadata_of(model, versions))


def _config(models: Models, request: Any) -> Message:
    model = models.find(request.name, request.version)
    return make("inference.ModelConfigResponse", config=config_of(model))


def _statistics(models: Models, is_offered: bool, request: Any) -> Message:
    if not is_offered:
        raise CallFailed(f"{STATISTICS_MOVED}; send GET /v2/models/stats there", Code.UNIMPLEMENTED)
    if request.name:
        asked = models.versions(request.name, request.version)
    else:
        asked = every_version(models.require())
    stats = [statistics_of(model) for model in asked]
    return make("inference.ModelStatisticsResponse", model_stats=stats)


def _index(models: Models, repository: RepositoryAccess, request: Any) -> Message:
    unloaded = () if request.ready else repository.unloaded()
    index = index_of(models.present, unloaded, only_ready=request.ready)
    return make("inference.RepositoryIndexResponse", models=index)


async def _load(repository: RepositoryAccess, request: Any) -> Message:
    await repository.load(request.model_name, request.parameters)
    return make("inference.RepositoryModelLoadResponse")


async def _unload(repository: RepositoryAccess, request: Any) -> Message:
    await repository.unload(request.model_name, request.parameters)
    return make("inference.RepositoryModelUnloadResponse")
