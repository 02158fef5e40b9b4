"""A value has the same type, shape and bits in every protocol, on its way in and on its way out."""

from __future__ import annotations

import itertools
from typing import Any, TypedDict

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.gateway.dialects.values_stage import BINARY, PROTOCOLS, ROWS, TENSORS, TYPED, Served
from tests.gateway.grpc.bodies import KINDS, Named, arrays
from uncork_gateway.errors import BadRequest
from uncork_gateway.pages.models.tensors import inputs_of
from uncork_workers.definition.adapters import DataFrame, Json, NdArray, Text

NUMBERS = [name for name in KINDS if name not in ("BYTES", "BF16")]
SHAPES = st.lists(st.integers(1, 3), max_size=2)


class OneNumber(TypedDict):
    """Rows with one field."""

    x: float


class Several(TypedDict):
    """Rows with several fields."""

    x: float
    name: str | None


def text(*values: str, inner: tuple[int, ...] = ()) -> Any:
    return np.array([*[value.encode() for value in values], None], object)[:-1].reshape(len(values), *inner)


def carries(protocol: str, datatype: str) -> bool:
    return not (protocol == "grpc typed" and KINDS[datatype].contents is None)


def same_bits(one: Any, other: Any) -> bool:
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


# In


@at_most(60)
@given(datatype=st.sampled_from(NUMBERS), shape=SHAPES, rows=st.sampled_from([1, 3]), data=st.data())
def test_an_array_gets_what_was_sent(datatype: str, shape: list[int], rows: int, data: st.DataObject) -> None:
    """Every bit over protocols that carry it, and every finite number over all."""
    array = data.draw(arrays(datatype, [rows, *shape]))
    dtype = np.dtype(KINDS[datatype].layout)
    served = Served(NdArray(dtype=dtype.name, shape=tuple(shape)), lambda rows: rows)
    for protocol in (*TENSORS, "columns", "instances"):
        if not carries(protocol, datatype):
            continue
        sent = array
        if protocol not in (*BINARY, *TYPED) and dtype.kind == "f":
            sent = np.where(np.isfinite(array), array, 0).astype(dtype)
        outputs = served.ask(protocol, Named("input-0", datatype, sent))
        if protocol in TYPED and dtype.kind == "f":  # a NaN that signals may become quiet
            np.testing.assert_array_equal(served.got, sent)
        else:
            assert same_bits(served.got, sent)
        if protocol in TENSORS:
            assert outputs["output-0"].datatype == datatype
            np.testing.assert_array_equal(outputs["output-0"].array, sent)


@pytest.mark.parametrize("datatype", [*NUMBERS, "BYTES"])
def test_any_value_gets_the_same_values(datatype: str) -> None:
    """A float is a float, whether it was written 1 or 1.0; so for rows that are objects."""
    dtype = np.dtype(KINDS[datatype].layout)
    array = text("1", "") if datatype == "BYTES" else np.array([1, 0], dtype)
    expected = ["1", ""] if datatype == "BYTES" else array.tolist()
    served = Served(Json(), lambda rows: [0] * len(rows))

    for protocol in filter(lambda one: carries(one, datatype), TENSORS):
        for names in ("x", "xy"):
            served.ask(protocol, *[Named(name, datatype, array) for name in names])

            rows = served.got if len(names) == 1 else [row["y"] for row in served.got]
            kinds_and_rows = [(type(row), row) for row in rows]
            assert kinds_and_rows == [(type(value), value) for value in expected], (protocol, names)


