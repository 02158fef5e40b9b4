"""The NdArray adapter."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tests.workers.json_values import SPACES
from uncork_workers.definition.adapters import InvalidInput, NdArray
from uncork_workers.wire.messages import RowPath

DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint64", "bool"]


@st.composite
def batches(draw: st.DrawFn) -> tuple[NdArray, list[bytes], np.ndarray[Any, Any]]:
    """An adapter, bodies of one or more rows, and the array that they represent."""
    dtype = draw(st.sampled_from(DTYPES))
    lengths = draw(st.lists(st.integers(1, 3), max_size=3))
    shape = tuple(draw(st.sampled_from([length, None])) for length in lengths)
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    values = npst.from_dtype(np.dtype(dtype), allow_nan=False, allow_infinity=False)
    array = draw(npst.arrays(dtype, (sum(counts), *lengths), elements=values))
    rows = iter(array.tolist())
    space = draw(SPACES)
    comma = space + b"," + space
    bodies = [
        space + comma.join(json.dumps(next(rows)).encode() for _ in range(count)) + space for count in counts
    ]
    return NdArray(dtype=dtype, shape=shape), bodies, array


@given(batch=batches())
def test_merging_is_the_same_as_parsing_each_alone(
    batch: tuple[NdArray, list[bytes], np.ndarray[Any, Any]],
) -> None:
    adapter, bodies, expected = batch

    merged = adapter.merge(bodies)

    assert merged.dtype == expected.dtype
    np.testing.assert_array_equal(merged, expected)
    np.testing.assert_array_equal(merged, np.concatenate([adapter.merge([body]) for body in bodies]))


def test_whole_numbers_are_fine_where_floats_are_expected() -> None:
    """Many clients write 1 for 1.0."""
    np.testing.assert_array_equal(NdArray().merge([b"[1, 2.5, -0.0, 1e3]"]), [[1.0, 2.5, 0.0, 1000.0]])


def test_the_largest_values_of_a_dtype_fit() -> None:
    ends = np.finfo("float32").max
    body = f"[{-float(ends)!r}, {float(ends)!r}]".encode()

    assert NdArray(dtype="float32").merge([body]).tolist() == [[-ends, ends]]
    assert NdArray(dtype="int8").merge([b"[-128, 127]"]).tolist() == [[-128, 127]]
    assert NdArray(dtype="uint64").merge([b"[18446744073709551615]"]).tolist() == [[2**64 - 1]]


FLOATS = NdArray(shape=(2,))
WRONG: dict[str, tuple[NdArray, bytes, str]] = {
    "too few values": (FLOATS, b"[1]", r"got a row of shape \(1,\)"),
    "too many values": (FLOATS, b"[1,2,3]", r"got a row of shape \(3,\)"),
    "no values": (NdArray(), b"[]", r"got a row of shape \(0,\)"),
    "no values inside": (NdArray(shape=(None, None)), b"[[],[]]", r"got a row of shape \(2, 0\)"),
    "too shallow": (FLOATS, b"1", "Expected `array`, got `int`"),
    "too deep": (FLOATS, b"[[1,2],[3,4]]", "Expected `float`, got `array`"),
    "deep without end": (FLOATS, b"[" * 100_000, "Expected `float`, got `array`"),
    "ragged rows": (NdArray(), b"[1],[2,3]", "rows have different lengths - at "),
    "ragged inside": (NdArray(shape=(2, None)), b"[[1],[2,3]]", "rows have different lengths"),
    "text": (FLOATS, b'["1","2"]', "Expected `float`, got `str`"),
    "null": (FLOATS, b"[1,null]", "Expected `float`, got `null`"),
    "object": (FLOATS, b'{"a":1}', "Expected `array`, got `object`"),
    "bool for float": (FLOATS, b"[true,1]", "Expected `float`, got `bool`"),
    "bool for int": (NdArray(dtype="int64"), b"[true]", "Expected `int`, got `bool`"),
    "float for int": (NdArray(dtype="int64"), b"[1.5]", "Expected `int`, got `float`"),
    "int for bool": (NdArray(dtype="bool"), b"[1]", "Expected `bool`, got `int`"),
    "out of range for int8": (NdArray(dtype="int8"), b"[128]", "128 is out of bounds for int8"),
    "below the range of uint8": (NdArray(dtype="uint8"), b"[-1]", "-1 is out of bounds for uint8"),
    "out of range for int64": (
        NdArray(dtype="int64"),
        b"[9223372036854775808]",
        "9223372036854775808 is out of bounds for int64 - at ",
    ),
    "out of any range": (NdArray(dtype="int64"), b"[" + b"1" * 5000 + b"]", "out of range"),
    "too large for float16": (NdArray(dtype="float16"), b"[65520]", "a value is too large for float16"),
    "too large for float32": (NdArray(dtype="float32"), b"[-1e39]", "a value is too large for float32"),
    "too large for float64": (FLOATS, b"[1e999,1]", "Number out of range"),
    "NaN for int": (NdArray(dtype="int64"), b"[NaN,1]", "Expected `int`, got `float`"),
    "text beside NaN": (FLOATS, b'[NaN,"a"]', "Expected `float`, got `str`"),
    "null beside NaN": (FLOATS, b"[NaN,null]", "Expected `float`, got `null`"),
    "out of range beside NaN": (FLOATS, b"[NaN,1e999]", "JSON is malformed"),
    "integer out of range beside NaN": (FLOATS, b"[NaN,1" + b"0" * 400 + b"]", "JSON is malformed"),
    "not UTF-8 beside NaN": (FLOATS, b'[NaN,"\xff"]', "JSON is malformed"),
    "cut off after NaN": (FLOATS, b"[NaN,", "JSON is malformed"),
    "another name": (FLOATS, b"[1,Infinite]", "JSON is malformed"),
    "injection beside NaN": (FLOATS, b"[NaN,2]],[[3,4]", "JSON is malformed"),
    "not UTF-8": (FLOATS, b"[1,\xff]", "JSON is malformed"),
    "not UTF-8 in a key": (FLOATS, b'{"\xff":1}', "Expected `array`, got `object`"),
    "cut off": (FLOATS, b"[1,", "JSON is malformed"),
    "injection": (FLOATS, b"[1,2]],[[3,4]", "JSON is malformed: trailing characters"),
    "injection of numbers": (NdArray(shape=()), b"1],[2", "JSON is malformed: trailing characters"),
    "nothing": (FLOATS, b"", r"got a row of shape \(\)"),
}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_may_be_not_finite(dtype: str) -> None:
    """Clients of TensorFlow Serving write them."""
    array = NdArray(dtype=dtype, shape=(2,)).merge([b"[1, 2]", b"[NaN, Infinity]", b"[-Infinity,0.5]"])
    expected = np.array([[1, 2], [np.nan, np.inf], [-np.inf, 0.5]], dtype)
    np.testing.assert_array_equal(array, expected)
    assert array.dtype == dtype


@pytest.mark.parametrize(("adapter", "body", "reason"), WRONG.values(), ids=WRONG.keys())
def test_what_is_not_a_row_is_invalid_input(adapter: NdArray, body: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput, match=f"{reason}.*; a row must have shape .*, each value "):
        adapter.merge([body])
    good: Any = adapter.describe()["dtype"] == "bool" or 1
    for length in reversed(adapter.describe()["shape"]):
        good = [good] * (length or 1)
    if body:
        with pytest.raises(InvalidInput):
            adapter.merge([json.dumps(good).encode(), body, json.dumps(good).encode()])


@pytest.mark.parametrize(
    ("adapter", "bodies", "row", "path"),
    [
        (NdArray(dtype="int64", shape=(2,)), [b"[1,2]", b"[3,9223372036854775808]"], 1, (1,)),
        (NdArray(dtype="int8", shape=()), [b"1", b"2", b"-129"], 2, ()),
        (NdArray(dtype="uint8", shape=(1, 2)), [b"[[0,256]]"], 0, (0, 1)),
        (NdArray(dtype="float32", shape=(2,)), [b"[1,2]", b"[3,1e39]"], 1, (1,)),
        (NdArray(dtype="float32", shape=(2,)), [b"[NaN,-Infinity]", b"[3,1e39]"], 1, (1,)),
        (NdArray(shape=(2,)), [b"[NaN,1]", b"[3,true]"], 1, (1,)),
        (NdArray(), [b"[1]", b"[2]", b"[3,4]"], 2, ()),
        (NdArray(shape=(None, None)), [b"[[1],[2]]", b"[[1],[2,3]]"], 1, ()),
        (NdArray(shape=(None, None)), [b"[[1],[2,3]]", b"[[1],[2,3]]"], 0, ()),
    ],
)
def test_a_wrong_value_has_a_place(
    adapter: NdArray, bodies: list[bytes], row: int, path: tuple[int, ...]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        adapter.merge(bodies)
    assert [piece for piece in caught.value.args if isinstance(piece, RowPath)] == [RowPath(row, path)]


@pytest.mark.parametrize(
    ("adapter", "expected"),
    [
        (NdArray(), "a row must have shape (any,), each value a number (float64)"),
        (NdArray(dtype="int8", shape=(2, None)), "shape (2, any), each value an integer (int8)"),
        (NdArray(dtype="uint8", shape=()), "a row must have shape (), each value an integer (uint8)"),
        (NdArray(dtype="bool"), "each value true or false (bool)"),
    ],
)
def test_the_message_says_what_a_row_must_be(adapter: NdArray, expected: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        adapter.merge([b'"x"'])

    assert str(caught.value).endswith(expected)


def test_zero_and_negative_zero_survive() -> None:
    (row,) = NdArray().merge([b"[0.0, -0.0]"])

    assert [math.copysign(1, value) for value in row] == [1, -1]
