"""Tensors that are counted, cut, joined, and converted to JSON rows."""

import json
import math
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.examples import at_most
from tests.gateway.cost.budget import Bytecodes
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.raw_json import Malformed
from uncork_gateway.protocols.tensor_rows import (
    OUTPUT,
    columns_of,
    json_rows,
    output_tensors,
    row_texts,
)
from uncork_gateway.protocols.tensors import (
    DataForm,
    Tensor,
    check_values,
    concatenate,
    split_rows,
)
from uncork_workers.wire.forms import ListForm, TensorForm

DTYPES = {
    "BOOL": "?",
    **{f"INT{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": f"float{bits}" for bits in (16, 32, 64)},
}
SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=3)
FINITE = {"allow_nan": False, "allow_infinity": False}


def tensor(data: bytes, *shape: int, form: DataForm = "flat", datatype: str = "FP32") -> Tensor:
    return Tensor(name="x", datatype=datatype, shape=shape, form=form, data=data)


def binary(array: Any, datatype: str) -> Tensor:
    return tensor(array.tobytes(), *array.shape, form="binary", datatype=datatype)


@st.composite
def arrays(draw: st.DrawFn) -> tuple[str, Any]:
    """Draw a datatype and an array whose values JSON can express."""
    datatype = draw(st.sampled_from(list(DTYPES)))
    elements = FINITE if datatype.startswith("FP") else {}
    return datatype, draw(hnp.arrays(np.dtype(DTYPES[datatype]), SHAPES, elements=elements))


@st.composite
def forms(draw: st.DrawFn) -> tuple[Tensor, Any]:
    datatype, array = draw(arrays())
    form: DataForm = draw(
        st.sampled_from(["flat", "nested", "binary"] if array.ndim > 1 else ["flat", "binary"])
    )
    if form == "binary":
        return binary(array, datatype), array
    separators = (draw(st.sampled_from([",", " , ", ",\n"])), ":")
    values = array.tolist() if form == "nested" else array.ravel().tolist()
    text = json.dumps(values, separators=separators).encode()[1:-1]
    return tensor(text, *array.shape, form=form, datatype=datatype), array


@at_most(50)
@given(drawn=forms())
def test_rows_are_those_of_the_array(drawn: tuple[Tensor, Any]) -> None:
    one, array = drawn
    check_values(one)

    assert [json.loads(row) for row in json_rows(one)] == array.tolist()


@pytest.mark.parametrize("datatype", ["BYTES", "INT8"])
@pytest.mark.parametrize(("shape", "row"), [((2, 0), b"[]"), ((2, 0, 3), b"[]"), ((2, 1, 0), b"[[]]")])
def test_rows_without_values_are_empty_lists(datatype: str, shape: tuple[int, ...], row: bytes) -> None:
    for form in ("flat", "binary"):
        assert json_rows(Tensor("x", datatype, shape, form, b"")) == [row, row]


@at_most(50)
@given(drawn=forms(), data=st.data())
def test_pieces_join_to_what_they_were(drawn: tuple[Tensor, Any], data: st.DataObject) -> None:
    one, array = drawn
    counts: list[int] = []
    while sum(counts) < len(array):
        counts.append(data.draw(st.integers(1, len(array) - sum(counts))))

    pieces = split_rows(one, counts)

    assert [piece.shape[0] for piece in pieces] == counts
    at = 0
    for piece in pieces:
        check_values(piece)
        assert [json.loads(row) for row in json_rows(piece)] == array[at : at + piece.shape[0]].tolist()
        at += piece.shape[0]
    assert concatenate(pieces) == one


@at_most(50)
@given(drawn=forms(), data=st.data())
def test_another_shape_is_refused(drawn: tuple[Tensor, Any], data: st.DataObject) -> None:
    """Flat and binary data must have the right number of values."""
    one, array = drawn
    shape = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple))
    other = tensor(one.data, *shape, form=one.form, datatype=one.datatype)
    fits = shape == array.shape if one.form == "nested" else math.prod(shape) == array.size

    if fits:
        check_values(other)
    else:
        with pytest.raises(Malformed):
            check_values(other)


@pytest.mark.parametrize(
    "text", [b"[1],[]", b"[1],[ ]", b"[1,2],[]", b"[[1]],[2]", b"[1],[{}]", b"[1],[2],[3]", b"1,2"]
)
def test_data_that_is_nested_otherwise_is_refused(text: bytes) -> None:
    """Matching counts of brackets or commas do not suffice."""
    with pytest.raises(Malformed):
        check_values(tensor(text, 2, 1, form="nested"))


