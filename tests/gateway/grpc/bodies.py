"""Messages of ModelInfer and Predict, written and read without the gateway's own code."""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from uncork_gateway.grpc.messages import message

InferRequest = message("inference.ModelInferRequest")
InferResponse = message("inference.ModelInferResponse")
PredictRequest = message("tensorflow.serving.PredictRequest")
PredictResponse = message("tensorflow.serving.PredictResponse")
# Maps take messages; dictionaries in their place need protobuf 6.30.
InferParameter = message("inference.InferParameter")
TensorProto = message("tensorflow.TensorProto")


class Kind(NamedTuple):
    """How messages have the values of a datatype; BF16 has the bits of its values."""

    layout: str
    contents: str | None
    dtype: str
    values: str


KINDS = {
    "BOOL": Kind("?", "bool_contents", "DT_BOOL", "bool_val"),
    "INT8": Kind("<i1", "int_contents", "DT_INT8", "int_val"),
    "INT16": Kind("<i2", "int_contents", "DT_INT16", "int_val"),
    "INT32": Kind("<i4", "int_contents", "DT_INT32", "int_val"),
    "INT64": Kind("<i8", "int64_contents", "DT_INT64", "int64_val"),
    "UINT8": Kind("<u1", "uint_contents", "DT_UINT8", "int_val"),
    "UINT16": Kind("<u2", "uint_contents", "DT_UINT16", "int_val"),
    "UINT32": Kind("<u4", "uint_contents", "DT_UINT32", "uint32_val"),
    "UINT64": Kind("<u8", "uint64_contents", "DT_UINT64", "uint64_val"),
    "FP16": Kind("<f2", None, "DT_HALF", "half_val"),
    "BF16": Kind("<u2", None, "DT_BFLOAT16", "half_val"),
    "FP32": Kind("<f4", "fp32_contents", "DT_FLOAT", "float_val"),
    "FP64": Kind("<f8", "fp64_contents", "DT_DOUBLE", "double_val"),
    "BYTES": Kind("O", "bytes_contents", "DT_STRING", "string_val"),
}


class Named(NamedTuple):
    """A tensor: an array of its layout, or of bytes."""

    name: str
    datatype: str
    array: Any

    @property
    def raw(self) -> bytes:
        """The data of the tensor as V2 has it in binary."""
        if self.datatype == "BYTES":
            return b"".join(struct.pack("<I", len(each)) + each for each in self.array.ravel())
        return bytes(self.array.tobytes())

    @property
    def values(self) -> list[Any]:
        """The values as fields have them: halves are the integers of their bits."""
        flat = self.array.ravel()
        return list((flat.view("<u2") if self.datatype in ("FP16", "BF16") else flat).tolist())


def floats(*values: float, name: str = "x") -> Named:
    """A tensor of FP32."""
    return Named(name, "FP32", np.array(values, "<f4"))


def infer_request(*inputs: Named, typed: bool = False, **fields: Any) -> Any:
    request = InferRequest(**{"model_name": "m", **fields})
    _add(request.inputs, request.raw_input_contents, inputs, typed)
    return request


def infer_response(*outputs: Named, typed: bool = False, **fields: Any) -> Any:
    response = InferResponse(**{"model_name": "m", "model_version": "1", **fields})
    _add(response.outputs, response.raw_output_contents, outputs, typed)
    return response


def _add(described: Any, raw: Any, tensors: Sequence[Named], typed: bool) -> None:
    for tensor in tensors:
        contents = KINDS[tensor.datatype].contents
        added = described.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.array.shape)
        if typed and contents is not None:
            getattr(added.contents, contents).extend(tensor.values)
        else:
            raw.append(tensor.raw)


def tensors_of(described: Any, raw: Any) -> list[Named]:
    return [
        Named(
            each.name,
            each.datatype,
            _from_raw(each.datatype, each.shape, raw[at])
            if raw
            else _from_values(
                each.datatype, each.shape, getattr(each.contents, KINDS[each.datatype].contents or "")
            ),
        )
        for at, each in enumerate(described)
    ]


def predict_request(*inputs: Named, typed: bool = False, **fields: Any) -> Any:
    inputs_by_name = {tensor.name: TensorProto(**proto(tensor, typed=typed)) for tensor in inputs}
    return PredictRequest(**{"model_spec": {"name": "m"}, **fields}, inputs=inputs_by_name)


