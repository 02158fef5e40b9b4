"""The whole gateway: batches of a size that killed workers become smaller."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.dispatcher.driver import core_with, poll_all, starts
from tests.gateway.fake_worker import FakeWorker
from tests.gateway.gateway_stage import GatewayStage
from tests.gateway.running import turns
from tests.gateway.services.memory_stage import SERVES, answered, metrics
from tests.loops import until
from uncork_dispatcher import ApiRules
from uncork_gateway.services.lethal_batches import LethalBatches
from uncork_workers.wire.messages import Batch, Hello, Ready


async def runs(
    on: GatewayStage, worker: FakeWorker, requests: int
) -> tuple[Batch, list[asyncio.Task[httpx.Response]]]:
    """Have a worker run a batch of so many requests; return it, and them."""
    dispatcher = on.service.batching.dispatcher
    blocking = on.post("/echo", 0)
    first, payload = await worker.batch()
    queued = dispatcher.unanswered + requests
    asking = [on.post("/echo", 0) for _ in range(requests)]
    await until(lambda: dispatcher.unanswered == queued)
    worker.answer(first, [payload])
    await blocking
    batch, _ = await worker.batch()
    assert len(batch.rows) == requests
    return batch, asking


async def loses(on: GatewayStage, worker: FakeWorker, requests: int) -> list[asyncio.Task[httpx.Response]]:
    """Have a worker die with a batch of so many requests; return them."""
    _, asking = await runs(on, worker, requests)
    worker.close()
    return asking


async def killed_by(
    on: GatewayStage, requests: int, *, index: int = 0, alone: str = "answered"
) -> FakeWorker:
    """Have a batch lose two workers, and its requests run alone on a third, which is returned."""
    asking = await loses(on, await on.worker(index=index, serves=SERVES), requests)
    worker = await on.worker(index=index, serves=SERVES)
    batch, _ = await worker.batch()
    assert len(batch.rows) == requests
    worker.close()
    worker = await on.worker(index=index, serves=SERVES)
    for number in range(requests):
        batch, payload = await worker.batch()
        assert len(batch.rows) == 1
        if alone == "kills" and number == 0:
            worker.close()
            worker = await on.worker(index=index, serves=SERVES)
        else:
            worker.answer(batch, [payload])
    await asyncio.gather(*asking)
    return worker


async def test_a_batch_that_kills_two_workers_and_runs_request_by_request_was_too_large(
    on: GatewayStage, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of it is the limit, which stays; replies do not raise it."""
    worker = await killed_by(on, 8)

    assert "a batch of size 8 killed its workers, but each of its requests ran alone" in caplog.text
    assert caplog.text.count("batches of worker 0 have at most 4 rows") == 1
    assert await metrics(on, "uncork_batch_limit{") == [
        'uncork_batch_limit{api="echo",service="fake",worker="0"} 4.0'
    ]
    batches = await answered(on, worker, 20, limit=None)
    assert max(len(batch.rows) for batch in batches) <= 4
    assert {batch.fits for batch in batches} == {None}


async def test_a_request_that_kills_workers_alone_was_the_reason_itself(on: GatewayStage) -> None:
    await killed_by(on, 4, alone="kills")

    assert await metrics(on, "uncork_batch_limit{") == []


async def test_workers_that_die_with_a_size_that_has_worked_teach_nothing(on: GatewayStage) -> None:
    """Somebody else killed them."""
    worker = await killed_by(on, 4, alone="kills")
    blocking = on.post("/echo", 0)
    first, payload = await worker.batch()
    asking = [on.post("/echo", 0) for _ in range(5)]
    await turns(20)
    worker.answer(first, [payload])
    batch, payload = await worker.batch()
    assert len(batch.rows) == 5
    worker.answer(batch, [b"0"] * 5)
    await asyncio.gather(blocking, *asking)
    worker.close()
    await turns()

    await killed_by(on, 5)

    assert await metrics(on, "uncork_batch_limit{") == []


