"""From results to JSON texts."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from uncork_workers.outputs import WrongResult, encode

from ..json_values import VALUES


def encoded(results: object, expected: int) -> list[Any]:
    """The results as a client reads them."""
    return [json.loads(text, parse_constant=pytest.fail) for text in encode(results, expected=expected).rows]


@settings(deadline=None)
@given(results=st.lists(VALUES, max_size=6))
def test_each_result_becomes_one_valid_json_text(results: list[Any]) -> None:
    """Whatever the value: also text with line breaks, integers of any size, nothing."""
    assert encoded(results, len(results)) == results
    assert encoded(tuple(results), len(results)) == results


@settings(deadline=None)
@given(
    array=npst.arrays(
        st.sampled_from(["float32", "float64", "float16", "int8", "int64", "uint64", "bool"]),
        npst.array_shapes(max_dims=3, max_side=4),
    )
)
def test_an_array_is_dealt_out_along_its_first_axis(array: np.ndarray[Any, Any]) -> None:
    """Every row with its values; what JSON has no word for is null."""
    values = array.astype(object)
    values[~np.isfinite(array)] = None

    assert encoded(array, len(array)) == values.tolist()


def test_nothing_has_no_texts() -> None:
    """An empty answer for no rows is fine."""
    assert encode([], expected=0).rows == []
    assert encode(np.zeros((0, 3)), expected=0).rows == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("inf")])
def test_what_is_not_finite_becomes_null(value: float) -> None:
    """JSON has no NaN; a client's parser must not stumble over one."""
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
    """Anywhere inside a result: alone, in lists, in dicts."""
    (value,) = encoded([result], 1)

    assert value == expected
    assert type(value) is type(expected)


def test_long_floats_are_numbers_too() -> None:
    """NdArray accepts the dtype, so its values can come back."""
    assert encoded(np.array([0.5, 1.5], dtype="longdouble"), 2) == [0.5, 1.5]


def test_line_breaks_in_text_do_not_part_it() -> None:
    """Texts are cut at line breaks inside, so those of the user must be escaped."""
    assert encode(["a\nb", {"\n": "\r\n"}, "\u2028"], expected=3).rows == [
        b'"a\\nb"',
        b'{"\\n":"\\r\\n"}',
        '"\u2028"'.encode(),
    ]


@pytest.mark.parametrize("got", [0, 1, 3])
@pytest.mark.parametrize("make", [list, tuple, np.array])
def test_there_must_be_one_result_per_row(make: Any, got: int) -> None:
    """The message says how many there were."""
    with pytest.raises(WrongResult, match=f"^the handler returned {got} results for 2 rows$"):
        encode(make([0.5] * got), expected=2)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (None, "NoneType"),
        ("ab", "str"),
        (b"ab", "bytes"),
        ({1, 2}, "set"),
        (5, "int"),
        ((item for item in [1, 2]), "generator"),
        (np.array(5), "ndarray"),
        (np.float64(5), "float64"),
    ],
)
def test_only_a_list_or_an_array_can_be_dealt_out(wrong: object, kind: str) -> None:
    """The message says what was returned; also where its length happens to be right."""
    with pytest.raises(
        WrongResult, match=f"an array, a table or a list with one result per row, it returned {kind}$"
    ):
        encode(wrong, expected=2)


class Opaque:
    """Something that JSON knows nothing about."""


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (Opaque(), "Opaque is not JSON"),
        ([1, {"x": Opaque()}], "Opaque is not JSON"),
        (1 + 2j, "complex is not JSON"),
        (np.complex64(1), "complex is not JSON"),
        ((item for item in [1]), "generator is not JSON"),
        ("\ud800", "surrogates not allowed"),
        (CIRCLE, "recursion"),
    ],
)
def test_a_result_that_is_not_json_is_refused(result: object, reason: str) -> None:
    """With the reason, and nothing else is raised."""
    with pytest.raises(WrongResult, match=f"^a result cannot be written as JSON: .*{reason}"):
        encode([1, result], expected=2)
