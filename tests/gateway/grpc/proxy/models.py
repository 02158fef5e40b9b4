"""Models of gRPC model servers, as Triton and TensorFlow Serving answer, and what their clients send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.gateway.grpc.proxy.fake_grpc_server import Call, Reply, ok
from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.statuses import Code

INFER = "/inference.GRPCInferenceService/ModelInfer"
PREDICT = "/tensorflow.serving.PredictionService/Predict"
BAD = -1.0

_ModelInferRequest: Any = message("inference.ModelInferRequest")
_ModelInferResponse: Any = message("inference.ModelInferResponse")
_PredictRequest: Any = message("tensorflow.serving.PredictRequest")
_PredictResponse: Any = message("tensorflow.serving.PredictResponse")
_FLOAT = 1


def rows_from(rows: Sequence[float], width: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.repeat(np.array(rows, "<f4")[:, np.newaxis], width, axis=1)


def infer(*rows: float, model: str = "m", width: int = 1, request_id: str = "", **parameters: str) -> bytes:
    """Return a ModelInferRequest, whose rows have the same value in every column."""
    request = _ModelInferRequest(model_name=model, id=request_id)
    request.inputs.add(name="x", datatype="FP32", shape=[len(rows), width])
    request.raw_input_contents.append(rows_from(rows, width).tobytes())
    for name, value in parameters.items():
        request.parameters[name].string_param = value
    data: bytes = request.SerializeToString()
    return data


def inferred(data: bytes) -> list[float]:
    response = _ModelInferResponse.FromString(data)
    values: list[float] = np.frombuffer(response.raw_output_contents[0], "<f4").tolist()
    assert list(response.outputs[0].shape) == [len(values), 1]
    return values


def answer_id(data: bytes) -> str:
    text: str = _ModelInferResponse.FromString(data).id
    return text


def predict(*rows: float, model: str = "m", width: int = 1) -> bytes:
    """Return a PredictRequest as ``tf.make_tensor_proto`` fills it."""
    request = _PredictRequest()
    request.model_spec.name = model
    tensor = request.inputs["x"]
    tensor.dtype = _FLOAT
    for size in (len(rows), width):
        tensor.tensor_shape.dim.add(size=size)
    tensor.tensor_content = rows_from(rows, width).tobytes()
    data: bytes = request.SerializeToString()
    return data


def predicted(data: bytes) -> list[float]:
    tensor = _PredictResponse.FromString(data).outputs["y"]
    values = list(tensor.float_val) or np.frombuffer(tensor.tensor_content, "<f4").tolist()
    assert [dim.size for dim in tensor.tensor_shape.dim] == [len(values), 1]
    return [float(value) for value in values]


def doubles(call: Call) -> Reply:
    """Double every row, by either method. A row that is ``BAD`` fails the whole call."""
    if not call.messages:
        return Reply()  # The message was over the limit.
    if call.path == PREDICT:
        return _double_predicted(call.body)
    request = _ModelInferRequest.FromString(call.body)
    rows = np.frombuffer(request.raw_input_contents[0], "<f4")
    if BAD in rows:
        return Reply(code=Code.INVALID_ARGUMENT, text=f"[request id: {request.id}] a bad row")
    response = _ModelInferResponse(model_name=request.model_name, model_version="3", id=request.id)
    response.outputs.add(name="y", datatype="FP32", shape=[len(rows), 1])
    response.raw_output_contents.append((rows * 2).tobytes())
    return ok(response.SerializeToString())


def _double_predicted(body: bytes) -> Reply:
    request = _PredictRequest.FromString(body)
    tensor = request.inputs["x"]
    rows = list(tensor.float_val) or np.frombuffer(tensor.tensor_content, "<f4").tolist()
    response = _PredictResponse(model_spec=request.model_spec)
    output = response.outputs["y"]
    output.dtype = _FLOAT
    output.tensor_shape.CopyFrom(tensor.tensor_shape)
    output.float_val.extend([row * 2 for row in rows])
    return ok(response.SerializeToString())


def rows_of(call: Call) -> int:
    if call.path == PREDICT:
        size: int = _PredictRequest.FromString(call.body).inputs["x"].tensor_shape.dim[0].size
        return size
    rows: int = _ModelInferRequest.FromString(call.body).inputs[0].shape[0]
    return rows


def values_of(call: Call) -> list[float]:
    values: list[float] = np.frombuffer(
        _ModelInferRequest.FromString(call.body).raw_input_contents[0], "<f4"
    ).tolist()
    return values
