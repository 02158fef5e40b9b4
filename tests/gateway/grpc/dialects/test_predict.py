"""TensorFlow Serving's Predict to our APIs: tensors in, tensors out, in one batch with other protocols'."""

from functools import partial
from typing import Any

import numpy as np
import ovmsclient
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from ovmsclient.tfs_compat.grpc.responses import GrpcPredictResponse
from ovmsclient.tfs_compat.grpc.tensors import make_ndarray
from ovmsclient.tfs_compat.protos.tensorflow_serving.apis import predict_pb2

from tests.gateway.grpc.bodies import (
    KINDS,
    Named,
    PredictRequest,
    PredictResponse,
    TensorProto,
    damaged,
    floats,
    infer_request,
    predict_request,
    proto,
    protos_of,
    same,
    tensors,
)
from tests.gateway.grpc.dialects.stage import dialect_of
from uncork_gateway.codecs import Marshalled, make_codec
from uncork_gateway.dialects import Rest
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.dialects.inputs import ANY_INPUTS
from uncork_gateway.errors import BadRequest
from uncork_gateway.grpc.dialects.predict import Predict
from uncork_gateway.grpc.dialects.v2 import V2Grpc
from uncork_gateway.grpc.messages import parse
from uncork_workers.wire.messages import ColumnsForm, RowPath, RowsForm, TensorForm
from uncork_workers.wire.tensors import split_columns

dialect = partial(dialect_of, Predict)


def answer(asked: Marshalled, body: bytes, form: RowsForm = None) -> Any:
    """The answer with a handler's result."""
    return PredictResponse.FromString(b"".join(dialect().write(HandlerResult(200, body, form), asked)))


def tensor(**fields: Any) -> dict[str, Any]:
    """A TensorProto of two floats, but for some fields."""
    return {"dtype": "DT_FLOAT", "tensor_shape": dims(2), **fields}


def of_protos(**inputs: dict[str, Any]) -> Any:
    """A request whose inputs have these fields."""
    return PredictRequest(inputs={name: TensorProto(**fields) for name, fields in inputs.items()})


def dims(*lengths: int) -> dict[str, Any]:
    return {"dim": [{"size": length} for length in lengths]}


# In


@given(tensor=tensors(), typed=st.booleans())
def test_every_datatype_is_read_as_model_infer_reads_it(tensor: Named, typed: bool) -> None:
    """Requests of both protocols have one key, form and body, whichever way values travel."""
    v2 = V2Grpc(make_codec({"kind": "json"}), model="m", inputs=ANY_INPUTS, saw=lambda outputs: None)

    asked = dialect().read(predict_request(tensor, typed=typed))

    own = v2.read(infer_request(tensor))
    assert replace(asked, note=None, locate=None) == replace(own, note=None, locate=None)
    assert asked.body == tensor.raw


@given(tensor=tensors(), data=st.data())
def test_the_last_value_stands_for_the_rest(tensor: Named, data: st.DataObject) -> None:
    given = data.draw(st.integers(1, tensor.array.size))
    fields = proto(tensor, typed=True)
    values = fields[KINDS[tensor.datatype].values]
    short = {**fields, KINDS[tensor.datatype].values: values[:given]}
    full = {
        **fields,
        KINDS[tensor.datatype].values: values[:given] + values[given - 1 : given] * (len(values) - given),
    }

    asked = dialect().read(of_protos(x=short))

    assert asked.body == dialect().read(of_protos(x=full)).body
    assert asked.rows == len(tensor.array)


