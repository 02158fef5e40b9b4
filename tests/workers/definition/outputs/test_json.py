"""Encoding of results as JSON."""

import json
import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tests.workers.json_values import VALUES
from uncork_workers.definition.outputs.encoding import encode
from uncork_workers.definition.outputs.responses import Rejected, WrongResult
from uncork_workers.plural import plural
from uncork_workers.wire.schema import CSV


def encoded(results: object, expected: int) -> list[Any]:
    return [json.loads(text, parse_constant=pytest.fail) for text in encode(results, expected=expected).rows]


@given(results=st.lists(VALUES, max_size=6))
def test_each_result_becomes_one_valid_json_text(results: list[Any]) -> None:
    assert encoded(results, len(results)) == results
    assert encoded(tuple(results), len(results)) == results


@given(
    array=npst.arrays(
        st.sampled_from(["float32", "float64", "float16", "int8", "int64", "uint64", "bool"]),
        npst.array_shapes(max_dims=3, max_side=4),
    )
)
def test_an_array_is_dealt_out_along_its_first_axis(array: np.ndarray[Any, Any]) -> None:
    values = array.astype(object)
    values[~np.isfinite(array)] = None

    assert encoded(array, len(array)) == values.tolist()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("inf")])
def test_what_is_not_finite_becomes_null(value: float) -> None:
    assert encode([value, [value], {"x": value}], expected=3).rows == [b"null", b"[null]", b'{"x":null}']


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(-3), -3),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.bool_(True), True),
        (np.str_("é"), "é"),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array(5), 5),
        ({"label": np.int64(1), "scores": np.array([0.25, 0.75])}, {"label": 1, "scores": [0.25, 0.75]}),
        ([np.float32(1), (np.int8(2), {"x": np.array([True])})], [1, [2, {"x": [True]}]]),
        ({1: "a", np.int64(2): "b"}, {"1": "a", "2": "b"}),
    ],
)
def test_values_of_numpy_are_plain_values(result: object, expected: object) -> None:
    (value,) = encoded([result], 1)

    assert value == expected
    assert type(value) is type(expected)


class Name(str):
    pass


class Count(int):
    pass


class Score(float):
    pass


def test_texts_and_numbers_of_subclasses_are_plain_values() -> None:
    """Libraries for HTML and XML return such texts."""
    results = [Name("a"), Count(1), Score(0.5), {Name("b"): [Count(2), Score("nan")]}]

    assert encoded(results, 4) == ["a", 1, 0.5, {"b": [2, None]}]
    assert encode(results[:1], expected=1, accept=CSV).rows == [b"a\r\n"]


def test_long_floats_are_numbers_too() -> None:
    """NdArray accepts the dtype, so results can have it."""
    assert encoded(np.array([0.5, 1.5], dtype="longdouble"), 2) == [0.5, 1.5]


def test_line_breaks_in_text_do_not_part_it() -> None:
    """The encoder splits its output at line breaks, so those in text must be escaped."""
    assert encode(["a\nb", {"\n": "\r\n"}, "\u2028"], expected=3).rows == [
        b'"a\\nb"',
        b'{"\\n":"\\r\\n"}',
        '"\u2028"'.encode(),
    ]


@pytest.mark.parametrize(
    ("got", "expected", "advice"),
    [
        (0, 2, ""),
        (3, 2, ""),
        (0, 1, ""),
        (1, 0, ""),
        (1, 2, "; it receives all rows of a batch and must return one result per row"),
        (3, 1, "; to return several values for one row, nest them in a list: [results]"),
    ],
)
@pytest.mark.parametrize("make", [list, tuple, np.array])
def test_there_must_be_one_result_per_row(make: Any, got: int, expected: int, advice: str) -> None:
    with pytest.raises(WrongResult) as caught:
        encode(make([0.5] * got), expected=expected)

    counts = f"{plural(got, 'result')} for {plural(expected, 'row')}"
    assert str(caught.value) == f"the handler returned {counts}{advice}"


class Opaque:
    pass


def test_the_place_of_a_result_counts_all_that_were_returned() -> None:
    with pytest.raises(WrongResult, match=r"^result 3 cannot"):
        encode([b"x", 1, Rejected(404, "none"), Opaque()], expected=4)


def test_raw_json_may_have_line_breaks() -> None:
    """Each result stays its own; a Raw is written as it is, unless it has line breaks."""
    raw = msgspec.Raw(b'{\n"b": [1,\r\n2]\n}')

    assert encoded([{"a": raw}, 2, [raw]], 3) == [{"a": {"b": [1, 2]}}, 2, [{"b": [1, 2]}]]
    assert not any(b"\n" in text for text in encode([raw, 1], expected=2).rows)
    assert encode([msgspec.Raw(b"1.0e0")], expected=1).rows == [b"1.0e0"]


def test_the_place_of_raw_json_that_is_malformed_is_told() -> None:
    results = [1, {"a": [msgspec.Raw(b"[\n1]"), msgspec.Raw(b"[1,\n")]}]

    with pytest.raises(WrongResult, match=r"^result 1 at \['a'\]\[1\] cannot be written .*truncated"):
        encode(results, expected=2)
