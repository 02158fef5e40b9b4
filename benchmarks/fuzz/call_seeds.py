"""Valid calls over gRPC, of every method, to services with every kind of input that it has."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from google.protobuf.message import Message

from benchmarks.fuzz.seeds import PIXELS, WINE, CallSeed, Example
from uncork_gateway.grpc.messages import make, message

_INFERENCE = b"/inference.GRPCInferenceService/"
_TENSORFLOW = b"/tensorflow.serving."
_HEALTH = b"/grpc.health.v1.Health/"
_REFLECTION = "grpc.reflection.{}.ServerReflection"
_FLOAT, _DOUBLE = 1, 2
"""TensorFlow's numbers of datatypes."""


def digits() -> Example[CallSeed]:
    """Arrays: raw, typed, and of TensorFlow."""
    rows = np.array([PIXELS, PIXELS[::-1]])
    raw = _infer("digits", id="1", raw_input_contents=[rows.astype("<f4").tobytes()])
    raw.inputs.add(name="x", datatype="FP32", shape=[2, 64])
    typed = _infer("digits.predict_proba", model_version="1")
    typed.inputs.add(name="x", datatype="FP64", shape=[1, 64]).contents.fp64_contents.extend(PIXELS)
    typed.outputs.add(name="output-0")
    halves = _infer("digits", raw_input_contents=[rows.astype("<f2").tobytes()])
    halves.inputs.add(name="x", datatype="FP16", shape=[2, 64])
    small = _infer("digits")
    small.inputs.add(name="x", datatype="INT8", shape=[64]).contents.int_contents.extend(range(64))
    content = _predict("digits", x={"dtype": _FLOAT, "tensor_content": rows.astype("<f4").tobytes()})
    _set_shape(content.inputs["x"], 2, 64)
    values = _predict("digits", x={"dtype": _DOUBLE, "double_val": [3.0, 4.0]})
    _set_shape(values.inputs["x"], 1, 64)
    return Example(
        "examples/digits/service.py:Digits",
        (
            *_infers(raw, typed, halves, small),
            CallSeed(_TENSORFLOW + b"PredictionService/Predict", (content,)),
            CallSeed(_TENSORFLOW + b"PredictionService/Predict", (values,)),
            *_others("digits"),
        ),
    )


def wine() -> Example[CallSeed]:
    """Tables: a tensor for each column."""
    columns = _infer("wine", parameters={"x": {"string_param": "y"}})
    table = _predict("wine")
    for name, value in WINE.items():
        columns.inputs.add(name=name, datatype="FP64", shape=[1]).contents.fp64_contents.append(value)
        table.inputs[name].dtype = _DOUBLE
        table.inputs[name].double_val.append(value)
        _set_shape(table.inputs[name], 1)
    return Example(
        "examples/wine/service.py:Wine",
        (
            *_infers(columns),
            CallSeed(_TENSORFLOW + b"PredictionService/Predict", (table,)),
            *_others("wine"),
        ),
    )


def streams() -> Example[CallSeed]:
    """Any JSON; answers come in pieces."""
    numbers = _infer(
        "streams", id="1", parameters={"triton_enable_empty_final_response": {"bool_param": True}}
    )
    numbers.inputs.add(name="x", datatype="INT64", shape=[1, 3]).contents.int64_contents.extend((7, 8, 9))
    text = _infer("streams.count", raw_input_contents=[b"\x07\0\0\0[1, 2]"])
    text.inputs.add(name="x", datatype="BYTES", shape=[1])
    return Example(
        "tests/e2e/services/streams.py:Streams",
        (*reversed(_infers(numbers, text)), *_others("streams")),
    )


CALL_EXAMPLES: Mapping[str, Callable[[], Example[CallSeed]]] = {
    "digits": digits,
    "wine": wine,
    "streams": streams,
}


def _infer(model: str, **fields: Any) -> Any:
    return make("inference.ModelInferRequest", model_name=model, **fields)


def _predict(model: str, **inputs: Mapping[str, Any]) -> Any:
    request: Any = make("tensorflow.serving.PredictRequest", model_spec={"name": model})
    for name, fields in inputs.items():
        request.inputs[name].MergeFrom(make("tensorflow.TensorProto", **fields))
    return request


def _set_shape(tensor: Any, *sizes: int) -> None:
    for size in sizes:
        tensor.tensor_shape.dim.add(size=size)


def _infers(*requests: Message) -> list[CallSeed]:
    """Return each request in a unary call, and all of them in a stream."""
    unary = [CallSeed(_INFERENCE + b"ModelInfer", (request,)) for request in requests]
    return [*unary, CallSeed(_INFERENCE + b"ModelStreamInfer", requests)]


def _others(model: str) -> list[CallSeed]:
    """Return the calls that are not batched."""
    asked: dict[str, dict[str, Any]] = {
        "ModelReady": {"name": model}, "ModelMetadata": {"name": model, "version": "1"}, "ServerLive": {},
        "ModelConfig": {"name": model}, "ModelStatistics": {"name": model}, "ServerReady": {},
        "ServerMetadata": {}, "RepositoryIndex": {"ready": True},
    }  # fmt: skip
    spec = make("tensorflow.serving.ModelSpec", name=model)
    metadata = make(
        "tensorflow.serving.GetModelMetadataRequest", model_spec=spec, metadata_field=["signature_def"]
    )
    status = make("tensorflow.serving.GetModelStatusRequest", model_spec=spec)
    health = make("grpc.health.v1.HealthCheckRequest", service=model)
    return [
        *(
            CallSeed(_INFERENCE + name.encode(), (make(f"inference.{name}Request", **fields),))
            for name, fields in asked.items()
        ),
        CallSeed(_TENSORFLOW + b"PredictionService/GetModelMetadata", (metadata,)),
        CallSeed(_TENSORFLOW + b"ModelService/GetModelStatus", (status,)),
        CallSeed(_HEALTH + b"Check", (health,)),
        CallSeed(_HEALTH + b"Watch", (health,), ends=False),
        *(_reflection(version) for version in ("v1", "v1alpha")),
    ]


def _reflection(version: str) -> CallSeed:
    service = _REFLECTION.format(version)
    request = message(f"{service}Request")
    extension = {"containing_type": "inference.ModelInferRequest", "extension_number": 7}
    questions = (
        request(list_services="", host="fuzz"),
        request(file_by_filename="grpc_service.proto"),
        request(file_containing_symbol="inference.GRPCInferenceService.ModelInfer"),
        request(file_containing_extension=extension),
        request(all_extension_numbers_of_type="inference.ModelInferRequest"),
    )
    return CallSeed(f"/{service}/ServerReflectionInfo".encode(), questions)
