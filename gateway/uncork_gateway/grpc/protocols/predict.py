"""TensorFlow Serving's Predict: reads and writes its messages, and merges requests for one call."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from uncork_dispatcher.wording import plural
from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.protocols.tensor_wire import Parsed, TensorWire, rest_of, with_rests
from uncork_gateway.grpc.protocols.values import TensorsAsked, add_rest, add_values, read_values
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits
from uncork_gateway.protocols.tensors import (
    TF_TYPES,
    Tensor,
    check_kind,
    check_values,
    malformed,
)
from uncork_gateway.protocols.v2 import rows_of
from uncork_gateway.protocols.wire import Unmergeable

METHOD = b"/tensorflow.serving.PredictionService/Predict"
VALUE_FIELDS = {
    "BOOL": "bool_val",
    **dict.fromkeys(("INT8", "INT16", "INT32", "UINT8", "UINT16"), "int_val"),
    "INT64": "int64_val",
    "UINT32": "uint32_val",
    "UINT64": "uint64_val",
    "FP16": "half_val",
    "BF16": "half_val",
    "FP32": "float_val",
    "FP64": "double_val",
    "BYTES": "string_val",
}
"""The field of TensorProto that has the values of each datatype."""
_TENSOR = ("dtype", "tensor_shape", "tensor_content", *set(VALUE_FIELDS.values()))
_NUMBERS = message("tensorflow.TensorProto").DESCRIPTOR.fields_by_name["dtype"].enum_type.values_by_name
_DATATYPES = {_NUMBERS[name].number: datatype for datatype, name in TF_TYPES.items()}
# The last value stands for all that are missing. Without a limit, a small message could fill the memory.
_MOST_REPEATED_BYTES = 2**20


def read_request(request: Any, limits: Limits = DEFAULT_LIMITS) -> TensorsAsked:
    """Read a PredictRequest.

    Raises:
        Malformed: if the request contradicts itself.
        Unmergeable: if there are no rows, the inputs differ in their number of rows, or the type or encoding
            of a tensor is not supported.
        TooMany: if the rows or values exceed the limits.
    """
    limits.check_rows(len(request.inputs))
    inputs = read_tensors(request.inputs, limits)
    return TensorsAsked(inputs, rows_of(inputs, limits), list(dict.fromkeys(request.output_filter)))


def read_tensors(tensors: Mapping[str, Any], limits: Limits = DEFAULT_LIMITS) -> list[Tensor]:
    """Read the named tensors of a request or a response, and convert them to binary.

    Raises:
        Malformed: if a tensor is invalid, or its data does not match it.
        Unmergeable: if the type or encoding of a tensor is not supported.
        TooMany: if the values in typed fields exceed the limits.
    """
    left_bytes = _MOST_REPEATED_BYTES
    read = []
    for name in sorted(tensors):
        limits = limits.after(_count_values(tensors[name]))
        tensor, repeated_bytes = _read_tensor(name, tensors[name], left_bytes)
        left_bytes -= repeated_bytes
        read.append(tensor)
    return read


def add_tensors(added: Any, tensors: Iterable[Tensor], *, typed: bool) -> None:
    """Write binary tensors into the map of a request or a response.

    Args:
        added: the message's map of tensors.
        tensors: the tensors.
        typed: True to write numbers into typed fields, False to write bytes.
    """
    for tensor in tensors:
        proto = added[tensor.name]
        add_rest(proto, tensor)
        proto.dtype = _NUMBERS[TF_TYPES[tensor.datatype]].number
        proto.tensor_shape.SetInParent()  # a scalar has a shape, too
        for length in tensor.shape:
            proto.tensor_shape.dim.add(size=length)
        if typed or tensor.datatype == "BYTES":
            add_values(proto, VALUE_FIELDS[tensor.datatype], tensor)
        else:
            proto.tensor_content = tensor.data


def _count_values(proto: Any) -> int:
    return max(
        [len(values) for field, values in proto.ListFields() if field.name.endswith("_val")], default=0
    )


def _read_tensor(name: str, proto: Any, left_bytes: int) -> tuple[Tensor, int]:
    """Return a tensor, and the number of its bytes that repeat the last value."""
    datatype = _datatype(name, proto)
    if proto.tensor_shape.unknown_rank:
        raise malformed(name, "its shape must be known, got unknown_rank")
    shape = tuple([dim.size for dim in proto.tensor_shape.dim])
    check_kind(name, datatype, shape)
    field = VALUE_FIELDS[datatype]
    for each, _ in proto.ListFields():
        if each.name.endswith("_val") and each.name != field:
            raise malformed(name, f"values of {TF_TYPES[datatype]} must be in {field}, got {each.name}")
    tensor = Tensor(name, datatype, shape, "binary", proto.tensor_content)
    values = getattr(proto, field)
    if not tensor.data:
        return _with_values(tensor, values, left_bytes)
    if values:
        raise malformed(name, f"it has both tensor_content and {field}; send only one")
    if datatype == "BYTES":
        raise Unmergeable(f"tensor {name!r}: strings must be in string_val, got tensor_content")
    check_values(tensor)
    return tensor, 0


def _with_values(tensor: Tensor, values: Sequence[Any], left_bytes: int) -> tuple[Tensor, int]:
    wanted, given = math.prod(tensor.shape), len(values)
    if given > wanted or (wanted and not given):
        raise Unmergeable(
            f"tensor {tensor.name!r}: shape {list(tensor.shape)} of {TF_TYPES[tensor.datatype]} needs "
            f"{plural(wanted, 'value')} in {VALUE_FIELDS[tensor.datatype]}, or fewer, of which the last one "
            f"is repeated, got {given}"
        )
    data = read_values(tensor.name, tensor.datatype, values)
    if given == wanted:
        return msgspec.structs.replace(tensor, data=data), 0
    last = read_values(tensor.name, tensor.datatype, values[-1:])
    repeated_bytes = (wanted - given) * len(last)
    if repeated_bytes > left_bytes:
        raise Unmergeable(
            f"tensor {tensor.name!r}: the last value may be repeated to at most {_MOST_REPEATED_BYTES} bytes "
            f"in all tensors; send all {plural(wanted, 'value')}"
        )
    return msgspec.structs.replace(tensor, data=data + last * (wanted - given)), repeated_bytes


def _datatype(name: str, proto: Any) -> str:
    datatype = _DATATYPES.get(proto.dtype)
    if datatype is None:
        value = type(proto).DESCRIPTOR.fields_by_name["dtype"].enum_type.values_by_number.get(proto.dtype)
        got = str(proto.dtype) if value is None else value.name
        raise Unmergeable(f"tensor {name!r}: dtype must be one of {', '.join(TF_TYPES.values())}, got {got}")
    return datatype


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
    return with_rests(tensors, [protos[tensor.name] for tensor in tensors], _TENSOR)
