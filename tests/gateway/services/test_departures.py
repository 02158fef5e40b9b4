"""The whole gateway, when clients leave while a worker has their batch."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.gateway.fake_worker import FakeWorker, json_api, service
from tests.gateway.gateway_stage import GatewayStage, gateway
from tests.gateway.grpc.call_stage import calls, numbers
from tests.gateway.running import turns
from uncork_workers.wire.messages import Batch, Cancel
from uncork_workers.wire.schema import ApiSettings

PAIRS = json_api(settings=ApiSettings(policy="fixed:60000:2"))
SINGLE = json_api(settings=ApiSettings(policy="fixed:0"))


async def running(
    on: GatewayStage, worker: FakeWorker, *bodies: object
) -> tuple[Batch, list[asyncio.Task[Any]]]:
    """Return a batch at a worker, and the calls whose requests it has."""
    posted = []
    for body in bodies:
        posted.append(on.post("/echo", body))
        await turns()
    batch, _ = await worker.batch()
    return batch, posted


def ended(on: GatewayStage, outcome: str) -> float | None:
    labels = {"service": on.service.batching.name, "api": "echo", "outcome": outcome}
    registry = on.gateway.front_end.exposition.registry
    return registry.get_sample_value("uncork_batches_total", labels)


async def test_the_worker_knows_which_requests_nobody_waits_for(tmp_path: Path) -> None:
    async with gateway(tmp_path) as on:
        worker = await on.worker(serves=service(PAIRS))
        batch, posted = await running(on, worker, 1, 2)
        posted[1].cancel()
        assert await worker.next() == Cancel(batch.batch, (1,))
        posted[0].cancel()
        assert await worker.next() == Cancel(batch.batch, (0,))
        worker.answer(batch, [b"", b""], statuses=[499, 499], chunks=[], worked=False, cancelled=True)

        batch, posted = await running(on, worker, 3, 4)
        worker.answer(batch, [b"3", b"4"])
        assert [(await one).json() for one in posted] == [3, 4]
        assert (ended(on, "cancelled"), ended(on, "failed"), ended(on, "worked")) == (1, None, 1)


async def test_no_departure_is_told_twice(tmp_path: Path) -> None:
    async with gateway(tmp_path) as on:
        worker = await on.worker(serves=service(PAIRS))
        batch, posted = await running(on, worker, 1, 2)
        await on.http.aclose()
        left: set[int] = set()
        while len(left) < 2:
            message = await worker.next()
            assert isinstance(message, Cancel)
            assert message.batch == batch.batch
            assert not left & {*message.requests}
            left.update(message.requests)
        await asyncio.gather(*posted, return_exceptions=True)


async def test_a_computation_is_cancelled_when_nobody_waits_for_it(tmp_path: Path) -> None:
    async with gateway(tmp_path) as on:
        worker = await on.worker(serves=service(replace(SINGLE, coalesce=True)))
        batch, [first] = await running(on, worker, 1)
        joined = on.post("/echo", 1)
        await turns()
        first.cancel()
        await turns()
        other = on.post("/other", 1)  # nothing has been sent to the worker meanwhile
        assert (await other).status_code == 404
        joined.cancel()
        assert await worker.next() == Cancel(batch.batch, (0,))


async def test_a_call_that_is_cancelled_is_cancelled_at_the_worker(tmp_path: Path) -> None:
    async with calls(tmp_path, service(SINGLE)) as stage:
        call, _ = stage.ask(numbers(1))
        batch, _ = await stage.worker.batch()
        call.cancelled()
        assert await stage.worker.next() == Cancel(batch.batch, (0,))
