"""Calls of ModelInfer and Predict that share a call get the answers they would get alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.grpc.bodies import (
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
    infer_response,
    mergeable,
    predict_request,
    predict_response,
    protos_of,
    same,
    tensors_of,
)
from tests.gateway.protocols.parts import join_by_rows
from uncork_gateway.errors import BadRequest
from uncork_gateway.grpc.protocols.predict import PredictWire
from uncork_gateway.grpc.protocols.tensor_wire import TensorWire
from uncork_gateway.grpc.protocols.v2 import V2GrpcWire
from uncork_gateway.protocols.wire import Content, UncertainReply, Unmergeable, WrongReply

UNKNOWN = b"\xfa\x3f\x03new"


def reversed_rows(tensors: Sequence[Named], *, with_bias: bool) -> list[Named]:
    """What a model answers that turns every row round; a bias of one row for all is another output."""
    outputs = [
        Named(
            f"of {each.name}",
            each.datatype,
            np.ascontiguousarray(each.array.reshape(len(each.array), -1)[:, ::-1].reshape(each.array.shape)),
        )
        for each in tensors
    ]
    return [*outputs, Named("bias", "INT64", np.array([[7, 8]], "<i8"))] if with_bias else outputs


class Infer:
    """ModelInfer, and a server that answers in kind."""

    wire: TensorWire = V2GrpcWire()

    def request(self, inputs: Sequence[Named], *, typed: bool = False, **fields: Any) -> Content:
        return Content(infer_request(*inputs, typed=typed, **fields).SerializeToString())

    def inputs(self, call: Content) -> list[Named]:
        request = InferRequest.FromString(call.body)
        return tensors_of(request.inputs, request.raw_input_contents)

    def serve(self, call: Content, *, typed: bool, with_bias: bool) -> Content:
        request = InferRequest.FromString(call.body)
        outputs = reversed_rows(self.inputs(call), with_bias=with_bias)
        if any(each.datatype in ("FP16", "BF16") for each in outputs):
            typed = False
        response = infer_response(*outputs, typed=typed, id=request.id)
        return Content(response.SerializeToString())

    def answer(self, reply: Content) -> tuple[list[Named], Any]:
        """The outputs, and the other fields."""
        response = InferResponse.FromString(reply.body)
        outputs = tensors_of(response.outputs, response.raw_output_contents)
        return outputs, (response.id, response.model_name, bool(response.raw_output_contents))

    def reply(self, *outputs: Named, model: str = "m") -> Content:
        return Content(infer_response(*outputs, model_name=model).SerializeToString())


class TensorFlow:
    """Predict, and a server that answers with values or content."""

    wire: TensorWire = PredictWire()

    def request(self, inputs: Sequence[Named], *, typed: bool = False, **fields: Any) -> Content:
        return Content(predict_request(*inputs, typed=typed, **fields).SerializeToString())

    def inputs(self, call: Content) -> list[Named]:
        return protos_of(PredictRequest.FromString(call.body).inputs)

    def serve(self, call: Content, *, typed: bool, with_bias: bool) -> Content:
        outputs = reversed_rows(self.inputs(call), with_bias=with_bias)
        return Content(predict_response(*outputs, typed=typed).SerializeToString())

    def answer(self, reply: Content) -> tuple[list[Named], Any]:
        """The outputs, and the other fields."""
        response = PredictResponse.FromString(reply.body)
        content = any(response.outputs[name].tensor_content for name in response.outputs)
        return protos_of(response.outputs), (response.model_spec.name, content)

    def reply(self, *outputs: Named, model: str = "m") -> Content:
        return Content(predict_response(*outputs, model_spec={"name": model}).SerializeToString())


Side = Infer | TensorFlow
SIDES = st.sampled_from([Infer(), TensorFlow()])
both = pytest.mark.parametrize("side", [Infer(), TensorFlow()], ids=["infer", "predict"])


def assert_same_answer(side: Side, one: Content, other: Content) -> None:
    outputs, rest = side.answer(one)
    expected, expected_rest = side.answer(other)
    assert same(outputs, expected)
    assert rest == expected_rest


@given(side=SIDES, inputs=mergeable(), typed=st.booleans(), answers_typed=st.booleans(), bias=st.booleans())
def test_each_gets_what_it_would_have_got_alone(
    side: Side, inputs: list[list[Named]], typed: bool, answers_typed: bool, bias: bool
) -> None:
    """For all datatypes, shapes and forms; each answer has its request's id."""
    typed = typed and not any(each.datatype in ("FP16", "BF16") for each in inputs[0])
    fields = [{"id": f"id {at}"} if isinstance(side, Infer) else {} for at in range(len(inputs))]
    contents = [
        side.request(tensors, typed=typed, **own) for tensors, own in zip(inputs, fields, strict=True)
    ]
    requests = [side.wire.parse(content) for content in contents]

    merged = side.wire.merge(requests)
    reply = side.serve(merged, typed=answers_typed, with_bias=bias)
    replies = side.wire.split(reply, requests)

    assert len({one.key for one in requests}) == 1
    assert [len(each.array) for each in side.inputs(merged)] == [sum(one.rows for one in requests)] * len(
        inputs[0]
    )
    for one, content, share, tensors in zip(requests, contents, replies, inputs, strict=True):
        alone = side.serve(content, typed=answers_typed, with_bias=bias)
        assert_same_answer(side, side.wire.render(share, one, batch_id="b"), alone)
        size_bytes = max(len(content.body), sum(len(each.raw) for each in tensors))
        assert (one.rows, one.size_bytes) == (len(tensors[0].array), size_bytes)


