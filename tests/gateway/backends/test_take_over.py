"""Workers that take over from others, on real sockets."""

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.gateway.backends.pool_stage import BATCH, Stage, stage
from tests.gateway.fake_worker import FakeWorker, service
from tests.gateway.running import turns
from uncork_dispatcher import WorkerLost
from uncork_gateway.backends.worker_replies import Executed
from uncork_workers.wire.messages import Failed, Hello, Ready


async def answered(on: Stage, worker: FakeWorker, number: int, body: bytes) -> bool:
    """Return whether this worker runs a batch for this number."""
    executing = on.execute(number)
    await worker.batch()
    worker.answer(BATCH, [body, b""])
    return (await executing).bodies[0] == body


class TakenOver(NamedTuple):
    """A worker that runs a batch, and the one that has taken over from it."""

    old: FakeWorker
    new: FakeWorker
    number: int
    running: asyncio.Future[Executed]


async def taken_over(on: Stage) -> TakenOver:
    """Let a worker take over from a busy one; until that is gone, their number takes no batch ahead."""
    old, number = await on.ready()
    running = on.execute(number)
    await old.batch()
    new = await on.standby()
    assert on.pool.take_over([2]) == {1}
    assert await on.news() == ("ready, but takes none ahead", number)
    return TakenOver(old, new, number, running)


async def test_a_worker_that_stands_by_gets_nothing(tmp_path: Path) -> None:
    """The listener learns what it serves, but it is not in service; its end is not reported."""
    async with stage(tmp_path) as on:
        worker = await FakeWorker.connect(on.standby_path)
        worker.send(Hello(index=0, launch=7, service=service(name="New"), files=["a.py"]))
        await turns(50)
        with pytest.raises(ValueError, match="1 of the new workers cannot take over"):
            on.pool.standbys([7])
        worker.send(Ready())
        assert await on.news() == ("stands by", 7)

        assert (on.pool.states(), on.pool.ready()) == (["starting"], set())
        assert on.pool.standbys([7]) == [service(name="New")]
        assert on.listener.files == ["a.py"]
        worker.close()
        await turns(50)
        assert (on.pool.states(), on.listener.news.empty()) == ([], True)
        with pytest.raises(ValueError, match="1 of the new workers cannot take over"):
            on.pool.standbys([7])


