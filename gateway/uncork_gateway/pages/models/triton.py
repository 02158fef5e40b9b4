"""Triton's extensions of V2: model configuration, statistics, and the index of the repository."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from uncork_gateway.dialects.v2 import VERSION
from uncork_gateway.pages.models.configuration import config_of
from uncork_gateway.pages.models.metadata import Model, model_asked
from uncork_gateway.pages.models.statistics import statistics_of

STATISTICS_MOVED = "statistics are on the admin port (--admin-port), not on this one"

_MOST_INDEX_BYTES = 1024


class _IndexRequest(msgspec.Struct):
    ready: bool = False


class TritonPages:
    """The routes of the extensions.

    Args:
        models: returns the models by name.
    """

    def __init__(self, models: Callable[[], Mapping[str, Model]]) -> None:
        self._models = models

    def routes(self) -> list[Route]:
        return [
            *[Route(f"{path}/config", self._config) for path in _PATHS],
            Route("/v2/repository/index", self._index, methods=["POST"]),
        ]

    def statistics_routes(self) -> list[Route]:
        """Return the routes for clients that may read metrics."""
        one = [Route(f"{path}/stats", self._statistics) for path in _PATHS]
        return [Route("/v2/models/stats", self._all_statistics), *one]

    def moved_statistics_routes(self) -> list[Route]:
        """Return routes that stand in for those of statistics where operators have a port of their own."""
        return [Route(route.path, _on_admin_port) for route in self.statistics_routes()]

    async def _config(self, request: Request) -> Response:
        return JSONResponse(config_of(model_asked(request, self._models())))

    async def _statistics(self, request: Request) -> Response:
        return self._statistics_of(model_asked(request, self._models()))

    async def _all_statistics(self, request: Request) -> Response:
        return self._statistics_of(*[model for _, model in sorted(self._models().items())])

    def _statistics_of(self, *models: Model) -> Response:
        stats = [statistics_of(model.name, model.tally) for model in models]
        return Response(msgspec.json.encode({"model_stats": stats}), media_type="application/json")

    async def _index(self, request: Request) -> Response:
        wanted = await _read_index_request(request)
        return JSONResponse(index_of(self._models(), only_ready=wanted.ready))


def index_of(models: Mapping[str, Model], *, only_ready: bool) -> list[dict[str, Any]]:
    """Return the entries of the repository's index, with the reason for each model that is not ready."""
    reasons = {name: model.unready for name, model in sorted(models.items())}
    return [
        {
            "name": name,
            "version": VERSION,
            "state": "UNAVAILABLE" if reason else "READY",
            "reason": reason,
        }
        for name, reason in reasons.items()
        if not (reason and only_ready)
    ]


_PATHS = ("/v2/models/{model}", f"/v2/models/{{model}}/versions/{VERSION}")


async def _on_admin_port(request: Request) -> Response:
    raise HTTPException(404, STATISTICS_MOVED)


async def _read_index_request(request: Request) -> _IndexRequest:
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > _MOST_INDEX_BYTES:
                raise ValueError(f"longer than {_MOST_INDEX_BYTES} bytes")
        return msgspec.json.decode(body, type=_IndexRequest) if body.strip() else _IndexRequest()
    except (ValueError, msgspec.DecodeError) as error:
        accepted = 'send an empty body, or {"ready": true} to list only ready models'
        raise HTTPException(400, f"invalid repository index request: {error}; {accepted}") from error
