"""Triton's extensions of V2, for HTTP and gRPC: model configuration, statistics, and the repository index."""

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from uncork_dispatcher.policies import make_policy
from uncork_gateway.auth import other_site, sent_keys
from uncork_gateway.errors import GatewayError
from uncork_gateway.pages.models.metadata import PLATFORM, Model, ModelVersions, model_asked
from uncork_gateway.pages.models.tensors import inputs_of
from uncork_gateway.protocols.tensors import TensorSpec
from uncork_gateway.repository import RepositoryAccess
from uncork_gateway.telemetry.metrics import FIRST_CLIENT_ERROR
from uncork_gateway.versions import ServiceName
from uncork_workers.wire.json_faults import json_fault
from uncork_workers.wire.schema import ApiSettings

_NS = 10**9
STATISTICS_MOVED = "statistics are on the admin port (--admin-port), not on this one"
_MOST_BYTES = 1024


def statistics_of(model: Model) -> dict[str, Any]:
    """Return the statistics of a model since the gateway started, from its API's counts.

    The gateway knows only a batch's total time in the worker, reported as ``compute_infer``. Clients expect
    the same count in all three ``compute`` fields.
    """
    tallies = model.tallies
    # Batches, which have rows of both classes, are counted for the first.
    tally, inferences = tallies[0], [one.inference for one in tallies]
    inference, statuses = tally.inference, sum([one.statuses for one in tallies], Counter[int]())
    answered = sum(count for status, count in statuses.items() if status < FIRST_CLIENT_ERROR)
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": round(inference.last_release * 1000),
        "inference_count": sum([one.rows for one in inferences]),
        "execution_count": tally.endings["worked"],
        "inference_stats": {
            "success": _duration(answered, sum([one.succeeded_s for one in inferences])),
            "fail": _duration(statuses.total() - answered, sum([one.failed_s for one in inferences])),
            "queue": _duration(
                sum([one.queue_wait.count for one in tallies]), sum([one.queue_wait.sum for one in tallies])
            ),
            **_compute(inference.ran, inference.run_s),
            "cache_hit": _duration(0, 0.0),
            "cache_miss": _duration(0, 0.0),
        },
        "batch_stats": [
            {"batch_size": rows, **_compute(batches, inference.batches_s[rows])}
            for rows, batches in sorted(inference.batches.items())
        ],
    }


def _compute(count: int, seconds: float) -> dict[str, Any]:
    nothing = _duration(count, 0.0)
    return {"compute_input": nothing, "compute_infer": _duration(count, seconds), "compute_output": nothing}


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * _NS)}


