"""Results that are arrays of other libraries, with stand-ins for those that the tests do not install."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from uncork_workers.definition.outputs.encoding import as_array, encode, row_result
from uncork_workers.definition.outputs.host import on_host
from uncork_workers.definition.outputs.responses import Rejected, Response, WrongResult
from uncork_workers.definition.outputs.split import split_results
from uncork_workers.wire.forms import ColumnsForm, ListForm, TensorForm
from uncork_workers.wire.schema import CSV
from uncork_workers.wire.tensors import BFLOAT16, split_columns


class Tensor:
    """Like PyTorch's: on a device, part of a graph, and without bfloat16 in NumPy."""

    is_nested = is_quantized = False
    layout = "torch.strided"

    def __init__(self, values: Any, dtype: str = "float32", *, is_detached: bool = False) -> None:
        self.is_bits = dtype == "bfloat16"
        self.values = np.array(values, ml_dtypes.bfloat16 if self.is_bits else dtype)
        self.dtype = f"torch.{dtype}"
        self.is_detached = is_detached

    def detach(self) -> Tensor:
        return Tensor(self.values, self.dtype.removeprefix("torch."), is_detached=True)

    def view(self, dtype: str) -> Tensor:
        assert self.is_detached, "a view of bits would have no gradient"
        return Tensor(self.values.view(dtype), dtype)

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        assert force, "PyTorch copies neither from a device nor out of a graph without force"
        if self.is_bits:
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.values

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


Tensor.__module__ = "torch"


class Parameter(Tensor):
    """Of a class that a service derives."""


class CupyArray:
    """Like CuPy's, which refuses implicit copies."""

    def __init__(self, values: Any, dtype: str = "float32") -> None:
        self.values = np.array(values, dtype)

    def get(self) -> np.ndarray[Any, Any]:
        return self.values

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")


CupyArray.__module__, CupyArray.__name__ = "cupy", "ndarray"


