"""ModelInfer and Predict to our APIs: tensors in, tensors out, in one batch with HTTP's requests.

``tests/gateway/dialects/test_values.py`` compares values in all protocols.
"""

import json
import math
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.gateway.dialects.values_stage import v2_body
from tests.gateway.grpc.bodies import (
    KINDS,
    InferParameter,
    InferRequest,
    InferResponse,
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
    tensors,
    tensors_of,
)
from uncork_gateway.codecs import make_codec
from uncork_gateway.dialects import V2, Rest
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.dialects.inputs import ANY_INPUTS
from uncork_gateway.errors import BadRequest, HandlerFailed
from uncork_gateway.grpc.dialects.predict import Predict
from uncork_gateway.grpc.dialects.v2 import V2Grpc
from uncork_gateway.grpc.messages import parse
from uncork_gateway.protocols.lenient_json import read_members
from uncork_workers.wire.forms import ColumnsForm, TensorForm
from uncork_workers.wire.messages import RowPath
from uncork_workers.wire.tensors import split_columns

D = TypeVar("D", V2, V2Grpc, Predict)
both = pytest.mark.parametrize("kind", [V2Grpc, Predict])


def speaks(kind: type[D], *, cost: str | None = None, saw: Any = lambda outputs: None) -> D:
    """The dialect of an API that takes JSON."""
    return kind(make_codec({"kind": "json"}, cost), model="m", inputs=ANY_INPUTS, saw=saw)


def written(kind: Any, *inputs: Named, outputs: tuple[str, ...] = (), **fields: Any) -> Any:
    """A request in one of the two protocols."""
    if kind is V2Grpc:
        return infer_request(*inputs, outputs=[{"name": name} for name in outputs], **fields)
    return predict_request(*inputs, output_filter=outputs, **fields)


def answer(kind: Any, asked: Any, body: bytes, form: Any = None, **options: Any) -> tuple[Any, list[Named]]:
    """The response with a handler's result, and its tensors."""
    serialized = b"".join(speaks(kind, **options).write(HandlerResult(200, body, form), asked))
    if kind is V2Grpc:
        response = InferResponse.FromString(serialized)
        return response, tensors_of(response.outputs, response.raw_output_contents)
    response = PredictResponse.FromString(serialized)
    return response, protos_of(response.outputs)


# In


@given(tensor=tensors(), typed=st.booleans())
def test_every_datatype_is_read_as_http_reads_it(tensor: Named, typed: bool) -> None:
    """Requests of all protocols have one key, form and body, whichever way values travel."""
    http = speaks(V2).read(*v2_body([tensor], binary=True))
    infer = speaks(V2Grpc).read(infer_request(tensor, typed=typed))
    predict = speaks(Predict).read(predict_request(tensor, typed=typed))

    for asked in (infer, predict):
        assert replace(asked, note=None, locate=None) == replace(http, note=None, locate=None)
        assert asked.body == tensor.raw


def test_parameters_are_those_of_http() -> None:
    """Without those of the protocol; numbers with a fraction are no integers."""
    parameters = {
        "binary_data_output": InferParameter(bool_param=True),
        "triton_enable_empty_final_response": InferParameter(bool_param=True),
    }
    asked = speaks(V2Grpc).read(infer_request(floats(1), parameters=parameters))
    assert asked.parameters == b""
    parameters |= {
        "a": InferParameter(int64_param=1),
        "b": InferParameter(double_param=1),
        "c": InferParameter(string_param="1"),
        "d": InferParameter(bool_param=False),
        "e": InferParameter(uint64_param=2**64 - 1),
        "f": InferParameter(),
    }
    asked = speaks(V2Grpc).read(infer_request(floats(1), parameters=parameters))
    values = json.loads(asked.parameters)
    assert values == {"a": 1, "b": 1.0, "c": "1", "d": False, "e": 2**64 - 1, "f": None}
    assert (type(values["a"]), type(values["b"])) == (int, float)
    assert asked.size_bytes == len(asked.body) + len(asked.parameters)


def test_parameters_may_be_nan_and_infinite_as_over_http() -> None:
    values = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.5}
    named = {name: InferParameter(double_param=value) for name, value in values.items()}
    tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}
    http = speaks(V2).read(json.dumps({"inputs": [tensor], "parameters": values}).encode(), ())

    asked = speaks(V2Grpc).read(infer_request(floats(1), parameters=named))
    assert read_members(asked.parameters) == read_members(http.parameters)
    assert repr(json.loads(asked.parameters)["a"]) == "nan"


