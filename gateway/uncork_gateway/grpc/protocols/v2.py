"""ModelInfer of the Open Inference Protocol V2: reads and writes its messages, and merges requests."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from uncork_dispatcher.wording import plural
from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.protocols.tensor_wire import Parsed, TensorWire, rest_of, with_rests
from uncork_gateway.grpc.protocols.values import TensorsAsked, add_rest, add_values, read_values
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits
from uncork_gateway.protocols.raw_json import Malformed
from uncork_gateway.protocols.tensors import Tensor, check_kind, check_values, malformed
from uncork_gateway.protocols.v2 import (
    BINARY_OUTPUT,
    CLASSIFICATION,
    refuse_sequence,
    refuse_shared_memory,
    rows_of,
)

WANTS_FINAL = "triton_enable_empty_final_response"
"""The parameter of clients that want an empty response at the end of a stream."""
_OF_PROTOCOL = (BINARY_OUTPUT, WANTS_FINAL)
_TENSOR = ("name", "datatype", "shape", "contents")

METHOD = b"/inference.GRPCInferenceService/ModelInfer"

CONTENTS = {
    "BOOL": "bool_contents",
    **{f"INT{bits}": "int_contents" for bits in (8, 16, 32)},
    "INT64": "int64_contents",
    **{f"UINT{bits}": "uint_contents" for bits in (8, 16, 32)},
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""The fields of InferTensorContents by datatype. Halves have none: they must be raw."""


def read_request(request: Any, limits: Limits = DEFAULT_LIMITS) -> TensorsAsked:
    """Read a ModelInferRequest.

    Raises:
        Malformed: if the request contradicts itself.
        Unmergeable: if the request belongs to a sequence, uses shared memory, has no rows, or its inputs
            differ in their number of rows.
        TooMany: if the rows or values exceed the limits.
    """
    limits.check_rows(max(len(request.inputs), len(request.outputs)))
    refuse_sequence(request.parameters)
    for tensor in (*request.inputs, *request.outputs):
        refuse_shared_memory(tensor.name, tensor.parameters)
    raw = request.raw_input_contents
    inputs = read_tensors(request.inputs, raw, "raw_input_contents", limits)
    wanted = list(dict.fromkeys([output.name for output in request.outputs]))
    classified = [output.name for output in request.outputs if _classifies(output.parameters)]
    parameters = _json_of(request.parameters) if request.parameters else b""
    rows = rows_of(inputs, limits)
    return TensorsAsked(inputs, rows, wanted, request.id, not raw, classified, parameters)


def read_tensors(
    described: Sequence[Any], raw: Sequence[bytes], raw_name: str, limits: Limits = DEFAULT_LIMITS
) -> list[Tensor]:
    """Read the tensors of a request or a response, and convert them to binary.

    Args:
        described: the message's tensors.
        raw: the raw data of the tensors, if it is separate.
        raw_name: the name of the field that ``raw`` comes from, for errors.
        limits: the limits on values.

    Raises:
        Malformed: if a tensor is invalid, or its data does not match it.
        TooMany: if the values in typed fields exceed the limits.
    """
    if raw and len(raw) != len(described):
        names = ", ".join(repr(each.name) for each in described) or "none"
        raise Malformed(
            f"{raw_name} must have an element for each tensor ({names}), got {plural(len(raw), 'element')}"
        )
    tensors = []
    for at, each in enumerate(described):
        shape = tuple(each.shape)
        check_kind(each.name, each.datatype, shape)
        data = _raw_data(each, raw[at], raw_name) if raw else _typed_data(each, raw_name, limits)
        tensor = Tensor(each.name, each.datatype, shape, "binary", data)
        limits = check_values(tensor, limits) if raw else limits.after(math.prod(shape))
        tensors.append(tensor)
    return tensors


def add_tensors(described: Any, raw: Any, tensors: Iterable[Tensor], *, typed: bool) -> None:
    """Write binary tensors into the fields of a request or a response.

    A message is all raw or all typed, so all become raw if a tensor's datatype has no typed field.
    """
    tensors = list(tensors)
    typed = typed and all(tensor.datatype in CONTENTS for tensor in tensors)
    for tensor in tensors:
        added = described.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        add_rest(added, tensor)
        if typed:
            add_values(added.contents, CONTENTS[tensor.datatype], tensor)
        else:
            raw.append(tensor.data)


def _raw_data(described: Any, data: bytes, raw_name: str) -> bytes:
    if described.contents.ListFields():
        raise malformed(described.name, f"it has both contents and {raw_name}; send only one")
    return data


def _typed_data(described: Any, raw_name: str, limits: Limits) -> bytes:
    name, datatype = described.name, described.datatype
    field = CONTENTS.get(datatype)
    if field is None:
        raise malformed(name, f"{datatype} has no typed contents; send it in {raw_name}")
    for each, _ in described.contents.ListFields():
        if each.name != field:
            raise malformed(name, f"values of {datatype} must be in {field}, got {each.name}")
    values = getattr(described.contents, field)
    limits.check_values(len(values))
    wanted = math.prod(described.shape)
    if len(values) != wanted:
        raise malformed(
            name,
            f"shape {list(described.shape)} of {datatype} needs {plural(wanted, 'value')} in {field}, or "
            f"{raw_name}, got {len(values)}",
        )
    return read_values(name, datatype, values)


def _json_of(parameters: Mapping[str, Any]) -> bytes:
    values = {name: _value_of(each) for name, each in parameters.items() if name not in _OF_PROTOCOL}
    return msgspec.json.encode(values) if values else b""


def _value_of(parameter: Any) -> Any:
    kind = parameter.WhichOneof("parameter_choice")
    value = getattr(parameter, kind) if kind else None
    if isinstance(value, float) and not math.isfinite(value):
        return msgspec.Raw(json.dumps(value).encode())  # msgspec would write null
    return value


def _classifies(parameters: Any) -> bool:
    if CLASSIFICATION not in parameters:  # reading a map adds what is missing
        return False
    classes = parameters[CLASSIFICATION]
    return bool(getattr(classes, classes.WhichOneof("parameter_choice") or "int64_param"))


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
        inputs = with_rests(request.inputs, message.inputs, _TENSOR)
        rest = rest_of(message, "id", "inputs", "raw_input_contents")
        return Parsed(id=request.id, rest=rest, tensors=inputs, typed=request.typed)

    def read_reply(self, message: Any) -> Parsed:
        raw = message.raw_output_contents
        outputs = read_tensors(message.outputs, raw, "raw_output_contents")
        outputs, typed = with_rests(outputs, message.outputs, _TENSOR), not raw
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
