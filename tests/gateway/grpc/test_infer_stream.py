"""ModelStreamInfer."""

from __future__ import annotations

import asyncio
import gc
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.fake_worker import json_api, service
from tests.gateway.grpc.call_stage import STREAM_INFER, CallStage, StreamResponse, calls, numbers
from tests.gateway.grpc.fake_stream import FakeConnection, FakeObservers, FakeStream, opened
from tests.gateway.running import turns
from tests.gateway.services.test_service_streams import HEAD, streaming_api
from uncork_gateway.errors import BodyTooLarge
from uncork_gateway.grpc.infer_stream import InferStream, StreamedRequest
from uncork_gateway.grpc.interfaces import Call
from uncork_gateway.grpc.statuses import Code
from uncork_gateway.protocols.limits import Limits
from uncork_workers.wire.messages import AnswerHead, Batch, Cancel, Piece

WANTS_FINAL = {"triton_enable_empty_final_response": {"bool_param": True}}
TWO_APIS = service(json_api("predict"), streaming_api())
LINES = AnswerHead(status=200, content_type="application/x-ndjson")


def response(message: bytes) -> Any:
    """The ModelInferResponse in a message; fail if it is an error."""
    parsed = StreamResponse.FromString(message)
    assert parsed.error_message == ""
    return parsed.infer_response


def piece(message: bytes) -> bytes:
    [raw] = response(message).raw_output_contents
    assert int.from_bytes(raw[:4], "little") == len(raw) - 4
    return bytes(raw[4:])


async def telling(stage: CallStage, **message: Any) -> tuple[Call, FakeStream, Batch]:
    """Open a stream to the API that streams, and return the batch of its first message."""
    call, stream = stage.open(STREAM_INFER)
    call.message_received(numbers(1, model="fake.tell", **message))
    batch, _ = await stage.worker.batch()
    return call, stream, batch


async def test_an_error_takes_the_place_of_an_answer_and_the_stream_goes_on(tmp_path: Path) -> None:
    async with calls(tmp_path) as stage:
        call, stream = stage.open(STREAM_INFER)
        call.message_received(numbers(1, request_id="bad", model="nothing"))
        call.message_received(b"\xff")
        call.message_received(numbers(1, request_id="rejected"))
        batch, _ = await stage.worker.batch()
        stage.worker.answer(batch, [b"not this one"], statuses=[422], worked=False)
        failures = [StreamResponse.FromString(await stream.next()) for _ in range(3)]
        call.message_received(numbers(2))
        await stage.answer(b"20")

        assert "unknown model: 'nothing'" in failures[0].error_message
        assert "not a valid" in failures[1].error_message
        assert failures[2].error_message == "not this one"
        assert [failure.infer_response.id for failure in failures] == ["bad", "", "rejected"]
        assert list(response(await stream.next()).outputs[0].contents.int64_contents) == [20]
        assert stream.code is None


async def test_refusals_are_no_errors(tmp_path: Path) -> None:
    async with calls(tmp_path, max_queue_rows=1) as stage:
        call, _ = stage.open(STREAM_INFER)
        call.message_received(numbers(1))
        await stage.worker.batch()
        for number in (2, 3):
            call.message_received(numbers(number))

        tally = stage.on.service.batching.metrics.api("echo")
        assert (tally.statuses, tally.grpc_statuses, tally.errors) == ({503: 1}, {503: 1}, {})
        call.cancelled()


async def test_open_requests_of_a_stream_count_as_clients(tmp_path: Path) -> None:
    """A new request is the return of a client that was answered, never of one that waits."""
    async with calls(tmp_path) as stage:
        dispatcher = stage.on.service.batching.dispatcher
        call, stream = stage.open(STREAM_INFER)
        call.message_received(numbers(0))
        batch, _ = await stage.worker.batch()
        for number in (1, 2):
            call.message_received(numbers(number))
        stage.worker.answer(batch, [b"0"])
        await stream.next()
        call.message_received(numbers(3))
        [api] = dispatcher._core._apis.values()
        away = api.traffic.all.returns._sources
        assert len(away) == 0

        while dispatcher.stats()[0].queued_requests or len(stream.messages) < 4:
            batch, _ = await stage.worker.batch()
            stage.worker.answer(batch, [b"0"] * len(batch.rows))
            await turns()
        assert len(away) == 3


