"""The whole gateway, with APIs that define a cost."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.fake_worker import json_api, service
from tests.gateway.gateway_stage import GatewayStage, gateway, problem
from tests.gateway.running import turns
from tests.gateway.services.test_service_replies import estimate
from uncork_workers.wire.overrides import for_all_apis
from uncork_workers.wire.schema import ApiSettings, ServiceDescription


def weighed(**settings: Any) -> ServiceDescription:
    """A service whose rows contain their cost."""
    return service(json_api("echo", ApiSettings(cost="n", **settings)))


def post(on: GatewayStage, *costs: float) -> list[asyncio.Task[Any]]:
    return [on.post("/echo", {"n": cost}) for cost in costs]


async def test_the_worker_is_told_what_requests_cost(on: GatewayStage) -> None:
    """Besides their rows; for an API without a cost, nothing."""
    plain = json_api("plain")
    serves = weighed(mb_max_batch_size=10)
    worker = await on.worker(serves=service(*serves.apis, plain))
    asking = post(on, 4.5, 5, 3)
    first, _ = await worker.batch()
    worker.answer(first, [b"0"] * 2)
    second, _ = await worker.batch()
    worker.answer(second, [b"0"])
    sizes = [reply.headers["x-batch-size"] for reply in await asyncio.gather(*asking)]
    unweighed, _ = await on.echo(worker, "/plain", 1)

    assert (first.limit_rows, first.rows, first.costs) == (10, [1, 1], [4.5, 5])
    assert (second.rows, second.costs) == ([1], [3])
    assert sizes == ["2", "2", "1"]
    assert (unweighed.rows, unweighed.costs) == ([1], None)


@pytest.mark.parametrize("overrides", [{}, {"allowed_lengths": [3, 99]}])
async def test_allowed_lengths_and_sizes_are_in_force(tmp_path: Path, overrides: dict[str, Any]) -> None:
    """In the dispatcher and at the worker; the cost alone is limited by the size of a batch."""
    async with gateway(tmp_path, overrides=overrides) as on:
        coded = {"allowed_lengths": (16.5, 64), "allowed_batch_sizes": (1, 8), "mb_max_batch_size": 500}
        worker = await on.worker(serves=weighed(**coded))
        asking = post(on, 4)
        batch, _ = await worker.batch()
        worker.answer(batch, [b"0"])
        await asyncio.gather(*asking)
        [stats] = on.service.batching.dispatcher.stats()

        lengths = (3, 99) if overrides else (16.5, 64)
        assert (batch.allowed_lengths, batch.allowed_batch_sizes, batch.limit_rows) == (lengths, (1, 8), 500)
        rules = stats.rules
        assert (rules.allowed_lengths, rules.allowed_batch_sizes) == (lengths, (1, 8))
        assert rules.max_batch_rows == 500


async def test_sizes_without_a_cost_are_only_a_limit(on: GatewayStage) -> None:
    await on.worker(serves=service(json_api("echo", ApiSettings(allowed_batch_sizes=(1, 8)))))
    [stats] = on.service.batching.dispatcher.stats()

    assert (stats.rules.allowed_batch_sizes, stats.rules.max_batch_rows) == ((), 8)


@pytest.mark.parametrize(
    ("chunks", "believed"), [([(70.0, 5.0)], False), ([(2, 5.0)], True), ([(35, 5.0), (35, 5.0)], True)]
)
async def test_a_batch_that_cost_all_of_it_ran_whole(
    on: GatewayStage, chunks: list[tuple[float, float]], *, believed: bool
) -> None:
    """The gateway measures its time; for a cheaper batch or one in chunks, the worker does."""
    worker = await on.worker(serves=weighed())
    asking = post(on, 35, 35)
    batch, _ = await worker.batch()
    worker.answer(batch, [b"0", b"1"], chunks=chunks)
    await asyncio.gather(*asking)

    assert (await estimate(on) > 1) == believed


async def test_another_cost_ends_the_estimate(tmp_path: Path) -> None:
    """It was learned from rows in another unit. A new goal alone keeps it."""
    async with gateway(tmp_path, overrides={"cost": "bytes"}) as on:
        for launch, overrides, seconds in (
            (1, {"cost": "bytes"}, 0.25),
            (2, {"cost": "bytes", "mb_max_latency": 50}, 0.25),
            (3, {"cost": 1.0}, 0.0),
        ):
            settings = replace(on.service.events.settings, overrides=for_all_apis(overrides))
            await on.standby(launch)
            on.service.take_over([launch], on.service.prepare_take_over([launch], settings))
            if launch == 1:
                on.service.batching.dispatcher.profile("echo", 1, [(1, 0.25), (64, 0.25)])
            assert await estimate(on) == pytest.approx(seconds)


async def test_a_queue_holds_batches_whatever_they_weigh(tmp_path: Path) -> None:
    """The limit for rows of all APIs does not apply to costs in the thousands."""
    async with gateway(tmp_path, max_queue_rows=3) as on:
        worker = await on.worker(serves=weighed(mb_max_batch_size=100, mb_max_latency=60_000))
        asking = post(on, 1)
        batch, _ = await worker.batch()
        asking += post(on, *[100] * 20)
        await turns(50)
        full = await on.http.post("/echo", json={"n": 1})
        worker.answer(batch, [b"0"])
        for _ in range(20):
            batch, _ = await worker.batch()
            worker.answer(batch, [b"0"] * len(batch.rows))
        replies = await asyncio.gather(*asking)

        assert problem(full, 503) == "overloaded: the queue of this API is full"
        assert {reply.status_code for reply in replies} == {200}


async def test_bytes_alone_limit_a_queue_of_rows_that_cost_their_bytes(tmp_path: Path) -> None:
    async with gateway(tmp_path, max_queue_bytes=30_000) as on:
        await on.worker(serves=service(json_api("echo", ApiSettings(cost="bytes", mb_max_batch_size=4))))
        [stats] = on.service.batching.dispatcher.stats()

        assert stats.rules.max_queue_rows == 30_000
