"""Scripts for the fake server: the answers of Triton and of TensorFlow Serving, by their sources.

Texts and codes are those of Triton's ``core`` (``infer_request.cc``, ``model_repository_manager.cc``,
``server.cc``) and of TensorFlow Serving (``basic_manager.cc``, ``predict_util.cc``,
``shared_batch_scheduler.h``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.gateway.grpc.proxy.fake_grpc_server import Call, Reply, ok
from tests.gateway.grpc.proxy.models import PREDICT
from uncork_gateway.grpc.messages import make, message
from uncork_gateway.grpc.statuses import Code

MODEL = "m"
WIDTH = 1

_InferRequest: Any = message("inference.ModelInferRequest")
_PredictRequest: Any = message("tensorflow.serving.PredictRequest")
_DT_FLOAT = 1


class Refused(Exception):
    """How the server ends a call."""

    def __init__(self, code: Code, text: str) -> None:
        self.reply = Reply(code=code, text=text)


@dataclass(kw_only=True)
class Triton:
    """A model ``m`` that doubles ``x``, FP32 of shape ``[WIDTH]``.

    Attributes:
        max_batch_size: 0 for a model without an axis for batches, whose requests have one row.
        ready: False while the server starts or ends.
    """

    max_batch_size: int = 4
    ready: bool = True

    def __call__(self, call: Call) -> Reply:
        try:
            return ok(self._infer(call.body).SerializeToString())
        except Refused as refused:
            return refused.reply

    def _infer(self, body: bytes) -> Any:
        request = _InferRequest.FromString(body)
        tag = f"[request id: {request.id or '<id_unknown>'}]"
        if not self.ready:
            raise Refused(Code.UNAVAILABLE, "Server not ready")
        if request.model_name != MODEL:
            text = f"Request for unknown model: '{request.model_name}' is not found"
            raise Refused(Code.NOT_FOUND, text)
        shape = list(request.inputs[0].shape)
        if self.max_batch_size and shape[0] > self.max_batch_size:
            text = f"{tag} inference request batch-size must be <= {self.max_batch_size} for '{MODEL}'"
            raise Refused(Code.INVALID_ARGUMENT, text)
        expected = [-1 if self.max_batch_size else 1, WIDTH]
        if shape[1:] != expected[1:] or expected[0] not in (-1, shape[0]):
            said, got = (",".join(map(str, each)) for each in (expected, shape))
            text = f"{tag} unexpected shape for input 'x' for model '{MODEL}'. Expected [{said}], got [{got}]"
            raise Refused(Code.INVALID_ARGUMENT, text)
        rows = np.frombuffer(request.raw_input_contents[0], "<f4").reshape(shape)
        return make(
            "inference.ModelInferResponse",
            model_name=MODEL,
            model_version="1",
            id=request.id,
            outputs=[{"name": "y", "datatype": "FP32", "shape": shape}],
            raw_output_contents=[(rows * 2).tobytes()],
        )


@dataclass(kw_only=True)
class TensorFlowServing:
    """A model ``m`` that doubles ``x``, floats of shape ``[-1, WIDTH]``.

    Attributes:
        max_batch_size: of its own batching.
        full: whether the queue of that is full.
    """

    max_batch_size: int = 4
    full: bool = False

    def __call__(self, call: Call) -> Reply:
        try:
            if call.path == PREDICT:
                return ok(self._predict(_PredictRequest.FromString(call.body)).SerializeToString())
        except Refused as refused:
            return refused.reply
        return Reply(code=Code.UNIMPLEMENTED, text="")

    def _predict(self, request: Any) -> Any:
        if request.model_spec.name != MODEL:
            text = f"Servable not found for request: Latest({request.model_spec.name})"
            raise Refused(Code.NOT_FOUND, text)
        tensor = request.inputs["x"]
        shape = [dim.size for dim in tensor.tensor_shape.dim]
        if shape[0] > self.max_batch_size:
            text = f"Task size {shape[0]} is larger than maximum input batch size {self.max_batch_size}"
            raise Refused(Code.INVALID_ARGUMENT, text)
        if self.full:
            text = "The batch scheduling queue to which this task was submitted is full"
            raise Refused(Code.UNAVAILABLE, text)
        if shape[1:] != [WIDTH]:
            got = ",".join(map(str, shape))
            text = f"Matrix size-incompatible: In[0]: [{got}], In[1]: [{WIDTH},1]"
            raise Refused(Code.INVALID_ARGUMENT, text + "\n\t [[{{node dense/MatMul}}]]")
        rows = list(tensor.float_val) or np.frombuffer(tensor.tensor_content, "<f4").tolist()
        output = {
            "dtype": _DT_FLOAT,
            "tensor_shape": tensor.tensor_shape,
            "float_val": [2 * value for value in rows],
        }
        spec = {"name": MODEL, "version": {"value": 3}, "signature_name": "serving_default"}
        return make("tensorflow.serving.PredictResponse", outputs={"y": output}, model_spec=spec)
