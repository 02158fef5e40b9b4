"""The whole gateway: batches are as large as fits into the memory of workers."""

import logging
import math
from pathlib import Path

import pytest

from tests.gateway.fake_worker import json_api, service
from tests.gateway.gateway_stage import GatewayStage, gateway
from tests.gateway.running import turns
from tests.gateway.services.memory_stage import SERVES, answered, metrics
from tests.loops import until
from uncork_workers.wire.messages import Hello, Ready
from uncork_workers.wire.schema import ApiSettings


async def test_batches_follow_what_the_worker_says(
    on: GatewayStage, caplog: pytest.LogCaptureFixture
) -> None:
    """Log, metrics and status show it; another worker is not affected."""
    caplog.set_level(logging.INFO)
    worker = await on.worker(serves=SERVES)
    [first] = await answered(on, worker, limit=3.0, memory_failures=2)
    assert (first.fits, first.pads) == (None, False)

    batches = await answered(on, worker, 12, limit=3.0)

    assert {batch.fits for batch in batches} == {3}
    assert max(len(batch.rows) for batch in batches) <= 3
    said = "echo: larger batches do not fit into the memory of worker 0; its batches have at most 3 rows"
    assert [record.getMessage() for record in caplog.records].count(said) == 1
    assert await metrics(on, "uncork_batch_limit{") == [
        'uncork_batch_limit{api="echo",service="fake",worker="0"} 3.0'
    ]
    assert await metrics(on, "uncork_memory_failures_total{") == [
        'uncork_memory_failures_total{api="echo",service="fake"} 2.0'
    ]
    status = (await on.http.get("/status")).json()
    assert [advice["text"] for advice in status["apis"][0]["advice"]] == [
        "Batches of more than 3 rows do not fit into the memory of a worker; set mb_max_batch_size to 3, "
        "or give the model more memory."
    ]


