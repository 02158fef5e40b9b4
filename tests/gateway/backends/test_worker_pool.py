"""The worker pool with fake workers on real sockets."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.gateway.backends.pool_stage import BATCH, BODIES, Listener, stage
from tests.gateway.fake_worker import FakeWorker, json_api, service
from tests.gateway.running import turns
from uncork_gateway.backends.worker_pool import WorkerPool
from uncork_gateway.service_log import ServiceLog
from uncork_workers.wire.messages import Failed, Hello, Ping, Pong, Ready, Reply, WarmUp


async def test_the_listener_is_told_what_becomes_of_a_worker(tmp_path: Path) -> None:
    """Described, ready, lost, in this order; the state follows."""
    async with stage(tmp_path) as on:
        worker = await on.connect()
        assert (on.pool.states(), on.pool.ready()) == ([], set())
        described = service(name="Mine")
        worker.send(Hello(index=3, launch=1, service=described))
        assert await on.news() == ("described", described)
        assert (on.pool.states(), on.pool.ready()) == (["starting"], set())
        worker.send(Ready())
        assert await on.news() == ("ready", 1)
        assert (on.pool.states(), on.pool.ready()) == (["idle"], {3})
        worker.close()
        assert await on.news() == ("lost", 1)
        assert (on.pool.states(), on.pool.ready()) == ([], set())


async def test_the_listener_is_told_what_a_worker_warms_up_with(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        worker = await on.connect()
        worker.send(Hello(index=3, launch=1, service=service()))
        worker.send(WarmUp(api="echo", rows=32))
        await on.news()
        assert await on.news() == ("warms up", (3, "echo", 32))
        assert on.pool.ready() == set()
        worker.send(Ready())
        assert await on.news() == ("ready", 1)
        assert on.pool.ready() == {3}
        standby = await on.standby(index=3)
        standby.send(WarmUp(api="echo", rows=64))
        await turns()
        assert on.listener.news.empty()


async def test_a_launch_is_one_worker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Another process that claims it is refused, and its batches stay where they are."""
    async with stage(tmp_path) as on:
        worker, _ = await on.ready(launch=3)
        other = await on.connect()
        other.send(Hello(index=0, launch=3, service=service()))
        await other.dropped()
        executing = on.execute(3)
        await worker.batch()
        worker.answer(BATCH, [b"", b""])
        await executing

        assert (on.pool.states(), on.listener.dropped) == (["idle"], [])
    assert "launch 3 of the gateway is connected already" in caplog.text


async def test_workers_that_nobody_launched_have_keys_of_their_own(tmp_path: Path) -> None:
    """A key is not used again."""
    async with stage(tmp_path) as on:
        for key in (-1, -2):
            worker = await FakeWorker.connect(on.standby_path)
            worker.send(Hello(index=7, service=service()))
            assert (await on.news())[0] == "described"
            worker.close()
            assert await on.news() == ("gone", key)


@pytest.mark.parametrize("standby", [False, True])
async def test_a_worker_that_fails_is_told_and_was_never_ready(tmp_path: Path, standby: bool) -> None:
    """Its end is no loss, because it accepted no batches."""
    async with stage(tmp_path) as on:
        failed = Failed(index=2, stage="setup", message="no model", traceback="line 1")
        worker = await FakeWorker.connect(on.standby_path if standby else on.socket_path)
        worker.send(failed)
        worker.close()
        assert await on.news() == ("failed standby" if standby else "failed", failed)
        await on.ready()

        assert on.listener.news.empty()


async def test_a_batch_goes_to_the_worker_and_its_answer_comes_back(tmp_path: Path) -> None:
    """Unchanged, with the bodies split; the worker is busy in between, and idle afterwards."""
    async with stage(tmp_path) as on:
        worker, number = await on.ready()
        for _ in range(2):
            executing = on.execute(number)
            assert await worker.batch() == (BATCH, b"abc")
            assert (on.pool.states(), on.pool.ready()) == (["busy"], {0})
            worker.answer(BATCH, [b"xyz", b""], statuses=[200, 400], worked=False, chunks=[(3, 0.5)])

            reply, bodies = await executing
            assert reply == Reply(5, False, 0.001, [200, 400], [3, 0], [(3, 0.5)])
            assert bodies == [b"xyz", b""]
            assert on.pool.states() == ["idle"]


async def test_closing_before_listening_does_nothing() -> None:
    """A gateway that could not start can still be closed."""
    await WorkerPool(Listener().on_worker, log=ServiceLog("")).close()


async def test_a_worker_that_waits_but_does_not_answer_is_dropped(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        worker, number = await on.ready(index=4)
        on.pool.ping_idle()
        assert on.listener.dropped == []
        on.pool.ping_idle()
        assert (await worker.frame()).message == Ping()
        await worker.dropped()

        assert await on.news() == ("lost", number)
        assert on.listener.dropped == [1]


async def test_a_worker_that_answers_stays(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        worker, _ = await on.ready(index=4)
        for _ in range(3):
            on.pool.ping_idle()
            assert (await worker.frame()).message == Ping()
            worker.send(Pong())
            await turns(20)

        assert (on.listener.dropped, on.pool.states()) == ([], ["idle"])


async def test_a_worker_that_runs_a_batch_is_not_pinged(tmp_path: Path) -> None:
    """Only idle workers are pinged: batches have timeouts, and a setup may take long."""
    async with stage(tmp_path) as on:
        starting = await on.connect()
        starting.send(Hello(index=5, launch=2, service=service()))
        await on.news()
        _, number = await on.ready(index=4)
        on.pool.ping_idle()
        on.pool.execute(number, BATCH, BODIES, lambda outcome: None)
        for _ in range(3):
            on.pool.ping_idle()
        await turns(20)

        assert (on.listener.dropped, sorted(on.pool.states())) == ([], ["busy", "starting"])


def test_an_error_while_workers_are_pinged_does_not_end_the_pings(tmp_path: Path) -> None:
    """Killing the first dropped worker fails; the next one is still dropped."""

    class Failing(list[int]):
        def append(self, launch: int) -> None:
            raise ProcessLookupError(launch)

    listener = Listener()
    listener.dropped = Failing()

    errors: list[BaseException] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: errors.append(context["exception"])
        )
        async with stage(tmp_path, listener, ping_interval_s=0.01) as on:
            workers = [(await on.ready(index=index, launch=index))[0] for index in (1, 2)]
            for worker in workers:
                assert (await worker.frame()).message == Ping()
                await worker.dropped()

    asyncio.run(scenario())  # The loops of other tests fail on errors of callbacks.

    assert [str(error) for error in errors] == ["1", "2"]


async def test_a_worker_with_concurrency_replies_in_any_order(tmp_path: Path) -> None:
    """Its batches never share a file, whose halves follow the order."""
    async with stage(tmp_path) as on:
        worker = await on.connect()
        many = msgspec.structs.replace(json_api(), concurrency=3)
        worker.send(Hello(index=0, launch=1, service=service(many)))
        worker.send(Ready())
        for _ in range(2):
            await on.news()
        batches = [msgspec.structs.replace(BATCH, batch=number) for number in (5, 6, 7)]
        running = [on.execute(1, batch=batch) for batch in batches]
        for batch in batches:
            assert await worker.batch() == (batch, b"abc")
        for number in (1, 2, 0):
            assert on.pool.states() == ["busy"]
            worker.answer(batches[number], [b"%d" % number, b""])
            assert (await running[number]).bodies == [b"%d" % number, b""]
        assert on.pool.states() == ["idle"]