class JaxArray:
    """Like JAX's."""

    def __init__(self, values: Any, dtype: str = "float32") -> None:
        self.values = np.array(values, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
        return self.values


class Exported:
    """An array that only exports its memory."""

    def __init__(self, values: Any, dtype: str = "float32") -> None:
        self.values = np.array(values, dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.values.__dlpack_device__()


class Nullable:
    """An array whose missing values NumPy has only among floats and objects."""

    def __init__(self, values: list[Any], dtype: str) -> None:
        self.values, self.dtype = values, dtype

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
        widened = "object" if self.dtype == "bool" else "float64"
        return np.array(self.values, widened if None in self.values else self.dtype)

    def __getitem__(self, part: slice) -> Nullable:
        return type(self)(self.values[part], self.dtype)

    def is_null(self) -> Nullable:
        return type(self)([value is None for value in self.values], "bool")

    def present(self) -> Nullable:
        return type(self)([value for value in self.values if value is not None], self.dtype)


class ArrowArray(Nullable):
    """Like Arrow's."""

    drop_null = Nullable.present

    @property
    def null_count(self) -> int:
        return self.values.count(None)


class Series(Nullable):
    """Like a Series of Polars."""

    drop_nulls = Nullable.present

    def null_count(self) -> int:
        return self.values.count(None)


ArrowArray.__module__, Series.__module__ = "pyarrow.lib", "polars.series.series"

Make = Callable[..., Any]
LIBRARIES: list[Make] = [Tensor, Parameter, CupyArray, JaxArray, Exported]
BOTH: list[Make] = [Tensor, JaxArray]
"""Those that have bfloat16."""


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(int16="int16"))


def tensors(results: object, rows: int = 2) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    results = on_host(results)
    encoded = as_array(results, expected=rows) or encode(
        results, expected=rows, as_json=False, as_tensors=True
    )
    [body], [form] = split_results(encoded, [rows], ["tensors"])
    assert isinstance(body, bytes)
    if isinstance(form, TensorForm):
        return {"": (form.datatype, form.shape, body)}
    assert isinstance(form, ColumnsForm)
    parts = zip(form.columns, split_columns(body), strict=True)
    return {name: (each.datatype, each.shape, data) for (name, each), data in parts}


def texts(results: object, rows: int = 2) -> list[Any]:
    return [json.loads(row) for row in encode(on_host(results), expected=rows).rows]


@pytest.mark.parametrize("make", LIBRARIES)
@pytest.mark.parametrize(
    ("dtype", "datatype"),
    [("float32", "FP32"), ("float16", "FP16"), ("float64", "FP64"), ("int64", "INT64"), ("uint8", "UINT8")],
)
def test_an_array_keeps_type_shape_and_bits(make: Make, dtype: str, datatype: str) -> None:
    """Whether it is the result, its rows are, or a column is."""
    values = np.array([[1, 2, 3], [4, 5, 6]], dtype)
    told = datatype, (3,), values.tobytes()

    assert tensors(make(values, dtype)) == {"": told}
    assert tensors([make(row, dtype) for row in values]) == {"": told}
    assert tensors(tuple(make(row, dtype) for row in values)) == {"": told}
    assert tensors({"x": make(values, dtype)}) == {"x": told}
    assert tensors(OrderedDict(x=[make(row, dtype) for row in values])) == {"x": told}
    assert tensors([{"x": make(row, dtype)} for row in values]) == {"x": told}
    assert tensors([make(value, dtype) for value in values[0]], 3) == {
        "": (datatype, (), values[0].tobytes())
    }
    assert texts(make(values, dtype)) == values.tolist()
    assert texts([{"x": make(row, dtype), "n": at} for at, row in enumerate(values)]) == [
        {"x": row, "n": at} for at, row in enumerate(values.tolist())
    ]


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize("values", [[1.5, float("nan"), -0.1], [[0.1, 3e38], [1, float("-inf")], [0, -0.0]]])
def test_bfloat16_keeps_its_bits_and_is_a_number_in_json(make: Make, values: Any) -> None:
    short = np.array(values, ml_dtypes.bfloat16)
    told = "BF16", short.shape[1:], short.tobytes()
    wide = short.astype("f4").astype(object)
    wide[~np.isfinite(short.astype("f4"))] = None
    array = make(values, "bfloat16")

    assert tensors(array, 3) == {"": told}
    assert tensors([make(row, "bfloat16") for row in short], 3) == {"": told}
    assert tensors({"x": array, "n": [1, 2, 3]}, 3)["x"] == told
    assert texts(array, 3) == texts([array], 1)[0] == wide.tolist()
    assert encode(on_host(array), expected=3).form == ListForm("BF16", short.shape[1:])
    assert texts([{"x": {"y": array}}], 1) == [{"x": {"y": wide.tolist()}}]
    assert on_host(array)[:1].tobytes() == short[:1].tobytes()


def test_bfloat16_of_numpy_is_one_type_too() -> None:
    short = np.array([1.5, 2], ml_dtypes.bfloat16)
    bits = short.view("<u2").view(BFLOAT16)

    for results in (short, list(short), bits, list(bits), [*map(np.array, short)]):
        assert tensors(results) == {"": ("BF16", (), short.tobytes())}
        assert texts(results) == texts([{"x": list(results)}], 1)[0]["x"] == [1.5, 2]
    result = row_result(bits)
    assert result is not None
    assert (result.body, result.form) == (b"1.5", ListForm("BF16", ()))


@pytest.mark.parametrize("make", LIBRARIES)
def test_arrays_anywhere_in_a_row_are_json(make: Make) -> None:
    """Also behind a first row that has none."""
    one, row = make(1.5), make([1, 2])
    rows = [[0], {"a": {"b": [one, row]}}, [one, one], row, one, Response(row, status=201)]

    encoded = encode(on_host(rows), expected=6)

    assert [json.loads(text) for text in encoded.rows[:-1]] == [
        [0],
        {"a": {"b": [1.5, [1, 2]]}},
        [1.5, 1.5],
        [1, 2],
        1.5,
    ]
    assert json.loads(encoded.responses[5].body) == [1, 2]
    assert tensors([[one, one], [one, one]]) == {"": ("FP64", (2,), np.full(4, 1.5).tobytes())}
    assert encode(on_host(make([1, 2])), expected=2, accept=CSV).rows == [b"1.0\r\n", b"2.0\r\n"]


@pytest.mark.parametrize("make", LIBRARIES)
@pytest.mark.parametrize("first", [Rejected(400, "no"), Response("x"), None, 0.0, {"x": None}, {"x": 0.0}])
def test_a_first_row_without_an_array_changes_no_types(make: Make, first: Any) -> None:
    """The first row may belong to another client."""
    for second in (make([1, 2]), {"x": make([1, 2])}):
        alone, company = [
            split_results(
                encode(on_host(rows), expected=len(rows), as_tensors=True),
                [1] * len(rows),
                ["tensors"] * len(rows),
            )
            for rows in ([second], [first, second])
        ]

        assert (company.bodies[1], company.forms[1]) == (alone.bodies[0], alone.forms[0])
        assert "FP32" in str(alone.forms[0])


def test_rows_of_several_lengths_are_lists() -> None:
    assert texts([Tensor([1]), Tensor([2, 3])]) == [[1], [2, 3]]


class Frame(JaxArray):
    """Like a table of Polars, which would lose the names of its columns."""

    columns = ("a", "b")

    def to_pandas(self) -> None: ...


@dataclass
class Point:
    """A row that NumPy can read too."""

    x: float

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
        return np.array([self.x])


class Struct(msgspec.Struct):
    x: float

    __array__ = Point.__array__


@pytest.mark.parametrize(
    "results",
    [
        np.ma.masked_array([1, 2], [True, False]),
        pd.Series([1, 2], dtype="Int8"),
        pd.Index([1, 2]),
        [Image.new("L", (2, 2))],
        [np.float32(1)],
        [1.5, "x", None],
        [{"a": 1, "b": [2]}, {"c": 3}],
        [Point(1), Point(2)],
        [Struct(1), Struct(2)],
        [],
        [{}],
        b"x",
        None,
    ],
)
def test_other_results_stay_as_they_are(results: object) -> None:
    assert on_host(results) is results


def test_objects_of_a_service_are_rows_of_their_own() -> None:
    assert texts([Point(1), Struct(2)]) == [{"x": 1}, {"x": 2}]
    assert texts([[Point(1)], {"a": Struct(2)}]) == [[{"x": 1}], {"a": {"x": 2}}]


def test_other_arrays_of_pandas_are_columns_and_results() -> None:
    assert texts(pd.Categorical(["a", "b"])) == ["a", "b"]
    assert texts({"x": pd.array([1, None], dtype="Int64")}) == [{"x": 1}, {"x": None}]


@pytest.mark.parametrize(
    ("array", "datatype"),
    [
        (pd.array([1, None], dtype="UInt8"), "UINT8"),
        (pd.array([True, None], dtype="boolean"), "BOOL"),
        (pd.array([1.5, None], dtype="Float32"), "FP32"),
        *[(make([2**53 + 1, None], "int64"), "INT64") for make in (ArrowArray, Series)],
        *[(make([True, None], "bool"), "BOOL") for make in (ArrowArray, Series)],
        *[(make([0.1, None], "float64"), "FP64") for make in (ArrowArray, Series)],
    ],
)
def test_arrays_keep_their_types_beside_missing_values(array: Any, datatype: str) -> None:
    for results, first in ((array, array[:1]), ({"x": array}, {"x": array[:1]})):
        company = split_results(encode(on_host(results), expected=2), [1, 1])
        alone = split_results(encode(on_host(first), expected=1), [1])

        assert (company.bodies[0], company.forms[0]) == (alone.bodies[0], alone.forms[0])
        assert datatype in str(alone.forms[0])


def test_a_table_keeps_its_columns_or_is_refused() -> None:
    with pytest.raises(WrongResult, match=r"got Frame; convert it with \.to_pandas\(\)$"):
        encode(on_host(Frame([[1, 2], [3, 4]])), expected=2)


class Broken(JaxArray):
    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
        raise RuntimeError("CUDA error: device-side assert triggered")


def test_failures_of_a_device_are_not_the_results_fault() -> None:
    """The worker recognizes lack of memory by their types and texts, and services end workers on others."""
    for results in ([Broken(1)], Broken([1]), {"x": [Broken(1)]}):
        with pytest.raises(RuntimeError, match=r"^CUDA error"):
            on_host(results)
    with pytest.raises(RuntimeError, match=r"^CUDA error"):
        encode([[Broken(1)]], expected=1)


def test_a_single_value_is_no_list_of_results() -> None:
    with pytest.raises(WrongResult, match="got a single float32; it was called with 2 rows"):
        encode(on_host(Tensor(1.5)), expected=2)
    with pytest.raises(WrongResult, match="the handler returned 3 results for 2 rows"):
        encode(on_host(Tensor([1, 2, 3])), expected=2)