@pytest.mark.parametrize("is_noticed_first", ["connection", "process"])
async def test_one_death_is_enough_if_the_kernel_counts_it(
    on: GatewayStage, caplog: pytest.LogCaptureFixture, is_noticed_first: str
) -> None:
    """The lost batch runs again in halves, and no other worker dies for it; all share the memory."""
    other = await on.worker(index=1, serves=SERVES)
    blocking = on.post("/echo", 0)
    first, _ = await other.batch()
    worker = await on.worker(index=0, serves=SERVES)
    if is_noticed_first == "process":
        on.service.lethal.killed(2)
    asking = await loses(on, worker, 8)
    await turns()
    on.service.lethal.killed(2)

    again = await on.worker(index=0, serves=SERVES)
    sizes: list[int] = []
    while sum(sizes) < 8:
        batch, _ = await again.batch()
        sizes.append(len(batch.rows))
        again.answer(batch, [b"0"] * len(batch.rows))
    assert sizes == [4, 4]
    assert {response.status_code for response in await asyncio.gather(*asking)} == {200}
    other.answer(first, [b"0"])
    await blocking
    said = "echo: a batch of size 8 took too much memory, and the kernel killed its worker; batches of "
    messages = [record.getMessage() for record in caplog.records if "kernel" in record.getMessage()]
    assert sorted(messages) == [f"{said}worker {index} have at most 4 rows" for index in (0, 1)]
    assert len(await metrics(on, "uncork_batch_limit{")) == 2


async def test_a_worker_that_starts_later_shares_the_memory_too(on: GatewayStage) -> None:
    """One on another machine does not. Other code begins without the limit."""
    asking = await loses(on, await on.worker(serves=SERVES), 8)
    on.service.lethal.killed(1)
    worker = await on.worker(serves=SERVES)
    for _ in range(2):
        batch, _ = await worker.batch()
        worker.answer(batch, [b"0"] * len(batch.rows))
    await asyncio.gather(*asking)
    await on.worker(index=1, serves=SERVES)
    elsewhere = await on.connect()
    elsewhere.send(Hello(index=2, service=SERVES, host="elsewhere"))
    elsewhere.send(Ready())
    await until(lambda: 2 in on.service.pool.ready())
    assert await metrics(on, "uncork_batch_limit{") == [
        f'uncork_batch_limit{{api="echo",service="fake",worker="{index}"}} 4.0' for index in (0, 1)
    ]

    for index in (0, 1):
        await on.standby(10 + index, index=index, serves=SERVES)
    on.service.take_over([10, 11], on.service.prepare_take_over([10, 11]))
    await on.worker(index=3, serves=SERVES)
    assert await metrics(on, "uncork_batch_limit{") == []


async def test_the_limit_is_halved_again_if_half_kills_too(on: GatewayStage) -> None:
    """Until a single request is left: that one is at fault itself, or the model."""
    worker = await on.worker(serves=SERVES)
    asking = await loses(on, worker, 8)
    launch, sizes = 1, []
    while True:
        on.service.lethal.killed(launch)
        worker = await on.worker(serves=SERVES)
        launch += 1
        batch, _ = await worker.batch()
        sizes.append(len(batch.rows))
        if sizes[-1] == 1:
            break
        worker.close()
        await turns()

    assert sizes[:2] == [4, 2]
    await on.worker(index=1, serves=SERVES)
    limits = await metrics(on, "uncork_batch_limit{")
    assert [line.split()[-1] for line in limits] == ["1.0", "1.0"]
    for one in asking:
        one.cancel()


@pytest.mark.parametrize("requests", [1, 3])
async def test_the_kernel_may_kill_for_other_reasons(on: GatewayStage, requests: int) -> None:
    """A request alone, a batch of a size that has worked, a worker without a batch, or an unknown one."""
    worker = await on.worker(serves=SERVES)
    blocking = on.post("/echo", 0)
    first, payload = await worker.batch()
    asking = [on.post("/echo", 0) for _ in range(3)]
    await until(lambda: on.service.batching.dispatcher.unanswered == 4)
    worker.answer(first, [payload])
    batch, _ = await worker.batch()
    worker.answer(batch, [b"0"] * 3)
    await asyncio.gather(blocking, *asking)
    await loses(on, worker, requests)
    on.service.lethal.killed(1)
    idle = await on.worker(index=1, serves=SERVES)
    idle.close()
    await turns()
    on.service.lethal.killed(2)
    on.service.lethal.killed(77)

    assert await metrics(on, "uncork_batch_limit{") == []


