"""Conversion between tensors and JSON rows, for services of our own."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from uncork_gateway.protocols.tensors import (
    LAYOUTS,
    MAX_AXES,
    SPACE,
    DataForm,
    Malformed,
    Tensor,
    between_commas,
    check_values,
    elements,
    leaves,
    malformed,
    prefixed,
    without_strings,
)
from uncork_workers.wire.messages import ListForm, TensorForm

OUTPUT = "output-0"
"""The name of the only tensor of results that are not objects."""

_INFERRED = ("BOOL", "INT64", "UINT64", "FP64", "BYTES")
_texts_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_strings_decoder = msgspec.json.Decoder(list[str])
_objects_decoder = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def json_rows(tensor: Tensor) -> list[bytes]:
    """Return each row of a checked tensor as one JSON text, nested by the inner shape.

    JSON values keep their text. Binary NaN and infinity become null, as JSON cannot express them.

    Raises:
        Malformed: if there are no values, or an element of BYTES is not UTF-8.
    """
    rows, *inner = tensor.shape
    count = math.prod(tensor.shape)
    if count and not tensor.data:
        raise Malformed(f"tensor {tensor.name!r} has no values")
    if tensor.form == "binary":
        return [msgspec.json.encode(row) for row in _array(tensor).tolist()]
    if tensor.form == "nested":
        return [row.strip(SPACE) for row in between_commas(tensor.data, range(1, rows + 1), leaves(inner))]
    # Cut into innermost lists, not into single values: there may be very many.
    width = inner.pop() if inner else 1
    lists = rows * math.prod(inner)
    texts = between_commas(tensor.data, range(1, lists + 1), width) if lists else []
    if len(tensor.shape) == 1:
        return [text.strip(SPACE) for text in texts]
    texts = [b"[%b]" % text for text in texts]
    while inner:
        length = inner.pop()
        lists = rows * math.prod(inner)
        texts = [b"[%b]" % b",".join(texts[at * length : (at + 1) * length]) for at in range(lists)]
    return texts


def output_tensor(body: bytes, form: TensorForm | ListForm, *, rows: int, binary: bool) -> Tensor:
    """Return the output tensor of results that are an array.

    Args:
        body: the worker's rows. Numbers and booleans already have the form that the client wants.
        form: how they are written.
        rows: how many there are.
        binary: whether the client wants binary data; workers send strings as JSON either way.
    """
    tensor = Tensor(name=OUTPUT, datatype=form.datatype, shape=(rows, *form.shape), form="binary", data=body)
    if isinstance(form, TensorForm):
        return tensor
    values = _flattened(body, tensor.shape)
    if binary:
        strings = _strings_decoder.decode(b"[%b]" % values)
        return msgspec.structs.replace(tensor, data=prefixed([string.encode() for string in strings]))
    return msgspec.structs.replace(tensor, form="flat", data=values)


def tensors_from_rows(rows: Sequence[bytes], *, binary: Callable[[str], bool]) -> list[Tensor]:
    """Return output tensors for the JSON texts of results, one or more.

    Numbers, booleans, strings and lists of one shape become one tensor, :data:`OUTPUT`; objects with the same
    keys become a tensor for each key; anything else becomes BYTES of the JSON texts. A tensor has the first
    datatype of BOOL, INT64, UINT64, FP64 and BYTES that holds its values. null is NaN in binary floats.

    Args:
        rows: the results.
        binary: whether the client wants the tensor of a name in binary.
    """
    columns = columns_of(rows) or {OUTPUT: list(rows)}
    return [_output(name, texts, binary(name)) for name, texts in columns.items()]


def columns_of(rows: Sequence[bytes]) -> dict[str, list[bytes]] | None:
    """Return a list of values for each key of objects with the same keys; None for anything else."""
    try:
        objects = _objects_decoder.decode(b"[%b]" % b",".join(rows))
    except msgspec.ValidationError:
        return None
    names = objects[0].keys()
    if any(row.keys() != names for row in objects):
        return None
    return {name: [bytes(row[name]) for row in objects] for name in names}


def row_texts(rows: bytes) -> list[bytes]:
    """Split JSON texts that are joined by commas."""
    return [bytes(text) for text in _texts_decoder.decode(b"[%b]" % rows)]


def _array(tensor: Tensor) -> npt.NDArray[Any]:
    if tensor.datatype == "BYTES":
        try:
            strings = [element.decode() for element in elements(tensor)]
        except UnicodeDecodeError as error:
            raise malformed(tensor.name, f"an element of BYTES is not valid UTF-8: {error}") from error
        return np.array(strings, dtype=object).reshape(tensor.shape)
    values: npt.NDArray[Any] = np.frombuffer(tensor.data, LAYOUTS[tensor.datatype])
    if tensor.datatype == "BF16":
        values = (values.astype("<u4") << 16).view("<f4")
    return values.reshape(tensor.shape)


def _output(name: str, texts: Sequence[bytes], binary: bool) -> Tensor:
    try:
        return _regular(name, texts, binary)
    except (Malformed, msgspec.ValidationError, OverflowError):
        # Not one shape, not one kind, or a number that no datatype holds.
        data = prefixed(texts) if binary else msgspec.json.encode([text.decode() for text in texts])[1:-1]
        form: DataForm = "binary" if binary else "flat"
        return Tensor(name=name, datatype="BYTES", shape=(len(texts),), form=form, data=data)


def _regular(name: str, texts: Sequence[bytes], binary: bool) -> Tensor:
    """Return a tensor of the values themselves.

    Raises:
        Malformed: if they are not of one shape and kind.
        msgspec.ValidationError, OverflowError: if a number is too large.
    """
    data = b",".join(texts)
    values: list[Any] = msgspec.json.decode(b"[%b]" % data)
    shape = _shape(values)
    form: DataForm = "nested" if len(shape) > 1 else "flat"
    tensor = Tensor(name=name, datatype="", shape=shape, form=form, data=data)
    check_values(tensor)
    for _ in shape[1:]:
        values = list(chain.from_iterable(values))
    datatype = _datatype(name, values)
    if binary:
        return msgspec.structs.replace(
            tensor, datatype=datatype, form="binary", data=_encoded(values, datatype)
        )
    return msgspec.structs.replace(tensor, datatype=datatype, form="flat", data=_flattened(data, shape))


def _shape(values: list[Any]) -> tuple[int, ...]:
    """Return the shape that the first elements have."""
    shape: list[int] = []
    first: Any = values
    while isinstance(first, list):
        shape.append(len(first))
        first = first[0] if first else None
    if len(shape) > MAX_AXES:
        raise Malformed(f"{len(shape)} axes are more than {MAX_AXES}")
    return tuple(shape)


def _datatype(name: str, values: Sequence[Any]) -> str:
    if not values:
        return "FP64"
    kinds = set(map(type, values))
    for datatype in _INFERRED:
        if _holds(datatype, kinds, values):
            return datatype
    raise Malformed(f"tensor {name!r}: values of different kinds")


def _holds(datatype: str, kinds: set[type], values: Sequence[Any]) -> bool:
    if datatype == "BYTES":
        return kinds == {str}
    if datatype == "BOOL":
        return kinds == {bool}
    if datatype == "FP64":
        return kinds <= {int, float, type(None)}
    limits = np.iinfo(LAYOUTS[datatype])
    return kinds == {int} and limits.min <= min(values) and max(values) <= limits.max


def _flattened(text: bytes, shape: Sequence[int]) -> bytes:
    """Return values without the lists around them."""
    if 0 in shape:
        return b""
    if b'"' not in text:
        return text.translate(None, b"[]")
    marks = np.frombuffer(without_strings(text), np.uint8)
    kept: bytes = np.frombuffer(text, np.uint8)[(marks != ord("[")) & (marks != ord("]"))].tobytes()
    return kept


def _encoded(values: Iterable[Any], datatype: str) -> bytes:
    if datatype == "BYTES":
        return prefixed([value.encode() for value in values])
    if datatype == "FP64":
        values = [math.nan if value is None else float(value) for value in values]
    return np.array(values, LAYOUTS[datatype]).tobytes()
