"""An API that runs identical requests once, over HTTP and gRPC, on the pages."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
from msgspec.structs import replace

from tests.gateway.fake_worker import json_api, service
from tests.gateway.grpc.call_stage import (
    STREAM_INFER,
    CallStage,
    InferRequest,
    StreamResponse,
    calls,
    numbers,
    raw,
    trailer,
    values,
)
from tests.gateway.running import turns
from uncork_gateway.grpc.statuses import Code
from uncork_gateway.requests.coalescing import Coalescing
from uncork_workers.wire.schema import ApiSettings, ServiceDescription

SETTINGS = ApiSettings(policy="fixed:0")
V1 = "/v1/models/fake:predict"
KEY = {"authorization": "Bearer one"}
Post = tuple[str, object, dict[str, str]]
"""A path, a body and headers."""


def coalescing() -> ServiceDescription:
    return service(replace(json_api(settings=SETTINGS), coalesce=True))


def computations_of(stage: CallStage) -> Coalescing:
    found = stage.on.service.batching.coalescing(coalescing().apis[0])
    assert found is not None
    return found


async def sample(stage: CallStage, name: str) -> float | None:
    labels = {"service": stage.on.service.batching.name, "api": "echo"}
    return stage.on.gateway.front_end.exposition.registry.get_sample_value(name, labels)


async def sent(stage: CallStage, *posts: Post) -> list[asyncio.Task[httpx.Response]]:
    """Send requests, while the worker runs one of another kind, and wait until all have been read."""
    tasks = [
        asyncio.create_task(stage.on.http.post(path, json=body, headers=headers))
        for path, body, headers in posts
    ]
    computations = computations_of(stage)
    while computations.requests < 1 + len(posts):
        await turns()
    return tasks


async def test_requests_of_all_routes_of_a_protocol_run_once(tmp_path: Path) -> None:
    """The page has the share; clients with another key, or of another protocol, do not join."""
    async with calls(tmp_path, coalescing()) as stage:
        other = stage.on.post("/echo", 0)
        first, _ = await stage.worker.batch()
        native: list[Post] = [("/echo", 1, {}), ("/fake/echo", 1, {}), ("/echo", 1, KEY)]
        v1: list[Post] = [(V1, {"instances": [1]}, {}), (V1, {"instances": [1]}, {})]
        tasks = await sent(stage, *native, *v1)
        stage.worker.answer(first, [b"0"])
        rows = 0
        while not all(task.done() for task in tasks):
            batch, _ = await stage.worker.batch()
            rows += sum(batch.rows)
            stage.worker.answer(batch, [b"1"] * len(batch.rows))
            if rows == 3:
                await asyncio.gather(*tasks)
        assert rows == 3
        assert [task.result().json() for task in tasks[:3]] == [1, 1, 1]
        assert [task.result().json()["predictions"] for task in tasks[3:]] == [[1], [1]]
        assert (await other).status_code == 200
        assert await sample(stage, "uncork_coalesced_requests_total") == 2
        [api] = (await stage.on.http.get("/status")).json()["apis"]
        assert (api["coalesced"], api["coalesced_share"]) == (2, 2 / 6)
        assert "2 of 6 requests (33 %) got the response to an identical request." in api["sentence"]


async def test_identical_calls_run_once(tmp_path: Path) -> None:
    """Unary and in a stream, each with its id; another key in the metadata keeps a call apart."""
    async with calls(tmp_path, coalescing()) as stage:
        unary = [stage.ask(numbers(1, request_id=name))[1] for name in ("one", "two")]
        keyed = stage.ask(numbers(1), metadata=((b"authorization", b"Bearer one"),))[1]
        batch, _ = await stage.worker.batch()
        assert len(batch.rows) == 2
        _, streamed = stage.ask(*(numbers(1, request_id="three"),) * 3, path=STREAM_INFER)
        stage.worker.answer(batch, [b"10", b"20"])
        for stream in (*unary, keyed, streamed):
            await stream.end()
            assert stream.code == Code.OK
        assert [values(stream.messages[0]) for stream in (*unary, keyed)] == [[10], [10], [20]]
        assert {trailer(stream.trailers, b"x-batch-id") for stream in (*unary, keyed)} == {
            trailer(keyed.trailers, b"x-batch-id")
        }
        responses = [StreamResponse.FromString(each).infer_response for each in streamed.messages]
        assert [response.id for response in responses] == ["three"] * 3
        assert await sample(stage, "uncork_coalesced_requests_total") == 4


async def test_calls_whose_errors_would_differ_do_not_join(tmp_path: Path) -> None:
    """Typed and raw values are the same rows, but errors name the place of a value in the message."""
    async with calls(tmp_path, coalescing()) as stage:
        request = InferRequest(model_name="fake", raw_input_contents=[raw(1)])
        request.inputs.add(name="x", datatype="INT64", shape=[1])
        streams = [stage.ask(sent)[1] for sent in (numbers(1), request.SerializeToString(), numbers(1))]
        batch, _ = await stage.worker.batch()
        assert len(batch.rows) == 2
        stage.worker.answer(batch, [b"10", b"10"])
        for stream in streams:
            await stream.end()
            assert stream.code == Code.OK


async def test_the_limits_are_those_of_the_queue(tmp_path: Path) -> None:
    """An API that is removed leaves nothing behind."""
    async with calls(tmp_path, coalescing(), max_queue_bytes=2) as stage:
        computations = computations_of(stage)
        assert computations.rules.max_queue_bytes == 2
        assert stage.on.service.batching.forget_api("echo")
        assert computations_of(stage) is not computations
