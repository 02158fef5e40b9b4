"""The codec of arrays."""

import json
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.gateway.codecs.bodies import mutated, written
from uncork_gateway.codecs.ndarray import NdArrayCodec
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.tensors import Tensor
from uncork_workers.definition.adapters import InvalidInput, NdArray
from uncork_workers.wire.forms import ListForm, TensorForm

Shape = tuple[int | None, ...]


class Case(NamedTuple):
    """A shape, rows that fit it, and whether they are a single row without the leading axis."""

    shape: Shape
    rows: list[Any]
    single: bool

    @property
    def codec(self) -> NdArrayCodec:
        return NdArrayCodec(shape=self.shape)

    @property
    def value(self) -> Any:
        return self.rows[0] if self.single else self.rows


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a shape with open axes, and rows that fit it."""
    lengths = draw(st.lists(st.integers(1, 3), max_size=3))
    shape = tuple(draw(st.sampled_from([length, None])) for length in lengths)
    rows: st.SearchStrategy[Any] = st.integers(-9, 9) | st.booleans() | st.floats(-1, 1)
    for length in reversed(lengths):
        rows = st.lists(rows, min_size=length, max_size=length)
    single = draw(st.booleans())
    return Case(shape, draw(st.lists(rows, min_size=1, max_size=1 if single else 5)), single)


@given(case=cases(), data=st.data())
def test_rows_are_counted_and_come_back_as_they_were(case: Case, data: st.DataObject) -> None:
    """The depth of nesting distinguishes one row from many; echoed rows equal the request."""
    marshalled = case.codec.decode(data.draw(written(case.value)))

    assert (marshalled.rows, marshalled.single) == (len(case.rows), case.single)
    assert json.loads(b"[" + marshalled.body + b"]") == case.rows
    answer = marshalled.json_answer(marshalled.body)
    assert json.loads(answer) == case.value


@given(
    shape=st.lists(st.sampled_from([1, 2, None]), max_size=3).map(tuple),
    data=st.data(),
)
def test_requests_have_one_key_exactly_if_they_can_be_merged(shape: Shape, data: st.DataObject) -> None:
    """Rows that differ along an open axis cannot share a batch."""
    lengths = st.tuples(*(st.integers(1, 2) if length is None else st.just(length) for length in shape))
    bodies = [np.zeros(data.draw(lengths), dtype=int).tolist() for _ in range(2)]
    codec, adapter = NdArrayCodec(shape=shape), NdArray(shape=shape)

    first, second = (
        codec.decode(json.dumps(data.draw(st.sampled_from([body, [body]]))).encode()) for body in bodies
    )

    if first.key == second.key:
        assert len(adapter.merge([first.body, second.body])) == 2
    else:
        with pytest.raises(InvalidInput, match="rows have different lengths"):
            adapter.merge([first.body, second.body])


@given(case=cases())
def test_a_tensor_shares_batches_with_json(case: Case) -> None:
    """A binary tensor is not converted, and has the batch key of JSON rows."""
    array = np.array(case.rows, "<f4")
    sent = Tensor(name="x", datatype="FP32", shape=array.shape, form="binary", data=array.tobytes())
    as_json = case.codec.decode(json.dumps(case.rows).encode())

    raw = case.codec.marshal_tensor(sent)

    form = TensorForm("FP32", array.shape[1:])
    assert raw == replace(as_json, body=sent.data, form=form)
    flat = msgspec.structs.replace(sent, form="flat", data=json.dumps(array.ravel().tolist())[1:-1].encode())
    again = case.codec.marshal_tensor(flat)
    assert (again.key, again.rows, again.form) == (raw.key, raw.rows, ListForm("FP32", array.shape[1:]))
    assert json.loads(b"[%b]" % again.body) == array.ravel().tolist()


@pytest.mark.parametrize("shape", [(2,), (None,), (), (2, 2)])
@pytest.mark.parametrize(
    "body",
    [b"", b" ", b"[", b"[1,2", b"[1,2]]", b"[1,2],[3,4]", b"[[1,2]", b"[[1,2],]", b"[[1,2] [3,4]]", b"x"],
)
def test_what_is_not_json_is_refused(shape: Shape, body: bytes) -> None:
    """The message gives the place of the error at any depth."""
    with pytest.raises(BadRequest, match=r"^the body is not valid JSON: .+"):
        NdArrayCodec(shape=shape).decode(body)


@pytest.mark.parametrize(
    ("shape", "body", "reason"),
    [
        ((), b" [ ] ", "the body has no rows"),
        ((None,), b"[]", "the first row has no values"),
        ((None,), b"[[]]", "the first row has no values"),
        ((None,), b"[[],[1]]", "the first row has no values"),
        ((None, None), b"[[]]", "the first row has no values"),
        ((2, None), b"[[],[]]", "the first row has no values"),
        ((None, None), b'[["a"],1]', None),
        ((None, None), b"[[[1]],2]", None),
        ((None, None), b"[[1,2],3]", None),
        ((None,), b"[[1],[]]", None),
        ((2, 2), b"[[]]", None),
        ((2,), b"[]", None),
    ],
)
def test_what_only_looks_like_rows_does_no_harm(shape: Shape, body: bytes, reason: str | None) -> None:
    """Empty and unevenly nested rows are rejected here or by the worker."""
    if reason is not None:
        with pytest.raises(BadRequest, match=reason):
            NdArrayCodec(shape=shape).decode(body)
    else:
        marshalled = NdArrayCodec(shape=shape).decode(body)
        with pytest.raises(InvalidInput, match="; a row must have shape "):
            NdArray(shape=shape).merge([marshalled.body])


@pytest.mark.parametrize("shape", [(2,), (None,), (), (None, None)])
def test_nesting_without_end_is_refused(shape: Shape) -> None:
    """A body of nothing but brackets gets 400 and affects no other request."""
    for body in (b"[" * 100_000, b"[1," + b"[" * 100_000, b"[[1," + b"[" * 100_000):
        with pytest.raises(BadRequest):
            NdArrayCodec(shape=shape).decode(body)


@given(case=cases(), data=st.data())
def test_whatever_is_accepted_keeps_its_count_among_others(case: Case, data: st.DataObject) -> None:
    """Any body gets 400 here or from the worker, or adds exactly the counted rows."""
    body = data.draw(mutated(written(case.value)) | st.binary(max_size=20))
    try:
        accepted = case.codec.decode(body)
    except BadRequest:
        return
    adapter = NdArray(shape=case.shape)
    try:
        rows = len(adapter.merge([accepted.body]))
    except InvalidInput:
        return
    assert rows == accepted.rows
    assert len(adapter.merge([accepted.body, accepted.body])) == 2 * rows
