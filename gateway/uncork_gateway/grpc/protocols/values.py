"""Tensors in gRPC messages: what a request asks, and values in repeated fields."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from uncork_gateway.protocols.tensors import Tensor, elements, malformed
from uncork_workers.wire.tensors import LAYOUTS, prefixed

# Fields that hold these have the widths and bytes of binary tensors.
_PACKED = frozenset({"FP32", "FP64"})
# Messages hold halves as the integers of their bits.
_BITS = {"FP16": "<u2", "BF16": "<u2"}
# Of the narrowest integers that fields have.
_FIELD_BYTES = 4
REST = "rest"
"""The name of a tensor's parameter that has its message's other fields, serialized."""


class TensorsAsked(NamedTuple):
    """A parsed request.

    Attributes:
        inputs: the input tensors, all binary.
        rows: the length of the first axis of every input.
        wanted: the names of requested outputs; empty for all.
        id: the client's id for the request; empty if it has none.
        typed: True if values are in typed fields instead of raw bytes.
        classified: the outputs whose top classes the client wants (Triton's classification).
        parameters: the parameters as a JSON object; empty if there are none.
    """

    inputs: list[Tensor]
    rows: int
    wanted: list[str]
    id: str = ""
    typed: bool = True
    classified: Sequence[str] = ()
    parameters: bytes = b""


def read_values(tensor: str, datatype: str, values: Sequence[Any]) -> bytes:
    """Return the values of a repeated field as the data of a binary tensor.

    Raises:
        Malformed: if the datatype cannot hold a value.
    """
    if datatype == "BYTES":
        return prefixed(values)
    layout = np.dtype(_BITS.get(datatype, LAYOUTS[datatype]))
    if layout.kind not in "iu" or layout.itemsize >= _FIELD_BYTES:
        return np.array(values, layout).tobytes()
    integers, limits = np.array(values, "<i8"), np.iinfo(layout)
    wrong = integers[(integers < limits.min) | (integers > limits.max)]
    if wrong.size:
        raise malformed(
            tensor, f"values of {datatype} must be from {limits.min} to {limits.max}, got {wrong[0]}"
        )
    return integers.astype(layout).tobytes()


def add_values(message: Any, field: str, tensor: Tensor) -> None:
    """Append the values of a binary tensor to a repeated field of a message."""
    if tensor.datatype in _PACKED:
        # A hundred times as fast as numbers of Python.
        number = message.DESCRIPTOR.fields_by_name[field].number
        message.MergeFromString(_packed(number, tensor.data))
    elif tensor.datatype == "BYTES":
        getattr(message, field).extend(elements(tensor))
    else:
        layout = _BITS.get(tensor.datatype, LAYOUTS[tensor.datatype])
        getattr(message, field).extend(np.frombuffer(tensor.data, layout).tolist())


def add_rest(message: Any, tensor: Tensor) -> None:
    """Add a message's other fields for a tensor, which :func:`with_rests` has attached."""
    if tensor.parameters:
        message.MergeFromString(tensor.parameters[REST])


def _packed(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(number: int) -> bytes:
    """Return a non-negative number as a protobuf varint."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])