ZEROS = Named("x", "INT64", np.zeros((2, 99), "<i8"))
LONG = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": 1}, {"size": 2**18}]}, "float_val": [1]}


@pytest.mark.parametrize(
    ("wire", "request_", "size_bytes"),
    [
        (PredictWire(), PredictRequest(inputs={"x": TensorProto(**LONG)}), 2**20),
        (PredictWire(), predict_request(ZEROS, typed=True), 2 * 99 * 8),
        (V2GrpcWire(), infer_request(ZEROS, typed=True), 2 * 99 * 8),
    ],
)
def test_a_small_message_counts_with_the_bytes_of_its_values(
    wire: TensorWire, request_: Any, size_bytes: int
) -> None:
    """The queue holds the values in binary, and the last value of Predict stands for all that are missing."""
    content = Content(request_.SerializeToString())

    assert len(content.body) < size_bytes / 3
    assert wire.parse(content).size_bytes == size_bytes


@given(side=SIDES, inputs=mergeable(), most=st.integers(1, 3), typed=st.booleans())
def test_a_cut_request_gets_what_it_would_have_got_whole(
    side: Side, inputs: list[list[Named]], most: int, typed: bool
) -> None:
    bias = most > 1  # among parts of one row, an output of one row is that row's
    content = side.request(inputs[0])
    whole = side.wire.parse(content)
    neighbours = [side.wire.parse(side.request(tensors)) for tensors in inputs[1:]]

    parts = side.wire.cut(whole, most)
    calls = [[part] for part in parts[:-1]] + [[parts[-1], *neighbours]]
    replies = [
        side.wire.split(side.serve(side.wire.merge(call), typed=typed, with_bias=bias), call)[0]
        for call in calls
    ]

    assert max(part.rows for part in parts) <= most
    assert sum(part.rows for part in parts) == whole.rows
    assert {part.key for part in parts} == {whole.key}
    rendered = side.wire.render(join_by_rows(side.wire.join, replies), whole, batch_id="b")
    assert_same_answer(side, rendered, side.serve(content, typed=typed, with_bias=bias))


