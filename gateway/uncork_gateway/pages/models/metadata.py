"""A service's APIs as models of other protocols: names, paths and metadata."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from uncork_gateway.codecs import codec_of
from uncork_gateway.dialects import V2, Dialect, Rest
from uncork_gateway.dialects.rest import SIGNATURE
from uncork_gateway.errors import GatewayError
from uncork_gateway.headers import NO_STORE
from uncork_gateway.pages.models.tensors import Outputs, inputs_of, row_inputs
from uncork_gateway.pages.nearest import nearest
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits
from uncork_gateway.protocols.tensors import TF_TYPES, TensorSpec
from uncork_gateway.telemetry.metrics import ApiTally
from uncork_gateway.versions import FIRST, Candidate, described
from uncork_workers.wire.dialing import VERSION as SERVER_VERSION
from uncork_workers.wire.schema import ApiDescription, ServiceDescription

PREFIXES = ("/v1/models/", "/v2/")
"""Prefixes of these protocols' paths."""

ROOTS = ("/v1/models", "/v2")
"""Their paths without a prefix. Other paths below ``/v1`` belong to the service."""

PLATFORM = "uncork"

_EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository")

_MAIN, _EXPLAIN = "predict", "explain"


class UnknownModel(GatewayError):
    """The client asked for a model, or a version of a model, that does not exist."""

    status = 404


class ModelSource(NamedTuple):
    """The service behind a model.

    Attributes:
        tallies: returns the counts of an API for each of its classes; one if it has none.
        unready: returns why the model is not ready; empty if it is.
        candidate: its version, with its share of the requests that name none.
    """

    tallies: Callable[[str], Sequence[ApiTally]] = lambda api: (ApiTally(),)
    unready: Callable[[], str] = lambda: ""
    candidate: Candidate = Candidate(version=FIRST)


ModelVersions = Mapping[str, Mapping[str, "Model"]]
"""The models by name, and each by version, the lowest first."""

NO_SOURCE = ModelSource()
"""A service without counts that is always ready."""


class Model(NamedTuple):
    """An API under its name in other protocols.

    ``explainer`` serves ``:explain``. The models of one API share its ``outputs``. ``limits`` apply to
    requests.
    """

    name: str
    api: ApiDescription
    explainer: ApiDescription | None
    outputs: Outputs
    source: ModelSource = NO_SOURCE
    version: str = FIRST
    limits: Limits = DEFAULT_LIMITS

    @property
    def tallies(self) -> Sequence[ApiTally]:
        """The counts of the model's API for each of its classes; one if it has none."""
        return self.source.tallies(self.api.name)

    @property
    def unready(self) -> str:
        """The reason why the model is not ready; empty if it is."""
        return self.source.unready()


def models_of(
    name: str,
    service: ServiceDescription,
    source: ModelSource = NO_SOURCE,
    *,
    version: str = FIRST,
    outputs: Mapping[str, Outputs] = MappingProxyType({}),
    limits: Limits = DEFAULT_LIMITS,
    streams: bool = False,
) -> dict[str, Model]:
    """Return the models of a service version: each API as ``<service>.<api>``.

    ``predict``, or the only API, is also ``<service>``. ``outputs`` has the known outputs by API. APIs that
    stream, which only gRPC can express, are the models with ``streams``, and omitted without. The name of the
    service stands for such an API only if it is the only API.
    """
    apis = {api.name: api for api in service.apis if api.streams is streams}
    models = {
        f"{name}.{api.name}": Model(
            f"{name}.{api.name}", api, None, outputs.get(api.name) or Outputs(), source, version, limits
        )
        for api in apis.values()
    }
    main = None if streams else apis.get(_MAIN)
    if len(service.apis if streams else apis) == 1:
        main = next(iter(apis.values()), None)
    if main is not None:
        explainer = None if streams else apis.get(_EXPLAIN)
        models[name] = models[f"{name}.{main.name}"]._replace(name=name, explainer=explainer)
    return models


def dialects_of(model: Model) -> Iterator[tuple[str, ApiDescription, Dialect]]:
    """Yield the paths of a model, each with its API and dialect."""
    api, version = model.api, f"versions/{model.version}"
    codec, inputs = codec_of(api, model.limits), row_inputs(api)
    yield f"/v1/models/{model.name}:predict", api, Rest(codec, inputs=inputs, kserve=True)
    yield f"/v1/models/{model.name}/{version}:predict", api, Rest(codec, inputs=inputs, kserve=False)
    explainer = model.explainer
    if explainer is not None:
        explains = Rest(
            codec_of(explainer, model.limits),
            inputs=row_inputs(explainer),
            results="explanations",
            kserve=True,
        )
        yield f"/v1/models/{model.name}:explain", explainer, explains
    v2 = V2(
        codec,
        model=model.name,
        version=model.version,
        inputs=inputs,
        saw=model.outputs.saw,
    )
    for path in (f"/v2/models/{model.name}/infer", f"/v2/models/{model.name}/{version}/infer"):
        yield path, api, v2


