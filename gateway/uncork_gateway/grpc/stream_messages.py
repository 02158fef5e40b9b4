"""The response messages of ModelStreamInfer."""

from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.protocols.values import varint
from uncork_gateway.protocols.tensor_rows import OUTPUT
from uncork_workers.wire.tensors import prefixed

FINAL = "triton_final_response"

_Response = message("inference.ModelInferResponse")
_StreamResponse = message("inference.ModelStreamInferResponse")
_INFER_RESPONSE = b"\x12"
"""The tag of ``infer_response``, field 2."""


def of_answer(response: bytes, values: bytes = b"") -> bytes:
    """Return the message with a serialized ModelInferResponse; ``values`` is its second part, if any."""
    # Parsing and writing it again would copy its tensors twice.
    return b"%b%b%b%b" % (_INFER_RESPONSE, varint(len(response) + len(values)), response, values)


def of_piece(data: bytes | None, *, model: str, version: str, request_id: str) -> bytes:
    """Return the message with a piece of a streamed response, as a BYTES element; None marks the end."""
    response = _Response(model_name=model, model_version=version, id=request_id)
    response.parameters[FINAL].bool_param = data is None
    if data is not None:
        response.outputs.add(name=OUTPUT, datatype="BYTES", shape=[1])
        response.raw_output_contents.append(prefixed([data]))
    return of_answer(response.SerializeToString())


def of_error(text: str, *, request_id: str) -> bytes:
    """Return the message with an error instead of a response."""
    failed = _StreamResponse(error_message=text)
    failed.infer_response.id = request_id
    written: bytes = failed.SerializeToString()
    return written
