"""The APIs of a service as gRPC clients name them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from uncork_gateway.batching import Batching
from uncork_gateway.codecs import make_codec
from uncork_gateway.grpc.dialects.predict import Predict
from uncork_gateway.grpc.dialects.v2 import V2Grpc
from uncork_gateway.grpc.infer_call import InferCall
from uncork_gateway.grpc.infer_method import InferMethod, MessageDialect, MessageRoute
from uncork_gateway.grpc.infer_stream import InferStream
from uncork_gateway.grpc.interfaces import StreamingMethod
from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.services.models import Models, version_in
from uncork_gateway.pages.models.inputs import row_inputs
from uncork_gateway.pages.models.metadata import Model
from uncork_gateway.versions import Candidate, VersionChoice

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
        self._in_force: dict[str, dict[str, ServedModel]] = {}
        self._choices: dict[str, VersionChoice[ServedModel]] = {}
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
        name, version = request.model_name, request.model_version
        choice = self._choices.get(name)
        if choice is not None and not version:
            return choice.choose().infer
        model = self._models.find(name, version)
        return self._in_force[model.name][model.version].infer

    def _predict_route(self, request: Any) -> MessageRoute:
        spec = request.model_spec
        model = self._models.find_spec(spec)
        if not version_in(spec):
            return self._choices[model.name].choose().predict
        return self._in_force[model.name][model.version].predict

    def put_in_force(self, served: Mapping[str, Sequence[tuple[Candidate, ServedModel]]]) -> None:
        """Serve these models, by name, in these versions from now on."""
        self._in_force = {
            name: {one.model.version: one for _, one in versions} for name, versions in served.items()
        }
        self._choices = {name: VersionChoice(versions) for name, versions in served.items()}
        for versions in served.values():
            for _, one in versions:
                for route in (one.infer, one.predict):
                    route.has_siblings = len(versions) > 1
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
        codec = make_codec(api.input, api.settings.cost, model.limits)
        inputs = row_inputs(api)
        saw = model.outputs.saw
        named = {"model": model.name, "version": model.version}
        v2 = V2Grpc(codec, **named, inputs=inputs, saw=saw)
        predict = Predict(codec, **named, inputs=inputs, saw=saw)
        return ServedModel(model, _route(model, v2, batching), _route(model, predict, batching))


def _route(model: Model, dialect: MessageDialect, batching: Batching) -> MessageRoute:
    api = model.api
    return MessageRoute(
        api.name,
        dispatcher=batching.dispatcher,
        tally=batching.metrics.api(api.name),
        batch_headers=batching.batch_headers,
        model=model.name,
        version=model.version,
        dialect=dialect,
        streams=api.streams,
    )
