"""An API whose handler reads headers, over HTTP and gRPC."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from tests.gateway.fake_worker import json_api, service
from tests.gateway.grpc.call_stage import CallStage, calls, numbers
from tests.gateway.running import turns

NAMES = ("x-tenant", "x-request-id")
TENANT = {"x-tenant": "a", "X-Request-Id": "one", "x-other": "no"}


async def sent_by(stage: CallStage) -> list[dict[str, str]] | None:
    batch, _ = await stage.worker.batch()
    stage.worker.answer(batch, [b"1"] * len(batch.rows))
    return batch.headers


async def test_listed_headers_reach_the_worker(tmp_path: Path) -> None:
    """No others do. A repeated one is joined, and a request without an id has the id of its response."""
    async with calls(tmp_path, service(replace(json_api(), headers=NAMES))) as stage:
        for _ in range(3):  # its head is known then
            asking = asyncio.ensure_future(stage.on.http.post("/echo", json=1, headers=TENANT))
            assert await sent_by(stage) == [{"x-tenant": "a", "x-request-id": "one"}]
            assert (await asking).headers["x-request-id"] == "one"
        repeated = [("x-tenant", "a"), ("X-Tenant", "b")]
        asking = asyncio.ensure_future(stage.on.http.post("/echo", json=1, headers=repeated))
        [headers] = await sent_by(stage) or []
        reply = await asking
        assert headers == {"x-tenant": "a, b", "x-request-id": reply.headers["x-request-id"]}

        _, stream = stage.ask(numbers(1), metadata=((b"x-tenant", b"c"),))
        assert await sent_by(stage) == [{"x-tenant": "c", "x-request-id": "the-call"}]
        await stream.end()


async def test_an_api_that_reads_none_gets_none(tmp_path: Path) -> None:
    async with calls(tmp_path) as stage:
        asking = asyncio.ensure_future(stage.on.http.post("/echo", json=1, headers=TENANT))
        assert await sent_by(stage) is None
        await asking


async def test_ids_are_sent_only_if_they_are_listed(tmp_path: Path) -> None:
    async with calls(tmp_path, service(replace(json_api(), headers=("x-tenant",)))) as stage:
        asking = asyncio.ensure_future(stage.on.http.post("/echo", json=1, headers=TENANT))
        assert await sent_by(stage) == [{"x-tenant": "a"}]
        await asking


async def test_identical_requests_have_the_same_headers(tmp_path: Path) -> None:
    """Except for their ids: the handler sees the first's, and each response has its own."""
    async with calls(tmp_path, service(replace(json_api(), headers=NAMES, coalesce=True))) as stage:
        occupied = stage.on.post("/echo", 0)
        running, _ = await stage.worker.batch()
        asking = [
            asyncio.ensure_future(
                stage.on.http.post("/echo", json=1, headers={"x-tenant": tenant, "x-request-id": name})
            )
            for tenant, name in [("a", "1"), ("a", "2"), ("b", "3")]
        ]
        await turns(50)
        stage.worker.answer(running, [b"0"])
        await occupied
        headers = await sent_by(stage) or []
        assert headers == [{"x-tenant": "a", "x-request-id": "1"}, {"x-tenant": "b", "x-request-id": "3"}]
        assert [(await one).headers["x-request-id"] for one in asking] == ["1", "2", "3"]
