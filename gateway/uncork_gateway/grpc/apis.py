"""The APIs of a service as gRPC clients name them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from uncork_gateway.batching import Batching
from uncork_gateway.codecs import make_codec
from uncork_gateway.dialects.predict import Predict
from uncork_gateway.dialects.v2_grpc import V2Grpc
from uncork_gateway.grpc.infer_call import InferCall
from uncork_gateway.grpc.infer_method import InferMethod, MessageDialect, MessageRoute
from uncork_gateway.grpc.infer_stream import InferStream
from uncork_gateway.grpc.interfaces import StreamingMethod
from uncork_gateway.grpc.services.models import Models
from uncork_gateway.pages.models.metadata import Model
from uncork_gateway.protocols.grpc_messages import message
from uncork_workers.wire.schema import KINDS_WITH_FIELDS

INFERENCE = b"/inference.GRPCInferenceService/"
PREDICTION = b"/tensorflow.serving.PredictionService/"


class ServedModel(NamedTuple):
    """A model, and the routes of its requests by method."""

    model: Model
    infer: MessageRoute
    predict: MessageRoute


class ApiMethods:
    """The methods that execute APIs."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._in_force: Mapping[str, ServedModel] = {}
        self._infer = InferMethod(message("inference.ModelInferRequest"), self._infer_route)
        self._predict = InferMethod(message("tensorflow.serving.PredictRequest"), self._predict_route)

    def methods(self) -> dict[bytes, StreamingMethod]:
        """Return the methods that execute APIs, by path."""
        infer, predict = self._infer, self._predict
        return {
            INFERENCE + b"ModelInfer": StreamingMethod(lambda stream, head: InferCall(stream, head, infer)),
            INFERENCE + b"ModelStreamInfer": StreamingMethod(
                lambda stream, head: InferStream(stream, head, infer)
            ),
            PREDICTION + b"Predict": StreamingMethod(lambda stream, head: InferCall(stream, head, predict)),
        }

    def _infer_route(self, request: Any) -> MessageRoute:
        served = self._in_force.get(request.model_name)
        if served is None or request.model_version:
            served = self._in_force[self._models.find(request.model_name, request.model_version).name]
        return served.infer

    def _predict_route(self, request: Any) -> MessageRoute:
        return self._in_force[self._models.find_spec(request.model_spec).name].predict

    def put_in_force(self, served: Mapping[str, ServedModel]) -> None:
        """Serve these models, by name, from now on."""
        self._in_force = served
        for method in (self._infer, self._predict):
            method.routes_changed()

    def change(self, *, fair_by: bytes | None) -> None:
        """Put another header in force that names the flow of a request, in lower case."""
        for method in (self._infer, self._predict):
            method.fair_by = fair_by

    def prepare(self, model: Model, batching: Batching) -> ServedModel:
        """Return a model that is about to be in force, with its routes.

        Raises:
            ValueError: if there is no codec for its input.
        """
        api = model.api
        codec = make_codec(api.input, api.settings.cost)
        takes_objects = api.input["kind"] in KINDS_WITH_FIELDS
        saw = model.outputs.saw
        v2 = V2Grpc(codec, model=model.name, takes_objects=takes_objects, saw=saw)
        predict = Predict(codec, model=model.name, takes_objects=takes_objects, saw=saw)
        return ServedModel(model, _route(model, v2, batching), _route(model, predict, batching))


def _route(model: Model, dialect: MessageDialect, batching: Batching) -> MessageRoute:
    api = model.api
    return MessageRoute(
        api.name,
        dispatcher=batching.dispatcher,
        tally=batching.metrics.api(api.name),
        batch_headers=batching.batch_headers,
        model=model.name,
        dialect=dialect,
        streams=api.streams,
    )