async def test_all_messages_of_a_stream_share_its_deadline(tmp_path: Path) -> None:
    """A later one has less time left."""
    async with calls(tmp_path) as stage:
        call, _ = stage.open(STREAM_INFER, timeout_s=60)
        assert isinstance(call, InferStream)
        for number in range(3):
            call.message_received(numbers(number))

        first, second, third = (request._head.timeout_s for request in call._open)
        assert 60 > first > second > third
        call.cancelled()


async def test_a_stream_ends_when_the_gateway_has_drained(tmp_path: Path) -> None:
    """A stop would wait for the client otherwise, and refuse each of its messages meanwhile."""
    async with calls(tmp_path) as stage:
        call, stream = stage.open(STREAM_INFER)
        call.message_received(numbers(1))
        draining = asyncio.create_task(stage.on.gateway.front_end.drain())
        await stage.answer(b"10")
        await draining

        assert list(response(await stream.next()).outputs[0].contents.int64_contents) == [10]
        assert (stream.code, stream.text) == (Code.UNAVAILABLE, "the server is shutting down")
        _, late = stage.open(STREAM_INFER)
        assert late.code is Code.UNAVAILABLE


@pytest.mark.parametrize("how", ["cancelled", "rejected"])
async def test_the_requests_of_a_stream_that_breaks_leave_the_queue(tmp_path: Path, how: str) -> None:
    async with calls(tmp_path) as stage:
        running, _ = stage.ask(numbers(0))
        await stage.worker.batch()
        call, stream = stage.open(STREAM_INFER)
        for number in range(3):
            call.message_received(numbers(number))
        assert stage.on.gateway.front_end.unanswered() == 4
        if how == "cancelled":
            call.cancelled()
        else:
            call.reject(BodyTooLarge("too large"))

        assert stage.on.gateway.front_end.unanswered() == 1
        assert stream.code is (None if how == "cancelled" else Code.RESOURCE_EXHAUSTED)
        running.cancelled()


