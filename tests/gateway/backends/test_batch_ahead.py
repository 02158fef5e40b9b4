"""A batch that a worker gets while it runs another one, on real sockets."""

import asyncio
import sys

import pytest

from tests.gateway.backends.pool_stage import BATCH, Stage
from tests.gateway.backends.test_payload_file import LARGE, SMALL, local_worker
from tests.gateway.backends.test_worker_pool import HEAD
from tests.gateway.running import turns
from uncork_dispatcher import WorkerLost
from uncork_gateway.backends.worker_connection import Executed
from uncork_workers.wire.messages import AnswerHead, Batch, Cancel, Piece

NEXT = Batch(batch=6, api="echo", limit_rows=10, lengths=[1, 2], rows=[1, 2])


def batch_of(number: int, bodies: list[bytes]) -> Batch:
    return Batch(batch=number, api="echo", limit_rows=10, lengths=list(map(len, bodies)), rows=[1, 1])


async def test_the_worker_gets_it_at_once_and_answers_in_order(on: Stage) -> None:
    worker, number = await on.ready()
    first, second = on.execute(number), on.execute(number, NEXT)
    assert [await worker.next(), await worker.next()] == [BATCH, NEXT]

    worker.answer(BATCH, [b"1", b""])
    assert (await first).bodies == [b"1", b""]
    assert (second.done(), on.pool.states()) == (False, ["busy"])
    worker.answer(NEXT, [b"2", b""])
    assert (await second).bodies == [b"2", b""]
    assert on.pool.states() == ["idle"]
    assert on.listener.batches == {1: 2}


async def test_a_worker_that_answers_it_first_is_dropped(on: Stage) -> None:
    worker, number = await on.ready()
    first, second = on.execute(number), on.execute(number, NEXT)
    worker.answer(NEXT, [b"", b""])

    for lost in (first, second):
        with pytest.raises(WorkerLost):
            await lost
    assert on.listener.dropped == [1]


async def test_a_worker_that_dies_loses_both(on: Stage) -> None:
    """The one that it ran is reported first."""
    worker, number = await on.ready()
    lost: list[int] = []
    for batch in (BATCH, NEXT):

        def note(done: "asyncio.Future[Executed]", number: int = batch.batch) -> None:
            assert isinstance(done.exception(), WorkerLost)
            lost.append(number)

        on.execute(number, batch).add_done_callback(note)
    worker.close()

    assert await on.news() == ("lost", number)
    await turns()
    assert lost == [5, 6]


async def test_a_worker_leaves_after_both(on: Stage) -> None:
    worker, number = await on.ready()
    first, second = on.execute(number), on.execute(number, NEXT)
    assert [await worker.next(), await worker.next()] == [BATCH, NEXT]
    assert on.pool.retire_launch(1)
    worker.answer(BATCH, [b"", b""])
    await first
    assert on.pool.states() == ["busy"]
    worker.answer(NEXT, [b"", b""])

    await second
    await worker.dropped()
    assert [await on.news(), await on.news()] == [("leaves", number), ("gone", number)]


async def test_only_the_batch_that_runs_can_be_abandoned(on: Stage) -> None:
    """Its worker is dropped."""
    _, number = await on.ready(index=3, launch=13)
    first, second = on.execute(number), on.execute(number, NEXT)
    assert on.pool.abandon(6) is None
    assert on.pool.abandon(5) == 3
    assert on.listener.dropped == [13]

    for lost in (first, second):
        with pytest.raises(WorkerLost):
            await lost
    assert on.pool.abandon(5) is None


async def test_a_stream_is_that_of_the_batch_that_runs(on: Stage) -> None:
    """The next one begins with a head again."""
    worker, number = await on.ready()
    pieces: list[tuple[int, AnswerHead | None, bytes]] = []
    running = [
        on.execute(number, batch, on_piece=lambda *piece, number=batch.batch: pieces.append((number, *piece)))
        for batch in (BATCH, NEXT)
    ]
    assert [await worker.next(), await worker.next()] == [BATCH, NEXT]
    on.pool.cancel(number, NEXT.batch, [0])
    on.pool.cancel(number, BATCH.batch, [0])
    assert [await worker.next() for _ in range(2)] == [Cancel(one.batch, (0,)) for one in (NEXT, BATCH)]
    for batch in (BATCH, NEXT):
        worker.send(Piece(batch.batch, HEAD), [b"a"])
        worker.send(Piece(batch.batch, None), [b"b"])
        worker.answer(batch, [b"", b""])

    assert [len((await one).bodies) for one in running] == [2, 2]
    assert pieces == [(5, HEAD, b"a"), (5, None, b"b"), (6, HEAD, b"a"), (6, None, b"b")]


async def test_a_stream_of_the_batch_ahead_is_an_error(on: Stage) -> None:
    worker, number = await on.ready()
    on.execute(number).add_done_callback(lambda done: done.exception())
    ahead = on.execute(number, NEXT, on_piece=lambda *piece: None)
    worker.send(Piece(6, HEAD), [b"a"])

    with pytest.raises(WorkerLost):
        await ahead
    assert on.listener.dropped == [1]


@pytest.mark.skipif(sys.platform != "linux", reason="shared files need Linux")
@pytest.mark.parametrize("first", [LARGE, SMALL])
async def test_both_may_be_in_the_file(first: list[bytes], on: Stage) -> None:
    """Each has a half of it, also for its reply."""
    worker, number = await local_worker(on)
    second = [b"c" * 150_000, b"d" * 150_000]
    for one, other in ((first, second), (second, first), (LARGE, second)):
        running = on.execute(number, batch_of(5, one), bodies=one)
        ahead = on.execute(number, batch_of(6, other), bodies=other)
        received, bodies = await worker.batch()
        assert (received.in_file, bodies) == (one is not SMALL, one)
        await worker.echo(received, bodies)
        received, bodies = await worker.batch()
        assert (received.in_file, bodies) == (other is not SMALL, other)
        await worker.echo(received, bodies)

        assert ((await running).bodies, (await ahead).bodies) == (one, other)
    worker.close()


@pytest.mark.skipif(sys.platform != "linux", reason="shared files need Linux")
async def test_a_reply_is_not_overwritten_by_the_next_one(on: Stage) -> None:
    """Though the worker runs the batch ahead before the gateway has read the first reply."""
    worker, number = await local_worker(on)
    second = [b"c" * 150_000, b"d" * 150_000]
    for requests in (SMALL, LARGE, SMALL):
        running = on.execute(number, batch_of(5, requests), bodies=requests)
        ahead = on.execute(number, batch_of(6, SMALL), bodies=SMALL)
        worker.serve_now(LARGE, second)

        replies = [await running, await ahead]
        assert [reply.reply.in_file for reply in replies] == [True, True]
        assert [reply.bodies for reply in replies] == [LARGE, second]
    worker.close()