def config_of(model: Model) -> dict[str, Any]:
    """Return Triton's ``ModelConfig``, with shapes of one row and the outputs known so far.

    APIs that stream are "decoupled": they may send any number of messages per request.
    """
    settings = model.api.settings
    batching = _dynamic_batching(settings)
    return {
        "name": model.name,
        "platform": PLATFORM,
        "backend": PLATFORM,
        "version_policy": {"specific": {"versions": [int(model.version)]}},
        "max_batch_size": _most_rows(settings),
        # Clients read the format of each input; Uncork does not know which arrays are images.
        "input": [{**_tensor(spec), "format": "FORMAT_NONE"} for spec in inputs_of(model.api)],
        "output": [_tensor(spec) for spec in model.outputs.known()],
        **({} if batching is None else {"dynamic_batching": batching}),
        **({"model_transaction_policy": {"decoupled": True}} if model.api.streams else {}),
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    kind = "STRING" if spec.datatype == "BYTES" else spec.datatype
    return {"name": spec.name, "data_type": f"TYPE_{kind}", "dims": list(spec.shape)}


def _most_rows(settings: ApiSettings) -> int:
    """Return the most rows in a batch; where rows have costs, the most rows of cost 1."""
    cost = settings.cost if isinstance(settings.cost, int | float) else 1
    most = max(1, int(settings.limit_rows // cost))
    return min(most, *(settings.allowed_batch_sizes or (most,))[-1:])


def _dynamic_batching(settings: ApiSettings) -> dict[str, Any] | None:
    """Return Triton's description of batching; None if requests are not batched.

    Only a policy with a set window has a preferred size and a delay; others hold at most until the goal.
    """
    policy = make_policy(settings.policy, limit_rows=settings.limit_rows)
    if policy.most_requests == 1:
        return None
    longest_s, preferred = settings.mb_max_latency / 1000, []
    if policy.longest_hold_s < math.inf:
        longest_s = min(longest_s, policy.longest_hold_s)
        if settings.cost is None and policy.limit_rows < settings.limit_rows:
            preferred = [policy.limit_rows]
    return {"preferred_batch_size": preferred, "max_queue_delay_microseconds": round(longest_s * 1e6)}


class _IndexRequest(msgspec.Struct):
    ready: bool = False


class _ChangeRequest(msgspec.Struct):
    parameters: dict[str, Any] = {}


_Body = TypeVar("_Body", _IndexRequest, _ChangeRequest)


class TritonPages:
    """The routes of Triton's extensions.

    Args:
        unloaded: returns the names of services that are not loaded.
    """

    def __init__(self, models: Callable[[], ModelVersions], unloaded: Callable[[], Collection[str]]) -> None:
        self._models = models
        self._unloaded = unloaded

    def routes(self) -> list[Route]:
        return [
            *[Route(f"{path}/config", self._config) for path in _PATHS],
            Route("/v2/repository/index", self._index, methods=["POST"]),
        ]

    def statistics_routes(self) -> list[Route]:
        """Return the statistics routes, for clients that may read metrics."""
        one = [Route(f"{path}/stats", self._statistics) for path in _PATHS]
        return [Route("/v2/models/stats", self._all_statistics), *one]

    def moved_statistics_routes(self) -> list[Route]:
        """Return routes that say where the statistics are, if operators have a port of their own."""
        return [Route(route.path, _on_admin_port) for route in self.statistics_routes()]

    async def _config(self, request: Request) -> Response:
        return JSONResponse(config_of(model_asked(request, self._models())))

    async def _statistics(self, request: Request) -> Response:
        return self._statistics_of(model_asked(request, self._models()))

    async def _all_statistics(self, request: Request) -> Response:
        return self._statistics_of(*every_version(self._models()))

    def _statistics_of(self, *models: Model) -> Response:
        stats = [statistics_of(model) for model in models]
        return Response(msgspec.json.encode({"model_stats": stats}), media_type="application/json")

    async def _index(self, request: Request) -> Response:
        wanted = await _read(
            request, _IndexRequest, 'send an empty body, or {"ready": true} to list only ready models'
        )
        unloaded = () if wanted.ready else self._unloaded()
        return JSONResponse(index_of(self._models(), unloaded, only_ready=wanted.ready))


def loading_routes(access: RepositoryAccess) -> list[Route]:
    path = "/v2/repository/models/{model}"
    return [
        Route(f"{path}/load", partial(_change, access.load), methods=["POST"]),
        Route(f"{path}/unload", partial(_change, access.unload), methods=["POST"]),
    ]


async def _change(change: Callable[[str, Iterable[str]], Awaitable[None]], request: Request) -> Response:
    # Applications that call mount() with admin=True have no port for operators, and may need no key. Browsers
    # send a key only where the page's origin is allowed, but passwords by themselves.
    headers = request.scope["headers"]
    if next(sent_keys(headers), None) is None and (reason := other_site(dict(headers))):
        raise HTTPException(403, reason)
    wanted = await _read(request, _ChangeRequest, "send an empty body")
    try:
        await change(request.path_params["model"], wanted.parameters)
    except GatewayError as error:
        raise HTTPException(error.status, str(error)) from None
    return Response()


def index_of(models: ModelVersions, unloaded: Iterable[str], *, only_ready: bool) -> list[dict[str, Any]]:
    """Return the entries of the repository index, with the reason for each model that is not ready."""
    found = [(model.name, model.version, model.unready) for model in every_version(models)]
    found += [(*ServiceName.read(text), "unloaded") for text in sorted(unloaded)]
    return [
        {
            "name": name,
            "version": version,
            "state": "UNAVAILABLE" if reason else "READY",
            "reason": reason,
        }
        for name, version, reason in found
        if not (reason and only_ready)
    ]


def every_version(models: ModelVersions) -> list[Model]:
    """Return all versions of all models, sorted by model name."""
    return [model for _, versions in sorted(models.items()) for model in versions.values()]


_PATHS = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")


async def _on_admin_port(request: Request) -> Response:
    raise HTTPException(404, STATISTICS_MOVED)


async def _read(request: Request, kind: type[_Body], accepted: str) -> _Body:
    """Read the body, possibly empty, of a request about the repository."""
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > _MOST_BYTES:
                raise ValueError(f"longer than {_MOST_BYTES} bytes")
        return msgspec.json.decode(body, type=kind) if body.strip() else kind()
    except (ValueError, msgspec.DecodeError, RecursionError) as error:
        fault = json_fault(body, error)
        raise HTTPException(400, f"invalid repository request: {fault}; {accepted}") from error
