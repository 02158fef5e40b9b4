"""Raw tensors of the Open Inference Protocol in the adapters."""

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from uncork_workers.definition.adapters import Adapter, InvalidInput, Json, NdArray
from uncork_workers.definition.adapters.tensors import form_of
from uncork_workers.wire.forms import ListForm, TensorForm
from uncork_workers.wire.messages import Meta

DTYPES = {
    "BOOL": "bool",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    **{f"{kind.upper()}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
}


class Tensors(NamedTuple):
    """The same requests as tensors, as JSON, and as one array of all rows."""

    form: TensorForm
    rows: list[int]
    raw: list[bytes]
    text: list[bytes]
    array: np.ndarray[Any, Any]


def tensors_of(datatype: str, array: np.ndarray[Any, Any], rows: list[int]) -> Tensors:
    parts = np.split(array, np.cumsum(rows)[:-1])
    return Tensors(
        TensorForm(datatype=datatype, shape=array.shape[1:]),
        rows,
        [texts_to_bytes(part) if datatype == "BYTES" else part.tobytes() for part in parts],
        [json.dumps(part.tolist())[1:-1].encode() for part in parts],
        array,
    )


def texts_to_bytes(array: np.ndarray[Any, Any]) -> bytes:
    texts = [str(text).encode() for text in array.flat]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


@st.composite
def tensors(draw: st.DrawFn, datatypes: Sequence[str] = tuple(DTYPES), *, finite: bool = True) -> Tensors:
    datatype = draw(st.sampled_from(datatypes))
    rows = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    shape = (sum(rows), *draw(st.lists(st.integers(1, 3), max_size=3)))
    if datatype == "BYTES":
        array = draw(npst.arrays(object, shape, elements=st.text(max_size=5)))
    else:
        dtype = np.dtype(DTYPES[datatype]).newbyteorder("<")
        values = npst.from_dtype(dtype, allow_nan=not finite, allow_infinity=not finite)
        array = draw(npst.arrays(dtype, shape, elements=values))
    return tensors_of(datatype, array, rows)


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except InvalidInput:
        return None


def all_merged(adapter: Adapter, sent: Tensors) -> Any:
    return adapter.merge_tensors(sent.raw, sent.form, sent.rows)


@given(sent=tensors(), dtype=st.sampled_from(sorted(DTYPES.values())))
def test_an_array_of_tensors_is_the_same_as_one_of_json(sent: Tensors, dtype: str) -> None:
    adapter = NdArray(dtype=dtype, shape=(None,) * len(sent.form.shape))

    got = outcome(lambda: all_merged(adapter, sent))
    expected = outcome(lambda: adapter.merge(sent.text))

    assert (got is None) == (expected is None)
    if got is not None:
        assert got.dtype == expected.dtype == dtype
        assert got.shape == sent.array.shape
        np.testing.assert_array_equal(got, expected)
        assert got.tobytes() == expected.tobytes()  # -0.0 is not 0.0


@given(sent=tensors())
def test_an_array_of_tensors_of_the_dtype_of_the_api_is_what_was_sent(sent: Tensors) -> None:
    adapter = NdArray(dtype=DTYPES[sent.form.datatype], shape=tuple(sent.form.shape))
    before = list(map(bytearray, sent.raw))

    got = all_merged(adapter, sent)

    np.testing.assert_array_equal(got, sent.array)
    got[:] = 0
    assert sent.raw == before


@given(sent=tensors([*DTYPES, "BYTES"]))
def test_lists_of_tensors_are_the_same_as_those_of_json(sent: Tensors) -> None:
    got = all_merged(Json(), sent)

    expected = Json().merge(sent.text)
    assert got == expected == sent.array.tolist()
    assert json.dumps(got) == json.dumps(expected)  # 1 is not True
    assert all(accepted(sent))


@given(sent=tensors(["FP16", "FP32", "FP64"], finite=False), dtype=st.sampled_from(["float16", "float32"]))
def test_nan_and_infinity_are_values_of_tensors(sent: Tensors, dtype: str) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        expected = sent.array.astype(dtype)
    overflows = bool((np.isfinite(sent.array) & ~np.isfinite(expected)).any())

    got = outcome(lambda: all_merged(NdArray(dtype=dtype, shape=tuple(sent.form.shape)), sent))

    assert (got is None) == overflows
    if got is not None:
        np.testing.assert_array_equal(got, expected)


@given(values=npst.arrays("<f4", npst.array_shapes(max_dims=1), elements=st.floats(width=16)))
def test_bf16_is_the_upper_half_of_a_float(values: np.ndarray[Any, Any]) -> None:
    halves = (values.view("<u4") >> 16).astype("<u2")
    sent = tensors_of("BF16", halves, [len(halves)])

    got = all_merged(NdArray(dtype="float32", shape=()), sent)

    np.testing.assert_array_equal(got.view("<u4"), halves.astype("<u4") << 16)
    np.testing.assert_array_equal(all_merged(Json(), sent), got)


def accepted(sent: Tensors) -> list[bool]:
    answers = []
    for raw, rows in zip(sent.raw, sent.rows, strict=True):
        try:
            Json().merge_tensors([raw], sent.form, [rows])
        except InvalidInput:
            answers.append(False)
        else:
            answers.append(True)
    return answers


@given(sent=tensors([*DTYPES, "BYTES"]), data=st.data())
def test_a_tensor_of_another_size_is_refused(sent: Tensors, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(sent.raw) - 1))
    cut = data.draw(st.integers(1, len(sent.raw[at])))
    bodies = sent.raw.copy()
    bodies[at] = sent.raw[at][:-cut]
    bodies[at - 1] += sent.raw[at][-cut:] if len(bodies) > 1 else b""

    with pytest.raises(InvalidInput):
        Json().merge_tensors(bodies, sent.form, sent.rows)
    assert accepted(sent._replace(raw=bodies)) == [
        body == raw for body, raw in zip(bodies, sent.raw, strict=True)
    ]