def predict_response(*outputs: Named, typed: bool = True, **fields: Any) -> Any:
    outputs_by_name = {tensor.name: TensorProto(**proto(tensor, typed=typed)) for tensor in outputs}
    return PredictResponse(**{"model_spec": {"name": "m"}, **fields}, outputs=outputs_by_name)


def proto(tensor: Named, *, typed: bool) -> dict[str, Any]:
    kind = KINDS[tensor.datatype]
    shape = {"dim": [{"size": length} for length in tensor.array.shape]}
    fields = {"dtype": kind.dtype, "tensor_shape": shape}
    if typed or tensor.datatype == "BYTES":
        return {**fields, kind.values: tensor.values}
    return {**fields, "tensor_content": tensor.raw}


def protos_of(protos: Mapping[str, Any]) -> list[Named]:
    """The tensors of a PredictRequest or a PredictResponse, by name."""
    tensors = []
    for name in sorted(protos):
        one = protos[name]
        dtype = type(one).DESCRIPTOR.fields_by_name["dtype"].enum_type.values_by_number[one.dtype].name
        [datatype] = [each for each, kind in KINDS.items() if kind.dtype == dtype]
        shape = [dim.size for dim in one.tensor_shape.dim]
        if one.tensor_content:
            array = _from_raw(datatype, shape, one.tensor_content)
        else:
            array = _from_values(datatype, shape, getattr(one, KINDS[datatype].values))
        tensors.append(Named(name, datatype, array))
    return tensors


def same(one: Sequence[Named], other: Sequence[Named]) -> bool:
    """Whether tensors are equal, bit for bit."""
    return [(each.name, each.datatype, each.array.shape, each.raw) for each in one] == [
        (each.name, each.datatype, each.array.shape, each.raw) for each in other
    ]


def _from_raw(datatype: str, shape: Sequence[int], data: bytes) -> Any:
    if datatype != "BYTES":
        return np.frombuffer(data, KINDS[datatype].layout).reshape(shape)
    strings = []
    while data:
        [length] = struct.unpack("<I", data[:4])
        strings.append(data[4 : 4 + length])
        data = data[4 + length :]
    return np.array(strings, object).reshape(shape)


def _from_values(datatype: str, shape: Sequence[int], values: Sequence[Any]) -> Any:
    assert len(values) == math.prod(shape)
    if datatype in ("FP16", "BF16"):
        return np.array(values, "<u2").view(KINDS[datatype].layout).reshape(shape)
    return np.array(list(values), KINDS[datatype].layout).reshape(shape)


def arrays(datatype: str, shape: Sequence[int]) -> st.SearchStrategy[Any]:
    """Arrays of all values that a datatype has; bytes need not be UTF-8."""
    layout, size = KINDS[datatype].layout, math.prod(shape)
    if datatype == "BYTES":
        strings = st.lists(st.binary(max_size=4), min_size=size, max_size=size)
        return strings.map(lambda each: np.array([*each, None], object)[:-1].reshape(shape))
    # Bits, not numbers: a NaN keeps what it has.
    bits = hnp.arrays(np.uint8, size * np.dtype(layout).itemsize)
    if datatype == "BOOL":
        return hnp.arrays(np.bool_, tuple(shape))
    if datatype.startswith(("FP", "BF")):
        return hnp.arrays(np.dtype(layout), tuple(shape))
    return bits.map(lambda each: each.view(layout).reshape(shape))


@st.composite
def tensors(draw: st.DrawFn, *, name: str = "x", rows: int | None = None) -> Named:
    """A tensor of any datatype and shape."""
    datatype = draw(st.sampled_from(sorted(KINDS)))
    rows = draw(st.integers(1, 4)) if rows is None else rows
    inner = draw(st.lists(st.integers(1, 3), max_size=2))
    return Named(name, datatype, draw(arrays(datatype, [rows, *inner])))


@st.composite
def mergeable(draw: st.DrawFn) -> list[list[Named]]:
    """The inputs of requests that may share a call."""
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    requests: list[list[Named]] = [[] for _ in counts]
    for number in range(draw(st.integers(1, 3))):
        datatype = draw(st.sampled_from(sorted(KINDS)))
        inner = draw(st.lists(st.integers(1, 3), max_size=2))
        for inputs, rows in zip(requests, counts, strict=True):
            inputs.append(Named(f"input {number}", datatype, draw(arrays(datatype, [rows, *inner]))))
    return requests


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes of which some are changed, missing or too many."""
    damaged = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(damaged)))
        until = min(len(damaged), at + draw(st.integers(0, 3)))
        damaged[at:until] = draw(st.binary(max_size=3))
    return bytes(damaged)