async def test_a_worker_that_fails_before_it_can_stand_by_is_told(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        failed = Failed(index=2, stage="load", message="no model")
        worker = await FakeWorker.connect(on.standby_path)
        worker.send(failed)
        worker.close()

        assert await on.news() == ("failed standby", failed)
        await turns(50)
        assert on.listener.news.empty()


async def test_what_is_known_of_a_worker_is_told_when_it_takes_over(tmp_path: Path) -> None:
    """Not before, because it gets its number then."""
    async with stage(tmp_path) as on:
        _, number = await on.ready(launch=1)
        new = await FakeWorker.connect(on.standby_path)
        new.send(Hello(index=0, launch=7, service=service()))
        new.send(Ready(profile={"echo": [(1.0, 0.5)]}))
        assert await on.news() == ("stands by", 7)
        on.pool.take_over([7])

        assert await on.news() == ("profiled", (number, {"echo": [(1.0, 0.5)]}))
        new.close()


async def test_an_idle_worker_is_let_go_at_once(tmp_path: Path) -> None:
    """Batches for its number go to the new worker of the same index, in whatever order they connected."""
    async with stage(tmp_path) as on:
        olds = [await on.ready(index=index, launch=index) for index in range(2)]
        news = {index: await on.standby(index=index, launch=10 + index) for index in (1, 0)}

        assert on.pool.take_over([10, 11]) == {0, 1}

        assert {await on.news(), await on.news()} == {("retired", 0), ("retired", 1)}
        for index, (old, number) in enumerate(olds):
            await old.dropped()
            assert await on.news() == ("ready", number)
            assert await answered(on, news[index], number, b"%d" % index)
        assert on.pool.states() == ["idle", "idle"]
        assert on.listener.news.empty()


async def test_the_host_of_an_heir_is_reported_at_once_if_it_is_another(tmp_path: Path) -> None:
    """The old worker is idle, so the number still takes batches ahead."""
    async with stage(tmp_path) as on:
        old, number = await on.ready()
        new = await FakeWorker.connect(on.standby_path)
        new.send(Hello(index=0, launch=2, service=service(), host="elsewhere"))
        new.send(Ready())
        assert await on.news() == ("stands by", 2)
        on.pool.take_over([2])

        assert [await on.news(), await on.news()] == [("ready", number), ("retired", 1)]
        await old.dropped()
        assert await on.news() == ("ready", number)
        assert await answered(on, new, number, b"new")
        assert on.listener.news.empty()
        new.close()


async def test_a_busy_worker_ends_its_batch_and_gets_no_other(tmp_path: Path) -> None:
    """Until then, its number takes no batch ahead: that would go to the new worker, which is idle."""
    async with stage(tmp_path) as on:
        old, new, number, running = await taken_over(on)
        assert on.listener.news.empty()
        assert sorted(on.pool.states()) == ["busy", "idle"]
        assert await answered(on, new, number, b"new")

        old.answer(BATCH, [b"old", b""])

        assert (await running).bodies == [b"old", b""]
        await old.dropped()
        assert await on.news() == ("retired", 1)
        # The dispatcher may have given the number up meanwhile, if the batch exceeded its timeout.
        assert await on.news() == ("ready", number)
        assert on.pool.states() == ["idle"]


async def test_an_heir_that_is_busy_takes_batches_ahead_when_the_old_worker_is_gone(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        old, new, number, running = await taken_over(on)
        following = on.execute(number)
        await new.batch()
        old.answer(BATCH, [b"old", b""])
        await running

        assert [await on.news(), await on.news()] == [("retired", 1), ("ready", number)]
        new.answer(BATCH, [b"new", b""])
        assert (await following).bodies == [b"new", b""]


async def test_batches_ahead_wait_for_all_earlier_workers_of_a_number(tmp_path: Path) -> None:
    """Also after a second take-over, whose first heir is idle and goes at once."""
    async with stage(tmp_path) as on:
        old, _, number, running = await taken_over(on)
        await on.standby(launch=3)
        on.pool.take_over([3])
        assert await on.news() == ("ready, but takes none ahead", number)
        assert await on.news() == ("retired", 2)
        assert await on.news() == ("ready, but takes none ahead", number)

        old.answer(BATCH, [b"old", b""])
        await running
        assert [await on.news(), await on.news()] == [("retired", 1), ("ready", number)]


async def test_a_worker_that_dies_in_its_last_batch_does_not_take_its_heir_along(tmp_path: Path) -> None:
    """The batch is lost with its number, which becomes ready again."""
    async with stage(tmp_path) as on:
        old, new, number, running = await taken_over(on)
        old.close()

        with pytest.raises(WorkerLost):
            await running
        assert await on.news() == ("ready", number)
        assert await answered(on, new, number, b"new")


async def test_an_heir_that_dies_is_a_worker_lost(tmp_path: Path) -> None:
    """The batch of the old worker is given up with the number; nothing limits its time any more."""
    async with stage(tmp_path) as on:
        old, new, number, _ = await taken_over(on)
        new.close()
        assert await on.news() == ("lost", number)
        assert (on.pool.states(), on.pool.ready()) == (["busy"], set())
        assert await on.news() == ("retired", 1)

        old.answer(BATCH, [b"", b""])

        await old.dropped()
        assert (on.pool.states(), on.listener.news.empty()) == ([], True)


async def test_a_place_that_is_empty_is_taken_with_a_new_number(tmp_path: Path) -> None:
    """A worker that was starting there is stopped, and is not among the replaced ones."""
    async with stage(tmp_path) as on:
        starting = await on.connect()
        starting.send(Hello(index=0, launch=1, service=service()))
        assert (await on.news())[0] == "described"
        new = await on.standby()

        assert on.pool.take_over([2]) == set()

        assert await on.news() == ("retired", 1)
        what, number = await on.news()
        assert what == "ready"
        assert isinstance(number, int)
        await starting.dropped()
        assert await answered(on, new, number, b"new")


async def test_one_of_two_workers_of_an_index_leaves(tmp_path: Path) -> None:
    """As when one is killed, and its successor is ready before the loss is noticed."""
    async with stage(tmp_path) as on:
        _, first = await on.ready(index=0, launch=1)
        other, second = await on.ready(index=0, launch=3)
        new = await on.standby(index=0, launch=2)

        assert on.pool.take_over([2]) == {1, 3}

        told = [await on.news() for _ in range(3)]
        assert told == [("retired", 1), ("leaves", second), ("retired", 3)]
        await other.dropped()
        assert await on.news() == ("ready", first)
        assert await answered(on, new, first, b"new")
        assert on.pool.states() == ["idle"]


async def test_others_go_on_when_one_is_replaced(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        old, number = await on.ready(index=0, launch=1)
        stays, other = await on.ready(index=1, launch=3)
        starting = await on.connect()
        await turns(50)
        new = await on.standby(index=0, launch=2)
        assert on.pool.any_left_by([2])

        assert on.pool.take_over([2]) == {1}

        assert await on.news() == ("retired", 1)
        await old.dropped()
        assert await on.news() == ("ready", number)
        assert await answered(on, new, number, b"new")
        assert await answered(on, stays, other, b"other")
        starting.send(Hello(index=2, launch=4, service=service()))
        assert (await on.news())[0] == "described"
        assert on.pool.states() == ["idle", "starting", "idle"]


async def test_one_that_has_not_said_its_index_goes_when_nobody_stays(tmp_path: Path) -> None:
    """It may run older code."""
    async with stage(tmp_path) as on:
        starting = await on.connect()
        await turns(50)
        await on.standby()
        assert not on.pool.any_left_by([2])

        assert on.pool.take_over([2]) == set()
        await starting.dropped()


async def test_closing_lets_all_kinds_of_workers_go(tmp_path: Path) -> None:
    """Those in service, on standby, and running their last batch."""
    async with stage(tmp_path) as on:
        old, new, _, running = await taken_over(on)
        next_one = await on.standby(launch=3)
        await on.pool.close()

        for worker in (old, new, next_one):
            await worker.dropped()
        with pytest.raises(WorkerLost):
            await running
        with pytest.raises(OSError, match=r"."):
            await FakeWorker.connect(on.standby_path)
