"""An API with two classes of requests, over HTTP and gRPC, on the pages."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.gateway.fake_worker import json_api, service
from tests.gateway.grpc.call_stage import CallStage, calls, numbers
from tests.gateway.running import turns
from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.statuses import Code
from uncork_workers.wire.schema import ApiSettings, ServiceDescription


def classed(bulk_goal_ms: float | None = None) -> ServiceDescription:
    api = json_api(settings=ApiSettings(mb_max_latency=1000))
    return service(replace(api, classes={"interactive": 1000, "bulk": bulk_goal_ms}))


async def sample(stage: CallStage, name: str, **labels: str) -> float | None:
    labels = {"service": stage.on.service.batching.name, "api": "echo", **labels}
    return stage.on.gateway.front_end.exposition.registry.get_sample_value(name, labels)


async def test_metadata_and_priority_name_the_class(tmp_path: Path) -> None:
    """As over HTTP; a call that names an unknown class, or two, is refused."""
    async with calls(tmp_path, classed()) as stage:
        header = ((b"x-request-class", b"bulk"),)
        second = numbers(1, parameters={"priority": _parameter(2)})
        for sent, metadata in [(numbers(1), ()), (numbers(1), header), (second, ()), (second, header)]:
            _, stream = stage.ask(sent, metadata=metadata)
            await stage.answer(b"10")
            await stream.end()
            assert stream.code == Code.OK
        refused = [
            (numbers(1), ((b"x-request-class", b"fast"),)),
            (numbers(1, parameters={"priority": _parameter(3)}), ()),
            (numbers(1, parameters={"priority": _parameter(2)}), ((b"x-request-class", b"interactive"),)),
        ]
        for sent, metadata in refused:
            _, stream = stage.ask(sent, metadata=metadata)
            await stream.end()
            assert stream.code == Code.INVALID_ARGUMENT
        of = {"protocol": "grpc", "status": "200"}
        assert await sample(stage, "uncork_requests_total", **of, **{"class": "interactive"}) == 1
        assert await sample(stage, "uncork_requests_total", **of, **{"class": "bulk"}) == 3
        assert await sample(stage, "uncork_bulk_rows_total") == 3


def _parameter(level: int) -> Any:
    return message("inference.InferParameter")(uint64_param=level)


async def test_v2_over_http_has_priorities(tmp_path: Path) -> None:
    async with calls(tmp_path, classed()) as stage:
        tensor = {"name": "x", "datatype": "INT64", "shape": [1], "data": [1]}
        path = "/v2/models/fake/infer"
        asking = stage.on.post(path, {"inputs": [tensor], "parameters": {"priority": 2}})
        await stage.answer(b"10")
        assert (await asking).status_code == 200
        reply = await stage.on.post(path, {"inputs": [tensor], "parameters": {"priority": 3}})
        assert (reply.status_code, "must be 0" in reply.text) == (400, True)
        of = {"protocol": "http", "status": "200", "class": "bulk"}
        assert await sample(stage, "uncork_requests_total", **of) == 1


async def test_pages_show_each_class(tmp_path: Path) -> None:
    async with calls(tmp_path, classed(5000)) as stage:
        running = stage.on.post("/echo", 1)
        batch, _ = await stage.worker.batch()
        queued = [
            stage.on.http.post("/echo", json=2, headers={"x-request-class": name})
            for name in ("bulk", "bulk", "interactive")
        ]
        tasks = [asyncio.create_task(each) for each in queued]
        while await sample(stage, "uncork_queue_rows", **{"class": "bulk"}) != 2:
            await turns()
        while await sample(stage, "uncork_queue_rows", **{"class": "interactive"}) != 1:
            await turns()
        for name, goal in (("interactive", 1), ("bulk", 5)):
            assert await sample(stage, "uncork_goal_seconds", **{"class": name}) == goal
        [api] = (await stage.on.http.get("/status")).json()["apis"]
        first, second = api["classes"]
        assert (first["name"], first["goal_ms"], first["queued_rows"]) == ("interactive", 1000, 1)
        assert (second["name"], second["goal_ms"], second["queued_rows"]) == ("bulk", 5000, 2)
        assert (api["goal_ms"], api["queued_rows"]) == (1000, 1)
        stage.worker.answer(batch, [b"1"])
        await running
        answered = 0
        while answered < 3:
            batch, _ = await stage.worker.batch()
            stage.worker.answer(batch, [b"2"] * len(batch.rows))
            answered += len(batch.rows)
        assert [(await task).status_code for task in tasks] == [200] * 3
        [api] = (await stage.on.http.get("/status")).json()["apis"]
        assert [each["answered"] for each in api["classes"]] == [2, 2]