async def test_a_limit_that_grows_or_ends_is_followed(
    on: GatewayStage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    worker = await on.worker(serves=SERVES)
    for limit in (3.0, 4.0, 4.0, None):
        await answered(on, worker, limit=limit)

    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("echo: trying batches of at most 4 rows on worker 0") == 1
    [batch] = await answered(on, worker)
    assert batch.fits is None
    assert await metrics(on, "uncork_batch_limit{") == []


async def test_the_next_process_of_a_worker_begins_with_its_limit(on: GatewayStage) -> None:
    worker = await on.worker(serves=SERVES)
    await answered(on, worker, limit=3.0)
    worker.close()
    await turns()
    other = await on.worker(index=1, serves=SERVES)
    again = await on.worker(serves=SERVES)

    asking = [on.post("/echo", 0) for _ in range(20)]
    limits = {}
    for name, each in (("again", again), ("other", other)):
        batch, _ = await each.batch()
        limits[name] = batch.fits
        assert name == "other" or len(batch.rows) <= 3
    assert limits == {"again": 3, "other": None}
    for one in asking:
        one.cancel()


async def test_a_worker_that_was_stopped_has_no_limit_until_it_is_started_again(on: GatewayStage) -> None:
    """What its last batch says then teaches nothing."""
    worker = await on.worker(index=1, serves=SERVES)
    await answered(on, worker, limit=3.0)
    asking = on.post("/echo", 0)
    batch, _ = await worker.batch()
    on.service.pool.retire_launch(1)
    on.service.events.forget_workers([1])
    worker.answer(batch, [b"0"], limit=2.0)
    await asking
    assert await metrics(on, "uncork_batch_limit{") == []

    await on.worker(index=1, serves=SERVES)
    assert await metrics(on, "uncork_batch_limit{") == [
        'uncork_batch_limit{api="echo",service="fake",worker="1"} 3.0'
    ]


async def test_a_warm_up_tells_what_fits(on: GatewayStage) -> None:
    worker = await on.connect()
    worker.send(Hello(index=0, launch=1, service=SERVES))
    worker.send(Ready(limits={"echo": 3.0, "gone": 4.0}))
    await on.service.batching.ready.wait()
    await turns()

    batches = await answered(on, worker, 9, limit=3.0)
    assert max(len(batch.rows) for batch in batches) <= 3
    assert {batch.fits for batch in batches} == {3}


async def test_other_code_begins_without(on: GatewayStage) -> None:
    """A reply of the old code that comes later teaches nothing."""
    old = await on.worker(serves=SERVES)
    await answered(on, old, limit=3.0)
    asking = on.post("/echo", 0)
    batch, _ = await old.batch()
    new = await on.standby(2, serves=SERVES)
    change = on.service.prepare_take_over([2])
    on.service.take_over([2], change)
    old.answer(batch, [b"0"], limit=2.0)
    assert (await asking).json() == 0

    [first] = await answered(on, new)
    assert first.fits is None


async def test_a_removed_api_leaves_the_metrics(tmp_path: Path) -> None:
    """With its last request, whose reply comes after the change."""
    other = json_api("other")
    async with gateway(tmp_path, workers=1) as on:
        old = await on.worker(serves=service(*SERVES.apis, other))
        await answered(on, old, limit=3.0, memory_failures=2)
        asking = on.post("/echo", 0)
        batch, _ = await old.batch()
        await on.standby(2, serves=service(other))
        on.service.take_over([2])
        old.answer(batch, [b"0"], limit=2.0, memory_failures=1)
        await asking

        assert await metrics(on, "uncork_memory_failures") == []
        assert await metrics(on, "uncork_batch_limit{") == []


async def test_a_worker_that_stays_begins_without_and_learns_again(tmp_path: Path) -> None:
    """One on another machine, when the others have new code."""
    async with gateway(tmp_path, workers=1) as on:
        old = await on.worker(serves=SERVES)
        stays = await on.connect()
        stays.send(Hello(index=1, service=SERVES))
        stays.send(Ready())
        asking = on.post("/echo", 0)
        held, _ = await old.batch()
        await answered(on, stays, limit=3.0)
        [stats] = on.service.batching.dispatcher.stats()
        assert stats.fits == 3.0

        await on.standby(2, serves=SERVES)
        on.service.take_over([2], on.service.prepare_take_over([2]))
        old.answer(held, [b"0"])
        await asking
        [stats] = on.service.batching.dispatcher.stats()
        assert stats.fits == math.inf
        await answered(on, stays, limit=2.0)

        [stats] = on.service.batching.dispatcher.stats()
        assert stats.fits == 2.0
        assert await metrics(on, "uncork_batch_limit{") == [
            'uncork_batch_limit{api="echo",service="fake",worker="1"} 2.0'
        ]


async def test_a_worker_that_gets_the_number_of_one_elsewhere_begins_without(tmp_path: Path) -> None:
    """As after a reload with more workers."""
    async with gateway(tmp_path, workers=1) as on:
        elsewhere = await on.connect()
        elsewhere.send(Hello(index=1, service=SERVES, host="elsewhere"))
        elsewhere.send(Ready())
        await on.service.batching.ready.wait()
        await answered(on, elsewhere, limit=3.0)
        elsewhere.close()
        await until(lambda: not on.service.pool.ready())
        here = await on.worker(index=1, serves=SERVES)

        [batch] = await answered(on, here)
        assert batch.fits is None
        assert await metrics(on, "uncork_batch_limit{") == []


async def test_cost_is_named(on: GatewayStage, caplog: pytest.LogCaptureFixture) -> None:
    serves = service(json_api(settings=ApiSettings(cost=2.0)))
    worker = await on.worker(serves=serves)
    [batch] = await answered(on, worker, limit=9.5, memory_failures=1)

    assert batch.pads
    assert "its batches have a cost of at most 9.5" in caplog.text
