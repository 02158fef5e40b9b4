"""Tensors of the Open Inference Protocol V2: checks, splits and joins them along the first axis.

Values stay text (JSON, flat or nested like the shape) or bytes (the binary tensor extension). Counting commas
finds the end of a JSON row: a row of n values has n - 1 commas, however it is nested.
"""

import math
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from uncork_dispatcher.wording import plural
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits
from uncork_gateway.protocols.raw_json import SPACE, Malformed, without_strings
from uncork_workers.wire.tensors import BYTES, LAYOUTS, LENGTH_BYTES, MAX_AXES

_MOST_ROWS = 2**63 - 1
DataForm = Literal["flat", "nested", "binary"]

DATATYPES = (*LAYOUTS, BYTES)
TF_TYPES = {
    "BOOL": "DT_BOOL",
    **{f"{kind}INT{bits}": f"DT_{kind}INT{bits}" for kind in ("", "U") for bits in (8, 16, 32, 64)},
    "FP16": "DT_HALF",
    "BF16": "DT_BFLOAT16",
    "FP32": "DT_FLOAT",
    "FP64": "DT_DOUBLE",
    "BYTES": "DT_STRING",
}
"""TensorFlow's name of each datatype."""
FLOATS = frozenset({"FP16", "BF16", "FP32", "FP64"})
_ITEM_BYTES = {datatype: np.dtype(layout).itemsize for datatype, layout in LAYOUTS.items()}

_EMPTY_LIST = re.compile(rb"\[[ \t\r\n]*\]")
# The characters of numbers, true, false, null, NaN and Infinity. A list without them is brackets and commas.
_SCALARS = b"0123456789+-.eEtrufalsnNIiy" + SPACE


def malformed(tensor: str, text: str) -> Malformed:
    return Malformed(f"tensor {tensor!r}: {text}")


class Tensor(msgspec.Struct, frozen=True):
    """A named tensor.

    Attributes:
        shape: at most ``MAX_AXES`` lengths of 0 or more; the first is the number of rows.
        form: the format of ``data``.
        data: the bytes of a binary tensor; or the text of a JSON list without its outermost brackets.
        parameters: raw JSON by name, without ``binary_data_size``.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    form: DataForm
    data: bytes
    parameters: dict[str, bytes] = {}


def check_kind(name: str, datatype: str, shape: Sequence[int]) -> None:
    """Check a tensor's datatype and shape.

    Raises:
        Malformed: if either is invalid.
    """
    if datatype not in DATATYPES:
        raise malformed(name, f"datatype must be one of {', '.join(DATATYPES)}, got {datatype!r}")
    if len(shape) > MAX_AXES:
        raise malformed(name, f"shape must have at most {MAX_AXES} axes, got {len(shape)}")
    for length in shape:
        if not 0 <= length <= _MOST_ROWS:
            raise malformed(name, f"lengths in shape must be from 0 to {_MOST_ROWS}, got {length}")


class TensorSpec(NamedTuple):
    """A tensor's name, datatype, and the shape of one row, in which -1 is any length."""

    name: str
    datatype: str
    shape: tuple[int, ...]


