"""Streamed answers of workers, on real sockets."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.backends.pool_stage import BATCH, stage
from tests.gateway.running import turns
from uncork_workers.wire.messages import AnswerHead, Cancel, Piece

HEAD = AnswerHead(status=200, content_type="text/plain")
Pieces = list[tuple[AnswerHead | None, bytes]]


async def test_pieces_are_passed_on_before_the_end(tmp_path: Path) -> None:
    """At once; the worker is busy until its reply, and can stream again."""
    async with stage(tmp_path) as on:
        worker, number = await on.ready()
        for _ in range(2):
            pieces: Pieces = []
            executing = on.execute(number, on_piece=lambda *piece, to=pieces: to.append(piece))
            await worker.batch()
            worker.send(Piece(5, HEAD), [b"a"])
            worker.send(Piece(5), [b"bc"])
            await turns(20)
            assert pieces == [(HEAD, b"a"), (None, b"bc")]
            assert (executing.done(), on.pool.states()) == (False, ["busy"])
            worker.answer(BATCH, [b"", b""])

            assert (await executing).bodies == [b"", b""]
            assert on.pool.states() == ["idle"]


async def test_the_worker_that_runs_a_batch_is_told_to_stop(tmp_path: Path) -> None:
    """No other worker, and not after the end; pieces until then are passed on."""
    async with stage(tmp_path) as on:
        worker, number = await on.ready()
        other, _ = await on.ready(index=1, launch=2)
        pieces: Pieces = []
        executing = on.execute(number, on_piece=lambda *piece: pieces.append(piece))
        await worker.batch()
        on.pool.cancel(number, 6, [0])
        on.pool.cancel(number, 5, [0])
        assert await worker.next() == Cancel(5, (0,))
        worker.send(Piece(5, HEAD), [b"late"])
        worker.answer(BATCH, [b"", b""])
        await executing
        on.pool.cancel(number, 5, [0])
        assert pieces == [(HEAD, b"late")]
        for one, its_number in ((worker, number), (other, 2)):
            executing = on.execute(its_number)
            assert await one.next() == BATCH
            one.answer(BATCH, [b"", b""])
            await executing
