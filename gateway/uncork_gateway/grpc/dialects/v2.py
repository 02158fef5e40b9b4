"""The dialect of ModelInfer, the gRPC method of the Open Inference Protocol V2."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from uncork_gateway.codecs import Marshalled
from uncork_gateway.dialects.base import HandlerResult, require_rows
from uncork_gateway.dialects.tensors import (
    TensorDialect,
    check_parameters,
    chosen,
    output_tensors,
    path_in_inputs,
    refuse_classification,
    without_values,
)
from uncork_gateway.errors import BadRequest
from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.protocols.v2 import CONTENTS, add_tensors, read_request
from uncork_gateway.grpc.protocols.values import TensorsAsked, varint
from uncork_gateway.protocols.tensor_rows import OUTPUT
from uncork_gateway.protocols.tensors import Tensor
from uncork_gateway.protocols.wire import Unmergeable
from uncork_workers.wire.forms import TensorForm
from uncork_workers.wire.messages import RowPath
from uncork_workers.wire.tensors import BYTES

_Response = message("inference.ModelInferResponse")
_ID, _RAW = b"\x1a", b"\x32"
"""The tags of ``id``, field 3, and ``raw_output_contents``, field 6."""
_MOST_DESCRIBED = 256


@dataclass(eq=False)
class V2Grpc(TensorDialect):
    """Reads rows from tensors like :class:`~uncork_gateway.dialects.v2.V2`, and shares batches with it.

    Requests with raw data get raw responses, others typed ones.
    """

    def __post_init__(self) -> None:
        response = _Response(model_name=self.model, model_version=self.version)
        self._start: bytes = response.SerializeToString()
        self._described: dict[tuple[TensorForm, int], bytes] = {}
        """The bytes before the values of the only output, by its format and number of rows."""

    def read(self, request: Any) -> Marshalled:
        """Read a ModelInferRequest; raise BadRequest if it is malformed, or needs an unsupported feature."""
        try:
            asked = read_request(request, self.codec.limits)
        except Unmergeable as error:
            raise BadRequest(str(error)) from None
        refuse_classification(asked.classified)
        marshalled = self.inputs.marshal(asked.inputs, self.codec)
        asked = asked._replace(inputs=without_values(asked.inputs))
        parameters = asked.parameters
        check_parameters(parameters, marshalled.rows)
        return replace(marshalled, note=asked, raw="tensors", locate=_in_inputs, parameters=parameters)

    def write(self, result: HandlerResult, asked: Marshalled) -> tuple[bytes, bytes]:
        """Return a serialized ModelInferResponse in two parts; the second may be the worker's bytes.

        It has only the requested outputs, if the request names any.

        Raises:
            GatewayError: if tensors cannot express the result, or a requested output does not exist.
        """
        require_rows(result)
        request: TensorsAsked = asked.note
        form = result.form
        # The size of BYTES differs between responses of one form.
        if isinstance(form, TensorForm) and form.datatype != BYTES and not (request.typed or request.wanted):
            return self._raw(result.body, form, asked.rows, request.id)
        outputs = output_tensors(result, rows=asked.rows, binary=lambda output: True)
        self.saw(outputs)
        response = _Response(model_name=self.model, model_version=self.version, id=request.id)
        outputs = chosen(outputs, request.wanted)
        add_tensors(response.outputs, response.raw_output_contents, outputs, typed=request.typed)
        serialized: bytes = response.SerializeToString()
        return serialized, b""

    def _raw(self, body: bytes, form: TensorForm, rows: int, request_id: str) -> tuple[bytes, bytes]:
        """Return a response whose data is the worker's bytes. The rest is cached: most responses share it."""
        described = self._described.get((form, rows)) or self._describe(form, rows, len(body))
        start = self._start
        if request_id:
            encoded = request_id.encode()
            start = b"%b%b%b%b" % (start, _ID, varint(len(encoded)), encoded)
        return start + described, body

    def _describe(self, form: TensorForm, rows: int, size: int) -> bytes:
        shape = (rows, *form.shape)
        output = Tensor(name=OUTPUT, datatype=form.datatype, shape=shape, form="binary", data=b"")
        self.saw([output])
        response = _Response()
        add_tensors(response.outputs, [], [output], typed=False)
        described: bytes = response.SerializeToString() + _RAW + varint(size)
        if len(self._described) >= _MOST_DESCRIBED:
            self._described.clear()
        self._described[form, rows] = described
        return described


def _in_inputs(asked: Marshalled, place: RowPath) -> str:
    request: TensorsAsked = asked.note
    return path_in_inputs(request.inputs, place, values=_contents if request.typed else lambda tensor: ())


def _contents(tensor: Tensor) -> Sequence[str]:
    return "contents", CONTENTS[tensor.datatype]
