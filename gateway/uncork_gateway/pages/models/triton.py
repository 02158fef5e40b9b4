"""Triton's extensions of V2: model configuration, statistics, and the index of the repository."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from uncork_dispatcher.policies import make_policy
from uncork_dispatcher.policies.fixed import FixedPolicy
from uncork_dispatcher.policies.none import NonePolicy
from uncork_gateway.dialects.v2 import VERSION
from uncork_gateway.pages.models.inputs import inputs_of
from uncork_gateway.pages.models.metadata import PLATFORM, Model, model_asked
from uncork_gateway.protocols.tensors import TensorSpec
from uncork_gateway.telemetry.metrics import FIRST_CLIENT_ERROR, ApiTally
from uncork_workers.wire.schema import ApiSettings

CONFIGURATION, STATISTICS = "model_configuration", "statistics"
"""Extensions in the server's metadata; the repository's is missing, because only its index is served."""

_MOST_INDEX_BYTES = 1024
_NS = 10**9


class _IndexRequest(msgspec.Struct):
    ready: bool = False


class TritonPages:
    """The routes of the extensions.

    Args:
        models: returns the models by name.
        tally: returns the counts of an API.
        unready: returns why no model can be used now; empty if all can.
    """

    def __init__(
        self,
        *,
        models: Callable[[], Mapping[str, Model]],
        tally: Callable[[str], ApiTally],
        unready: Callable[[], str],
    ) -> None:
        self._models = models
        self._tally = tally
        self._unready = unready

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
        stats = [statistics_of(model.name, self._tally(model.api.name)) for model in models]
        return Response(msgspec.json.encode({"model_stats": stats}), media_type="application/json")

    async def _index(self, request: Request) -> Response:
        wanted, reason = await _read_index_request(request), self._unready()
        if wanted.ready and reason:
            return JSONResponse([])
        state = "UNAVAILABLE" if reason else "READY"
        entry: dict[str, Any] = {"version": VERSION, "state": state, "reason": reason}
        return JSONResponse([{"name": name, **entry} for name in sorted(self._models())])


_PATHS = ("/v2/models/{model}", f"/v2/models/{{model}}/versions/{VERSION}")


async def _on_admin_port(request: Request) -> Response:
    raise HTTPException(404, "statistics are on the admin port (--admin-port), not on this one")


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


def config_of(model: Model) -> dict[str, Any]:
    """Return Triton's ``ModelConfig``, with shapes of one row and the outputs known so far."""
    settings = model.api.settings
    batching = _dynamic_batching(settings)
    return {
        "name": model.name,
        "platform": PLATFORM,
        "backend": PLATFORM,
        "version_policy": {"specific": {"versions": [int(VERSION)]}},
        "max_batch_size": _most_rows(settings),
        "input": [_tensor(spec) for spec in inputs_of(model.api)],
        "output": [_tensor(spec) for spec in model.outputs.known()],
        **({} if batching is None else {"dynamic_batching": batching}),
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    kind = "STRING" if spec.datatype == "BYTES" else spec.datatype
    return {"name": spec.name, "data_type": f"TYPE_{kind}", "dims": list(spec.shape)}


def _most_rows(settings: ApiSettings) -> int:
    """Return the most rows in a batch; where each row has a cost of its own, of rows that cost 1."""
    cost = settings.cost if isinstance(settings.cost, int | float) else 1
    return max(1, int(settings.limit_rows // cost))


def _dynamic_batching(settings: ApiSettings) -> dict[str, Any] | None:
    """Describe how batches are formed; None if each request is one.

    Only the policy ``fixed`` has a preferred size and a delay of its own; others hold at most until the goal.
    """
    policy = make_policy(settings.policy, limit_rows=settings.limit_rows)
    if isinstance(policy, NonePolicy):
        return None
    longest_s, preferred = settings.mb_max_latency / 1000, []
    if isinstance(policy, FixedPolicy):
        longest_s = min(longest_s, policy.wait_s)
        if settings.cost is None and policy.limit_rows < settings.limit_rows:
            preferred = [policy.limit_rows]
    return {"preferred_batch_size": preferred, "max_queue_delay_microseconds": round(longest_s * 1e6)}


def statistics_of(model: str, tally: ApiTally) -> dict[str, Any]:
    """Return the statistics of a model since the gateway started, from its API's counts.

    The gateway only knows a worker's total time, reported as ``compute_infer``. Clients expect the same count
    in all three ``compute`` fields.
    """
    inference = tally.inference
    answered = sum(count for status, count in tally.statuses.items() if status < FIRST_CLIENT_ERROR)
    return {
        "name": model,
        "version": VERSION,
        "last_inference": round(inference.last_release * 1000),
        "inference_count": inference.rows,
        "execution_count": tally.endings["worked"],
        "inference_stats": {
            "success": _duration(answered, inference.succeeded_s),
            "fail": _duration(tally.statuses.total() - answered, inference.failed_s),
            "queue": _duration(tally.queue_wait.count, tally.queue_wait.sum),
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
