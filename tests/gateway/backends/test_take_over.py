"""Workers that take over from others, on real sockets."""

import asyncio
from typing import NamedTuple

import pytest

from tests.gateway.backends.pool_stage import BATCH, Stage
from tests.gateway.fake_worker import FakeWorker, service
from tests.gateway.running import turns
from uncork_dispatcher import WorkerLost
from uncork_gateway.backends.worker_connection import Executed
from uncork_workers.wire.messages import Hello, Ready


async def answered(on: Stage, worker: FakeWorker, key: int, body: bytes) -> bool:
    """Return whether this worker runs a batch for this key."""
    executing = on.execute(key)
    await worker.batch()
    worker.answer(BATCH, [body, b""])
    return (await executing).bodies[0] == body


class TakenOver(NamedTuple):
    """A worker that runs a batch, and the one that has taken over from it."""

    old: FakeWorker
    new: FakeWorker
    running: asyncio.Future[Executed]


async def taken_over(on: Stage) -> TakenOver:
    """Let worker 2 take over from worker 1, which is busy."""
    old, _ = await on.ready(launch=1)
    running = on.execute(1)
    await old.batch()
    new = await on.standby(launch=2)
    assert on.pool.take_over([2]) == {1}
    assert [await on.news(), await on.news()] == [("ready", 2), ("leaves", 1)]
    return TakenOver(old, new, running)


async def test_a_worker_that_stands_by_gets_nothing(on: Stage) -> None:
    """The listener learns what it serves, but it is not in service; its end is no loss."""
    worker = await FakeWorker.connect(on.standby_path)
    worker.send(Hello(index=0, launch=7, service=service(name="New")))
    assert await on.news() == ("described", service(name="New"))
    with pytest.raises(ValueError, match="1 of the new workers cannot take over"):
        on.pool.standbys([7])
    worker.send(Ready())
    assert await on.news() == ("stands by", 7)

    assert (on.pool.states(), on.pool.ready()) == (["starting"], set())
    assert on.pool.standbys([7]) == [service(name="New")]
    worker.close()
    assert await on.news() == ("gone", 7)
    assert on.pool.states() == []
    with pytest.raises(ValueError, match="1 of the new workers cannot take over"):
        on.pool.standbys([7])


async def test_a_worker_that_leaves_cannot_take_over(on: Stage) -> None:
    """Not even if it says that it is ready in the same breath."""
    await on.ready(launch=1)
    new = await on.standby(launch=2)
    connection = on.pool._by_key[2]
    connection.is_retiring = True  # it has said that it leaves, and its connection has not closed yet

    with pytest.raises(ValueError, match="1 of the new workers cannot take over"):
        on.pool.standbys([2])
    assert on.pool.take_over([2]) == set()
    assert on.pool.ready() == {0}
    new.close()


async def test_the_new_worker_is_ready_before_the_old_one_leaves(on: Stage) -> None:
    """Whatever the order in which they connected; idle workers leave at once."""
    olds = [await on.ready(index=index, launch=1 + index) for index in range(2)]
    news = {index: await on.standby(index=index, launch=10 + index) for index in (1, 0)}

    assert on.pool.take_over([10, 11]) == {1, 2}

    told = [await on.news() for _ in range(4)]
    assert told == [("ready", 10), ("ready", 11), ("leaves", 1), ("leaves", 2)]
    assert on.listener.joined == [0, 1]
    for index, (old, _) in enumerate(olds):
        await old.dropped()
        assert await answered(on, news[index], 10 + index, b"%d" % index)
    assert {await on.news(), await on.news()} == {("gone", 1), ("gone", 2)}
    assert on.pool.states() == ["idle", "idle"]
    assert on.listener.news.empty()


