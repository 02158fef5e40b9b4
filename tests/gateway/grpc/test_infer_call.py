"""Unary calls to APIs: ModelInfer and Predict."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.gateway.fake_worker import json_api, service
from tests.gateway.grpc.call_stage import INFER, PREDICT, calls, numbers, raw, trailer, values
from tests.gateway.grpc.fake_stream import FakeConnection, FakeObservers
from tests.gateway.services.test_service_streams import streaming_api
from uncork_gateway.auth import ApiKeys
from uncork_gateway.errors import BodyTooLarge
from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.statuses import Code
from uncork_workers.wire.overrides import for_all_apis


async def test_a_call_is_answered_with_its_batch_in_the_trailers(tmp_path: Path) -> None:
    async with calls(tmp_path) as stage:
        _, stream = stage.ask(numbers(1, 2, request_id="seven"))
        await stage.answer(b"10,20")
        await stream.end()

        assert (stream.code, values(stream.messages[0])) == (Code.OK, [10, 20])
        assert trailer(stream.trailers, b"x-batch-size") == b"2"
        assert str(trailer(stream.trailers, b"x-batch-id")).endswith("-1'")
        assert str(trailer(stream.trailers, b"server-timing")).startswith("b'queue;dur=")
        assert stage.counted(200) == 1


def prediction(number: int) -> bytes:
    request = message("tensorflow.serving.PredictRequest")()
    request.model_spec.name = "fake"
    tensor = request.inputs["x"]
    tensor.dtype, tensor.int64_val[:] = 9, [number]
    tensor.tensor_shape.dim.add(size=1)
    written: bytes = request.SerializeToString()
    return written


async def test_calls_share_batches_with_http(tmp_path: Path) -> None:
    async with calls(tmp_path, overrides={"policy": "fixed:60000", "mb_max_batch_size": 2}) as stage:
        _, stream = stage.ask(numbers(4))
        asking = stage.on.post("/echo", 3)
        batch, payload = await stage.worker.batch()
        assert (batch.rows, payload) == ([1, 1], raw(4) + b"3")
        stage.worker.answer(batch, [b"40", b"30"], forms=(None, None))

        await stream.end()
        assert values(stream.messages[0]) == [40]
        reply = await asking
        [api] = (await stage.on.http.get("/status")).json()["apis"]
        assert (api["requests"], api["protocols"]) == ({"200": 2}, {"http": 1, "grpc": 1})
        assert (reply.json(), reply.headers["x-batch-id"].encode()) == (
            30,
            trailer(stream.trailers, b"x-batch-id"),
        )


@pytest.mark.parametrize(
    ("messages", "code", "text"),
    [
        ([b"\xff"], Code.INVALID_ARGUMENT, "not a valid inference.ModelInferRequest"),
        ([numbers(1, model="fakes")], Code.NOT_FOUND, "did you mean fake"),
        ([numbers(1, model_version="3")], Code.NOT_FOUND, "version '3'"),
        ([numbers()], Code.INVALID_ARGUMENT, "rows"),
        ([numbers(1, model="fake.tell")], Code.UNIMPLEMENTED, "ModelStreamInfer"),
    ],
)
async def test_wrong_calls_are_refused(tmp_path: Path, messages: list[bytes], code: Code, text: str) -> None:
    async with calls(tmp_path, service(json_api("predict"), streaming_api())) as stage:
        _, stream = stage.ask(*messages)

        assert (stream.code, stream.messages) == (code, [])
        assert text in stream.text
        assert stage.on.gateway.front_end.unanswered() == 0


async def test_an_error_of_the_handler_keeps_its_status(tmp_path: Path) -> None:
    async with calls(tmp_path) as stage:
        found = []
        for status in (422, 404, 500, 429):
            _, stream = stage.ask(numbers(1))
            batch, _ = await stage.worker.batch()
            stage.worker.answer(batch, [b"no"], statuses=[status], worked=False)
            await stream.end()
            found.append((stream.code, stream.text))

        codes = (Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.INTERNAL, Code.UNAVAILABLE)
        assert found == [(code, "no") for code in codes]
        assert [stage.counted(status) for status in (422, 404, 500, 429)] == [1, 1, 1, 1]


async def test_a_call_that_is_shed_says_when_to_try_again(tmp_path: Path) -> None:
    async with calls(tmp_path, max_queue_rows=1) as stage:
        running = stage.ask(numbers(1))
        await stage.worker.batch()
        waiting = stage.ask(numbers(2))
        _, stream = stage.ask(numbers(3))

        assert stream.code is Code.UNAVAILABLE
        assert "queue of this API is full" in stream.text
        pushback = trailer(stream.trailers, b"grpc-retry-pushback-ms")
        assert pushback is not None
        assert int(pushback) >= 0
        assert stage.on.service.batching.metrics.api("echo").errors == {}
        for call, _ in (running, waiting):
            call.cancelled()


async def test_a_call_whose_time_is_over_is_not_executed(tmp_path: Path) -> None:
    """And the client reads the name of its own header."""
    async with calls(tmp_path) as stage:
        stage.ask(numbers(1))
        batch, _ = await stage.worker.batch()
        _, stream = stage.ask(numbers(2), timeout_s=0.001)
        await stream.end()
        stage.worker.answer(batch, [b"1"])

        assert stream.code is Code.DEADLINE_EXCEEDED
        assert "grpc-timeout" in stream.text
        assert stage.counted(504) == 1


@pytest.mark.parametrize(
    ("how", "code", "text", "status"),
    [("cancelled", None, "", 499), ("rejected", Code.RESOURCE_EXHAUSTED, "too large", 413)],
)
async def test_a_call_that_ends_early_leaves_the_queue(
    tmp_path: Path, how: str, code: Code | None, text: str, status: int
) -> None:
    async with calls(tmp_path) as stage:
        stage.ask(numbers(1))
        batch, _ = await stage.worker.batch()
        call, stream = stage.ask(numbers(2))
        assert stage.on.gateway.front_end.unanswered() == 2
        if how == "cancelled":
            call.cancelled()
        else:
            call.reject(BodyTooLarge("too large"))
        assert stage.on.gateway.front_end.unanswered() == 1
        stage.worker.answer(batch, [b"1"])

        assert (stream.code, stream.text, stage.counted(status)) == (code, text, 1)


@pytest.mark.parametrize(("path", "ask"), [(INFER, numbers), (PREDICT, prediction)])
async def test_flows_come_from_metadata(tmp_path: Path, path: bytes, ask: Callable[[int], bytes]) -> None:
    """The requests of the second flow do not wait behind all those of the first."""
    async with calls(tmp_path, fair_by=b"x-client", overrides={"mb_max_batch_size": 1}) as stage:
        first = stage.ask(numbers(0))
        batch, _ = await stage.worker.batch()
        for number in (1, 2, 3):
            stage.ask(ask(number), path=path, metadata=((b"x-client", b"many"),))
        stage.ask(ask(9), path=path, metadata=((b"x-client", b"few"),))
        order = []
        for _ in range(4):
            stage.worker.answer(batch, [b"0"])
            batch, payload = await stage.worker.batch()
            order.append(payload)
        stage.worker.answer(batch, [b"0"])
        await first[1].end()

        assert order.index(raw(9)) <= 1


async def test_a_call_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    connection = FakeConnection(observers=FakeObservers(access_log=True))
    request = numbers(1)
    async with calls(tmp_path) as stage:
        with caplog.at_level(logging.INFO, logger="uncork.access"):
            _, stream = stage.ask(request, connection=connection)
            await stage.answer(b"1")
            await stream.end()
            call, _ = stage.ask(request, connection=connection)
            call.cancelled()

    [line, cancelled] = [record.getMessage() for record in caplog.records if record.name == "uncork.access"]
    assert line.startswith("POST /inference.GRPCInferenceService/ModelInfer 200 ")
    assert f", {len(request)} bytes, OK, batch " in line
    assert cancelled.startswith("POST /inference.GRPCInferenceService/ModelInfer 499 ")
    assert cancelled.endswith(f", {len(request)} bytes, CANCELLED, request the-call")


async def test_settings_change_for_the_next_call(tmp_path: Path) -> None:
    """Keys and fairness, with the cap of the API; known messages are read again."""
    async with calls(tmp_path) as on:
        on.ask(numbers(0))
        batch, _ = await on.worker.batch()
        settings = on.on.service.events.settings
        keys = ApiKeys([b"a-key-of-the-tests"])
        overrides = for_all_apis({"mb_max_batch_size": 2})
        others = replace(settings, keys=keys, fair_by=b"x-client", overrides=overrides)
        on.on.service.change(on.on.service.prepare(others))
        on.on.gateway.change(others)

        _, refused = on.ask(numbers(0))
        assert refused.code is Code.UNAUTHENTICATED
        for number, client in ((1, b"noisy"), (2, b"noisy"), (3, b"quiet")):
            on.ask(numbers(number), metadata=[(b"x-api-key", b"a-key-of-the-tests"), (b"x-client", client)])
        on.worker.answer(batch, [b"0"])
        _, body = await on.worker.batch()
        assert [number for number in body if number] == [1, 3]
