"""The dialect of the Open Inference Protocol V2."""

from collections.abc import Sequence

from msgspec.structs import replace

from uncork_gateway.codecs import Marshalled
from uncork_gateway.dialects.base import JSON, HandlerResult, Reply
from uncork_gateway.dialects.tensors import (
    TensorDialect,
    check_parameters,
    chosen,
    output_tensors,
    path_in_inputs,
    refuse_classification,
)
from uncork_gateway.errors import BadRequest, GatewayError
from uncork_gateway.headers import JSON_LENGTH, Header, header_lines
from uncork_gateway.protocols.raw_json import quoted, written
from uncork_gateway.protocols.rows import error_body
from uncork_gateway.protocols.tensors import Tensor
from uncork_gateway.protocols.v2 import InferRequest, parse_request
from uncork_gateway.protocols.v2_message import write
from uncork_gateway.protocols.wire import Content, Unmergeable
from uncork_workers.wire.forms import Wanted
from uncork_workers.wire.messages import RowPath


class V2(TensorDialect):
    """Reads rows from one input tensor, or from one tensor for each field of a row."""

    def keep(self, headers: Sequence[Header], target: bytes) -> tuple[Header, ...]:
        return tuple((JSON_LENGTH, value) for name, value in headers if name.lower() == JSON_LENGTH)

    def read(self, body: bytes, headers: tuple[Header, ...]) -> Marshalled:
        """Read rows from the only input, or one object per row with a value from each input."""
        try:
            request = parse_request(Content(body, headers), self.codec.limits)
        except Unmergeable as error:
            raise BadRequest(str(error)) from None
        refuse_classification(request.classified)
        marshalled = self.inputs.marshal(request.inputs, self.codec)
        raw: Wanted = "tensors" if any(request.wanted.values() or [request.binary]) else ""
        parameters = written(request.parameters) if request.parameters else b""
        check_parameters(parameters, marshalled.rows)
        return replace(marshalled, note=request, raw=raw, locate=_in_inputs, parameters=parameters)

    def write(self, reply: HandlerResult, asked: Marshalled, *, batch_id: str) -> Reply:
        """Return results as output tensors: the outputs that the request names, or all."""
        request: InferRequest = asked.note
        outputs = output_tensors(reply, rows=asked.rows, binary=request.wants_binary)
        self.saw(outputs)
        outputs = chosen(outputs, request.wanted)
        members = {"model_name": quoted(self.model), "model_version": quoted(self.version)}
        content = write(members, request.id, b"outputs", outputs)
        return header_lines(content.headers), content.body

    def error(self, error: GatewayError, request_id: bytes = b"") -> Reply:
        return JSON, error_body(str(error))


def _in_inputs(asked: Marshalled, place: RowPath) -> str:
    return path_in_inputs(asked.note.inputs, place, values=_values)


def _values(tensor: Tensor) -> Sequence[str]:
    return () if tensor.form == "binary" else ("data",)