async def test_a_busy_worker_ends_its_batch_while_the_new_one_serves(on: Stage) -> None:
    """Its place is that of the new one meanwhile."""
    old, new, running = await taken_over(on)
    assert sorted(on.pool.states()) == ["busy", "idle"]
    assert (on.pool.index_of(1), on.pool.index_of(2)) == (0, 0)
    assert await answered(on, new, 2, b"new")

    old.answer(BATCH, [b"old", b""])

    assert (await running).bodies == [b"old", b""]
    await old.dropped()
    assert await on.news() == ("gone", 1)
    assert on.pool.states() == ["idle"]
    assert on.pool.index_of(1) == -1


async def test_an_heir_that_dies_leaves_the_old_worker_its_batch(on: Stage) -> None:
    old, new, running = await taken_over(on)
    new.close()
    assert await on.news() == ("lost", 2)
    assert (on.pool.states(), on.pool.ready()) == (["busy"], set())

    old.answer(BATCH, [b"old", b""])

    assert (await running).bodies == [b"old", b""]
    await old.dropped()
    assert await on.news() == ("gone", 1)


async def test_a_place_that_is_empty_is_taken(on: Stage) -> None:
    """A worker that was starting there is stopped, and is not among the replaced ones."""
    starting = await on.connect()
    starting.send(Hello(index=0, launch=1, service=service()))
    assert (await on.news())[0] == "described"
    new = await on.standby()

    assert on.pool.take_over([2]) == set()

    assert await on.news() == ("ready", 2)
    await starting.dropped()
    assert await on.news() == ("gone", 1)
    assert await answered(on, new, 2, b"new")


async def test_both_workers_of_a_place_leave(on: Stage) -> None:
    """As when one is killed, and its successor is ready before the loss is noticed."""
    one, _ = await on.ready(index=0, launch=1)
    other, _ = await on.ready(index=0, launch=3)
    new = await on.standby(index=0, launch=2)

    assert on.pool.take_over([2]) == {1, 3}

    assert [await on.news() for _ in range(3)] == [("ready", 2), ("leaves", 1), ("leaves", 3)]
    await one.dropped()
    await other.dropped()
    assert await answered(on, new, 2, b"new")
    assert on.pool.states() == ["idle"]


async def test_others_go_on_when_one_is_replaced(on: Stage) -> None:
    old, _ = await on.ready(index=0, launch=1)
    stays, _ = await on.ready(index=1, launch=3)
    starting = await on.connect()
    await turns(50)
    new = await on.standby(index=0, launch=2)
    assert on.pool.any_left_by([2])

    assert on.pool.take_over([2]) == {1}

    assert [await on.news() for _ in range(2)] == [("ready", 2), ("leaves", 1)]
    await old.dropped()
    assert await on.news() == ("gone", 1)
    assert await answered(on, new, 2, b"new")
    assert await answered(on, stays, 3, b"other")
    starting.send(Hello(index=2, launch=4, service=service()))
    assert (await on.news())[0] == "described"
    assert sorted(on.pool.states()) == ["idle", "idle", "starting"]


@pytest.mark.parametrize("renewed", [True, False])
async def test_one_that_has_not_said_its_index_goes_when_all_are_renewed(on: Stage, *, renewed: bool) -> None:
    """It may run older code. The recycling of another worker does not end it."""
    starting = await on.connect()
    await turns(50)
    await on.standby()
    assert not on.pool.any_left_by([2])

    assert on.pool.take_over([2], renewed=renewed) == set()
    assert len(on.pool.in_service()) == (1 if renewed else 2)
    if renewed:
        await starting.dropped()


async def test_closing_lets_all_kinds_of_workers_go(on: Stage) -> None:
    """Those that start, in service, on standby, and running their last batch."""
    old, new, running = await taken_over(on)
    next_one = await on.standby(launch=3)
    starting = await on.connect()
    await turns()
    await on.pool.close()

    for worker in (old, new, next_one, starting):
        await worker.dropped()
    with pytest.raises(WorkerLost):
        await running
    for path in (on.socket_path, on.standby_path):
        with pytest.raises(OSError, match=r"."):
            await FakeWorker.connect(path)