@both
def test_a_request_alone_travels_as_it_came_and_so_does_its_reply(side: Side) -> None:
    """Even what the gateway does not know; its reply need not be one that could be split."""
    content = Content(UNKNOWN + side.request([floats(1, 2)]).body)
    one = side.wire.parse(content)

    [share] = side.wire.split(Content(b"anything"), [one])

    assert side.wire.merge([one]) == content
    assert side.wire.cut(one, 2) == [one]
    assert side.wire.render(side.wire.join([share]), one, batch_id="b") == Content(b"anything")


@both
def test_fields_that_the_gateway_does_not_know_reach_the_server(side: Side) -> None:
    """They are part of the key."""
    plain = side.request([floats(1)])
    one = side.wire.parse(Content(plain.body + UNKNOWN))

    assert one.key != side.wire.parse(plain).key
    assert UNKNOWN in side.wire.merge([one, one]).body


def parameters(**named: str) -> dict[str, Any]:
    return {name: InferParameter(string_param=value) for name, value in named.items()}


BASE = infer_request(floats(1, 2), parameters=parameters(p="1", q="2"), outputs=[{"name": "y"}])


def changed(request: Any, **fields: Any) -> Content:
    other = type(request)()
    other.CopyFrom(request)
    for field in fields:
        other.ClearField(field)
    other.MergeFrom(type(request)(**fields))
    return Content(other.SerializeToString())


def with_parameters(**named: str) -> Content:
    """The base request, with parameters of its input."""
    return changed(
        BASE, inputs=[{"name": "x", "datatype": "FP32", "shape": [2], "parameters": parameters(**named)}]
    )