class ModelPages:
    """The GET routes of models: their lists, states and metadata."""

    def __init__(
        self,
        *,
        models: Callable[[], ModelVersions],
        ready: Callable[[], bool],
        statistics: bool,
    ) -> None:
        self._models = models
        self._ready = ready
        self._statistics = statistics

    def routes(self) -> list[Route]:
        v1, v2 = "/v1/models/{model}", "/v2/models/{model}"
        named = "/versions/{version}"
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
        return model_asked(request, self._models())

    def _versions(self, request: Request) -> list[Model]:
        """Return the versions that a request asks for, from lowest to highest."""
        model = self._model(request)
        return [model] if "version" in request.path_params else list(self._models()[model.name].values())

    # KServe V1 and TensorFlow Serving

    async def _list(self, request: Request) -> Response:
        names = sorted(self._models())
        return JSONResponse(
            {"models": names, "object": "list", "data": [_openai_model(name) for name in names]}
        )

    async def _status(self, request: Request) -> Response:
        model = self._model(request)
        ready = not model.unready
        return JSONResponse(status_of(model, self._versions(request)), 200 if ready else 503)

    async def _tf_metadata(self, request: Request) -> Response:
        model = self._model(request)
        signature = signature_of(model)
        for info in (*signature["inputs"].values(), *signature["outputs"].values()):
            # In the JSON form of messages, integers of 64 bits are strings.
            for axis in info["tensor_shape"]["dim"]:
                axis["size"] = str(axis["size"])
        spec = {"name": model.name, "signature_name": "", "version": model.version}
        signatures = {"signature_def": {SIGNATURE: signature}}
        return JSONResponse({"model_spec": spec, "metadata": {"signature_def": signatures}})

    # Open Inference Protocol V2

    async def _server(self, request: Request) -> Response:
        return JSONResponse(server_of(statistics=self._statistics))

    async def _live(self, request: Request) -> Response:
        return JSONResponse({"live": True}, headers=NO_STORE)

    async def _health(self, request: Request) -> Response:
        ready = self._ready()
        return JSONResponse({"ready": ready}, 200 if ready else 503, NO_STORE)

    async def _model_ready(self, request: Request) -> Response:
        model = self._model(request)
        ready = not model.unready
        return JSONResponse({"name": model.name, "ready": ready}, 200 if ready else 503, NO_STORE)

    async def _metadata(self, request: Request) -> Response:
        return JSONResponse(metadata_of(self._model(request), self._versions(request)))


def model_asked(request: Request, models: ModelVersions) -> Model:
    """Return the model, in the version, that a request's path names.

    Raises:
        HTTPException: 404 if the model or version does not exist.
    """
    try:
        return find_model(
            request.path_params["model"], models, version=request.path_params.get("version", "")
        )
    except UnknownModel as error:
        raise HTTPException(error.status, str(error)) from None


def find_model(name: str, models: ModelVersions, *, version: str = "") -> Model:
    """Return a model by name; without a version, the version that would get a request.

    Raises:
        UnknownModel: if it does not exist; the message lists the available models or versions.
    """
    if name not in models:
        known = ", ".join(sorted(models)) or "none yet"
        near = nearest(name, sorted(models))
        hint = f"; did you mean {near}?" if near else ""
        # Clients of Triton look for the beginning of this message.
        unknown = f"Request for unknown model: {name!r} is not found"
        raise UnknownModel(f"{unknown}; available models: {known}{hint}")
    if version and version not in models[name]:
        known = " or ".join(map(repr, models[name]))
        raise UnknownModel(f"model {name!r} has no version {version!r}; send {known}, or no version")
    return models[name][version] if version else default_of(models[name])


def default_of(versions: Mapping[str, Model]) -> Model:
    """Return the version that would get a request that names none; of several with weights, the highest."""
    return described([(model.source.candidate, model) for model in versions.values()])


def server_of(*, statistics: bool) -> dict[str, Any]:
    """Return V2's metadata of the server; with ``statistics``, it lists that extension."""
    extensions = [*_EXTENSIONS, *(["statistics"] if statistics else [])]
    return {"name": "uncork", "version": SERVER_VERSION, "extensions": extensions}


def status_of(model: Model, versions: Sequence[Model]) -> dict[str, Any]:
    """Return a model's status for KServe, TensorFlow Serving and OpenAI, which share the path."""
    statuses = [{**version_status_of(one), "version": one.version} for one in versions]
    ready = not model.unready
    return {"name": model.name, "ready": ready, "model_version_status": statuses, **_openai_model(model.name)}


def _openai_model(name: str) -> dict[str, Any]:
    """Describe a model in the form of OpenAI's API, whose clients use the same paths."""
    return {"id": name, "object": "model", "created": 0, "owned_by": PLATFORM}


def version_status_of(model: Model) -> dict[str, Any]:
    """Return TensorFlow Serving's status of one version of a model."""
    state = "LOADING" if model.unready else "AVAILABLE"
    return {
        "version": int(model.version),
        "state": state,
        "status": {"error_code": "OK", "error_message": ""},
    }


def metadata_of(model: Model, versions: Sequence[Model]) -> dict[str, Any]:
    """Return V2's metadata of a model, with the outputs known so far."""
    numbers = [one.version for one in versions]
    named: dict[str, Any] = {"name": model.name, "versions": numbers, "platform": PLATFORM}
    inputs, outputs = inputs_of(model.api), model.outputs.known()
    return {**named, "inputs": [*map(_described, inputs)], "outputs": [*map(_described, outputs)]}


def _described(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": [-1, *spec.shape]}


def signature_of(model: Model) -> dict[str, Any]:
    """Return TensorFlow's SignatureDef of a model, with the outputs known so far."""
    return {
        "inputs": {spec.name: _tensor_info(spec) for spec in inputs_of(model.api)},
        "outputs": {spec.name: _tensor_info(spec) for spec in model.outputs.known()},
        "method_name": "tensorflow/serving/predict",
    }


def _tensor_info(spec: TensorSpec) -> dict[str, Any]:
    """Describe a tensor as TensorFlow's TensorInfo."""
    dims = [{"size": length, "name": ""} for length in (-1, *spec.shape)]
    return {
        "name": spec.name,
        "dtype": TF_TYPES[spec.datatype],
        "tensor_shape": {"dim": dims, "unknown_rank": False},
    }
