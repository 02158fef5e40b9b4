"""ModelInfer to our APIs: tensors in, tensors out, in one batch with HTTP's requests."""

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tritonclient.grpc._utils import _get_inference_request

from tests.gateway.grpc.bodies import (
    InferParameter,
    InferRequest,
    InferResponse,
    Named,
    damaged,
    floats,
    infer_request,
    predict_request,
    same,
    tensors,
    tensors_of,
)
from tests.gateway.grpc.dialects.stage import dialect_of
from tests.gateway.protocols import v2_bodies
from uncork_gateway.codecs import Marshalled, make_codec
from uncork_gateway.dialects import V2
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.dialects.inputs import ANY_INPUTS
from uncork_gateway.errors import BadRequest, HandlerFailed
from uncork_gateway.grpc.dialects.predict import Predict
from uncork_gateway.grpc.dialects.v2 import V2Grpc
from uncork_gateway.grpc.messages import parse
from uncork_workers.wire.messages import ColumnsForm, ListForm, RowPath, RowsForm, TensorForm
from uncork_workers.wire.tensors import split_columns

dialect = partial(dialect_of, V2Grpc)


def answer(asked: Marshalled, body: bytes, form: RowsForm = None) -> Any:
    """The answer with a handler's result."""
    return InferResponse.FromString(b"".join(dialect().write(HandlerResult(200, body, form), asked)))


# In


@given(tensor=tensors(), typed=st.booleans())
def test_every_datatype_is_read_as_http_reads_it(tensor: Named, typed: bool) -> None:
    """Requests of both protocols have one key, form and body, whichever way values travel."""
    size = len(tensor.raw) // max(1, tensor.array.size)
    items = (
        list(tensor.array.ravel())
        if tensor.datatype == "BYTES"
        else [tensor.raw[at : at + size] for at in range(0, len(tensor.raw), size)]
    )
    written = v2_bodies.Written(
        name="x", datatype=tensor.datatype, inner=tensor.array.shape[1:], form="binary", items=items
    )
    content = v2_bodies.request(written, parameters={"binary_data_output": True})
    http = V2(make_codec({"kind": "json"}), model="m", inputs=ANY_INPUTS, saw=lambda outputs: None)

    asked = dialect().read(infer_request(tensor, typed=typed))

    own = http.read(content.body, http.keep(content.headers, b"/"))
    assert replace(asked, note=None, locate=None) == replace(own, note=None, locate=None)
    assert asked.body == tensor.raw


def test_parameters_are_those_of_http() -> None:
    """Without those of the protocol; numbers with a fraction are no integers."""
    parameters = {
        "binary_data_output": InferParameter(bool_param=True),
        "triton_enable_empty_final_response": InferParameter(bool_param=True),
    }
    asked = dialect().read(infer_request(floats(1), parameters=parameters))
    assert asked.parameters == b""
    parameters |= {
        "a": InferParameter(int64_param=1),
        "b": InferParameter(double_param=1),
        "c": InferParameter(string_param="1"),
        "d": InferParameter(bool_param=False),
        "e": InferParameter(uint64_param=2**64 - 1),
        "f": InferParameter(),
    }
    asked = dialect().read(infer_request(floats(1), parameters=parameters))
    values = json.loads(asked.parameters)
    assert values == {"a": 1, "b": 1.0, "c": "1", "d": False, "e": 2**64 - 1, "f": None}
    assert (type(values["a"]), type(values["b"])) == (int, float)
    assert asked.size_bytes == len(asked.body) + len(asked.parameters)


