"""The apis of a service as models of other protocols: their names, their paths, what is told of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from uncork_gateway.codecs import make_codec
from uncork_gateway.dialects import V2, Dialect, Rest
from uncork_gateway.dialects.v2 import VERSION
from uncork_workers.description import KINDS_WITH_FIELDS, ApiDescription, ServiceDescription

PREFIXES = ("/v1/", "/v2/")
"""Where the paths of these protocols begin; ``/v2`` itself is one, too."""

_MAIN, _EXPLAIN = "predict", "explain"
_DATATYPES = {
    "bool": "BOOL",
    **{f"{kind}int{bits}": f"{kind.upper()}INT{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
}
_NO_DATATYPE = "BYTES"


class Model(NamedTuple):
    """An api under a name that clients of other protocols know; ``explainer`` explains what it says."""

    name: str
    api: ApiDescription
    explainer: ApiDescription | None


def models_of(service: ServiceDescription) -> dict[str, Model]:
    """The models of a service: its own name in lower case means ``predict``, or its only api.

    Those that stream are none: other protocols have no words for it.
    """
    apis = {api.name: api for api in service.apis if not api.streams}
    name = service.name.lower()
    models = {f"{name}.{api.name}": Model(f"{name}.{api.name}", api, None) for api in apis.values()}
    main = next(iter(apis.values())) if len(apis) == 1 else apis.get(_MAIN)
    if main is not None:
        models[name] = Model(name, main, apis.get(_EXPLAIN))
    return models


def dialects_of(model: Model) -> Iterator[tuple[str, ApiDescription, Dialect]]:
    """The paths of a model, the api that each leads to, and what is spoken there."""
    api, version = model.api, f"versions/{VERSION}"
    codec = make_codec(api.input, api.settings.cost)
    yield f"/v1/models/{model.name}:predict", api, Rest(codec, kserve=True)
    yield f"/v1/models/{model.name}/{version}:predict", api, Rest(codec, kserve=False)
    explainer = model.explainer
    if explainer is not None:
        explains = Rest(
            make_codec(explainer.input, explainer.settings.cost), results="explanations", kserve=True
        )
        yield f"/v1/models/{model.name}:explain", explainer, explains
    v2 = V2(
        codec,
        model=model.name,
        takes_objects=api.input["kind"] in KINDS_WITH_FIELDS,
        weighs=api.settings.cost is not None,
    )
    for path in (f"/v2/models/{model.name}/infer", f"/v2/models/{model.name}/{version}/infer"):
        yield path, api, v2


class ModelPages:
    """What is told of models, to those who ask with GET."""

    def __init__(
        self, *, version: str, models: Callable[[], Mapping[str, Model]], ready: Callable[[], bool]
    ) -> None:
        self._version = version
        self._models = models
        self._ready = ready

    def routes(self) -> list[Route]:
        """Where it is told."""
        v1, v2 = "/v1/models/{model}", "/v2/models/{model}"
        named = f"/versions/{VERSION}"
        return [
            Route("/v1/models", self._list),
            Route(f"{v1}/metadata", self._tf_metadata),
            Route(f"{v1}{named}/metadata", self._tf_metadata),
            Route(f"{v1}{named}", self._status),
            Route(v1, self._status),
            Route("/v2", self._server),
            Route("/v2/", self._server),
            Route("/v2/health/live", self._live),
            Route("/v2/health/ready", self._health),
            *[Route(f"{v2}{each}/ready", self._model_ready) for each in ("", named)],
            *[Route(f"{v2}{each}", self._metadata) for each in ("", named)],
        ]

    def _model(self, request: Request) -> Model:
        name, models = request.path_params["model"], self._models()
        if name not in models:
            known = ", ".join(sorted(models)) or "none yet"
            near = get_close_matches(name, sorted(models), n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise HTTPException(404, f"there is no model {name!r}; {hint}there are {known}")
        return models[name]

    # KServe V1 and TensorFlow Serving

    async def _list(self, request: Request) -> Response:
        return JSONResponse({"models": sorted(self._models())})

    async def _status(self, request: Request) -> Response:
        """What both KServe and TensorFlow Serving say of a model: they ask at one path."""
        model, ready = self._model(request), self._ready()
        state = {"version": VERSION, "state": "AVAILABLE" if ready else "LOADING"}
        status = {**state, "status": {"error_code": "OK", "error_message": ""}}
        told = {"name": model.name, "ready": ready, "model_version_status": [status]}
        return JSONResponse(told, 200 if ready else 503)

    async def _tf_metadata(self, request: Request) -> Response:
        model = self._model(request)
        inputs = {
            one["name"]: {"dtype": one["datatype"], "tensor_shape": one["shape"]}
            for one in inputs_of(model.api)
        }
        signature = {"serving_default": {"inputs": inputs, "outputs": {}, "method_name": "predict"}}
        spec = {"name": model.name, "signature_name": "", "version": VERSION}
        return JSONResponse({"model_spec": spec, "metadata": {"signature_def": {"signature_def": signature}}})

    # Open Inference Protocol V2

    async def _server(self, request: Request) -> Response:
        return JSONResponse(
            {"name": "uncork", "version": self._version, "extensions": ["binary_tensor_data"]}
        )

    async def _live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def _health(self, request: Request) -> Response:
        ready = self._ready()
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def _model_ready(self, request: Request) -> Response:
        model, ready = self._model(request), self._ready()
        return JSONResponse({"name": model.name, "ready": ready}, 200 if ready else 503)

    async def _metadata(self, request: Request) -> Response:
        """Outputs are what the handler returns, which nobody has said."""
        model = self._model(request)
        told: dict[str, Any] = {"name": model.name, "versions": [VERSION], "platform": "uncork"}
        return JSONResponse({**told, "inputs": inputs_of(model.api), "outputs": []})


def inputs_of(api: ApiDescription) -> list[dict[str, Any]]:
    """Name, datatype and shape of the input; -1 is any length."""
    shape = [-1, *(-1 if length is None else length for length in api.input.get("shape", []))]
    datatype = _DATATYPES.get(api.input.get("dtype", ""), _NO_DATATYPE)
    return [{"name": "input-0", "datatype": datatype, "shape": shape}]