def test_columns_share_batches_with_rest() -> None:
    """Several inputs are columns of objects, in the order of their names, whatever a client's map has."""
    inputs = [floats(1, 2, name="b"), Named("a", "BYTES", np.array([b"x", b"y"], object))]
    rest = Rest(make_codec({"kind": "json"}, "b"), kserve=False)
    body = rest.read(b'{"inputs":{"b":[1.0,2.0],"a":["x","y"]}}', ())

    asked = dialect(cost="b").read(predict_request(*inputs))

    assert (asked.key, asked.rows, asked.cost) == (body.key, 2, body.cost)
    assert split_columns(asked.body) == [each.raw for each in sorted(inputs)]
    assert asked.form == ColumnsForm((("a", TensorForm("BYTES", ())), ("b", TensorForm("FP32", ()))))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "the request has no inputs"),
        ({"x": {"float_val": [1]}}, "tensor 'x': dtype must be one of DT_BOOL, DT_INT8, "),
        ({"x": {"float_val": [1]}}, ", got DT_INVALID"),
        ({"x": tensor(dtype="DT_COMPLEX64", scomplex_val=[1, 2])}, ", got DT_COMPLEX64"),
        ({"x": tensor(dtype="DT_QINT8", int_val=[1, 2])}, ", got DT_QINT8"),
        ({"x": tensor(dtype=101, float_val=[1, 2])}, ", got 101"),
        ({"x": tensor(tensor_shape={"unknown_rank": True})}, "tensor 'x': its shape must be known"),
        ({"x": tensor(tensor_shape=dims(-1))}, "tensor 'x': lengths in shape must be from 0 to"),
        ({"x": tensor(tensor_shape=dims(*[1] * 65))}, "tensor 'x': shape must have at most 64 axes, got 65"),
        ({"x": {"dtype": "DT_FLOAT", "float_val": [1]}}, "no axis of length 0, got 'x' []"),
        ({"x": tensor(tensor_shape=dims(0))}, "inputs must have the same number of rows, at least 1"),
        (
            {"x": tensor(float_val=[1, 2]), "y": tensor(tensor_shape=dims(1), float_val=[1])},
            "inputs must have the same number of rows, at least 1",
        ),
        ({"x": tensor(tensor_content=b"1234")}, "tensor 'x': shape [2] of FP32 needs 8 bytes, got 4"),
        (
            {"x": tensor(tensor_content=b"12345678", float_val=[1])},
            "tensor 'x': it has both tensor_content and float_val; send only one",
        ),
        ({"x": tensor(double_val=[1, 2])}, "values of DT_FLOAT must be in float_val, got double_val"),
        (
            {"x": tensor()},
            "tensor 'x': shape [2] of DT_FLOAT needs 2 values in float_val, or fewer, of which the last one "
            "is repeated, got 0",
        ),
        ({"x": tensor(float_val=[1, 2, 3])}, "of which the last one is repeated, got 3"),
        (
            {"x": tensor(dtype="DT_STRING", tensor_content=b"\1\1ab")},
            "tensor 'x': strings must be in string_val, got tensor_content",
        ),
        (
            {"x": tensor(dtype="DT_UINT8", int_val=[-1])},
            "tensor 'x': values of UINT8 must be from 0 to 255, got -1",
        ),
        (
            {"x": tensor(dtype="DT_HALF", half_val=[0, 65536])},
            "tensor 'x': values of FP16 must be from 0 to 65535, got 65536",
        ),
    ],
)
def test_a_wrong_request_says_what_is_wrong(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        dialect().read(of_protos(**inputs))

    assert message in str(caught.value)


def test_a_small_message_cannot_fill_the_memory() -> None:
    """The bytes of repeated values are counted over all inputs."""
    large = dims(2, 2**16 + 1)  # half a mebibyte of floats is repeated, and one more
    one = {"dtype": "DT_FLOAT", "tensor_shape": large, "float_val": [1]}

    assert dialect().read(of_protos(x=one)).rows == 2
    for inputs in ({"x": one, "y": one}, {"x": {**one, "tensor_shape": dims(2**62)}}):
        with pytest.raises(BadRequest, match="the last value may be repeated to at most 1048576 bytes"):
            dialect().read(of_protos(**inputs))


def test_there_is_one_signature() -> None:
    spec = {"name": "m", "signature_name": "serving_default"}
    assert dialect().read(predict_request(floats(1), model_spec=spec)).rows == 1

    with pytest.raises(BadRequest, match="unknown signature 'other'; this model has only 'serving_default'"):
        dialect().read(predict_request(floats(1), model_spec={"name": "m", "signature_name": "other"}))


@given(data=st.data(), tensor=tensors(), typed=st.booleans())
def test_damaged_messages_are_read_or_refused(data: st.DataObject, tensor: Named, typed: bool) -> None:
    whole = predict_request(tensor, typed=typed, output_filter=["y"]).SerializeToString()

    try:
        asked = dialect().read(parse(PredictRequest, data.draw(damaged(whole))))
    except BadRequest:
        return
    assert asked.rows >= 1


@pytest.mark.parametrize(
    ("inputs", "place", "path"),
    [
        ([floats(1, 2)], RowPath(1, ()), "row 2 of `$.inputs.x`"),
        ([floats(1, name="a"), floats(2, name="b b")], RowPath(0, ("b b",)), "row 1 of `$.inputs['b b']`"),
        ([floats(1, name="a"), floats(2, name="b")], RowPath(0, ()), "row 1 of `$.inputs`"),
    ],
)
def test_errors_of_rows_name_the_input(inputs: list[Named], place: RowPath, path: str) -> None:
    assert dialect().read(predict_request(*inputs)).path_to(place) == path


# Out


@given(tensor=tensors(), typed=st.booleans())
def test_answers_have_typed_values(tensor: Named, typed: bool) -> None:
    """TensorFlow Serving answers so, whatever the request has, and clients rely on it."""
    rows = len(tensor.array)
    asked = dialect().read(predict_request(Named("x", "FP32", np.zeros(rows, "<f4")), typed=typed))
    if tensor.datatype == "BYTES":
        tensor = floats(*range(rows))

    response = answer(asked, tensor.raw, TensorForm(tensor.datatype, tensor.array.shape[1:]))

    assert same(protos_of(response.outputs), [tensor._replace(name="output-0")])
    assert not response.outputs["output-0"].tensor_content
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("m", 1, "serving_default")


def test_objects_are_an_output_for_each_key() -> None:
    seen: list[Any] = []
    speaks = dialect(saw=seen.append)
    asked = speaks.read(predict_request(floats(1, 2), output_filter=["p", "label"]))
    result = HandlerResult(200, b'{"label": "a", "p": 0.5, "more": 1},{"label": "b", "p": 1, "more": 2}')

    response = PredictResponse.FromString(b"".join(speaks.write(result, asked)))

    label, p = protos_of(response.outputs)
    assert (label.name, label.array.tolist(), p.name, p.array.tolist()) == (
        "label",
        [b"a", b"b"],
        "p",
        [0.5, 1],
    )
    assert [each.name for each in seen[0]] == ["label", "p", "more"]


def test_an_output_that_there_is_not_is_refused() -> None:
    asked = dialect().read(predict_request(floats(1), output_filter=["score"]))

    with pytest.raises(BadRequest, match=r"^unknown output 'score'; available outputs: 'a', 'b'$"):
        answer(asked, b'{"a": 1, "b": 2}')


def test_openvinos_client_gets_its_rows() -> None:
    """It reads and writes with its own stubs."""
    numbers = np.array([[1.5, -0.0], [np.nan, np.inf]], np.float32)
    request = predict_pb2.PredictRequest(inputs={"x": ovmsclient.make_tensor_proto(numbers)})

    asked = dialect().read(parse(PredictRequest, request.SerializeToString()))
    written = answer(asked, asked.body, asked.form).SerializeToString()  # type: ignore[arg-type]

    response = predict_pb2.PredictResponse.FromString(written)
    np.testing.assert_array_equal(make_ndarray(response.outputs["output-0"]), numbers)
    np.testing.assert_array_equal(GrpcPredictResponse(response).to_dict()["outputs"], numbers)
    assert response.model_spec.version.value == 1
