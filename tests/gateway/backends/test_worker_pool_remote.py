"""Workers on TCP in the pool: their indexes, standing by, joining, leaving, coming back."""

import asyncio
import socket
import ssl
from typing import Any

import pytest

from tests.gateway.backends.listener_stage import LOOPS, Certificates, PortStage, run_on, worker_port
from tests.gateway.backends.pool_stage import BATCH, BODIES
from tests.gateway.fake_worker import FakeWorker, service
from tests.gateway.running import turns
from tests.loops import until
from uncork_dispatcher import WorkerLost
from uncork_gateway.backends.worker_connection import Executed, WorkerConnection
from uncork_workers.wire.messages import Batch, Failed, Goodbye, Hello, Leaving, Message, Ready, WarmUp


async def standing_by(
    on: PortStage, instance: str = "x", *, tls: ssl.SSLContext | None = None
) -> tuple[FakeWorker, WorkerConnection]:
    """Connect a ready worker that stands by; return its end in the pool too."""
    worker, index = await on.dial(instance=instance, tls=tls)
    worker.send(Hello(index=index, service=service(), host=instance))
    worker.send(Ready(profile={"echo": [(1.0, 0.5)]}))
    assert [what for what, _ in [await on.news.news.get() for _ in range(2)]] == ["described", "stands by"]
    [connection] = [one for one in on.pool.self_started() if one.index == index]
    return worker, connection


async def in_service(
    on: PortStage, instance: str = "x", *, tls: ssl.SSLContext | None = None
) -> tuple[FakeWorker, WorkerConnection]:
    worker, connection = await standing_by(on, instance, tls=tls)
    on.pool.join(connection)
    assert await on.news.news.get() == ("ready", connection.key)
    return worker, connection


def execute(
    on: PortStage, connection: WorkerConnection, bodies: list[bytes] = BODIES
) -> asyncio.Future[Executed]:
    future: asyncio.Future[Executed] = asyncio.get_running_loop().create_future()
    on.news.runs(connection.key, future)
    batch = Batch(5, "echo", 10, [len(body) for body in bodies], [1] * len(bodies))
    on.pool.execute(connection.key, batch, bodies, future.set_result)
    return future


async def test_indexes_are_above_those_of_the_supervisor_and_differ() -> None:
    """Also before the workers have said anything; an index is free again when its worker has gone."""
    async with worker_port(reserved=2) as on:
        workers = [await on.dial(instance=f"{number}") for number in range(3)]
        assert [index for _, index in workers] == [2, 3, 4]
        workers[1][0].close()
        await turns(20)
        assert (await on.dial(instance="new"))[1] == 3


async def test_a_worker_stands_by_until_it_joins() -> None:
    async with worker_port() as on:
        _, connection = await standing_by(on)
        assert (on.pool.states(), on.pool.ready(), on.pool.in_service()) == (["starting"], set(), [])
        assert on.news.joined == []
        [slot] = on.pool.slots()
        assert slot.fault == (
            "worker 0 stands by: it has another version of the service than the one that is served"
        )

        on.pool.join(connection)
        assert (on.pool.states(), on.pool.ready(), on.pool.in_service()) == (["idle"], {0}, [connection])
        assert on.news.joined == [0]
        assert await on.news.news.get() == ("ready", connection.key)
        [slot] = on.pool.slots()
        assert slot.fault == ""


async def test_a_worker_may_join_before_it_is_ready() -> None:
    async with worker_port() as on:
        worker, index = await on.dial()
        worker.send(Hello(index=index, service=service()))
        assert (await on.news.news.get())[0] == "described"
        [connection] = on.pool.self_started()
        on.pool.join(connection)
        worker.send(WarmUp("echo", 4))
        assert await on.news.news.get() == ("warms up", (0, "echo", 4))
        worker.send(Ready())
        assert await on.news.news.get() == ("ready", connection.key)


async def test_a_worker_retires_after_its_batch() -> None:
    """The answer counts, it gets no other batch, and it learns why. The supervisor hears of no batch."""
    async with worker_port() as on:
        worker, connection = await in_service(on)
        executing = execute(on, connection)
        batch, payload = await worker.batch()
        for _ in range(2):
            on.pool.retire(connection, "because")
        assert await on.news.news.get() == ("leaves", connection.key)
        assert (on.pool.in_service(), on.pool.self_started(), on.pool.ready()) == ([], [], set())
        worker.answer(batch, [b"1", b"2"])

        assert (payload, (await executing).bodies) == (b"abc", [b"1", b"2"])
        assert await worker.dismissed() == Goodbye("because")
        assert await on.news.news.get() == ("gone", connection.key)
        assert on.news.news.empty()
        assert on.news.batches == {}


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has this option")
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("encrypted", [False, True])
def test_a_large_batch_may_stay_unread_while_the_one_before_runs(loop: str, encrypted: bool) -> None:
    """Else the system would end the connection to a worker that is busy for long."""
    certificates = Certificates()

    async def scenario() -> None:
        async with worker_port(tls=certificates.server() if encrypted else None) as on:
            worker, connection = await in_service(on, tls=certificates.client() if encrypted else None)
            unread_s = []
            for number, body in enumerate([b"", bytes(100_000), b"", bytes(100_000)]):
                batch = Batch(number, "echo", 10, [len(body)], [1], timeout_s=90.0)
                on.pool.execute(connection.key, batch, [body], lambda executed: None)
                assert connection._transport is not None
                its_socket = connection._transport.get_extra_info("socket")
                unread_s.append(its_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1000)
                if number % 2:
                    for _ in range(2):
                        got, _ = await worker.batch()
                        worker.answer(got, [b""])
                    await until(lambda: not connection.is_busy)
            assert unread_s == [10, 90, 10, 90]

    run_on(loop, scenario())


