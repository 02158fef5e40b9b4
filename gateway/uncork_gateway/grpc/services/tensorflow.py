"""TensorFlow Serving's methods for model status and metadata."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from google.protobuf.message import Message

from uncork_gateway.dialects.rest import SIGNATURE
from uncork_gateway.errors import BadRequest
from uncork_gateway.grpc.interfaces import OpenCall
from uncork_gateway.grpc.messages import make, message
from uncork_gateway.grpc.methods import UnaryCall
from uncork_gateway.grpc.services.models import Models, version_in
from uncork_gateway.pages.models.metadata import signature_of, version_status_of

_PACKAGE = "tensorflow.serving"
PREDICTION = f"{_PACKAGE}.PredictionService"
MODEL = f"{_PACKAGE}.ModelService"

_ONLY_FIELD = "signature_def"
_ONLY_PREDICT = "{} is not supported; call Predict"
NOT_SUPPORTED: Mapping[bytes, str] = {
    **{
        f"/{PREDICTION}/{name}".encode(): _ONLY_PREDICT.format(name)
        for name in ("Classify", "Regress", "MultiInference", "PredictStreamed")
    },
    b"/tensorflow.serving.SessionService/SessionRun": _ONLY_PREDICT.format("SessionRun"),
    f"/{MODEL}/HandleReloadConfigRequest".encode(): (
        "clients cannot change the configuration; the models are the APIs of the service, see `uncork reload`"
    ),
}
"""Why the gateway lacks a method of TensorFlow Serving's, by path."""


def tensorflow_methods(models: Models) -> dict[bytes, OpenCall]:
    """Return GetModelMetadata and GetModelStatus by path, with the values of the HTTP pages."""
    metadata = message(f"{_PACKAGE}.GetModelMetadataRequest")
    status = message(f"{_PACKAGE}.GetModelStatusRequest")
    return {
        f"/{PREDICTION}/GetModelMetadata".encode(): partial(
            UnaryCall, request=metadata, answer=partial(_metadata, models)
        ),
        f"/{MODEL}/GetModelStatus".encode(): partial(
            UnaryCall, request=status, answer=partial(_status, models)
        ),
    }


def _metadata(models: Models, request: Any) -> Message:
    model = models.find_spec(request.model_spec)
    if set(request.metadata_field) != {_ONLY_FIELD}:
        fields = ", ".join(map(repr, request.metadata_field)) or "nothing"
        raise BadRequest(f"metadata_field must be [{_ONLY_FIELD!r}], not {fields}")
    signatures = make(f"{_PACKAGE}.SignatureDefMap", signature_def={SIGNATURE: signature_of(model)})
    url = f"type.googleapis.com/{_PACKAGE}.SignatureDefMap"
    packed = {"type_url": url, "value": signatures.SerializeToString()}
    spec = {"name": model.name, "version": {"value": int(model.version)}}
    return make(f"{_PACKAGE}.GetModelMetadataResponse", model_spec=spec, metadata={_ONLY_FIELD: packed})


def _status(models: Models, request: Any) -> Message:
    spec = request.model_spec
    models.find_spec(spec)
    statuses = [version_status_of(one) for one in models.versions(spec.name, version_in(spec))]
    return make(f"{_PACKAGE}.GetModelStatusResponse", model_version_status=statuses)
