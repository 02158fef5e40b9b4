"""The proxy in front of servers that answer as Triton and TensorFlow Serving do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from grpc import aio

from tests.gateway.grpc.proxy.fake_grpc_server import FakeGrpcServer
from tests.gateway.grpc.proxy.foreign_servers import (
    MODEL_STATUS,
    READY,
    STREAM,
    TensorFlowServing,
    Triton,
    infer_request,
    predict_request,
)
from tests.gateway.grpc.proxy.models import BAD, INFER, PREDICT
from tests.gateway.grpc.proxy.proxy_stage import Answer, merging, sizes
from uncork_gateway.grpc.messages import make, message
from uncork_gateway.grpc.statuses import Code

# Requests are released together when the queue is this long, or after a second.
TOGETHER: dict[str, Any] = {"policy": "fixed:1000", "max_hold_s": 1.0}
_InferResponse: Any = message("inference.ModelInferResponse")
_StreamResponse: Any = message("inference.ModelStreamInferResponse")
_PredictResponse: Any = message("tensorflow.serving.PredictResponse")


def inferred(answer: Answer) -> tuple[str, list[float]]:
    """Return the id of a response of Triton, and the first value of each row."""
    assert answer.code == Code.OK, answer
    return response_of(_InferResponse.FromString(answer.message))


def response_of(response: Any) -> tuple[str, list[float]]:
    rows = np.frombuffer(response.raw_output_contents[0], "<f4").reshape(response.outputs[0].shape)
    assert (rows[:, 1:] == 1.0).all()
    assert (response.model_name, response.model_version) == ("m", "1")
    return response.id, rows[:, 0].tolist()


def predicted(answer: Answer) -> list[float]:
    """Return the first value of each row of a response of TensorFlow Serving."""
    assert answer.code == Code.OK, answer
    response = _PredictResponse.FromString(answer.message)
    output = response.outputs["y"]
    shape = [dim.size for dim in output.tensor_shape.dim]
    values = list(output.float_val) or np.frombuffer(output.tensor_content, "<f4")
    rows = np.array(values, "<f4").reshape(shape)
    assert (rows[:, 1:] == 1.0).all()
    assert (response.model_spec.name, response.model_spec.version.value) == ("m", 3)
    return [float(value) for value in rows[:, 0]]


async def test_triton_gets_merged_calls_and_each_client_its_rows() -> None:
    async with merging(Triton(max_batch_size=8), max_batch_rows=6, **TOGETHER) as (on, fake):
        answers = await on.calls(
            infer_request(1, request_id="a"), infer_request(2, 3), infer_request(4, 5, 6, request_id="c")
        )
        assert [inferred(answer) for answer in answers] == [("a", [2]), ("", [4, 6]), ("c", [8, 10, 12])]
        assert sizes(fake) == [6]


async def test_tensorflow_serving_gets_merged_calls_and_each_client_its_rows() -> None:
    async with merging(TensorFlowServing(), max_batch_rows=3, **TOGETHER) as (on, fake):
        answers = await on.calls(predict_request(1), predict_request(2, 3), path=PREDICT)
        assert [predicted(answer) for answer in answers] == [[2], [4, 6]]
        assert sizes(fake) == [3]


async def test_a_request_of_another_shape_fails_alone() -> None:
    """It does not share the call of the others."""
    async with merging(Triton(), **{**TOGETHER, "max_hold_s": 0.05}) as (on, fake):
        answers = await on.calls(
            infer_request(1), infer_request(2, width=3, request_id="w"), infer_request(3)
        )
        assert [inferred(answers[at])[1] for at in (0, 2)] == [[2], [6]]
        assert (answers[1].code, answers[1].text) == (
            Code.INVALID_ARGUMENT,
            "[request id: w] unexpected shape for input 'x' for model 'm'. Expected [-1,2], got [1,3]",
        )
        assert sorted(sizes(fake)) == [1, 2]


async def test_a_row_that_fails_the_model_fails_its_request_only() -> None:
    async with merging(Triton(max_batch_size=8), max_batch_rows=8, **TOGETHER) as (on, fake):
        rows = [BAD if at == 5 else at for at in range(8)]
        answers = await on.calls(*map(infer_request, rows))
        assert [inferred(answers[at])[1] for at in range(8) if at != 5] == [
            [2 * at] for at in range(8) if at != 5
        ]
        assert (answers[5].code, answers[5].text) == (
            Code.INTERNAL,
            "Failed to process the request(s) for model instance 'm_0_0', message: a bad row",
        )
        assert sizes(fake) == [8, 4, 4, 2, 2, 1, 1]


@pytest.mark.parametrize(
    ("server", "request_of", "values_of", "path"),
    [
        (Triton(max_batch_size=2), infer_request, lambda answer: inferred(answer)[1], INFER),
        (TensorFlowServing(max_batch_size=2), predict_request, predicted, PREDICT),
    ],
)
async def test_the_batch_size_of_the_server_is_learned(
    server: Any, request_of: Callable[..., bytes], values_of: Callable[[Answer], list[float]], path: str
) -> None:
    """Until the model is known, and once after that, a call has too many rows; no client notices."""
    async with merging(server, max_batch_rows=16, **{**TOGETHER, "max_hold_s": 0.1}) as (on, fake):
        for turn in range(3):
            fake.calls.clear()
            answers = await on.calls(*map(request_of, range(16)), path=path)
            assert [values_of(answer) for answer in answers] == [[2 * at] for at in range(16)]
            assert sizes(fake) == [16] * (turn < 2) + [2] * 8
        alone = await on.call(request_of(1, 2, 3), path=path)
        assert alone.code == Code.INVALID_ARGUMENT
        assert "batch" in alone.text


async def test_a_model_without_an_axis_for_batches_gets_single_requests() -> None:
    async with merging(Triton(max_batch_size=0), max_batch_rows=16, **TOGETHER) as (on, fake):
        answers = await on.calls(*map(infer_request, range(16)))
        assert [inferred(answer)[1] for answer in answers] == [[2 * at] for at in range(16)]
        assert sizes(fake)[-16:] == [1] * 16


@pytest.mark.parametrize(
    ("server", "body", "path", "code", "text"),
    [
        (
            Triton(),
            infer_request(1, model="x"),
            INFER,
            Code.NOT_FOUND,
            "Request for unknown model: 'x' is not found",
        ),
        (Triton(ready=False), infer_request(1), INFER, Code.UNAVAILABLE, "Server not ready"),
        (
            TensorFlowServing(),
            predict_request(1, model="x"),
            PREDICT,
            Code.NOT_FOUND,
            "Servable not found for request: Latest(x)",
        ),
        (
            TensorFlowServing(),
            predict_request(1, name="z"),
            PREDICT,
            Code.INVALID_ARGUMENT,
            "input tensor alias not found in signature: z. Inputs expected to be in the set {x}.",
        ),
        (
            TensorFlowServing(),
            predict_request(1, width=3),
            PREDICT,
            Code.INVALID_ARGUMENT,
            "Matrix size-incompatible: In[0]: [1,3], In[1]: [2,1]\n\t [[{{node dense/MatMul}}]]",
        ),
        (
            TensorFlowServing(full=True),
            predict_request(1),
            PREDICT,
            Code.UNAVAILABLE,
            "The batch scheduling queue to which this task was submitted is full",
        ),
        (TensorFlowServing(), b"", "/tensorflow.serving.PredictionService/Classify", Code.UNIMPLEMENTED, ""),
    ],
)
async def test_errors_pass_with_code_and_text(
    server: Any, body: bytes, path: str, code: Code, text: str
) -> None:
    """To each request that was alone; the text of a busy server is for none of several."""
    several = "the model server refused a call with the requests of several clients"
    async with merging(server, max_batch_rows=2, **TOGETHER) as (on, _):
        for answer in await on.calls(body, body, path=path):
            assert answer.code == code
            assert answer.text == (several if code == Code.UNAVAILABLE else text)


async def test_a_server_that_was_not_ready_is_asked_again() -> None:
    """UNAVAILABLE without push-back says nothing about later calls."""
    triton = Triton(ready=False)
    async with merging(triton) as (on, _):
        assert (await on.call(infer_request(1))).code == Code.UNAVAILABLE
        triton.ready = True
        assert inferred(await on.call(infer_request(1)))[1] == [2]


async def test_other_unary_methods_pass_through() -> None:
    ready = make("inference.ModelReadyRequest", name="m").SerializeToString()
    async with merging(Triton()) as (on, _):
        assert (await on.call(ready, path=READY)).message == b"\x08\x01"
    for name, code in (("m", Code.OK), ("x", Code.NOT_FOUND)):
        asked = make("tensorflow.serving.GetModelStatusRequest", model_spec={"name": name})
        async with merging(TensorFlowServing()) as (on, _):
            assert (await on.call(asked.SerializeToString(), path=MODEL_STATUS)).code == code


async def test_streams_pass_through_without_batches() -> None:
    """Each answer of the server is in its place, an error, too."""
    async with merging(Triton()) as (on, fake):
        stream: Any = on.channel.stream_stream(STREAM)()
        bodies = [infer_request(1, request_id="a"), infer_request(2, model="x"), infer_request(3)]
        for body in bodies:
            await stream.write(body)
        await stream.done_writing()
        answers = [_StreamResponse.FromString(await stream.read()) for _ in bodies]
        assert response_of(answers[0].infer_response) == ("a", [2])
        assert answers[1].error_message == "Request for unknown model: 'x' is not found"
        assert response_of(answers[2].infer_response) == ("", [6])
        assert await stream.read() is aio.EOF
        assert stream_of(fake) == bodies


def stream_of(fake: FakeGrpcServer) -> list[bytes]:
    """Return the messages of the only call, which is a stream."""
    (call,) = fake.calls
    return call.messages
