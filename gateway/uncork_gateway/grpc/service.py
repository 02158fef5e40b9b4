"""The gRPC side of a gateway: opens the calls of all methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from uncork_gateway.auth import AcceptedKeys
from uncork_gateway.batching import Batching
from uncork_gateway.codecs import codec_of, grouping
from uncork_gateway.grpc.api_call import InferCall
from uncork_gateway.grpc.dialects.predict import Predict
from uncork_gateway.grpc.dialects.v2 import V2Grpc
from uncork_gateway.grpc.infer_method import InferMethod, MessageRoute
from uncork_gateway.grpc.infer_stream import InferStream
from uncork_gateway.grpc.interfaces import OpenCall
from uncork_gateway.grpc.messages import SERVICES, message
from uncork_gateway.grpc.methods import OpenCalls, open_calls
from uncork_gateway.grpc.protocols import predict, v2
from uncork_gateway.grpc.services import health, inference, tensorflow
from uncork_gateway.grpc.services.models import Models, version_in
from uncork_gateway.grpc.services.reflection import reflection_methods
from uncork_gateway.pages.models.metadata import Model, ModelSource, ModelVersions, models_of
from uncork_gateway.pages.models.tensors import row_inputs
from uncork_gateway.protocols.limits import Limits
from uncork_gateway.readiness import Readiness
from uncork_gateway.repository import RepositoryAccess
from uncork_gateway.versions import Candidate, ServiceName, VersionChoice
from uncork_workers.wire.schema import ServiceDescription

NOT_SUPPORTED: Mapping[bytes, str] = {**inference.NOT_SUPPORTED, **tensorflow.NOT_SUPPORTED}
"""Why the gateway lacks a method that clients may know, by path."""

FREE = health.FREE | inference.FREE
"""The paths of the methods that need no API key."""


class ServedModel(NamedTuple):
    """A model, and the routes for its requests by gRPC method."""

    model: Model
    infer: MessageRoute
    predict: MessageRoute


class GrpcService:
    """Opens the calls of a gateway's gRPC clients.

    Args:
        repository: loads and unloads services for clients.
        missing: returns why some models are not known yet; empty once each service is described.
        unready: returns why requests fail now; empty if they succeed.
        readiness: notifies of changes.
        keys: returns the accepted API keys.
        statistics: True if clients may read statistics.
        fair_by: the header, in lower case, that names a request's flow.

    Attributes:
        models: the models of all services, including APIs that stream.
        open_call: opens a call.
        close: ends the calls that clients may keep open, so that draining need not wait for them.
        keys_changed: ends the ones whose keys are no longer accepted.
    """

    def __init__(
        self,
        repository: RepositoryAccess,
        *,
        missing: Callable[[], str],
        unready: Callable[[], str],
        readiness: Readiness,
        keys: AcceptedKeys,
        statistics: bool,
        fair_by: bytes | None,
    ) -> None:
        self.models: ModelVersions = {}
        models = self._find = Models(lambda: self.models, missing)
        self._in_force: dict[str, dict[str, ServedModel]] = {}
        self._choices: dict[str, VersionChoice[ServedModel]] = {}
        self._infer = InferMethod(message("inference.ModelInferRequest"), self._infer_route)
        self._predict = InferMethod(message("tensorflow.serving.PredictRequest"), self._predict_route)
        self.change(fair_by=fair_by)
        methods: dict[bytes, OpenCall] = {
            v2.METHOD: partial(InferCall, method=self._infer),
            f"/{inference.NAME}/ModelStreamInfer".encode(): partial(InferStream, method=self._infer),
            predict.METHOD: partial(InferCall, method=self._predict),
            **inference.inference_methods(models, repository, unready=unready, statistics=statistics),
            **tensorflow.tensorflow_methods(models),
            **health.health_methods(models, services=SERVICES, unready=unready, readiness=readiness),
            **reflection_methods(),
        }
        calls = OpenCalls(keys)
        self.close, self.keys_changed = calls.close, calls.keys_changed
        self.open_call = open_calls(methods, calls=calls, free=FREE, not_supported=NOT_SUPPORTED)

    def _infer_route(self, request: Any) -> MessageRoute:
        name, version = request.model_name, request.model_version
        choice = self._choices.get(name)
        if choice is not None and not version:
            return choice.choose().infer
        model = self._find.find(name, version)
        return self._in_force[model.name][model.version].infer

    def _predict_route(self, request: Any) -> MessageRoute:
        spec = request.model_spec
        model = self._find.find_spec(spec)
        if not version_in(spec):
            return self._choices[model.name].choose().predict
        return self._in_force[model.name][model.version].predict

    def prepare(
        self,
        name: ServiceName,
        service: ServiceDescription,
        models: Mapping[str, Model],
        *,
        source: ModelSource,
        batching: Batching,
        limits: Limits,
    ) -> dict[str, ServedModel]:
        """Return the gRPC models of a service that will be served, given its HTTP models.

        Raises:
            ValueError: if no codec exists for a model's input.
        """
        streaming = models_of(name.name, service, source, version=name.version, limits=limits, streams=True)
        return {each: _served(model, batching) for each, model in {**models, **streaming}.items()}

    def put_in_force(self, served: Mapping[str, Sequence[tuple[Candidate, ServedModel]]]) -> None:
        """Replace the served models of all services. ``served`` has each name's versions, lowest first."""
        self._in_force = {
            name: {each.model.version: each for _, each in versions} for name, versions in served.items()
        }
        self.models = {
            name: {each.model.version: each.model for _, each in versions}
            for name, versions in served.items()
        }
        self._choices = {name: VersionChoice(versions) for name, versions in served.items()}
        for versions in served.values():
            for _, each in versions:
                each.infer.has_siblings = each.predict.has_siblings = len(versions) > 1
        self._infer.forget()
        self._predict.forget()

    def change(self, *, fair_by: bytes | None) -> None:
        """Change the header that names a request's flow."""
        self._infer.fair_by = self._predict.fair_by = fair_by


def _served(model: Model, batching: Batching) -> ServedModel:
    codec, groups = codec_of(model.api, model.limits), grouping(model.api)
    inputs, saw = row_inputs(model.api), model.outputs.saw

    def route(kind: type[V2Grpc | Predict]) -> MessageRoute:
        dialect = kind(codec, model=model.name, version=model.version, inputs=inputs, saw=saw)
        return MessageRoute(
            model.api.name,
            dispatcher=batching.dispatcher,
            tally=batching.metrics.api(model.api.name),
            batch_headers=batching.batch_headers,
            contract=model.api.contract,
            model=model.name,
            version=model.version,
            dialect=dialect,
            streams=model.api.streams,
            grouping=groups,
            classes=batching.classes(model.api),
            coalescing=batching.coalescing(model.api),
            headers=model.api.headers,
        )

    return ServedModel(model, route(V2Grpc), route(Predict))