def test_parameters_are_not_copied_for_too_many_rows() -> None:
    parameters = {"a": InferParameter(string_param="x" * 2**20)}

    with pytest.raises(BadRequest, match=r"^the parameters have 1048584 bytes for each of 8 rows, more"):
        speaks(V2Grpc).read(infer_request(floats(*range(8)), parameters=parameters))


def test_columns_share_batches_with_rest() -> None:
    """Several inputs are columns of objects; those of Predict in the order of their names."""
    inputs = [floats(1, 2, name="b"), Named("a", "BYTES", np.array([b"x", b"y"], object))]
    rest = Rest(make_codec({"kind": "json"}, "b"), kserve=False)
    body = rest.read(b'{"inputs":{"b":[1.0,2.0],"a":["x","y"]}}', ())

    kind: Any
    for kind, columns in ((Predict, sorted(inputs)), (V2Grpc, inputs)):
        asked = speaks(kind, cost="b").read(written(kind, *inputs))

        assert (asked.key, asked.rows, asked.cost) == (body.key, 2, body.cost)
        assert split_columns(asked.body) == [each.raw for each in columns]
        forms = tuple([(each.name, TensorForm(each.datatype, ())) for each in columns])
        assert asked.form == ColumnsForm(forms)


def given_inputs(*inputs: dict[str, Any], **fields: Any) -> Any:
    """A ModelInferRequest with inputs of two floats, but for some fields."""
    own = [{"name": "x", "datatype": "FP32", "shape": [2], **each} for each in inputs]
    return InferRequest(model_name="m", inputs=own, **fields)


def dims(*lengths: int) -> dict[str, Any]:
    return {"dim": [{"size": length} for length in lengths]}


def given_protos(**inputs: dict[str, Any]) -> Any:
    """A PredictRequest with inputs of two floats, but for some fields."""
    own = {"dtype": "DT_FLOAT", "tensor_shape": dims(2)}
    return PredictRequest(inputs={name: TensorProto(**{**own, **each}) for name, each in inputs.items()})


TYPED = {"contents": {"fp32_contents": [1, 2]}}
ONE = {"shape": [1], "contents": {"fp32_contents": [1]}}
EIGHT = [b"8 bytes."]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (given_inputs(), "the request has no inputs"),
        (given_inputs({}), "shape [2] of FP32 needs 2 values in fp32_contents, or raw_input_contents, got 0"),
        (
            given_inputs({}, {"name": "y"}, raw_input_contents=EIGHT),
            "raw_input_contents must have an element for each tensor ('x', 'y'), got 1 element",
        ),
        (given_inputs(raw_input_contents=EIGHT), "an element for each tensor (none), got 1 element"),
        (
            given_inputs(TYPED, raw_input_contents=EIGHT),
            "both contents and raw_input_contents; send only one",
        ),
        (given_inputs({}, raw_input_contents=[b"7 bytes"]), "'x': shape [2] of FP32 needs 8 bytes, got 7"),
        (given_inputs({"datatype": "FP64", **TYPED}), "must be in fp64_contents, got fp32_contents"),
        (given_inputs({"shape": [-1, 2], **TYPED}), "lengths in shape must be from 0 to"),
        (given_inputs({**ONE, "shape": []}), "no axis of length 0, got 'x' []"),
        (given_inputs({"shape": [0]}), "inputs must have the same number of rows, at least 1"),
        (given_inputs(TYPED, {"name": "y", **ONE}), "inputs must have the same number of rows, at least 1"),
        (given_inputs({"datatype": "FP16", **TYPED}), "FP16 has no typed contents; send it in raw_input_c"),
        (
            given_inputs({"datatype": "UINT8", "shape": [1], "contents": {"uint_contents": [256]}}),
            "tensor 'x': values of UINT8 must be from 0 to 255, got 256",
        ),
        (
            given_inputs(TYPED, parameters={"sequence_id": InferParameter(int64_param=1)}),
            "parameter 'sequence_id' is not supported: batching does not keep sequences in order",
        ),
        (
            given_inputs({"parameters": {"shared_memory_region": InferParameter(string_param="r")}}),
            "tensor 'x': shared memory is not supported",
        ),
        (
            given_inputs(TYPED, outputs=[{"name": "y", "parameters": {"shared_memory_x": InferParameter()}}]),
            "tensor 'y': shared memory is not supported",
        ),
        (
            given_inputs(
                TYPED,
                outputs=[{"name": "y", "parameters": {"classification": InferParameter(int64_param=3)}}],
            ),
            "output 'y': classification is not supported",
        ),
        (given_inputs(TYPED, TYPED), "input names must be unique, got 'x', 'x'"),
        (given_protos(), "the request has no inputs"),
        (given_protos(x={"dtype": "DT_INVALID"}), "dtype must be one of DT_BOOL, DT_INT8, "),
        (given_protos(x={"dtype": "DT_COMPLEX64", "scomplex_val": [1, 2]}), ", got DT_COMPLEX64"),
        (given_protos(x={"dtype": 101, "float_val": [1, 2]}), ", got 101"),
        (given_protos(x={"tensor_shape": {"unknown_rank": True}}), "'x': its shape must be known"),
        (given_protos(x={"tensor_shape": dims(-1)}), "'x': lengths in shape must be from 0 to"),
        (given_protos(x={"tensor_shape": dims(0)}), "the same number of rows, at least 1"),
        (
            given_protos(x={"float_val": [1, 2]}, y={"tensor_shape": dims(1), "float_val": [1]}),
            "inputs must have the same number of rows, at least 1",
        ),
        (given_protos(x={"tensor_content": b"1234"}), "'x': shape [2] of FP32 needs 8 bytes, got 4"),
        (
            given_protos(x={"tensor_content": b"12345678", "float_val": [1]}),
            "tensor 'x': it has both tensor_content and float_val; send only one",
        ),
        (given_protos(x={"double_val": [1, 2]}), "must be in float_val, got double_val"),
        (
            given_protos(x={}),
            "tensor 'x': shape [2] of DT_FLOAT needs 2 values in float_val, or fewer, of which the last one "
            "is repeated, got 0",
        ),
        (given_protos(x={"float_val": [1, 2, 3]}), "of which the last one is repeated, got 3"),
        (
            given_protos(x={"dtype": "DT_STRING", "tensor_content": b"\1\1ab"}),
            "tensor 'x': strings must be in string_val, got tensor_content",
        ),
        (
            given_protos(x={"dtype": "DT_HALF", "half_val": [0, 65536]}),
            "tensor 'x': values of FP16 must be from 0 to 65535, got 65536",
        ),
    ],
)
def test_a_wrong_request_says_what_is_wrong(request_: Any, message: str) -> None:
    kind: Any = V2Grpc if isinstance(request_, InferRequest) else Predict
    with pytest.raises(BadRequest) as caught:
        speaks(kind).read(request_)

    assert message in str(caught.value)


