"""The dialect of Predict, the gRPC method of TensorFlow Serving."""

from typing import Any

from msgspec.structs import replace

from uncork_gateway.codecs import Marshalled
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.dialects.rest import SIGNATURE, check_signature
from uncork_gateway.dialects.tensors import (
    TensorDialect,
    chosen,
    output_tensors,
    without_values,
)
from uncork_gateway.errors import BadRequest
from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.protocols.predict import add_tensors, read_request
from uncork_gateway.grpc.protocols.values import TensorsAsked
from uncork_gateway.protocols.tensors import Tensor
from uncork_gateway.protocols.wire import Unmergeable
from uncork_workers.wire.messages import RowPath, json_path


class Predict(TensorDialect):
    """Reads rows from named tensors, and shares batches with all other protocols.

    Responses have numbers in the fields of their type, as TensorFlow Serving's do: clients read
    ``float_val``, even those that send ``tensor_content``.
    """

    def read(self, request: Any) -> Marshalled:
        """Read a PredictRequest; raise BadRequest if it is malformed, or needs an unsupported feature."""
        check_signature(request.model_spec.signature_name)
        try:
            asked = read_request(request, self.codec.limits)
        except Unmergeable as error:
            raise BadRequest(str(error)) from None
        marshalled = self.inputs.marshal(asked.inputs, self.codec)
        asked = asked._replace(inputs=without_values(asked.inputs))
        return replace(marshalled, note=asked, raw="tensors", locate=_in_inputs)

    def write(self, result: HandlerResult, asked: Marshalled) -> tuple[bytes, bytes]:
        """Return a serialized PredictResponse and empty bytes; only the requested outputs, if any are named.

        Raises:
            GatewayError: if tensors cannot express the result, or a requested output does not exist.
        """
        request: TensorsAsked = asked.note
        outputs = output_tensors(result, rows=asked.rows, binary=lambda output: True)
        self.saw(outputs)
        response = message("tensorflow.serving.PredictResponse")()
        spec = response.model_spec
        spec.name, spec.version.value, spec.signature_name = self.model, int(self.version), SIGNATURE
        add_tensors(response.outputs, chosen(outputs, request.wanted), typed=True)
        serialized: bytes = response.SerializeToString()
        return serialized, b""


def _in_inputs(asked: Marshalled, place: RowPath) -> str:
    """Return the path of a row or value in the ``inputs`` map."""
    inputs: list[Tensor] = asked.note.inputs
    names = [tensor.name for tensor in inputs]
    name = names[0] if len(names) == 1 else next(iter(place.path), None)
    path = json_path("inputs", str(name)) if name in names else json_path("inputs")
    return f"row {place.row + 1} of {path}"
