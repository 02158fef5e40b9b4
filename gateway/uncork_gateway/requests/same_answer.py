"""Compares two responses to one request."""

from math import isclose
from typing import Any

import msgspec
import numpy as np

from uncork_gateway.dialects.base import HandlerResult
from uncork_workers.wire.messages import ListForm, RecordsForm, TensorForm

_RELATIVE = 1e-6
# Comparing longer answers would block the event loop for too long.
_MOST_COMPARED_BYTES = 2**20
_FLOATS = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}


def same_answer(one: HandlerResult, other: HandlerResult) -> bool | None:
    """Return True if two results have equal content; None if that is unknown.

    Numbers are equal if they differ by at most a millionth, because library versions differ in the order of
    additions. Results over 1 MiB, and results that are not rows, are only compared byte by byte.
    """
    if (one.status, one.content_type) != (other.status, other.content_type):
        return False
    if (one.body, one.form) == (other.body, other.form):
        return True
    if one.content_type or max(len(one.body), len(other.body)) > _MOST_COMPARED_BYTES:
        return None
    match one.form, other.form:
        case TensorForm(), TensorForm():
            return one.form == other.form and _same_tensors(one, other)
        case (ListForm(), ListForm()) | (RecordsForm(), RecordsForm()):
            return one.form == other.form and _same_json(b"[%b]" % one.body, b"[%b]" % other.body)
        case None, None:
            return _same_json(one.body, other.body)
        case _:
            return None


def _same_tensors(one: HandlerResult, other: HandlerResult) -> bool:
    assert isinstance(one.form, TensorForm)
    dtype = _FLOATS.get(one.form.datatype)
    # Whole numbers and texts are the same only if their bytes are.
    if dtype is None or len(one.body) != len(other.body):
        return False
    first, second = np.frombuffer(one.body, dtype), np.frombuffer(other.body, dtype)
    return bool(np.allclose(first, second, rtol=_RELATIVE, atol=0.0, equal_nan=True))


def _same_json(one: bytes, other: bytes) -> bool | None:
    try:
        return same_value(msgspec.json.decode(one), msgspec.json.decode(other))
    except (msgspec.DecodeError, RecursionError, OverflowError):  # nested too deeply, or too many digits
        return None


def same_value(one: Any, other: Any) -> bool:
    """Return True if two JSON values are equal, up to the last digits of numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_value(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=_RELATIVE)
    return bool(one == other)
