"""Encoding of results as JSON."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tests.workers.json_values import VALUES
from uncork_workers.definition.outputs.encoding import encode
from uncork_workers.definition.outputs.responses import Rejected, WrongResult
from uncork_workers.plural import plural
from uncork_workers.wire.schema import NPY


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


class Table:
    """Like a table of Polars or Arrow."""

    def to_pandas(self) -> None: ...


class Sparse:
    """Like a matrix of SciPy."""

    def toarray(self) -> None: ...


class Awaited:
    """Like a coroutine, but without Python's warning that it was never awaited."""

    def __await__(self) -> None: ...


_PER_ROW = "it was called with 2 rows and must return one result for each"
_LIST = "convert it to a list, in the order of the rows"
_UNAWAITED = "write async def, and await the call"


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (None, "None; is a return statement missing?"),
        ("ab", f"a single str; {_PER_ROW}"),
        (b"ab", f"a single bytes; {_PER_ROW}"),
        (5, f"a single int; {_PER_ROW}"),
        (np.array(5.0), f"a single float64; {_PER_ROW}"),
        (np.float32(5), f"a single float32; {_PER_ROW}"),
        (Opaque(), f"Opaque; {_PER_ROW}"),
        ({1, 2}, f"set; {_LIST}"),
        ({"a": 1, "b": 2}.values(), f"dict_values; {_LIST}"),
        ((item for item in [1, 2]), "generator; convert it with list(...)"),
        (map(str, [1, 2]), "map; convert it with list(...)"),
        (Rejected(422, "no"), "Rejected; put it in a list, at the position of its row"),
        (Table(), "Table; convert it with .to_pandas()"),
        (Sparse(), "Sparse; convert it with .toarray()"),
        (Awaited(), f"Awaited; {_UNAWAITED}"),
    ],
)
@pytest.mark.parametrize("accept", ["", NPY])
def test_only_a_list_or_an_array_can_be_dealt_out(wrong: object, what: str, accept: str) -> None:
    """The message says what was returned and what to do, even if the length happens to match."""
    with pytest.raises(WrongResult) as caught:
        encode(wrong, expected=2, accept=accept)

    assert str(caught.value) == (
        f"the handler must return an array, a table or a list with one result per row, got {what}"
    )


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("result", "path", "reason"),
    [
        (Opaque(), "", "Opaque is not supported; use numbers, text, "),
        ([1, {"x": Opaque()}], " at [1]['x']", "Opaque is not supported; "),
        ({"a": [0, (1, Opaque())]}, " at ['a'][1][1]", "Opaque is not supported; "),
        (
            {"a": 1, (1, 2): 2},
            "",
            "the key (1, 2) is a tuple; use text or integers as keys, such as '(1, 2)'",
        ),
        ({True: 1}, "", "the key True is a bool; use text or integers as keys, such as 'True'"),
        ([{None: 1}], " at [0]", "the key None is a NoneType; use text or integers as keys, such as 'None'"),
        ({"a": {frozenset(): 1}}, " at ['a']", "the key frozenset() is a frozenset; use text or integers"),
        (1 + 2j, "", "complex is not supported"),
        (np.complex64(1), "", "complex is not supported"),
        (np.array([1, Opaque()]), "", "Opaque is not supported"),
        ((item for item in [1]), "", "generator is not supported"),
        ({"mean": Sparse()}, " at ['mean']", "Sparse is not supported; convert it with .toarray()"),
        (Awaited(), "", f"Awaited is not supported; {_UNAWAITED}"),
        ("\ud800", "", "'utf-8' codec can't encode"),
        (CIRCLE, f" at {'[0]' * 19}", "maximum recursion"),
    ],
)
def test_a_result_that_is_not_json_is_refused(result: object, path: str, reason: str) -> None:
    with pytest.raises(WrongResult) as caught:
        encode([1, result], expected=2)
    assert str(caught.value).startswith(f"result 1{path} cannot be written as JSON: {reason}")

    with pytest.raises(WrongResult) as caught:
        encode([result], expected=1)
    assert str(caught.value).startswith(f"a result{path} cannot be written as JSON: {reason}")


def test_the_place_of_a_result_counts_all_that_were_returned() -> None:
    with pytest.raises(WrongResult, match=r"^result 3 cannot"):
        encode([b"x", 1, Rejected(404, "none"), Opaque()], expected=4)
