"""Results as tensors: the type, the shape and the bits that the handler returned."""

from __future__ import annotations

import datetime
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from uncork_workers.definition.outputs.encoding import as_array, encode
from uncork_workers.definition.outputs.responses import Rejected, WrongResult
from uncork_workers.definition.outputs.split import SplitResults, join_chunks, split_results
from uncork_workers.wire.forms import ColumnsForm, ListForm, RecordsForm, TensorForm
from uncork_workers.wire.tensors import LAYOUTS, split_columns

NUMBERS = {name: np.dtype(layout) for name, layout in LAYOUTS.items() if name != "BF16"}
NAMES = {(dtype.kind, dtype.itemsize): name for name, dtype in NUMBERS.items()}
Tensors = dict[str, tuple[str, tuple[int, ...], bytes]]


def split(results: object, counts: list[int], *, cut: int = 0) -> SplitResults:
    total = sum(counts)
    parts = [results] if not cut else [pick(results, 0, cut), pick(results, cut, total)]
    sizes = [total] if not cut else [cut, total - cut]
    chunks = [
        as_array(part, expected=size) or encode(part, expected=size, as_json=False, as_tensors=True)
        for part, size in zip(parts, sizes, strict=True)
    ]
    encoded = join_chunks([chunk.copied() for chunk in chunks]) if cut else chunks[0]  # as for several calls
    return split_results(encoded, counts, ["tensors"] * len(counts))


def pick(results: Any, start: int, end: int) -> Any:
    if isinstance(results, dict):
        return {name: column[start:end] for name, column in results.items()}
    return results[start:end]


def tensors(results: object, counts: list[int], *, cut: int = 0) -> list[Tensors]:
    found = []
    for body, form in zip(*split(results, counts, cut=cut), strict=True):
        assert isinstance(body, bytes)
        if isinstance(form, TensorForm):
            found.append({"": (form.datatype, form.shape, body)})
        else:
            assert isinstance(form, ColumnsForm)
            parts = zip(form.columns, split_columns(body), strict=True)
            found.append({name: (each.datatype, each.shape, data) for (name, each), data in parts})
    return found


def texts(*elements: str) -> bytes:
    encoded = [element.encode() for element in elements]
    return b"".join(len(element).to_bytes(4, "little") + element for element in encoded)


def doubles(*values: float) -> bytes:
    return np.array(values, "<f8").tobytes()


ARRAYS = st.sampled_from([*NUMBERS.values(), np.dtype(">f4"), np.dtype(">i8")]).flatmap(
    lambda dtype: (
        npst.arrays(dtype, st.tuples(st.just(5), *[st.integers(0, 3)] * 2)) | npst.arrays(dtype, (5,))
    )
)
CONTAINERS: list[Callable[[Any], Any]] = [
    lambda array: {"x": array, "n": list(range(5))},
    lambda array: {"x": list(array), "n": np.arange(5)},
    lambda array: [{"x": row, "n": at} for at, row in enumerate(array)],
    lambda array: {"x": np.ma.MaskedArray(array), "n": [0, 1, 2, 3, 4]},
]
OF_ROWS: list[Callable[[Any], Any]] = [list, lambda array: np.ma.MaskedArray(array), lambda array: array]


@given(array=ARRAYS, contain=st.sampled_from([*CONTAINERS, *OF_ROWS]), cut=st.sampled_from([0, 2, 3]))
def test_an_array_keeps_type_shape_and_bits(array: Any, contain: Callable[[Any], Any], cut: int) -> None:
    """Whether it is a result, a column, or its rows are; NaN keeps its payload."""
    counts, ends = [1, 3, 1], [1, 4, 5]
    little = array.astype(array.dtype.newbyteorder("<"))
    datatype = NAMES[array.dtype.kind, array.dtype.itemsize]

    for one, start, end in zip(tensors(contain(array), counts, cut=cut), [0, *ends], ends, strict=False):
        got = one["x"] if "x" in one else one[""]
        assert got == (datatype, array.shape[1:], little[start:end].tobytes())
        if "n" in one:
            assert one["n"] == ("INT64", (), np.arange(start, end, dtype="<i8").tobytes())