def test_no_classes_is_no_classification() -> None:
    outputs = [{"name": "y", "parameters": {"classification": InferParameter(int64_param=0)}}]

    assert speaks(V2Grpc).read(infer_request(floats(1), outputs=outputs)).rows == 1


@given(tensor=tensors(), data=st.data())
def test_the_last_value_of_predict_stands_for_the_rest(tensor: Named, data: st.DataObject) -> None:
    given = data.draw(st.integers(1, tensor.array.size))
    fields, name = proto(tensor, typed=True), KINDS[tensor.datatype].values
    values = fields[name]
    full = values[:given] + values[given - 1 : given] * (len(values) - given)

    asked = speaks(Predict).read(given_protos(x={**fields, name: values[:given]}))

    assert asked.body == speaks(Predict).read(given_protos(x={**fields, name: full})).body
    assert asked.rows == len(tensor.array)


def test_a_small_message_cannot_fill_the_memory() -> None:
    """The bytes of repeated values are counted over all inputs."""
    large = dims(2, 2**16 + 1)  # half a mebibyte of floats is repeated, and one more
    one = {"tensor_shape": large, "float_val": [1]}

    assert speaks(Predict).read(given_protos(x=one)).rows == 2
    for inputs in ({"x": one, "y": one}, {"x": {**one, "tensor_shape": dims(2**62)}}):
        with pytest.raises(BadRequest, match="the last value may be repeated to at most 1048576 bytes"):
            speaks(Predict).read(given_protos(**inputs))


def test_there_is_one_signature() -> None:
    spec = {"name": "m", "signature_name": "serving_default"}
    assert speaks(Predict).read(predict_request(floats(1), model_spec=spec)).rows == 1

    with pytest.raises(BadRequest, match="unknown signature 'other'; this model has only 'serving_default'"):
        speaks(Predict).read(predict_request(floats(1), model_spec={**spec, "signature_name": "other"}))


@both
@given(data=st.data(), tensor=tensors(), typed=st.booleans())
def test_damaged_messages_are_read_or_refused(
    kind: Any, data: st.DataObject, tensor: Named, typed: bool
) -> None:
    whole = written(kind, tensor, typed=typed, outputs=("y",))
    try:
        asked = speaks(kind).read(parse(type(whole), data.draw(damaged(whole.SerializeToString()))))
    except BadRequest:
        return
    assert asked.rows >= 1


