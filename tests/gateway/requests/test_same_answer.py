"""Whether a copy of a request got the same answer."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.requests.shadow import same_answer, same_value
from uncork_workers.wire.forms import ListForm, TensorForm

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(values, values)
def test_values_are_the_same_as_themselves_only(one: Any, other: Any) -> None:
    assert same_value(one, one)
    assert same_value(one, other) == same_value(other, one)
    if type(one) is type(other) is str:
        assert same_value(one, other) == (one == other)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": [1.0, 2]}, {"a": [1.0000001, 2]}, True),
        ({"a": [1.0]}, {"a": [1.001]}, False),
        ({"a": 1}, {"b": 1}, False),
        ([1], [1, 1], False),
        (1, True, False),
        (1, 1.0, True),
        ("1", 1, False),
        (None, False, False),
    ],
)
def test_values(one: Any, other: Any, same: bool) -> None:
    assert same_value(one, other) is same


def tensor(*numbers: float, dtype: Any = np.float32, datatype: str = "FP32") -> HandlerResult:
    return HandlerResult(200, np.array(numbers, dtype).tobytes(), TensorForm(datatype, ()))


def written(value: Any, status: int = 200) -> HandlerResult:
    return HandlerResult(status, msgspec.json.encode(value))


LIST = ListForm("FP64", ())
LONG = "x" * 2**20


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (written([1]), written([1]), True),
        (written(LONG), written(LONG), True),
        (written([1.5]), written([1.5000001]), True),
        (written([1]), written([2]), False),
        (written([1]), written([1], status=400), False),
        (written(LONG), written(LONG + "y"), None),
        (HandlerResult(200, b"{"), HandlerResult(200, b"["), None),
        (HandlerResult(200, b"1" * 400), HandlerResult(200, b"1.5"), None),
        (HandlerResult(200, b"[" * 2000 + b"]" * 2000), HandlerResult(200, b"[]"), None),
        (tensor(1.0, math.nan), tensor(1.0000001, math.nan), True),
        (tensor(1.0), tensor(1.1), False),
        (tensor(1.0), tensor(1.0, 1.0), False),
        (tensor(1, dtype=np.int64, datatype="INT64"), tensor(2, dtype=np.int64, datatype="INT64"), False),
        (tensor(1.0), written(1.0), None),
        (HandlerResult(200, b"1,2", LIST), HandlerResult(200, b"1.0,2.0", LIST), True),
        (HandlerResult(200, b"1,2", LIST), HandlerResult(200, b"1,3", LIST), False),
        (HandlerResult(200, b"a", None, "image/png"), HandlerResult(200, b"b", None, "image/png"), None),
        (HandlerResult(200, b"a", None, "image/png"), HandlerResult(200, b"a", None, "text/css"), False),
    ],
)
def test_answers(one: HandlerResult, other: HandlerResult, same: bool | None) -> None:
    assert same_answer(one, other) is same