@pytest.mark.parametrize("inner", [(), (1,), (1, 1)])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_single_value_may_be_in_lists_of_one(inner: tuple[int, ...], rows: int) -> None:
    """MLServer's codecs send one column for a list of values, whatever the row is.

    Rows of JSON have one list at most.
    """
    numbers = np.arange(rows, dtype="<f4").reshape(rows, *inner)
    words = text(*"abc"[:rows], inner=inner)
    n, w = Named("x", "FP32", numbers), Named("name", "BYTES", words)
    floats, letters = numbers.ravel().tolist(), list("abc"[:rows])

    for adapter, sent, expected in (
        (NdArray(dtype="float32", shape=()), [n], floats),
        (Text(), [w], letters),
        (Json(type=str), [w], letters),
        (Json(type=float | None), [n], floats),
        (Json(type=OneNumber), [n], [{"x": value} for value in floats]),
        (Json(type=Several), [n, w], [{"x": x, "name": y} for x, y in zip(floats, letters, strict=True)]),
        (DataFrame(), [n], [{"x": value} for value in floats]),
        (DataFrame(columns=["x"]), [n], [{"x": value} for value in floats]),
        (
            DataFrame(columns=["name", "x"], dtypes={"name": "str", "x": "float32"}),
            [n, w],
            [{"name": y, "x": x} for x, y in zip(floats, letters, strict=True)],
        ),
    ):
        served = Served(adapter, lambda rows: [0] * len(rows))
        for protocol in PROTOCOLS:
            if len(inner) > 1 and protocol in ROWS:
                continue
            if protocol == "instances" and isinstance(expected[0], dict) and len(sent) == 1:
                continue  # a row without a name
            served.ask(protocol, *sent)
            got = served.got.to_dict("records") if isinstance(served.got, pd.DataFrame) else list(served.got)
            assert got == expected, protocol


@pytest.mark.parametrize(
    "adapter",
    [NdArray(shape=(2,)), Text(), Json(type=list[float]), Json(type=OneNumber), DataFrame(columns=["x"])],
)
def test_the_inputs_that_the_metadata_has_are_accepted(adapter: Any) -> None:
    served = Served(adapter, lambda rows: [0] * len(rows))
    [spec] = inputs_of(served.api)
    shape = [2, *[max(length, 1) for length in spec.shape]]
    array = text("a", "b") if spec.datatype == "BYTES" else np.ones(shape, KINDS[spec.datatype].layout)
    for protocol in (*TENSORS, "columns", "named instances"):
        served.got = None
        served.ask(protocol, Named(spec.name, spec.datatype, array))
        assert len(served.got) == 2, protocol


@pytest.mark.parametrize("protocol", BINARY)
def test_a_frame_keeps_what_is_not_finite(protocol: str) -> None:
    served = Served(DataFrame(dtypes={"x": "float32"}), lambda frame: frame)
    array = np.array([np.inf, -np.inf, np.nan, 1], "<f4")
    outputs = served.ask(protocol, Named("x", "FP32", array), Named("y", "FP64", array.astype("<f8")))
    assert same_bits(served.got.x.to_numpy(), array)
    np.testing.assert_array_equal(served.got.y, array)
    assert {name: each.datatype for name, each in outputs.items()} == {"x": "FP32", "y": "FP64"}
    assert same_bits(outputs["x"].array, array)


@pytest.mark.parametrize(
    ("datatype", "values", "says"),
    [
        ("INT8", "1,300", "values of INT8 must be from -128 to 127, got 300 - at `$[1]`"),
        ("UINT8", "1,-1", "from 0 to 255, got -1 - at `$[1]`"),
        ("UINT64", "0,18446744073709551616", "got 18446744073709551616 - at `$[1]`"),
        ("INT32", "1,1.5", "not a value of INT32: "),
        ("BOOL", "true,2", "not a value of BOOL: Expected `bool | null`, got `int` - at `$[1]`"),
        ("BYTES", '"a",1', "not a value of BYTES: Expected `str | null`, got `int` - at `$[1]`"),
        ("FP32", '1,"a"', "not a value of FP32: "),
        ("FP32", "NaN,true", "not a value of FP32: Expected `float | null`, got `bool` - at `$[1]`"),
        ("FP32", "1,1e39", "1e+39 is too large for FP32 - at `$[1]`"),
        ("FP16", "1,70000", "70000.0 is too large for FP16 - at `$[1]`"),
        ("BF16", "1,4e38", "4e+38 is too large for BF16 - at `$[1]`"),
    ],
)
@pytest.mark.parametrize("names", ["x", "xy"])
def test_values_of_json_are_of_their_datatype(datatype: str, values: str, says: str, names: str) -> None:
    served = Served(Json(), lambda rows: [0] * len(rows))
    inputs = ",".join(
        f'{{"name":"{name}","shape":[2],"datatype":"{datatype}","data":[{values}]}}' for name in names
    )
    asked = served._v2.read(f'{{"inputs":[{inputs}]}}'.encode(), ())
    with pytest.raises(BadRequest) as caught:
        served.run(asked)
    place = says if names == "x" else says.replace("`$[1]`", "`$[1].x`")
    assert place in str(caught.value)


