"""Models of gRPC model servers, as Triton and TensorFlow Serving answer, and what their clients send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.gateway.grpc.bodies import (
    InferParameter,
    InferRequest,
    InferResponse,
    Named,
    PredictRequest,
    PredictResponse,
    infer_request,
    infer_response,
    predict_request,
    predict_response,
    protos_of,
    tensors_of,
)
from tests.gateway.grpc.proxy.fake_grpc_server import Call, Reply, ok
from uncork_gateway.grpc.statuses import Code

INFER = "/inference.GRPCInferenceService/ModelInfer"
PREDICT = "/tensorflow.serving.PredictionService/Predict"
BAD = -1.0


def column(rows: Sequence[float]) -> Named:
    return Named("x", "FP32", np.array(rows, "<f4")[:, np.newaxis])


def infer(*rows: float, model: str = "m", request_id: str = "", **parameters: str) -> bytes:
    """Return a ModelInferRequest, whose rows have one value each."""
    named = {name: InferParameter(string_param=value) for name, value in parameters.items()}
    request = infer_request(column(rows), model_name=model, id=request_id, parameters=named)
    return bytes(request.SerializeToString())


def inferred(data: bytes) -> list[float]:
    response = InferResponse.FromString(data)
    return values([*tensors_of(response.outputs, response.raw_output_contents)])


def answer_id(data: bytes) -> str:
    text: str = InferResponse.FromString(data).id
    return text


def predict(*rows: float) -> bytes:
    """Return a PredictRequest as ``tf.make_tensor_proto`` fills it."""
    return bytes(predict_request(column(rows)).SerializeToString())


def predicted(data: bytes) -> list[float]:
    return values(protos_of(PredictResponse.FromString(data).outputs))


def values(tensors: list[Named]) -> list[float]:
    """Return the values of the only tensor, which has one column."""
    [tensor] = tensors
    assert tensor.array.shape[1:] == (1,)
    return [float(value) for value in tensor.array.ravel()]


def doubles(call: Call) -> Reply:
    """Double every row, by either method. A row that is ``BAD`` fails the whole call."""
    if not call.messages:
        return Reply()  # The message was over the limit.
    request, inputs = request_of(call)
    y = Named("y", "FP32", inputs[0].array * 2)
    if call.path == PREDICT:
        return ok(predict_response(y, model_spec=request.model_spec).SerializeToString())
    if BAD in inputs[0].array:
        return Reply(code=Code.INVALID_ARGUMENT, text=f"[request id: {request.id}] a bad row")
    fields = {"model_name": request.model_name, "model_version": "3", "id": request.id}
    return ok(infer_response(y, **fields).SerializeToString())


def request_of(call: Call) -> tuple[Any, list[Named]]:
    """Return the request of a call, and its inputs."""
    if call.path == PREDICT:
        request = PredictRequest.FromString(call.body)
        return request, protos_of(request.inputs)
    request = InferRequest.FromString(call.body)
    return request, tensors_of(request.inputs, request.raw_input_contents)


def rows_of(call: Call) -> int:
    return len(values_of(call))


def values_of(call: Call) -> list[float]:
    return values(request_of(call)[1])