def test_strings_may_hold_what_means_something_elsewhere() -> None:
    texts = [rb'"a,]["', rb'"\"{,"', rb'"\\"', rb'","', b'""', rb'"\u002c\\\""']
    flat = tensor(b",".join(texts), 3, 2, datatype="BYTES")
    nested = tensor(b'["a,][", "\\"{,"],["\\\\",","]', 2, 2, form="nested", datatype="BYTES")

    for one in (flat, nested):
        check_values(one)
    assert json_rows(flat) == [b"[%b,%b]" % (texts[at], texts[at + 1]) for at in (0, 2, 4)]
    assert json_rows(nested) == [b'["a,][", "\\"{,"]', b'["\\\\",","]']


def test_flat_data_gets_the_axes_of_its_shape() -> None:
    assert json_rows(tensor(b"1,2,3,4", 2, 1, 1, 2)) == [b"[[[1,2]]]", b"[[[3,4]]]"]
    assert json_rows(tensor(b"1,2,3,4,5,6,7,8", 2, 2, 2)) == [b"[[1,2],[3,4]]", b"[[5,6],[7,8]]"]


def test_json_rows_keep_the_text_of_values() -> None:
    """Numbers beyond floats and 64-bit integers keep their text."""
    texts = [b"9007199254740993", b"18446744073709551616", b"1e400", b"-0.0", b"1.00", b"null"]

    assert json_rows(tensor(b" ,\n".join(texts), 6)) == texts
    assert json_rows(tensor(b",".join(texts), 1, 6, 1)) == [
        b"[%b]" % b",".join(b"[%b]" % text for text in texts)
    ]
    assert json_rows(tensor(b"", 2, 0)) == [b"[]", b"[]"]


def test_values_within_a_row_are_not_looked_at() -> None:
    """Data is cut at lists, not at values: a row may have a million."""
    text = b'1 ,"[,]", null,\n4'

    assert json_rows(tensor(text, 2, 2)) == [b'[1 ,"[,]"]', b"[ null,\n4]"]
    assert json_rows(tensor(text, 1, 2, 2)) == [b'[[1 ,"[,]"],[ null,\n4]]']


def test_json_has_no_word_for_what_is_not_finite() -> None:
    assert json_rows(binary(np.array([1, np.nan, np.inf], "<f4"), "FP32")) == [b"1.0", b"null", b"null"]


@at_most(50)
@given(bits=hnp.arrays(np.uint16, hnp.array_shapes(max_dims=2, max_side=4)))
def test_bf16_is_read_as_others_read_it(bits: Any) -> None:
    array = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    with np.errstate(invalid="ignore"):  # older versions warn of a NaN that signals
        expected = array.astype(object)
    expected[~np.isfinite(array)] = None

    assert [json.loads(row) for row in json_rows(binary(bits, "BF16"))] == expected.tolist()


def test_binary_strings_are_json_strings() -> None:
    """If they are UTF-8."""
    data = b'\2\0\0\0\xc3\xa9\0\0\0\0\1\0\0\0"'

    assert json_rows(tensor(data, 3, form="binary", datatype="BYTES")) == ['"é"'.encode(), b'""', b'"\\""']
    with pytest.raises(BadRequest, match="'x': an element of BYTES is not valid UTF-8"):
        json_rows(tensor(b"\1\0\0\0\xff", 1, form="binary", datatype="BYTES"))


def test_a_tensor_without_values_has_no_rows_to_give() -> None:
    with pytest.raises(BadRequest, match="'x' has no values"):
        json_rows(tensor(b"", 1))


@pytest.mark.parametrize(
    ("text", "inner", "flat", "block"),
    [
        (b'"]","["', (), b'"]","["', b"\1\0\0\0]\1\0\0\0["),
        (b'[["a"]],[["\\"]"]]', (1, 1), b'"a","\\"]"', b'\1\0\0\0a\2\0\0\0"]'),
        (b"[[],[]],[[],[]]", (2, 0), b"", b""),
    ],
)
def test_strings_become_the_tensor_that_they_were(
    text: bytes, inner: tuple[int, ...], flat: bytes, block: bytes
) -> None:
    for binary, data in ((False, flat), (True, block)):
        form = ListForm("BYTES", inner)
        (one,) = output_tensors(text, form, rows=2, binary={OUTPUT: binary}.__getitem__)

        check_values(one)
        written: DataForm = "binary" if binary else "flat"
        assert one == Tensor(name="output-0", datatype="BYTES", shape=(2, *inner), form=written, data=data)