@given(inputs=st.lists(tensors(rows=2), min_size=2, max_size=3), typed=st.booleans())
def test_several_inputs_are_columns_of_objects(inputs: list[Named], typed: bool) -> None:
    inputs = [each._replace(name=f"in {at}") for at, each in enumerate(inputs)]
    typed = typed and not any(each.datatype in ("FP16", "BF16") for each in inputs)
    request = infer_request(*inputs, typed=typed)

    asked = dialect().read(request)

    assert split_columns(asked.body) == [each.raw for each in inputs]
    forms = [(each.name, TensorForm(each.datatype, each.array.shape[1:])) for each in inputs]
    assert (asked.rows, asked.key, asked.form) == (2, None, ColumnsForm(tuple(forms)))


def tensor(**fields: Any) -> dict[str, Any]:
    """An input with two floats, but for some fields."""
    return {"name": "x", "datatype": "FP32", "shape": [2], **fields}


TYPED = {"contents": {"fp32_contents": [1, 2]}}
EIGHT = [b"8 bytes."]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "the request has no inputs"),
        (
            {"inputs": [tensor()]},
            "tensor 'x': shape [2] of FP32 needs 2 values in fp32_contents, or raw_input_contents, got 0",
        ),
        (
            {"inputs": [tensor(), tensor(name="y")], "raw_input_contents": EIGHT},
            "raw_input_contents must have an element for each tensor ('x', 'y'), got 1 element",
        ),
        (
            {"raw_input_contents": EIGHT},
            "raw_input_contents must have an element for each tensor (none), got 1 element",
        ),
        (
            {"inputs": [tensor(**TYPED)], "raw_input_contents": EIGHT},
            "tensor 'x': it has both contents and raw_input_contents; send only one",
        ),
        (
            {"inputs": [tensor()], "raw_input_contents": [b"7 bytes"]},
            "tensor 'x': shape [2] of FP32 needs 8 bytes, got 7",
        ),
        (
            {"inputs": [tensor(shape=[1], datatype="BYTES")], "raw_input_contents": [b"\2\0\0\0a"]},
            "tensor 'x': the last element of BYTES is incomplete",
        ),
        (
            {"inputs": [tensor(shape=[3], **TYPED)]},
            "tensor 'x': shape [3] of FP32 needs 3 values in fp32_contents, or raw_input_contents, got 2",
        ),
        (
            {"inputs": [tensor(datatype="FP64", **TYPED)]},
            "tensor 'x': values of FP64 must be in fp64_contents, got fp32_contents",
        ),
        (
            {"inputs": [tensor(shape=[-1, 2], **TYPED)]},
            "tensor 'x': lengths in shape must be from 0 to 9223372036854775807, got -1",
        ),
        ({"inputs": [tensor(shape=[1] * 65)]}, "tensor 'x': shape must have at most 64 axes, got 65"),
        ({"inputs": [tensor(shape=[], contents={"fp32_contents": [1]})]}, "no axis of length 0, got 'x' []"),
        ({"inputs": [tensor(shape=[0])]}, "inputs must have the same number of rows, at least 1"),
        ({"inputs": [tensor(shape=[2, 0])]}, "no axis of length 0, got 'x' [2, 0]"),
        (
            {"inputs": [tensor(**TYPED), tensor(name="y", shape=[1], contents={"fp32_contents": [1]})]},
            "inputs must have the same number of rows, at least 1",
        ),
        (
            {"inputs": [tensor(datatype="FP16", **TYPED)]},
            "FP16 has no typed contents; send it in raw_input_c",
        ),
        ({"inputs": [tensor(datatype="BF16")]}, "BF16 has no typed contents; send it in raw_input_contents"),
        ({"inputs": [tensor(datatype="fp32", **TYPED)]}, "'x': datatype must be one of BOOL, UINT8, "),
        (
            {"inputs": [tensor(shape=[1], datatype="UINT8", contents={"uint_contents": [256]})]},
            "tensor 'x': values of UINT8 must be from 0 to 255, got 256",
        ),
        (
            {"inputs": [tensor(shape=[2], datatype="INT16", contents={"int_contents": [1, -32769]})]},
            "tensor 'x': values of INT16 must be from -32768 to 32767, got -32769",
        ),
        (
            {"parameters": {"sequence_id": InferParameter(int64_param=1)}, "inputs": [tensor(**TYPED)]},
            "parameter 'sequence_id' is not supported: batching does not keep sequences in order",
        ),
        (
            {"inputs": [tensor(parameters={"shared_memory_region": InferParameter(string_param="r")})]},
            "tensor 'x': shared memory is not supported",
        ),
        (
            {
                "inputs": [tensor(**TYPED)],
                "outputs": [
                    {"name": "y", "parameters": {"shared_memory_byte_size": InferParameter(int64_param=8)}}
                ],
            },
            "tensor 'y': shared memory is not supported",
        ),
        (
            {
                "inputs": [tensor(**TYPED)],
                "outputs": [{"name": "y", "parameters": {"classification": InferParameter(int64_param=3)}}],
            },
            "output 'y': classification is not supported",
        ),
        ({"inputs": [tensor(**TYPED), tensor(**TYPED)]}, "input names must be unique, got 'x', 'x'"),
    ],
)
def test_a_wrong_request_says_what_is_wrong(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        dialect().read(InferRequest(model_name="m", **fields))

    assert message in str(caught.value)


def test_an_array_takes_one_input() -> None:
    with pytest.raises(BadRequest, match="this model takes one input, got 'a', 'b'"):
        dialect(shape=[]).read(infer_request(floats(1, name="a"), floats(1, name="b")))


def test_no_classes_is_no_classification() -> None:
    outputs = [{"name": "y", "parameters": {"classification": InferParameter(int64_param=0)}}]

    assert dialect().read(infer_request(floats(1), outputs=outputs)).rows == 1


@given(data=st.data(), tensor=tensors(), typed=st.booleans())
def test_damaged_messages_are_read_or_refused(data: st.DataObject, tensor: Named, typed: bool) -> None:
    whole = infer_request(tensor, typed=typed, id="7", outputs=[{"name": "y"}]).SerializeToString()

    try:
        asked = dialect().read(parse(InferRequest, data.draw(damaged(whole))))
    except BadRequest:
        return
    assert asked.rows >= 1


A_AND_B = [floats(1, name="a"), Named("b", "INT64", np.array([[1, 2]]))]


@pytest.mark.parametrize(
    ("inputs", "place", "raw", "typed"),
    [
        ([floats(1, 2)], RowPath(1, ()), "row 2 of `$.inputs[0]`", "`$.inputs[0].contents.fp32_contents[1]`"),
        (A_AND_B, RowPath(0, ("a",)), "row 1 of `$.inputs[0]`", "`$.inputs[0].contents.fp32_contents[0]`"),
        (A_AND_B, RowPath(0, ("b", 1)), "row 1 of `$.inputs[1]`", "`$.inputs[1].contents.int64_contents[1]`"),
        (A_AND_B, RowPath(0, ("b",)), "row 1 of `$.inputs[1]`", "row 1 of `$.inputs[1]`"),
        (A_AND_B, RowPath(0, ()), "row 1 of `$.inputs`", "row 1 of `$.inputs`"),
    ],
)
def test_errors_of_rows_name_the_input(inputs: list[Named], place: RowPath, raw: str, typed: str) -> None:
    """As over HTTP: values in a field of their own have a path, bytes have a row."""
    assert dialect().read(infer_request(*inputs, typed=False)).path_to(place) == raw
    assert dialect().read(infer_request(*inputs, typed=True)).path_to(place) == typed


# Out


@given(tensor=tensors(), typed=st.booleans())
def test_answers_have_the_form_of_the_request(tensor: Named, typed: bool) -> None:
    """Raw in, raw out; typed in, typed out, but for datatypes that must be raw."""
    rows = len(tensor.array)
    asked = dialect().read(infer_request(Named("x", "FP32", np.zeros(rows, "<f4")), typed=typed, id="7"))
    if tensor.datatype == "BYTES":
        strings = np.array([repr(each) for each in tensor.array.ravel()], object).reshape(tensor.array.shape)
        body = json.dumps(strings.tolist())[1:-1].encode()
        form: RowsForm = ListForm("BYTES", tensor.array.shape[1:])
        encoded = [each.encode() for each in strings.ravel()]
        tensor = tensor._replace(array=np.array(encoded, object).reshape(tensor.array.shape))
    else:
        body, form = tensor.raw, TensorForm(tensor.datatype, tensor.array.shape[1:])

    response = answer(asked, body, form)

    assert (response.model_name, response.model_version, response.id) == ("m", "1", "7")
    assert same(
        tensors_of(response.outputs, response.raw_output_contents), [tensor._replace(name="output-0")]
    )
    assert bool(response.raw_output_contents) == (not typed or tensor.datatype in ("FP16", "BF16"))


@pytest.mark.parametrize("count", [31, 32, 4096, 2**19])
def test_the_length_of_typed_values_may_have_any_size(count: int) -> None:
    """The lengths of fields have one to four bytes."""
    values = np.arange(count, dtype="<f4")
    asked = dialect().read(infer_request(floats(1), typed=True))

    response = answer(asked, values.tobytes(), TensorForm("FP32", (count,)))

    np.testing.assert_array_equal(response.outputs[0].contents.fp32_contents, values)


def test_objects_are_an_output_for_each_key() -> None:
    """One that must be raw makes all of them raw."""
    seen: list[Any] = []
    speaks = dialect(saw=seen.append)
    wanted = [{"name": "p"}, {"name": "label"}, {"name": "p"}]
    asked = speaks.read(infer_request(floats(1, 2), typed=True, outputs=wanted))
    result = HandlerResult(200, b'{"label": "a", "p": 0.5, "more": 1},{"label": "b", "p": null, "more": 2}')

    response = InferResponse.FromString(b"".join(speaks.write(result, asked)))

    p, label = tensors_of(response.outputs, response.raw_output_contents)
    assert (p.name, p.datatype, label.name, label.datatype) == ("p", "FP64", "label", "BYTES")
    np.testing.assert_array_equal(p.array, [0.5, np.nan])
    assert label.array.tolist() == [b"a", b"b"]
    assert [each.name for each in seen[0]] == ["label", "p", "more"]


def test_an_output_that_there_is_not_is_refused() -> None:
    asked = dialect().read(infer_request(floats(1), outputs=[{"name": "score"}]))

    with pytest.raises(BadRequest, match=r"^unknown output 'score'; available outputs: 'a', 'b'$"):
        answer(asked, b'{"a": 1, "b": 2}')


def test_tritons_own_client_gets_its_rows() -> None:
    """It reads and writes with its own stubs."""
    numbers = np.array([[1.5, -0.0], [np.nan, np.inf]], np.float32)
    sent = triton.InferInput("x", numbers.shape, "FP32").set_data_from_numpy(numbers)
    wanted = [triton.InferRequestedOutput("output-0")]
    request = _get_inference_request("m", [sent], "", "id", wanted, 0, False, False, 0, 100, None)

    asked = dialect().read(parse(InferRequest, request.SerializeToString()))
    response = answer(asked, asked.body, asked.form)  # type: ignore[arg-type]

    stub = triton.service_pb2.ModelInferResponse.FromString(response.SerializeToString())
    result = triton.InferResult(stub)
    assert result.get_response().id == "id"
    np.testing.assert_array_equal(result.as_numpy("output-0"), numbers)


@pytest.mark.parametrize("kind", [V2Grpc, Predict])
def test_a_result_that_is_no_rows_fails(kind: Any) -> None:
    asked = dialect_of(kind).read((infer_request if kind is V2Grpc else predict_request)(floats(1)))
    with pytest.raises(HandlerFailed, match="image/png"):
        dialect_of(kind).write(HandlerResult(200, b"png", content_type="image/png"), asked)
