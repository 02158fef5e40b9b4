"""The proxy in front of servers that answer as Triton and TensorFlow Serving do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.gateway.grpc.proxy.foreign_servers import TensorFlowServing, Triton
from tests.gateway.grpc.proxy.models import INFER, PREDICT, infer, inferred, predict, predicted
from tests.gateway.grpc.proxy.proxy_stage import TOGETHER, merging, sizes
from uncork_gateway.grpc.statuses import Code


async def test_a_request_of_another_shape_fails_alone() -> None:
    """It does not share the call of the others."""
    async with merging(Triton(), **{**TOGETHER, "max_hold_s": 0.05}) as (on, fake):
        answers = await on.calls(infer(1), infer(2, width=3, request_id="w"), infer(3))
        assert [inferred(answers[at].message) for at in (0, 2)] == [[2], [6]]
        assert (answers[1].code, answers[1].text) == (
            Code.INVALID_ARGUMENT,
            "[request id: w] unexpected shape for input 'x' for model 'm'. Expected [-1,1], got [1,3]",
        )
        assert sorted(sizes(fake)) == [1, 2]


@pytest.mark.parametrize(
    ("server", "request_of", "values_of", "path"),
    [
        (Triton(max_batch_size=2), infer, inferred, INFER),
        (TensorFlowServing(max_batch_size=2), predict, predicted, PREDICT),
    ],
)
async def test_the_batch_size_of_the_server_is_learned(
    server: Any, request_of: Callable[..., bytes], values_of: Callable[[bytes], list[float]], path: str
) -> None:
    """Until the model is known, and once after that, a call has too many rows; no client notices."""
    async with merging(server, max_batch_rows=16, **{**TOGETHER, "max_hold_s": 0.1}) as (on, fake):
        for turn in range(3):
            fake.calls.clear()
            answers = await on.calls(*map(request_of, range(16)), path=path)
            assert [values_of(answer.message) for answer in answers] == [[2 * at] for at in range(16)]
            assert sizes(fake) == [16] * (turn < 2) + [2] * 8
        alone = await on.call(request_of(1, 2, 3), path=path)
        assert alone.code == Code.INVALID_ARGUMENT
        assert "batch" in alone.text


async def test_a_model_without_an_axis_for_batches_gets_single_requests() -> None:
    async with merging(Triton(max_batch_size=0), max_batch_rows=16, **TOGETHER) as (on, fake):
        answers = await on.calls(*map(infer, range(16)))
        assert [inferred(answer.message) for answer in answers] == [[2 * at] for at in range(16)]
        assert sizes(fake)[-16:] == [1] * 16


@pytest.mark.parametrize(
    ("server", "body", "path", "code", "text"),
    [
        (
            Triton(),
            infer(1, model="x"),
            INFER,
            Code.NOT_FOUND,
            "Request for unknown model: 'x' is not found",
        ),
        (
            TensorFlowServing(),
            predict(1, model="x"),
            PREDICT,
            Code.NOT_FOUND,
            "Servable not found for request: Latest(x)",
        ),
        (
            TensorFlowServing(),
            predict(1, width=3),
            PREDICT,
            Code.INVALID_ARGUMENT,
            "Matrix size-incompatible: In[0]: [1,3], In[1]: [1,1]\n\t [[{{node dense/MatMul}}]]",
        ),
        (
            TensorFlowServing(full=True),
            predict(1),
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
        assert (await on.call(infer(1))).code == Code.UNAVAILABLE
        triton.ready = True
        assert inferred((await on.call(infer(1))).message) == [2]