@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize(
    ("results", "told"),
    [
        ([1.5, float("inf")], ("FP64", (), doubles(1.5, np.inf))),
        ([[1.0, float("-inf")], [2, float("nan")]], ("FP64", (2,), doubles(1, -np.inf, 2, np.nan))),
        ([1, None], ("FP64", (), doubles(1, np.nan))),
        ([True, False], ("BOOL", (), b"\1\0")),
        ([1, 2**64 - 1], ("UINT64", (), np.array([1, 2**64 - 1], "<u8").tobytes())),
        (["cat", None], ("BYTES", (), texts("cat", ""))),
        ([["a", None], ["b", ""]], ("BYTES", (2,), texts("a", "", "b", ""))),
        ([True, None], ("BYTES", (), texts("true", ""))),
        ([datetime.date(2024, 1, 2), None], ("BYTES", (), texts("2024-01-02", ""))),
        (np.array(["2024-01-02", "NaT"], "M8[D]"), ("BYTES", (), texts("2024-01-02", ""))),
        (["cat", 1], ("BYTES", (), texts("cat", "1"))),
        ([[1], [2, 3]], ("BYTES", (), texts("[1]", "[2,3]"))),
        ([(1, 2.5), (3, None)], ("FP64", (2,), doubles(1, 2.5, 3, np.nan))),
        ([[(1, 2)], [(3, 4)]], ("INT64", (1, 2), np.arange(1, 5, dtype="<i8").tobytes())),
        ([(1,), (2, 3)], ("BYTES", (), texts("[1]", "[2,3]"))),
        ([msgspec.Raw(b"[1,2]"), [3, 4]], ("INT64", (2,), np.arange(1, 5, dtype="<i8").tobytes())),
        ([{"a": 1}, {"b": "x"}], ("BYTES", (), texts('{"a":1}', '{"b":"x"}'))),
        ([2**70, None], ("FP64", (), doubles(2.0**70, np.nan))),
        (np.array(["é", ""]), ("BYTES", (), texts("é", ""))),
        (np.array([["a"], ["b"]], object), ("BYTES", (1,), texts("a", "b"))),
        (np.ma.masked_array([1, 2], [False, True], "i2"), ("FP64", (), doubles(1, np.nan))),
    ],
)
def test_values_of_python_have_the_datatype_that_holds_them(results: Any, told: Any, cut: int) -> None:
    """What is missing does not change how the others are written."""
    assert tensors(results, [2], cut=cut) == [{"": told}]


def test_missing_floats_keep_their_width() -> None:
    masked = np.ma.masked_array(np.array([1, 2], "f4"), [False, True])
    frame = pd.DataFrame({"a": pd.array([1.5, None], "Float32"), "b": pd.array([1, 2], "Int8")})

    [one] = tensors({"m": masked, "a": frame.a, "b": frame.b}, [2])
    [other] = tensors(frame, [2])

    assert one["m"] == ("FP32", (), np.array([1, np.nan], "<f4").tobytes())
    assert other == {
        "a": ("FP32", (), np.array([1.5, np.nan], "<f4").tobytes()),
        "b": ("INT8", (), b"\1\2"),
    }
    assert {name: one[name] for name in "ab"} == other


@pytest.mark.parametrize("cut", [0, 1])
def test_masked_values_of_a_column_are_missing(cut: int) -> None:
    masked = np.ma.masked_array([[1, 2], [3, 4]], [[False, False], [False, True]], "i2")

    assert tensors({"m": masked}, [2], cut=cut) == [{"m": ("FP64", (2,), doubles(1, 2, 3, np.nan))}]


def test_a_table_may_have_any_columns() -> None:
    frame = pd.DataFrame({"t": ["a", None], "f": np.array([1, 2], "f2"), 3: [True, False]})

    [one] = tensors(frame, [2])

    assert one == {
        "t": ("BYTES", (), texts("a", "")),
        "f": ("FP16", (), np.array([1, 2], "<f2").tobytes()),
        "3": ("BOOL", (), b"\1\0"),
    }
    [raw] = tensors({"b": [b"\xff", b""], "s": np.array([b"\xfe", b"x"])}, [2])
    assert raw["b"] == ("BYTES", (), b"\1\0\0\0\xff\0\0\0\0")
    assert raw["s"] == ("BYTES", (), b"\1\0\0\0\xfe\1\0\0\0x")


def test_an_array_of_objects_is_sent_as_the_list_of_them() -> None:
    rows = [{"a": 1, "b": np.float32(2)}, {"a": 3, "b": np.float32(4)}]

    assert tensors(np.array(rows, object), [1, 1]) == tensors(rows, [1, 1])
    assert "b" in tensors(rows, [2])[0]
    arrays = [np.zeros(2, "f4"), np.ones(3, "f4")]
    [first, _] = tensors({"x": np.array(arrays, object)}, [1, 1])
    assert first == {"x": ("FP32", (2,), arrays[0].tobytes())}