async def test_a_stream_that_breaks_a_rule_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The message at fault is no request, so it has no line."""
    connection = FakeConnection(observers=FakeObservers(access_log=True))
    async with calls(tmp_path) as stage:
        call, stream = stage.open(STREAM_INFER, connection=connection)
        with caplog.at_level(logging.INFO, logger="uncork.access"):
            call.reject(BodyTooLarge("too large"))

    [line] = [record.getMessage() for record in caplog.records if record.name == "uncork.access"]
    assert line.startswith("POST /inference.GRPCInferenceService/ModelStreamInfer 413 ")
    assert line.endswith(", RESOURCE_EXHAUSTED, request the-call")
    assert (stream.code, stream.text) == (Code.RESOURCE_EXHAUSTED, "too large")


async def test_an_api_that_streams_sends_its_pieces(tmp_path: Path) -> None:
    async with calls(tmp_path, TWO_APIS) as stage:
        call, stream, batch = await telling(stage, request_id="seven")
        stage.worker.send(Piece(batch.batch, HEAD), [b"one "])
        assert piece(await stream.next()) == b"one "
        stage.worker.send(Piece(batch.batch), [b"two"])
        last = await stream.next()
        assert piece(last) == b"two"
        assert (response(last).id, response(last).model_name) == ("seven", "fake.tell")
        assert not response(last).parameters["triton_final_response"].bool_param
        stage.worker.answer(batch, [b""], chunks=[])
        call.end_received()

        assert await stream.end() is Code.OK
        assert len(stream.messages) == 2
        assert stage.counted(200, api="tell") == 1


async def test_a_client_that_wants_it_is_told_of_the_end_of_an_answer(tmp_path: Path) -> None:
    async with calls(tmp_path, TWO_APIS) as stage:
        _, stream, batch = await telling(stage, parameters=WANTS_FINAL)
        stage.worker.send(Piece(batch.batch, LINES), [b'{"a": 1}\n'])
        stage.worker.answer(batch, [b""], chunks=[])

        assert piece(await stream.next()) == b'{"a": 1}'
        final = response(await stream.next())
        assert final.parameters["triton_final_response"].bool_param
        assert list(final.outputs) == []


async def test_an_answer_that_breaks_off_ends_with_an_error(tmp_path: Path) -> None:
    async with calls(tmp_path, TWO_APIS) as stage:
        call, stream, batch = await telling(stage)
        stage.worker.send(Piece(batch.batch, HEAD), [b"one "])
        assert piece(await stream.next()) == b"one "
        stage.worker.answer(batch, [b"it raised"], statuses=[500], worked=False, chunks=[])

        assert StreamResponse.FromString(await stream.next()).error_message == "it raised"
        call.cancelled()


async def test_a_streamed_answer_may_have_the_status_of_an_error(tmp_path: Path) -> None:
    async with calls(tmp_path, TWO_APIS) as stage:
        _, stream, batch = await telling(stage)
        head = AnswerHead(status=409, content_type="text/plain")
        stage.worker.send(Piece(batch.batch, head), [b"not now"])

        assert StreamResponse.FromString(await stream.next()).error_message == "not now"
        assert isinstance(await stage.worker.next(), Cancel)
        assert stage.counted(409, api="tell") == 1


async def test_the_limits_of_a_request_are_those_of_the_gateway(tmp_path: Path) -> None:
    """Of an API that streams, and of others."""
    async with calls(tmp_path, TWO_APIS, limits=Limits(rows=10, values=1)) as stage:
        call, stream = stage.open(STREAM_INFER)
        for model in ("fake.tell", "fake.predict"):
            call.message_received(numbers(1, 2, model=model))
            refusal = StreamResponse.FromString(await stream.next()).error_message
            assert "at most 1 value" in refusal
        call.cancelled()


async def test_answers_that_wait_for_an_earlier_one_pause_the_stream(tmp_path: Path) -> None:
    """Otherwise, messages of a few bytes behind an unfinished one would keep answers without a limit."""
    async with calls(tmp_path) as stage:
        call, stream = stage.open(STREAM_INFER)
        pool = stream.connection.pool
        call.message_received(numbers(1))
        sent = 0
        while not stream.is_paused:
            call.message_received(b"\xff")
            sent += 1
            assert sent < 1000
        assert (stream.messages, pool.used_bytes > 1_000_000) == ([], True)

        await stage.answer(b"10")
        await turns()
        assert len(stream.messages) == 1 + sent
        assert (bool(stream.is_paused), pool.used_bytes) == (False, 0)
        call.cancelled()


@pytest.mark.parametrize("how", ["the pool is full", "cancelled"])
async def test_waiting_answers_are_counted(tmp_path: Path, how: str) -> None:
    async with calls(tmp_path) as stage:
        call, stream = stage.open(STREAM_INFER)
        pool = stream.connection.pool
        call.message_received(numbers(1))
        await stage.worker.batch()
        for _ in range(40):
            call.message_received(b"\xff")
        assert pool.used_bytes > 80_000
        assert stream.code is None
        if how == "cancelled":
            call.cancelled()
        else:
            pool.used_bytes += pool.max_bytes
            call.message_received(b"\xff")
            assert await stream.end() is Code.UNAVAILABLE
            pool.used_bytes -= pool.max_bytes
        assert pool.used_bytes == 0
        assert stage.on.gateway.front_end.unanswered() == 0


async def test_an_answered_request_leaves_nothing_to_the_garbage_collector(tmp_path: Path) -> None:
    """The collector runs rarely: memory would grow with messages, outside all limits.

    An error kept in a variable of a frame would be a reference cycle, too.
    """
    async with calls(tmp_path, TWO_APIS) as stage:
        gc.collect()
        gc.disable()
        try:
            call, stream, batch = await telling(stage, parameters=WANTS_FINAL)
            stage.worker.answer(batch, [b""], chunks=[])
            assert list(response(await stream.next()).outputs) == []
            call.message_received(numbers(1, model="nothing"))
            assert len(stream.messages) == 2
            kept = [one for one in gc.get_objects() if isinstance(one, StreamedRequest)]
        finally:
            gc.enable()
        assert kept == []


class ResettingStream(FakeStream):
    """A stream that is reset when a message is sent, because its client reads nothing."""

    call: Call

    def send(self, message: bytes) -> None:
        super().send(message)
        self.call.cancelled()


@pytest.mark.parametrize("how", ["the final response", "an error"])
async def test_a_stream_that_its_last_answer_resets(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The request ends once, as cancelled."""
    async with calls(tmp_path, TWO_APIS) as stage:
        stream = ResettingStream()
        stream.call, _ = opened(stage.on.gateway.front_end, STREAM_INFER, stream)
        stream.call.message_received(numbers(1, model="fake.tell", parameters=WANTS_FINAL))
        batch, _ = await stage.worker.batch()
        if how == "an error":
            stage.worker.answer(batch, [b"no"], statuses=[422], worked=False, chunks=[])
        else:
            stage.worker.answer(batch, [b""], chunks=[])
        await turns()
        assert len(stream.messages) == 1
        assert stage.counted(499, api="tell") == 1
        assert [record for record in caplog.records if record.levelname == "ERROR"] == []
