"""Converts between tensors and JSON rows, for our own services."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from uncork_gateway.protocols.raw_json import NULL, SPACE, Malformed, objects, without_strings
from uncork_gateway.protocols.tensors import (
    Tensor,
    TensorSpec,
    between_commas,
    elements,
    leaves,
    malformed,
)
from uncork_workers.wire.forms import ColumnsForm, ListForm, RowsForm, TensorForm
from uncork_workers.wire.tensors import BYTES, LAYOUTS, encoded, infer, split_columns, text_of, widened

OUTPUT = "output-0"
"""The name of the only tensor of results that are not objects."""

_texts_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_objects_decoder = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def json_rows(tensor: Tensor) -> list[bytes]:
    """Return each row of a checked tensor as one JSON text, nested by the inner shape.

    JSON values keep their text. Binary NaN and infinity become null, because JSON cannot express them.

    Raises:
        Malformed: if there are no values, or an element of BYTES is not UTF-8.
    """
    rows, *inner = tensor.shape
    count = math.prod(tensor.shape)
    if count and not tensor.data:
        raise Malformed(f"tensor {tensor.name!r} has no values")
    if tensor.form == "binary":
        if len(inner) < 2:  # as values, which make one list for each row at most
            values, width = _values(tensor), math.prod(inner)
            each = [values[at * width : (at + 1) * width] for at in range(rows)] if inner else values
            return [msgspec.json.encode(row) for row in each]
        tensor = _as_wanted(tensor, binary=False)
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
        if inner[-1] == 1:  # many such axes cost no more than one
            wrapped = 1
            while inner[-wrapped - 1 : -wrapped] == [1]:
                wrapped += 1
            del inner[-wrapped:]
            texts = [b"[" * wrapped + text + b"]" * wrapped for text in texts]
            continue
        length = inner.pop()
        lists = rows * math.prod(inner)
        texts = [b"[%b]" % b",".join(texts[at * length : (at + 1) * length]) for at in range(lists)]
    return texts


def json_objects(tensors: Sequence[Tensor]) -> list[bytes]:
    """Return each row of checked tensors as a JSON object, with a value from each tensor."""
    rows = list(zip(*[json_rows(tensor) for tensor in tensors], strict=True))
    return objects([tensor.name for tensor in tensors], rows)


def values_of(tensor: Tensor) -> bytes:
    """Return the bytes of a binary tensor, or the values of a checked JSON tensor without lists around them.

    Raises:
        Malformed: if there are no values.
    """
    if tensor.form == "binary":
        return tensor.data
    if not tensor.data and 0 not in tensor.shape:
        raise Malformed(f"tensor {tensor.name!r} has no values")
    return tensor.data if tensor.form == "flat" else _flattened(tensor.data, tensor.shape)


def output_tensors(body: bytes, form: RowsForm, *, rows: int, binary: Callable[[str], bool]) -> list[Tensor]:
    """Return results as output tensors, in the types that the worker gives.

    Objects with the same keys become a tensor for each key; other results become one tensor, :data:`OUTPUT`.
    Values without a type get the first datatype of BOOL, INT64, UINT64, FP64 and BYTES that holds them.
    Values of several kinds or shapes become BYTES, an element for each row: text unchanged, a missing value
    empty, and any other value as JSON.

    Args:
        body: the worker's results.
        form: the format of ``body``.
        rows: the number of rows.
        binary: returns True if the client wants the named tensor in binary.
    """
    return [_as_wanted(tensor, binary(tensor.name)) for tensor in _tensors(body, form, rows)]


def output_specs(body: bytes, form: RowsForm) -> tuple[TensorSpec, ...]:
    """Return the names, datatypes and row shapes of the output tensors of one or more results."""
    match form:
        case TensorForm(datatype, shape) | ListForm(datatype, shape):
            return (TensorSpec(OUTPUT, datatype, shape),)
        case ColumnsForm(columns):
            return tuple([TensorSpec(name, each.datatype, each.shape) for name, each in columns])
    tensors = _tensors(body, form, 0)
    return tuple([TensorSpec(tensor.name, tensor.datatype, tensor.shape[1:]) for tensor in tensors])


def result_rows(body: bytes, form: RowsForm, rows: int) -> list[bytes]:
    """Return each row of results as JSON."""
    match form:
        case TensorForm():
            return json_rows(_typed(OUTPUT, form, rows, body))
        case ColumnsForm():
            return json_objects(_tensors(body, form, rows))
    return row_texts(body)


def _tensors(body: bytes, form: RowsForm, rows: int) -> list[Tensor]:
    match form:
        case TensorForm() | ListForm():
            return [_typed(OUTPUT, form, rows, body)]
        case ColumnsForm(columns):
            parts = split_columns(body)
            return [_typed(*column, rows, data) for column, data in zip(columns, parts, strict=True)]
    texts = row_texts(body)
    by_name = columns_of(texts) or {OUTPUT: texts}
    forms = {} if form is None else dict(form.columns)
    return [
        _typed(name, forms[name], len(values), b",".join(values))
        if name in forms
        else _inferred(name, values)
        for name, values in by_name.items()
    ]


def _typed(name: str, form: TensorForm | ListForm, rows: int, data: bytes) -> Tensor:
    shape = (rows, *form.shape)
    if isinstance(form, TensorForm):
        return Tensor(name=name, datatype=form.datatype, shape=shape, form="binary", data=data)
    data = _flattened(data, shape)
    return Tensor(name=name, datatype=form.datatype, shape=shape, form="flat", data=data)


def _as_wanted(tensor: Tensor, binary: bool) -> Tensor:
    """Return a tensor as binary, or as a flat JSON list."""
    if binary == (tensor.form == "binary"):
        return tensor
    if binary:
        values = msgspec.json.decode(b"[%b]" % tensor.data)
        values = [math.nan if value is None else value for value in values]
        return msgspec.structs.replace(tensor, form="binary", data=encoded(values, tensor.datatype))
    return msgspec.structs.replace(tensor, form="flat", data=msgspec.json.encode(_values(tensor))[1:-1])


def columns_of(rows: Sequence[bytes]) -> dict[str, list[bytes]] | None:
    """Return a list of values for each key, if all rows are objects with the same keys; else None."""
    try:
        objects = _objects_decoder.decode(b"[%b]" % b",".join(rows))
    except msgspec.ValidationError:
        return None
    names = objects[0].keys()
    if any(row.keys() != names for row in objects):
        return None
    return {name: [bytes(row[name]) for row in objects] for name in names}


def row_texts(rows: bytes) -> list[bytes]:
    """Return each row of results, which are JSON texts joined by commas."""
    return [bytes(text) for text in _texts_decoder.decode(b"[%b]" % rows)]


def _values(tensor: Tensor) -> list[Any]:
    """Return the values of a binary tensor, without lists: axes of length 1 would make many."""
    if tensor.datatype == "BYTES":
        try:
            return [element.decode() for element in elements(tensor)]
        except UnicodeDecodeError as error:
            raise malformed(tensor.name, f"an element of BYTES is not valid UTF-8: {error}") from error
    values = np.frombuffer(tensor.data, LAYOUTS[tensor.datatype])
    if tensor.datatype == "BF16":
        values = widened(values)
    listed: list[Any] = values.tolist()
    return listed


def _inferred(name: str, texts: Sequence[bytes]) -> Tensor:
    data = b",".join(texts)
    try:
        inferred = infer(msgspec.json.decode(b"[%b]" % data))
    except (msgspec.ValidationError, RecursionError):  # a number that no datatype holds
        inferred = None
    if inferred is None:
        data = msgspec.json.encode(list(map(_as_text, texts)))[1:-1]
        return Tensor(name=name, datatype=BYTES, shape=(len(texts),), form="flat", data=data)
    datatype, shape, values = inferred
    data = msgspec.json.encode(values)[1:-1] if datatype == BYTES else _flattened(data, shape)
    return Tensor(name=name, datatype=datatype, shape=shape, form="flat", data=data)


def _as_text(text: bytes) -> str:
    """Return the BYTES element for a JSON value of any kind."""
    if text.startswith(b'"') or text == NULL:
        return text_of(msgspec.json.decode(text))
    return text.decode()


def _flattened(text: bytes, shape: Sequence[int]) -> bytes:
    """Return the values of nested lists of a shape, without the lists around them."""
    if 0 in shape:
        return b""
    if b'"' not in text:
        return text.translate(None, b"[]")
    marks = np.frombuffer(without_strings(text), np.uint8)
    kept: bytes = np.frombuffer(text, np.uint8)[(marks != ord("[")) & (marks != ord("]"))].tobytes()
    return kept