def test_an_enumeration_names_columns_by_its_values() -> None:
    class Label(int, Enum):
        CAT = 7

    columns = {Label.CAT: np.array([1, 2], "f4")}

    assert tensors(columns, [2]) == [{"7": ("FP32", (), np.array([1, 2], "<f4").tobytes())}]
    encoded = encode(columns, expected=2)
    assert (encoded.rows[0], encoded.form) == (b'{"7":1.0}', RecordsForm((("7", ListForm("FP32", ())),)))


def test_objects_of_any_class_are_columns() -> None:
    @dataclass
    class Point:
        x: float
        y: str | None

    assert tensors([Point(1.0, "a"), Point(float("inf"), None)], [1, 1]) == [
        {"x": ("FP64", (), doubles(1)), "y": ("BYTES", (), texts("a"))},
        {"x": ("FP64", (), doubles(np.inf)), "y": ("FP64", (), doubles(np.nan))},
    ]


def test_arrays_of_objects_of_any_class_keep_their_types() -> None:
    @dataclass
    class Point:
        x: Any
        n: int

    class Struct(msgspec.Struct):
        x: Any
        n: int

    array = np.array([[1, 2], [3, np.inf]], "f4")
    makers: list[Callable[..., Any]] = [Point, Struct, OrderedDict]
    for make in makers:
        rows = [make(x=row, n=7) for row in array]
        assert tensors(rows, [1, 1]) == [
            {"x": ("FP32", (2,), row.tobytes()), "n": ("INT64", (), b"\7".ljust(8, b"\0"))} for row in array
        ]
        assert encode(rows, expected=2).form == RecordsForm((("x", ListForm("FP32", (2,))),))


def test_json_has_the_forms_of_the_columns() -> None:
    """Only of those that come from arrays."""
    columns = {"f": np.array([1, np.inf], "f4"), "n": [1, 2], "v": np.zeros((2, 3), "i1")}
    form = RecordsForm((("f", ListForm("FP32", ())), ("v", ListForm("INT8", (3,)))))

    for results in (
        columns,
        [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
    ):
        encoded = encode(results, expected=2)
        assert encoded.form == form
        assert [msgspec.json.decode(row) for row in encoded.rows] == [
            {"f": 1.0, "n": 1, "v": [0, 0, 0]},
            {"f": None, "n": 2, "v": [0, 0, 0]},
        ]
    assert encode([np.float32(1), np.float32(2)], expected=2).form == ListForm("FP32", ())
    assert encode(pd.Series([1, 2], dtype="i2"), expected=2).form == ListForm("INT16", ())
    assert encode([np.float32(1), 2.0], expected=2).form is None


def test_arrays_of_calls_that_differ_keep_their_types() -> None:
    first, second = np.zeros((1, 2), "f4"), np.zeros((1, 3), "i2")
    chunks = [as_array(one, expected=1) for one in (first, second)]

    dealt = split_results(join_chunks([each for each in chunks if each]), [1, 1], ["tensors"] * 2)

    assert dealt.bodies == [first.tobytes(), second.tobytes()]
    assert dealt.forms == [TensorForm("FP32", (2,)), TensorForm("INT16", (3,))]


def test_a_table_keeps_its_types_beside_calls_that_return_none() -> None:
    """Or one with other columns."""
    table = {"x": np.array([[0.5, np.inf]], "f4"), "n": np.array([3], "i2")}
    alone = split(table, [1])
    others: list[tuple[Any, int]] = [
        ([{"x": table["x"][0], "n": 3}, Rejected(400, "no")], 2),
        ({"x": table["x"], "more": [1]}, 1),
    ]
    for other, size in others:
        chunks = [
            encode(results, expected=count, as_json=False, as_tensors=True)
            for results, count in ((table, 1), (other, size))
        ]
        dealt = split_results(join_chunks(chunks), [1] * (1 + size), ["tensors"] * (1 + size))

        assert (dealt.bodies[0], dealt.forms[0]) == (alone.bodies[0], alone.forms[0])


@pytest.mark.parametrize("wrong", [[1, object()], {"a": [1, object()]}, [1, "\ud800"]])
def test_what_cannot_be_written_is_named(wrong: Any) -> None:
    with pytest.raises(WrongResult, match=r"^(result 1|the results)( at .*)? cannot be written as"):
        tensors(wrong, [2])