def test_json_may_have_what_is_not_finite() -> None:
    served = Served(NdArray(dtype="float32", shape=()), lambda rows: rows)
    body = b'{"inputs":[{"name":"x","shape":[4],"datatype":"FP32","data":[NaN,Infinity,-Infinity,1]}]}'
    served.run(served._v2.read(body, ()))
    assert same_bits(served.got, np.array([np.nan, np.inf, -np.inf, 1], "<f4"))


@pytest.mark.parametrize("shape", [(), (2,), (None,), (None, 1)])
@pytest.mark.parametrize("sent", ['"instances":[{}]', '"inputs":[{}]', '"inputs":{{"x":[{}]}}'])
def test_rows_of_numbers_may_have_what_is_not_finite(shape: tuple[int | None, ...], sent: str) -> None:
    """TensorFlow Serving's clients write it in rows and in columns."""
    served = Served(NdArray(dtype="float32", shape=shape), lambda rows: rows)
    row = {0: "{}", 1: "[{}, 1]", 2: "[[{}], [1]]"}[len(shape)]
    rows = ",".join(row.format(value) for value in ("NaN", "Infinity", "-Infinity"))
    asked = served._rest.read(f"{{{sent.format(rows)}}}".encode(), ())
    assert asked.rows == 3
    served.run(asked)
    first = served.got.reshape(3, -1)[:, 0]
    assert same_bits(first, np.array([np.nan, np.inf, -np.inf], "<f4"))


@pytest.mark.parametrize(
    "sent",
    [
        '"instances":[{"x":NaN,"name":"a"},{"x":Infinity,"name":"NaN"}]',
        '"inputs":{"x":[NaN,Infinity],"name":["a","NaN"]}',
        '"inputs":{"x":[[NaN],[Infinity]],"name":[["a"],["NaN"]]}',
    ],
)
@pytest.mark.parametrize(
    "adapter", [Json(type=Several), DataFrame(), DataFrame(columns=["x", "name"], dtypes={"name": "str"})]
)
def test_rows_with_names_may_have_what_is_not_finite(sent: str, adapter: Any) -> None:
    served = Served(adapter, lambda rows: [0] * len(rows))
    served.run(served._rest.read(f"{{{sent}}}".encode(), ()))
    rows = served.got.to_dict("records") if isinstance(served.got, pd.DataFrame) else served.got
    assert [(repr(row["x"]), row["name"]) for row in rows] == [("nan", "a"), ("inf", "NaN")]


def test_a_row_that_is_not_a_number_is_no_object() -> None:
    served = Served(DataFrame(), lambda rows: rows)
    with pytest.raises(BadRequest, match="each row must be an object"):
        served._rest.read(b'{"instances":[NaN]}', ())


def test_requests_of_all_protocols_share_a_batch() -> None:
    """Each row arrives as it was sent, and each answer belongs to its request."""
    for adapter in (Json(type=Several), DataFrame(columns=["x", "name"], dtypes={"x": "float32"})):
        served = Served(adapter, lambda rows: [0] * len(rows))
        asked = [
            served.read(
                protocol, [Named("x", "FP32", np.array([at], "<f4")), Named("name", "BYTES", text("a"))]
            )
            for at, protocol in enumerate(PROTOCOLS)
        ]
        assert len({each.key for each in asked}) == 1
        served.run(*asked)
        got = served.got.to_dict("records") if isinstance(served.got, pd.DataFrame) else served.got
        assert got == [{"x": at, "name": "a"} for at in range(len(PROTOCOLS))]


# Out


