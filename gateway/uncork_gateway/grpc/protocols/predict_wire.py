"""Merges Predict requests for one call to a TensorFlow Serving server, and splits the reply."""

from typing import Any

from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.protocols.predict import (
    METHOD,
    VALUE_FIELDS,
    add_tensors,
    read_request,
    read_tensors,
)
from uncork_gateway.grpc.protocols.tensor_wire import Parsed, TensorWire, rest_of, with_rest
from uncork_gateway.protocols.tensors import Tensor


class PredictWire(TensorWire):
    """Merged requests have ``tensor_content`` even if clients sent typed fields; replies stay unchanged."""

    method = METHOD
    request = message("tensorflow.serving.PredictRequest")
    response = message("tensorflow.serving.PredictResponse")

    def model_of(self, message: Any) -> str:
        name: str = message.model_spec.name
        return name

    def read_request(self, message: Any) -> Parsed:
        inputs = _with_rests(read_request(message).inputs, message.inputs)
        return Parsed(rest=rest_of(message, "inputs"), tensors=inputs, typed=False)

    def read_reply(self, message: Any) -> Parsed:
        outputs = read_tensors(message.outputs)
        typed = not any(message.outputs[output.name].tensor_content for output in outputs)
        outputs = _with_rests(outputs, message.outputs)
        return Parsed(rest=rest_of(message, "outputs"), tensors=outputs, typed=typed)

    def fill(self, message: Any, parsed: Parsed) -> None:
        tensors = message.inputs if isinstance(message, self.request) else message.outputs
        add_tensors(tensors, parsed.tensors, typed=parsed.typed)


def _with_rests(tensors: list[Tensor], protos: Any) -> list[Tensor]:
    return [
        with_rest(
            tensor,
            rest_of(
                protos[tensor.name], "dtype", "tensor_shape", "tensor_content", VALUE_FIELDS[tensor.datatype]
            ),
        )
        for tensor in tensors
    ]
