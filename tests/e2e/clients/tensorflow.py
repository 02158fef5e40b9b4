"""Calls of TensorFlow Serving's Predict over gRPC."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.loops import HANG_S
from uncork_gateway.grpc.messages import message

_Request, _Response = (message(f"tensorflow.serving.Predict{kind}") for kind in ("Request", "Response"))
_DTYPES = {"float32": 1, "object": 7, "int64": 9}


def predict(channel: Any, model: str, inputs: dict[str, Any], **options: Any) -> Any:
    """Call Predict with arrays of float32, int64 or texts, and return the call, or its response."""
    request = _Request()
    request.model_spec.name = model
    for name, values in inputs.items():
        array, tensor = np.asarray(values), request.inputs[name]
        tensor.dtype = _DTYPES[array.dtype.name]
        for length in array.shape:
            tensor.tensor_shape.dim.add(size=length)
        if array.dtype == object:
            tensor.string_val.extend(text.encode() for text in array)
        else:
            tensor.tensor_content = array.tobytes()
    method = channel.unary_unary(
        "/tensorflow.serving.PredictionService/Predict",
        request_serializer=_Request.SerializeToString,
        response_deserializer=_Response.FromString,
    )
    return method(request, timeout=HANG_S, **options)