def test_rounding_of_large_integers_is_that_of_json() -> None:
    """JSON goes through doubles; straight to single precision this value would be 2**60 + 2**37."""
    value = 2**60 + 2**36 + 1
    sent = tensors_of("INT64", np.array([value], "<i8"), [1])

    assert all_merged(NdArray(dtype="float32", shape=()), sent).tolist() == [2**60]
    assert NdArray(dtype="float32", shape=()).merge(sent.text).tolist() == [2**60]


class Lines(Adapter):
    kind = "lines"

    def merge(self, bodies: Sequence[bytes]) -> list[bytes]:
        return list(bodies)


def test_an_input_takes_json_only_if_it_says_nothing_else() -> None:
    with pytest.raises(InvalidInput, match=r"^this API does not accept tensors$"):
        Lines().merge_tensors([b"1"], TensorForm("INT8", ()), [1])
    with pytest.raises(InvalidInput, match=r"^this API does not accept CSV$"):
        Lines().merge_table([b"1\n"], "a", [1])
    with pytest.raises(InvalidInput, match=r"^this API does not accept bodies of this kind$"):
        Lines().merge_raw([b"1"], [Meta(content_type="text/plain")])


@pytest.mark.parametrize(("datatype", "dtype"), [*DTYPES.items(), ("FP32", ">f4"), ("BYTES", "U5")])
def test_an_array_has_a_datatype(datatype: str, dtype: str) -> None:
    assert form_of(np.zeros((2, 3, 1), dtype)) == ListForm(datatype, (3, 1))


@pytest.mark.parametrize(
    "results",
    [
        [1.0],
        (1,),
        None,
        np.zeros(2, complex),
        np.zeros(2, "longdouble"),
        np.zeros(2, object),
        np.ma.masked_array([1.0, 2.0], mask=[True, False]),
    ],
)
def test_what_is_no_array_of_numbers_has_no_datatype(results: object) -> None:
    assert form_of(results) is None