@pytest.mark.parametrize("ends", ["before", "after"])
async def test_new_code_may_need_more_memory_for_the_same_size(on: GatewayStage, ends: str) -> None:
    """Also if a batch of the old code ends after the change."""
    old = await on.worker(serves=SERVES)
    batch, asking = await runs(on, old, 12)
    if ends == "before":
        old.answer(batch, [b"0"] * 12)
        await asyncio.gather(*asking)
    new = await on.standby(2, serves=SERVES)
    on.service.take_over([2], on.service.prepare_take_over([2]))
    if ends == "after":
        old.answer(batch, [b"0"] * 12)
        await asyncio.gather(*asking)
    await loses(on, new, 8)
    on.service.lethal.killed(2)
    await turns()

    assert await metrics(on, "uncork_batch_limit{") == [
        'uncork_batch_limit{api="echo",service="fake",worker="0"} 4.0'
    ]


@pytest.mark.parametrize("is_lost", ["before", "after"])
async def test_what_kills_old_code_does_not_limit_new_code(on: GatewayStage, is_lost: str) -> None:
    """Whether its worker is lost before the change, and the reason known after it, or both are after it."""
    old = await on.worker(serves=SERVES)
    _, asking = await runs(on, old, 8)
    if is_lost == "before":
        old.close()
        await turns()
    new = await on.standby(2, serves=SERVES)
    on.service.take_over([2], on.service.prepare_take_over([2]))
    if is_lost == "after":
        old.close()
        await turns()
    on.service.lethal.killed(1)
    batch, _ = await new.batch()
    new.answer(batch, [b"0"] * 8)
    await asyncio.gather(*asking)

    assert len(batch.rows) == 8
    assert await metrics(on, "uncork_batch_limit{") == []


def test_twenty_workers_that_die_at_once_are_told_apart() -> None:
    """Those of the last 16 that the kernel has killed are known; the others teach nothing."""
    core = core_with(ApiRules(name="a", max_batch_rows=8, policy="fixed:0"), workers=20)
    for number in range(160):
        core.submit(number, api="a", now=0.0)
    assert len(starts(poll_all(core, 0.0))) == 20
    found: list[tuple[Any, ...]] = []
    lethal = LethalBatches(lambda worker: worker, lambda *batch: found.append(batch))
    for worker in range(1000, 1100):
        lethal.killed(worker)
    for worker in range(20):
        for lost in core.worker_lost(worker, now=0.0):
            lethal.batch_ended(lost, "lost")
    for worker in range(20):
        lethal.killed(worker)

    assert found == [("a", None, 8)] * 16


@pytest.mark.parametrize("is_death_noticed_first", [True, False])
def test_a_batch_that_was_sent_ahead_is_not_blamed(is_death_noticed_first: bool) -> None:
    core = core_with(ApiRules(name="a", max_batch_rows=8, policy="fixed:0"), workers=2)
    for number in range(9):
        core.submit(number, api="a", now=0.0)
    ahead, running = starts(poll_all(core, 0.0))
    assert (len(running.requests), len(ahead.requests)) == (1, 8)
    ahead.worker = running.worker
    found: list[tuple[Any, ...]] = []
    lethal = LethalBatches(lambda worker: worker, lambda *batch: found.append(batch))
    if is_death_noticed_first:
        lethal.killed(running.worker)
    lethal.batch_ended(running, "lost")
    lethal.batch_ended(ahead, "lost")
    if not is_death_noticed_first:
        lethal.killed(running.worker)

    assert found == []