@pytest.mark.parametrize("state", ["idle", "starting", "standby"])
async def test_a_worker_without_a_batch_leaves_at_once(state: str) -> None:
    async with worker_port() as on:
        if state == "starting":
            worker, index = await on.dial()
            worker.send(Hello(index=index, service=service()))
            assert (await on.news.news.get())[0] == "described"
            on.pool.join(on.pool.self_started()[0])
        else:
            worker, _ = await (in_service if state == "idle" else standing_by)(on)
        worker.send(Leaving())
        await worker.dropped()

        told = [await on.news.news.get() for _ in range(on.news.news.qsize())]
        assert told == [*([("leaves", -1)] if state == "idle" else []), ("gone", -1)]
        assert on.pool.states() == []


async def test_the_worker_of_an_abandoned_batch_is_disconnected() -> None:
    """There is nothing to kill."""
    async with worker_port(reserved=1) as on:
        worker, connection = await in_service(on)
        executing = execute(on, connection)
        await worker.batch()

        assert on.pool.abandon(BATCH.batch) == 1
        await worker.dropped()
        with pytest.raises(WorkerLost):
            await executing
        assert on.news.dropped == []
        assert await on.news.news.get() == ("lost", connection.key)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("encrypted", [False, True])
def test_a_process_that_connects_again_has_given_up_its_old_connection(loop: str, encrypted: bool) -> None:
    """Which may be half-open: its batch is lost at once, however much of it is still to be sent."""
    certificates = Certificates()

    async def scenario() -> None:
        tls = certificates.client() if encrypted else None
        async with worker_port(tls=certificates.server() if encrypted else None) as on:
            worker, index = await on.dial(instance="same", tls=tls)
            worker.send(Hello(index=index, service=service()))
            worker.send(Ready())
            for _ in range(2):
                await on.news.news.get()
            [connection] = on.pool.self_started()
            on.pool.join(connection)
            other, _ = await on.dial(instance="other", tls=tls)
            executing = execute(on, connection, [bytes(50_000_000)])
            worker.stop_reading()

            _, again = await on.dial(instance="same", tls=tls)
            with pytest.raises(WorkerLost):
                await executing
            assert again == 2
            assert on.pool.states() == ["starting"] * 2
            assert on.pool.in_service() == []
            other.close()

    run_on(loop, scenario())


async def test_an_idle_connection_that_was_given_up_gets_no_batch() -> None:
    """Not even before its end is noticed."""
    async with worker_port() as on:
        _, connection = await in_service(on, "same")
        await on.dial(instance="same")
        assert await on.news.news.get() == ("lost", connection.key)


async def test_a_launched_worker_has_the_index_of_its_launch() -> None:
    """It may run older code until it has described itself, and goes when a reload replaces the others."""
    async with worker_port(reserved=1) as on:
        starting, _ = await on.dial(instance="launch 1", launch=1)
        new, _ = await on.dial(instance="launch 2", launch=2, standby=True)
        new.send(Hello(index=0, launch=2, service=service()))
        new.send(Ready())
        assert [(await on.news.news.get())[0] for _ in range(2)] == ["described", "stands by"]

        assert on.pool.take_over([2], renewed=True) == set()
        assert (await on.news.news.get())[0] == "ready"
        await starting.dropped()
        assert on.pool.ready() == {0}


@pytest.mark.parametrize(
    ("fields", "hello", "objection"),
    [
        (
            {},
            Hello(index=1, service=service(), launch=7),
            "it claims to be launch 7 of the gateway, but connected as no launch of the gateway",
        ),
        ({}, Hello(index=0, service=service()), "it claims index 0, but was given 1"),
        (
            {"launch": 2},
            Hello(index=0, service=service(), launch=7),
            "it claims to be launch 7 of the gateway, but connected as launch 2 of the gateway",
        ),
    ],
)
async def test_a_worker_cannot_claim_to_be_another_one(
    fields: dict[str, Any], hello: Hello, objection: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The supervisor hears nothing of it: it would kill that other one."""
    async with worker_port(reserved=1) as on:
        worker, _ = await on.dial(**fields)
        worker.send(hello)

        if fields:
            await worker.dropped()
        else:
            goodbye = await worker.dismissed()
            assert goodbye == Goodbye(f"the gateway refuses this worker: {objection}", is_final=True)
        assert objection in caplog.text
        assert on.pool.states() == []
        assert (on.news.dropped, on.news.joined) == ([], [])
        assert on.news.news.empty()


@pytest.mark.parametrize("again", [Hello(index=0, service=service()), Failed(3, "load", "no model")])
async def test_a_worker_cannot_become_another_one(again: Message, caplog: pytest.LogCaptureFixture) -> None:
    async with worker_port() as on:
        worker, _ = await in_service(on)
        worker.send(again)
        await worker.dropped()

        assert (await on.news.news.get())[0] == "lost"
    assert "it sent an invalid message" in caplog.text


async def test_a_worker_that_names_itself_like_a_launch_does_not_replace_it() -> None:
    async with worker_port(reserved=1) as on:
        launched, _ = await on.dial(instance="launch 1", launch=1)
        await on.dial(instance="launch 1")
        launched.send(Hello(index=0, launch=1, service=service()))

        assert (await on.news.news.get())[0] == "described"
        assert len(on.pool.states()) == 2
