"""Merges ModelInfer requests for one call to a model server, and splits the reply."""

from typing import Any

from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.protocols.tensor_wire import Parsed, TensorWire, rest_of, with_rest
from uncork_gateway.grpc.protocols.v2 import METHOD, add_tensors, read_request, read_tensors
from uncork_gateway.protocols.tensors import Tensor

_TENSOR = ("name", "datatype", "shape", "contents")


class V2GrpcWire(TensorWire):
    """``ModelInfer`` of the Open Inference Protocol.

    Requests with raw and with typed values never share a call, because model servers reply in the form of the
    request.
    """

    method = METHOD
    request = message("inference.ModelInferRequest")
    response = message("inference.ModelInferResponse")

    def model_of(self, message: Any) -> str:
        name: str = message.model_name
        return name

    def read_request(self, message: Any) -> Parsed:
        request = read_request(message)
        inputs = _with_rests(request.inputs, message.inputs)
        rest = rest_of(message, "id", "inputs", "raw_input_contents")
        return Parsed(id=request.id, rest=rest, tensors=inputs, typed=request.typed)

    def read_reply(self, message: Any) -> Parsed:
        raw = message.raw_output_contents
        outputs = read_tensors(message.outputs, raw, "raw_output_contents")
        outputs, typed = _with_rests(outputs, message.outputs), not raw
        return Parsed(
            rest=rest_of(message, "id", "outputs", "raw_output_contents"), tensors=outputs, typed=typed
        )

    def fill(self, message: Any, parsed: Parsed) -> None:
        message.id = parsed.id
        if isinstance(message, self.request):
            described, raw = message.inputs, message.raw_input_contents
        else:
            described, raw = message.outputs, message.raw_output_contents
        add_tensors(described, raw, parsed.tensors, typed=parsed.typed)


def _with_rests(tensors: list[Tensor], described: Any) -> list[Tensor]:
    return [
        with_rest(tensor, rest_of(each, *_TENSOR)) for tensor, each in zip(tensors, described, strict=True)
    ]
