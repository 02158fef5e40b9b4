"""A worker whose replies say how much memory its batches take."""

import asyncio
from typing import Any

from tests.gateway.fake_worker import FakeWorker, json_api, service
from tests.gateway.gateway_stage import GatewayStage
from uncork_workers.wire.messages import Batch
from uncork_workers.wire.schema import ApiSettings

SERVES = service(json_api(settings=ApiSettings(policy="fixed:0")))


async def answered(on: GatewayStage, worker: FakeWorker, requests: int = 1, **fields: Any) -> list[Batch]:
    """Have requests answered by batches of the worker, whose replies have these fields."""
    asking = [on.post("/echo", 0) for _ in range(requests)]
    batches = []
    left = requests
    while left:
        batch, _ = await worker.batch()
        batches.append(batch)
        left -= len(batch.rows)
        worker.answer(batch, [b"0"] * len(batch.rows), **fields)
    assert {reply.status_code for reply in await asyncio.gather(*asking)} == {200}
    return batches


async def metrics(on: GatewayStage, name: str) -> list[str]:
    lines = (await on.http.get("/metrics")).text.splitlines()
    return [line for line in lines if line.startswith(name)]