def check_values(tensor: Tensor, limits: Limits = DEFAULT_LIMITS) -> Limits:
    """Check that the values match the shape in number, and are flat or nested like the shape.

    Return the limits for the other tensors of the request.

    Raises:
        Malformed: if they do not match.
        TooMany: if a binary tensor has more texts than the limit, with those counted before.
    """
    wanted = math.prod(tensor.shape)
    unit = "value"
    if tensor.form == "nested":
        _check_nested(tensor)
        return limits
    if tensor.form == "flat":
        text = _scalars_only(tensor)
        if b"[" in text:
            raise malformed(tensor.name, "the data mixes nested lists and values")
        got = text.count(b",") + 1 if text else 0
    elif tensor.datatype == BYTES:
        limits = limits.after(min(wanted, len(tensor.data) // LENGTH_BYTES))
        got = len(element_ends(tensor))
    else:
        wanted *= _ITEM_BYTES[tensor.datatype]
        got, unit = len(tensor.data), "byte"
    if got != wanted:
        raise malformed(
            tensor.name,
            f"shape {list(tensor.shape)} of {tensor.datatype} needs {plural(wanted, unit)}, got {got}",
        )
    return limits


def split_rows(tensor: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """Split a checked tensor along its first axis into pieces of ``counts`` rows, each 1 or more."""
    inner = tensor.shape[1:]
    return [
        msgspec.structs.replace(tensor, shape=(count, *inner), data=piece)
        for count, piece in zip(counts, _pieces(tensor, counts), strict=True)
    ]


def pick_rows(tensor: Tensor, groups: Sequence[Sequence[int]]) -> list[Tensor]:
    """Return, for each group of row numbers, a tensor with these rows of a checked tensor, in their order."""
    rows = _pieces(tensor, [1] * tensor.shape[0])
    separator = b"" if tensor.form == "binary" else b","
    return [
        msgspec.structs.replace(
            tensor,
            shape=(len(group), *tensor.shape[1:]),
            data=separator.join([rows[number] for number in group]),
        )
        for group in groups
    ]


def _pieces(tensor: Tensor, counts: Sequence[int]) -> list[bytes]:
    inner, stops = tensor.shape[1:], list(accumulate(counts))
    if tensor.form == "binary":
        return _blocks(tensor, stops, math.prod(inner))
    width = leaves(inner) if tensor.form == "nested" else math.prod(inner)
    return between_commas(tensor.data, stops, width)


def cut_rows(tensors: Sequence[Tensor], rows: int, most_rows: int) -> list[tuple[int, list[Tensor]]]:
    """Split tensors into parts of at most ``most_rows`` rows; return each with its number of rows."""
    whole, rest = divmod(rows, most_rows)
    counts = [most_rows] * whole + [rest] * (rest > 0)
    pieces = zip(*[split_rows(tensor, counts) for tensor in tensors], strict=True)
    return [(count, list(piece)) for count, piece in zip(counts, pieces, strict=True)]


def concatenate(tensors: Sequence[Tensor]) -> Tensor:
    """Join tensors of one datatype, inner shape and form along the first axis."""
    first = tensors[0]
    separator = b"" if first.form == "binary" else b","
    return msgspec.structs.replace(
        first,
        shape=(sum([tensor.shape[0] for tensor in tensors]), *first.shape[1:]),
        data=separator.join([tensor.data for tensor in tensors if tensor.data]),
    )


def leaves(shape: Sequence[int]) -> int:
    """Return the number of values, or innermost empty lists, in a shape; n are separated by n - 1 commas."""
    return math.prod(shape[: shape.index(0)] if 0 in shape else shape)


def between_commas(text: bytes, stops: Sequence[int], width: int) -> list[bytes]:
    """Split the text of a JSON list after each row number in ``stops``; a row has ``width`` values."""
    if width == 0:
        return [b""] * len(stops)
    marks = np.frombuffer(without_strings(text), np.uint8)
    commas = np.flatnonzero(marks == ord(","))
    ends = commas[np.array(stops[:-1], np.intp) * width - 1].tolist()
    starts = [0, *[end + 1 for end in ends]]
    return [text[start:end] for start, end in zip(starts, [*ends, len(text)], strict=True)]


def element_ends(tensor: Tensor) -> list[int]:
    """Return the end offsets of the elements of a binary BYTES tensor (each a four-byte length, then data).

    Raises:
        Malformed: if the last element is cut short.
    """
    data, at = tensor.data, 0
    ends: list[int] = []
    most = math.prod(tensor.shape)
    while at < len(data) and len(ends) <= most:
        at += LENGTH_BYTES + int.from_bytes(data[at : at + LENGTH_BYTES], "little")
        ends.append(at)
    if at > len(data):
        raise malformed(tensor.name, "the last element of BYTES is incomplete")
    return ends


def elements(tensor: Tensor) -> list[bytes]:
    """Return the elements of a binary BYTES tensor; raises as :func:`element_ends`."""
    ends = element_ends(tensor)
    return [tensor.data[start + LENGTH_BYTES : end] for start, end in zip([0, *ends], ends, strict=False)]


def _blocks(tensor: Tensor, stops: Sequence[int], width: int) -> list[bytes]:
    if tensor.datatype == "BYTES":
        every_end = [0, *element_ends(tensor)]
        ends = [every_end[stop * width] for stop in stops]
    else:
        ends = [stop * width * _ITEM_BYTES[tensor.datatype] for stop in stops]
    return [tensor.data[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _check_nested(tensor: Tensor) -> None:
    if not _is_nested_like(_scalars_only(tensor), tensor.shape):
        raise malformed(
            tensor.name,
            f"the data must be nested like its shape {list(tensor.shape)}, or be one flat list",
        )


def _is_nested_like(text: bytes, shape: tuple[int, ...]) -> bool:
    # Commas are compared first, so that the brackets built from the shape are no larger than the data.
    if len(shape) < 2 or text.count(b",") + 1 != leaves(shape):
        return False
    # So are brackets: an axis of length 1 has no commas.
    if text.count(b"[") != sum(math.prod(shape[:axis]) for axis in range(1, _nested_axes(shape))):
        return False
    brackets = _brackets(shape)
    if 0 in shape:
        return text.translate(None, SPACE) == brackets
    return text.translate(None, _SCALARS) == brackets and not _EMPTY_LIST.search(text)


def _nested_axes(shape: Sequence[int]) -> int:
    """Return how many axes are written as lists: none below an axis of length 0."""
    return shape.index(0) + 1 if 0 in shape else len(shape)


def _brackets(shape: Sequence[int]) -> bytes:
    """Return the brackets and commas of nested lists of this shape, such as ``[,,],[,,]`` for (2, 3)."""
    length, *inner = shape
    return b",".join([b"[%b]" % _brackets(inner) if inner else b""] * length)


def _scalars_only(tensor: Tensor) -> bytes:
    text = without_strings(tensor.data)
    if b"{" in text:
        raise malformed(tensor.name, "values must be numbers, strings, true or false, got an object")
    return text