@pytest.mark.parametrize(
    "other",
    [
        changed(BASE, model_name="n"),
        changed(BASE, model_version="2"),
        changed(BASE, parameters=parameters(p="1")),
        changed(BASE, parameters=parameters(p="1", q="3")),
        changed(BASE, outputs=[]),
        changed(BASE, outputs=[{"name": "y", "parameters": parameters(a="b")}]),
        changed(BASE, inputs=[{"name": "z", "datatype": "FP32", "shape": [2]}]),
        changed(BASE, inputs=[{"name": "x", "datatype": "INT32", "shape": [2]}]),
        changed(BASE, inputs=[{"name": "x", "datatype": "FP32", "shape": [2, 1]}]),
        changed(
            BASE,
            inputs=[{"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [1]}}],
            raw_input_contents=[],
        ),
        with_parameters(content_type="np"),
    ],
)
def test_infer_requests_that_differ_do_not_share_a_call(other: Content) -> None:
    wire = V2GrpcWire()

    assert wire.parse(other).key != wire.parse(Content(BASE.SerializeToString())).key


def test_infer_requests_that_differ_in_rows_and_id_share_a_call() -> None:
    """The order of maps does not matter either: clients write them in any."""
    wire = V2GrpcWire()
    names = [f"p{number}" for number in range(20)]
    one, other = (
        infer_request(
            rows, parameters=parameters(**dict.fromkeys(order, "1")), outputs=[{"name": "y"}], id=id_
        )
        for rows, order, id_ in ((floats(1, 2), names, "7"), (floats(3), names[::-1], ""))
    )

    requests = [wire.parse(Content(each.SerializeToString())) for each in (one, other)]
    merged = InferRequest.FromString(wire.merge(requests).body)

    assert requests[0].key == requests[1].key
    assert hash(requests[0].key) == hash(requests[1].key)
    assert merged.parameters == one.parameters
    assert merged.outputs == one.outputs
    assert len({merged.id, "", "7"}) == 3


def test_parameters_of_inputs_and_outputs_are_kept() -> None:
    """Every answer has the parameters of the outputs, and of the response."""
    wire = V2GrpcWire()
    requests = [wire.parse(with_parameters(content_type="np"))] * 2
    response = infer_response(floats(1, 2, 3, 4), parameters=parameters(took="1"))
    response.outputs[0].parameters["content_type"].string_param = "np"

    merged = InferRequest.FromString(wire.merge(requests).body)
    shares = wire.split(Content(response.SerializeToString()), requests)

    assert merged.inputs[0].parameters["content_type"].string_param == "np"
    for share in shares:
        answer = InferResponse.FromString(wire.render(share, requests[0], batch_id="b").body)
        assert answer.parameters["took"].string_param == "1"
        assert answer.outputs[0].parameters["content_type"].string_param == "np"


PREDICT = predict_request(floats(1, 2), output_filter=["y"])


@pytest.mark.parametrize(
    "other",
    [
        changed(PREDICT, model_spec={"name": "n"}),
        changed(PREDICT, model_spec={"name": "m", "version": {"value": 2}}),
        changed(PREDICT, model_spec={"name": "m", "version_label": "canary"}),
        changed(PREDICT, model_spec={"name": "m", "signature_name": "other"}),
        changed(PREDICT, output_filter=[]),
        predict_request(floats(1, 2, name="z"), output_filter=["y"]),
        predict_request(Named("x", "FP64", np.array([1.0])), output_filter=["y"]),
        predict_request(Named("x", "FP32", np.zeros((2, 1), "<f4")), output_filter=["y"]),
    ],
)
def test_predict_requests_that_differ_do_not_share_a_call(other: Any) -> None:
    wire = PredictWire()
    content = other if isinstance(other, Content) else Content(other.SerializeToString())

    assert wire.parse(content).key != wire.parse(Content(PREDICT.SerializeToString())).key


def test_predict_requests_share_a_call_however_their_values_are_written() -> None:
    wire = PredictWire()
    requests = [
        wire.parse(Content(predict_request(floats(*values), typed=typed).SerializeToString()))
        for values, typed in (((1, 2), True), ((3,), False))
    ]

    merged = PredictRequest.FromString(wire.merge(requests).body)

    assert requests[0].key == requests[1].key
    assert merged.inputs["x"].tensor_content == np.array([1, 2, 3], "<f4").tobytes()


TENSOR = {"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [1]}}


@pytest.mark.parametrize(
    ("wire", "request_"),
    [
        (V2GrpcWire(), InferRequest()),
        (V2GrpcWire(), InferRequest(inputs=[{**TENSOR, "shape": []}])),
        (V2GrpcWire(), InferRequest(inputs=[{**TENSOR, "shape": [0], "contents": {}}])),
        (V2GrpcWire(), InferRequest(inputs=[{**TENSOR, "parameters": parameters(shared_memory_region="r")}])),
        (
            V2GrpcWire(),
            InferRequest(inputs=[TENSOR], parameters=parameters(sequence_id="7")),
        ),
        (PredictWire(), PredictRequest()),
        (PredictWire(), PredictRequest(inputs={"x": TensorProto(dtype="DT_FLOAT", float_val=[1])})),
        (PredictWire(), PredictRequest(inputs={"x": TensorProto(dtype="DT_COMPLEX64", scomplex_val=[1, 1])})),
        (
            PredictWire(),
            PredictRequest(inputs={"x": TensorProto(dtype="DT_FLOAT", tensor_shape={"dim": [{"size": 1}]})}),
        ),
    ],
)
def test_requests_that_cannot_share_a_call_say_so(wire: TensorWire, request_: Any) -> None:
    """The proxy passes them on, alone and unchanged."""
    with pytest.raises(Unmergeable):
        wire.parse(Content(request_.SerializeToString()))


@given(side=SIDES, inputs=mergeable(), typed=st.booleans(), data=st.data())
def test_damaged_requests_are_read_or_refused(
    side: Side, inputs: list[list[Named]], typed: bool, data: st.DataObject
) -> None:
    whole = side.request(inputs[0], typed=typed)
    try:
        one = side.wire.parse(Content(data.draw(damaged(whole.body))))
    except (BadRequest, Unmergeable):
        return
    assert side.wire.parse(side.wire.merge([one, one])).rows == 2 * one.rows


@given(side=SIDES, inputs=mergeable(), typed=st.booleans(), data=st.data())
def test_damaged_replies_are_split_or_wrong(
    side: Side, inputs: list[list[Named]], typed: bool, data: st.DataObject
) -> None:
    one = side.wire.parse(side.request([floats(1)]))
    reply = side.serve(side.request(inputs[0]), typed=typed, with_bias=True)
    try:
        shares = side.wire.split(Content(data.draw(damaged(reply.body))), [one, one])
    except WrongReply:
        return
    assert [share.rows for share in shares] == [1, 1]


@pytest.mark.parametrize(
    ("side", "reply", "message"),
    [
        (Infer(), infer_response(), "expected outputs with 3 rows, got no outputs"),
        (Infer(), infer_response(floats(1, 2)), "expected 3 rows, or 1 for all requests, got shape [2]"),
        (Infer(), InferResponse(outputs=[{**TENSOR, "shape": [3]}]), "needs 3 values"),
        (TensorFlow(), predict_response(), "expected outputs with 3 rows, got no outputs"),
        (TensorFlow(), predict_response(floats(1, 2)), "expected 3 rows, or 1 for all requests"),
        (
            TensorFlow(),
            PredictResponse(outputs={"y": TensorProto(dtype="DT_VARIANT")}),
            "tensor 'y': dtype must be one of",
        ),
    ],
)
def test_a_reply_to_other_rows_is_wrong(side: Side, reply: Any, message: str) -> None:
    requests = [side.wire.parse(side.request([floats(*rows)])) for rows in ([1], [2, 3])]

    with pytest.raises(WrongReply) as caught:
        side.wire.split(Content(reply.SerializeToString()), requests)

    assert message in str(caught.value)


@both
def test_a_reply_of_too_many_typed_values_is_wrong(side: Side) -> None:
    """The log has the reason; the limit of requests is no advice."""
    requests = [side.wire.parse(side.request([floats(1)]))] * 2
    call = side.request([Named("x", "FP32", np.zeros((2, 500_001), "<f4"))])
    reply = side.serve(call, typed=True, with_bias=False)

    with pytest.raises(WrongReply, match=r"^the response has too many values to be split or joined$"):
        side.wire.split(reply, requests)


def joined(side: Side, most: int, *replies: Content) -> list[Any]:
    """Return the values of the reply to a request of three rows, from the replies to its parts."""
    whole = side.wire.parse(side.request([floats(1, 2, 3)]))
    parts = side.wire.cut(whole, most)
    shares = [side.wire.split(reply, [part])[0] for reply, part in zip(replies, parts, strict=True)]
    rendered = side.wire.render(side.wire.join(shares), whole, batch_id="b")
    return [each.array.tolist() for each in side.answer(rendered)[0]]


@both
def test_equal_outputs_of_parts_of_one_row_are_uncertain(side: Side) -> None:
    """They may be one for each row, or one for all."""
    replies = [side.reply(floats(at, name="y"), floats(5, name="z")) for at in range(3)]

    with pytest.raises(UncertainReply):
        joined(side, 1, *replies)
    assert joined(side, 1, *[side.reply(floats(5))] * 3) == [[5, 5, 5]]


@both
def test_parts_of_a_reply_with_other_values_cannot_be_joined(side: Side) -> None:
    """Such as sums over the rows of a part, and the version of the model."""
    for one, other in [
        (side.reply(floats(3)), side.reply(floats(4))),
        (side.reply(floats(3)), side.reply(floats(3))),
        (side.reply(floats(1, 2)), side.reply(floats(3), model="n")),
        (side.reply(floats(1, 2), floats(7, name="z")), side.reply(floats(3), floats(8, name="z"))),
    ]:
        with pytest.raises(WrongReply):
            joined(side, 2, one, other)
    constant = floats(7, 8, 9, name="z")
    same = [side.reply(floats(1, 2), constant), side.reply(floats(3), constant)]
    assert joined(side, 2, *same) == [[1, 2, 3], [7, 8, 9]]
