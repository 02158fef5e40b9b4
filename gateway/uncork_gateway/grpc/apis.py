"""The APIs of a service as gRPC clients name them."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from uncork_dispatcher import AsyncDispatcher
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
from uncork_gateway.requests.batch_headers import BatchHeaders
from uncork_gateway.settings import ServerSettings
from uncork_gateway.telemetry.metrics import Metrics
from uncork_workers.wire.schema import KINDS_WITH_FIELDS

INFERENCE = b"/inference.GRPCInferenceService/"
PREDICTION = b"/tensorflow.serving.PredictionService/"


class ApiFront(Protocol):
    """A front end, as the methods that execute APIs see it."""

    settings: ServerSettings
    dispatcher: AsyncDispatcher[Any, Any]
    metrics: Metrics
    batch_headers: BatchHeaders


class ServedModel(NamedTuple):
    """A model, and the routes of its requests by method."""

    model: Model
    infer: MessageRoute
    predict: MessageRoute


class ApiMethods:
    """The methods that execute APIs."""

    def __init__(self, front_end: ApiFront, models: Models) -> None:
        self._front_end = front_end
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

    def put_in_force(self, served: Mapping[str, ServedModel], *, fair_by: bytes | None) -> None:
        """Serve these models, by name, from now on; ``fair_by`` as in the settings."""
        self._in_force = served
        for method in (self._infer, self._predict):
            method.fair_by = fair_by
            method.routes_changed()

    def prepare(self, model: Model) -> ServedModel:
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
        return ServedModel(model, self._route(model, v2), self._route(model, predict))

    def _route(self, model: Model, dialect: MessageDialect) -> MessageRoute:
        front_end, api = self._front_end, model.api
        return MessageRoute(
            api.name,
            dispatcher=front_end.dispatcher,
            tally=front_end.metrics.api(api.name),
            batch_headers=front_end.batch_headers,
            model=model.name,
            dialect=dialect,
            streams=api.streams,
        )