@pytest.mark.parametrize(
    ("rows", "datatype", "shape", "data"),
    [
        ([b"true", b"false"], "BOOL", (2,), b"true,false"),
        ([b"1", b"2"], "INT64", (2,), b"1,2"),
        ([b"1", b"18446744073709551615"], "UINT64", (2,), b"1,18446744073709551615"),
        ([b"-1", b"18446744073709551615"], "FP64", (2,), b"-1,18446744073709551615"),
        ([b"1", b"2.50", b"null"], "FP64", (3,), b"1,2.50,null"),
        ([b"0.5"], "FP64", (1,), b"0.5"),
        ([b'"a"', b'"[,]"'], "BYTES", (2,), b'"a","[,]"'),
        ([b"[[1,2]]", b"[[3,4]]"], "INT64", (2, 1, 2), b"1,2,3,4"),
        ([b'["]"]', b'["["]'], "BYTES", (2, 1), b'"]","["'),
        ([b"[]", b"[]"], "FP64", (2, 0), b""),
        ([b"[1]", b"[1, 2]"], "BYTES", (2,), b'"[1]","[1, 2]"'),
        ([b"[1]", b"2"], "BYTES", (2,), b'"[1]","2"'),
        ([b"1", b"true"], "BYTES", (2,), b'"1","true"'),
        ([b'"a"', b"1"], "BYTES", (2,), b'"a","1"'),
        ([b'"a"', b"null"], "BYTES", (2,), b'"a",""'),
        ([b"null", b'"null"'], "BYTES", (2,), b'"","null"'),
        ([b'["a",null]', b'["b","c"]'], "BYTES", (2, 2), b'"a","","b","c"'),
        ([b"true", b"null", b"false"], "BYTES", (3,), b'"true","","false"'),
        ([b'"a"', b"null", b"1", b"[1, 2]"], "BYTES", (4,), b'"a","","1","[1, 2]"'),
        ([b"null", b"null"], "FP64", (2,), b"null,null"),
        ([b"1e400"], "BYTES", (1,), b'"1e400"'),
        ([b"[" * 65 + b"]" * 65], "BYTES", (1,), b'"%b"' % (b"[" * 65 + b"]" * 65)),
        ([b'{"a":1}', b'{"b":1}'], "BYTES", (2,), b'"{\\"a\\":1}","{\\"b\\":1}"'),
        ([b'{"a":1}', b"1"], "BYTES", (2,), b'"{\\"a\\":1}","1"'),
        ([b"[{}]"], "BYTES", (1,), b'"[{}]"'),
        ([b"{}"], "BYTES", (1,), b'"{}"'),
    ],
)
def test_what_results_become(rows: list[bytes], datatype: str, shape: tuple[int, ...], data: bytes) -> None:
    (one,) = output_tensors(b",".join(rows), None, rows=len(rows), binary=lambda name: False)

    assert one == Tensor(name="output-0", datatype=datatype, shape=shape, form="flat", data=data)


def test_binary_results_are_written_as_json_at_once() -> None:
    """The worker gives all outputs of a request in binary if the client wants one of them so."""

    def bytecodes(count: int) -> int:
        array = np.linspace(-1, 1, count, dtype="<f4")
        array[1] = np.nan
        form = TensorForm("FP32", (2, count // 4))
        with Bytecodes() as counted:
            (one,) = output_tensors(array.tobytes(), form, rows=2, binary=lambda name: False)
        assert one.data == b",".join(map(msgspec.json.encode, array.tolist()))
        return counted.bytecodes

    assert bytecodes(4000) == bytecodes(400)


@pytest.mark.parametrize(
    ("rows", "data"),
    [
        (['"é"'.encode(), b'"a"'], b"\2\0\0\0\xc3\xa9\1\0\0\0a"),
        ([b"1", b'["a"]'], b'\1\0\0\0001\5\0\0\0["a"]'),
    ],
)
def test_binary_strings_have_their_lengths(rows: list[bytes], data: bytes) -> None:
    """Each element has a 4-byte length, including JSON texts."""
    (one,) = output_tensors(b",".join(rows), None, rows=len(rows), binary=lambda name: True)

    assert one == Tensor(name="output-0", datatype="BYTES", shape=(2,), form="binary", data=data)


def test_rows_of_objects_are_columns() -> None:
    """Objects need the same keys in any order; values keep their text."""
    assert columns_of([b'{"a":1.0,"b":[ ]}', b'{"b":"]","a":1e400}']) == {
        "a": [b"1.0", b"1e400"],
        "b": [b"[ ]", b'"]"'],
    }
    for rows in ([b"1"], [b'{"a":1}', b'{"b":1}'], [b'{"a":1}', b'{"a":1,"b":1}'], [b'{"a":1}', b"[]"]):
        assert columns_of(rows) is None


def test_joined_texts_are_told_apart() -> None:
    assert row_texts(b'1.0 ,"a,b",{"a":[1,2]}') == [b"1.0", b'"a,b"', b'{"a":[1,2]}']