A_AND_B = [floats(1, name="a"), Named("b b", "INT64", np.array([[1, 2]]))]


@pytest.mark.parametrize(
    ("inputs", "place", "raw", "typed", "predict"),
    [
        (
            [floats(1, 2)],
            RowPath(1, ()),
            *("row 2 of `$.inputs[0]`", "`$.inputs[0].contents.fp32_contents[1]`", "row 2 of `$.inputs.x`"),
        ),
        (
            A_AND_B,
            RowPath(0, ("b b", 1)),
            *("row 1 of `$.inputs[1]`", "`$.inputs[1].contents.int64_contents[1]`"),
            "row 1 of `$.inputs['b b']`",
        ),
        (
            A_AND_B,
            RowPath(0, ("b b",)),
            *("row 1 of `$.inputs[1]`", "row 1 of `$.inputs[1]`", "row 1 of `$.inputs['b b']`"),
        ),
        (A_AND_B, RowPath(0, ()), *["row 1 of `$.inputs`"] * 3),
    ],
)
def test_errors_of_rows_name_the_input(
    inputs: list[Named], place: RowPath, raw: str, typed: str, predict: str
) -> None:
    """As over HTTP: values in a field of their own have a path, bytes have a row."""
    assert speaks(V2Grpc).read(infer_request(*inputs, typed=False)).path_to(place) == raw
    assert speaks(V2Grpc).read(infer_request(*inputs, typed=True)).path_to(place) == typed
    assert speaks(Predict).read(predict_request(*inputs)).path_to(place) == predict


# Out


@pytest.mark.parametrize("typed", [True, False])
def test_a_response_has_the_form_of_its_request(typed: bool) -> None:
    """From ModelInfer; TensorFlow Serving's responses are typed, and clients rely on it."""
    form = TensorForm("FP32", ())
    asked = speaks(V2Grpc).read(infer_request(floats(1), typed=typed, id="7"))
    response, [tensor] = answer(V2Grpc, asked, floats(2).raw, form)
    assert (response.model_name, response.model_version, response.id) == ("m", "1", "7")
    assert (tensor.name, bool(response.raw_output_contents)) == ("output-0", not typed)

    asked = speaks(Predict).read(predict_request(floats(1), typed=typed))
    response, [tensor] = answer(Predict, asked, floats(2).raw, form)
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("m", 1, "serving_default")
    assert (tensor.name, response.outputs["output-0"].tensor_content) == ("output-0", b"")


@pytest.mark.parametrize("count", [31, 32, 4096, 2**19])
def test_the_length_of_typed_values_may_have_any_size(count: int) -> None:
    """The lengths of fields have one to four bytes."""
    values = np.arange(count, dtype="<f4")
    asked = speaks(V2Grpc).read(infer_request(floats(1), typed=True))

    response, _ = answer(V2Grpc, asked, values.tobytes(), TensorForm("FP32", (count,)))

    np.testing.assert_array_equal(response.outputs[0].contents.fp32_contents, values)


@both
def test_objects_are_an_output_for_each_key(kind: Any) -> None:
    """In the order of the request over ModelInfer; one that must be raw makes all of them raw."""
    seen: list[Any] = []
    asked = speaks(kind).read(written(kind, floats(1, 2), typed=True, outputs=("p", "label", "p")))
    body = b'{"label": "a", "p": 0.5, "more": 1},{"label": "b", "p": null, "more": 2}'

    _, outputs = answer(kind, asked, body, saw=seen.append)

    assert [each.name for each in outputs] == (["p", "label"] if kind is V2Grpc else ["label", "p"])
    p, label = sorted(outputs, key=lambda each: each.name, reverse=True)
    assert (p.datatype, label.datatype, label.array.tolist()) == ("FP64", "BYTES", [b"a", b"b"])
    np.testing.assert_array_equal(p.array, [0.5, np.nan])
    assert [each.name for each in seen[0]] == ["label", "p", "more"]


@both
def test_results_that_cannot_be_expressed_are_refused(kind: Any) -> None:
    asked = speaks(kind).read(written(kind, floats(1), outputs=("score",)))
    with pytest.raises(BadRequest, match=r"^unknown output 'score'; available outputs: 'a', 'b'$"):
        answer(kind, asked, b'{"a": 1, "b": 2}')
    with pytest.raises(HandlerFailed, match="image/png"):
        speaks(kind).write(HandlerResult(200, b"png", content_type="image/png"), asked)
