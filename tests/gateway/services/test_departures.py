"""The whole gateway, when clients leave while a worker has their batch."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.gateway.fake_worker import FakeWorker, json_api, service
from tests.gateway.gateway_stage import GatewayStage, gateway, problem
from tests.gateway.grpc.call_stage import calls, numbers
from tests.gateway.running import turns
from uncork_gateway.grpc.statuses import Code
from uncork_workers.wire.messages import Batch, Cancel
from uncork_workers.wire.schema import ApiSettings

PAIRS = json_api(settings=ApiSettings(policy="fixed:60000:2"))
HASTY = {"x-request-timeout-ms": "30000"}
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


async def let_time_pass(on: GatewayStage) -> None:
    """Put the clock of the dispatcher 31 s ahead: a batch may take 60 s."""
    dispatcher = on.service.batching.dispatcher
    timer = dispatcher._timer
    clock = timer._clock
    timer._clock = lambda: clock() + 31
    dispatcher.worker_not_expected("x")  # the core looks at the time
    await turns()


def ended(on: GatewayStage, outcome: str) -> float | None:
    labels = {"service": on.service.batching.name, "api": "echo", "outcome": outcome}
    registry = on.gateway.front_end.exposition.registry
    return registry.get_sample_value("uncork_batches_total", labels)


async def test_the_worker_knows_which_requests_nobody_waits_for(on: GatewayStage) -> None:
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


async def test_a_computation_is_cancelled_when_nobody_waits_for_it(on: GatewayStage) -> None:
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


async def test_the_worker_knows_whose_time_has_passed(on: GatewayStage) -> None:
    """The last such client ends the batch; the others get their results."""
    worker = await on.worker(serves=service(PAIRS))
    posted = [on.post("/echo", 1)]
    await turns()
    posted.append(asyncio.create_task(on.http.post("/echo", json=2, headers=HASTY)))
    batch, _ = await worker.batch()
    await let_time_pass(on)
    assert await worker.next() == Cancel(batch.batch, (1,))
    assert problem(await posted[1], 504).endswith("expired while the request was running")
    worker.answer(batch, [b"1", b"2"])
    assert (await posted[0]).json() == 1

    posted = [asyncio.create_task(on.http.post("/echo", json=2, headers=HASTY)) for _ in range(2)]
    batch, _ = await worker.batch()
    await let_time_pass(on)
    assert await worker.next() == Cancel(batch.batch, (0, 1))
    assert [(await late).status_code for late in posted] == [504, 504]
    worker.answer(batch, [b"", b""], statuses=[499, 499], chunks=[], worked=False, cancelled=True)
    batch, posted = await running(on, worker, 3, 4)
    worker.answer(batch, [b"3", b"4"])
    assert [(await one).json() for one in posted] == [3, 4]
    assert (ended(on, "cancelled"), ended(on, "failed"), ended(on, "worked")) == (1, None, 2)


async def test_the_access_log_has_the_batches_of_requests_that_ended_early(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client has left, the time of another has passed, and a batch has timed out."""
    async with gateway(tmp_path, access_log=True) as on:
        worker = await on.worker(serves=service(SINGLE))
        with caplog.at_level(logging.INFO, logger="uncork.access"):
            left, [leaver] = await running(on, worker, 1)
            leaver.cancel()
            assert await worker.next() == Cancel(left.batch, (0,))
            worker.answer(left, [b"1"])
            asking = asyncio.create_task(on.http.post("/echo", json=2, headers=HASTY))
            late, _ = await worker.batch()
            await let_time_pass(on)
            assert (await asking).status_code == 504
            assert await worker.next() == Cancel(late.batch, (0,))
            worker.answer(late, [b"2"])
            timed_out, [waiting] = await running(on, worker, 3)
            await let_time_pass(on)
            await let_time_pass(on)
            assert (await waiting).status_code == 504

    id_of = on.service.batching.batch_headers.id_of
    lines = [record.__dict__ for record in caplog.records if record.name == "uncork.access"]
    logged = [(line["status"], line["batch"]) for line in lines]
    assert logged == [
        (499, id_of(left.batch)),
        (504, id_of(late.batch)),
        (504, id_of(timed_out.batch)),
    ]


async def test_a_call_ends_at_its_deadline_while_it_runs(tmp_path: Path) -> None:
    async with calls(tmp_path, service(SINGLE)) as stage:
        _, stream = stage.ask(numbers(1), timeout_s=30)
        batch, _ = await stage.worker.batch()
        await let_time_pass(stage.on)
        assert await stage.worker.next() == Cancel(batch.batch, (0,))
        assert await stream.end() == Code.DEADLINE_EXCEEDED
        assert stream.text == "the timeout in grpc-timeout expired while the request was running"