@at_most(60)
@given(datatype=st.sampled_from(NUMBERS), shape=SHAPES, rows=st.sampled_from([1, 3]), data=st.data())
def test_a_named_array_leaves_as_it_is(
    datatype: str, shape: list[int], rows: int, data: st.DataObject
) -> None:
    array = data.draw(arrays(datatype, [rows, *shape]))
    served = Served(Json(), lambda _: {"a": array, "label": ["é"] * rows})
    for protocol in TENSORS:
        outputs = served.ask(protocol, Named("x", "INT32", np.zeros(rows, "<i4")))
        one, label = outputs["a"], outputs["label"]
        assert (one.datatype, one.array.shape) == (datatype, array.shape)
        if protocol in BINARY or array.dtype.kind != "f":
            assert protocol == "predict content" or same_bits(one.array, array)
        if protocol != "v2 json":
            np.testing.assert_array_equal(one.array, array)
        assert (label.datatype, label.array.shape) == ("BYTES", (rows,))


@pytest.mark.parametrize(
    ("results", "datatype", "values"),
    [
        (["cat", None], "BYTES", ["cat", ""]),
        ([True, None], "BYTES", ["true", ""]),
        ([True, False], "BOOL", [True, False]),
        (np.array(["2024-01-02", "NaT"], "M8[D]"), "BYTES", ["2024-01-02", ""]),
        ([["a", None], [None, "b"]], "BYTES", [["a", ""], ["", "b"]]),
        (pd.Series(["cat", None], dtype="str"), "BYTES", ["cat", ""]),
    ],
)
def test_missing_values_have_one_form(results: Any, datatype: str, values: Any) -> None:
    handlers = (lambda rows: results), (lambda rows: {"output-0": results, "n": [1, 2]})
    for handler, protocol in itertools.product(handlers, TENSORS):
        served = Served(Json(), handler)
        one = served.ask(protocol, Named("x", "INT32", np.zeros(2, "<i4")))["output-0"]
        strings = [each.decode() if isinstance(each, bytes) else each for each in one.array.ravel().tolist()]
        expected = np.array(values, object).ravel().tolist()
        assert (one.datatype, strings) == (datatype, expected), protocol


@pytest.mark.parametrize("protocol", TENSORS)
@pytest.mark.parametrize("as_column", [True, False])
def test_bfloat16_leaves_as_it_is(protocol: str, as_column: bool) -> None:
    short = np.array([[1, 2], [3, 256]], ml_dtypes.bfloat16)
    served = Served(Json(), lambda rows: {"output-0": short} if as_column else short)

    one = served.ask(protocol, Named("x", "INT32", np.zeros(2, "<i4")))["output-0"]

    expected = short.astype("<u2") if protocol == "v2 json" else short.view("<u2")
    assert (one.datatype, one.array.tolist()) == ("BF16", expected.tolist())


@pytest.mark.parametrize("protocol", [*BINARY, *TYPED])
def test_infinity_of_python_survives(protocol: str) -> None:
    served = Served(Json(), lambda rows: [{"x": float("inf")}, {"x": 1.0}])
    one = served.ask(protocol, Named("x", "INT32", np.zeros(2, "<i4")))["x"]
    assert (one.datatype, one.array.tolist()) == ("FP64", [float("inf"), 1.0])


# TensorFlow Serving's base64


def test_texts_may_be_base64() -> None:
    for adapter, body, expected in (
        (Text(), b'{"instances": [{"b64": "w6k="}, "x"]}', ["é", "x"]),
        (Text(), b'{"inputs": [{"b64": "w6k="}]}', ["é"]),
        (Json(type=Several), b'{"instances": [{"x": 1, "name": {"b64": "w6k="}}]}', [{"x": 1, "name": "é"}]),
    ):
        served = Served(adapter, lambda rows: [0] * len(rows))
        served.run(served._rest.read(body, ()))
        assert served.got == expected
    served = Served(Text(), lambda rows: rows)
    for text, said in (
        (b'"/w=="', "must be the base64 of a text in UTF-8: "),
        (b'"/"', "must be the base64 of a text in UTF-8: "),
        (b"1e999", "must be a text: "),
        (b"NaN", "is not valid JSON: "),
        (rb'"\ud800"', "is not valid JSON: "),
    ):
        with pytest.raises(BadRequest, match=f"^b64 {said}"):
            served._rest.read(b'{"instances": [{"b64": %b}]}' % text, ())
