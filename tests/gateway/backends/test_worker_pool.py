"""The worker pool with fake workers on real sockets."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import cast

import msgspec
import pytest

from tests.gateway.backends.pool_stage import BATCH, BODIES, Listener, Stage, stage
from tests.gateway.fake_worker import FakeWorker, json_api, service
from tests.gateway.running import turns
from uncork_dispatcher import WorkerLost
from uncork_gateway.backends.worker_pool import WorkerPool
from uncork_gateway.service_log import ServiceLog
from uncork_workers.wire.frames import encode_frame
from uncork_workers.wire.messages import (
    AnswerHead,
    Cancel,
    Failed,
    Gpu,
    Gpus,
    Hello,
    Piece,
    Ping,
    Pong,
    Ready,
    Reply,
    TakeFile,
    WarmUp,
)


async def test_the_listener_is_told_what_becomes_of_a_worker(on: Stage) -> None:
    """Described, ready, lost, in this order; the state follows."""
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


async def test_the_listener_is_told_what_a_worker_warms_up_with(on: Stage) -> None:
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


async def test_workers_that_nobody_launched_have_keys_of_their_own(on: Stage) -> None:
    """A key is not used again."""
    for key in (-1, -2):
        worker = await FakeWorker.connect(on.standby_path)
        worker.send(Hello(index=7, service=service()))
        assert (await on.news())[0] == "described"
        worker.close()
        assert await on.news() == ("gone", key)


@pytest.mark.parametrize("standby", [False, True])
async def test_a_worker_that_fails_is_told_and_was_never_ready(on: Stage, standby: bool) -> None:
    """Its end is no loss, because it accepted no batches."""
    failed = Failed(index=2, stage="setup", message="no model", traceback="line 1")
    worker = await FakeWorker.connect(on.standby_path if standby else on.socket_path)
    worker.send(failed)
    worker.close()
    assert await on.news() == ("failed standby" if standby else "failed", failed)
    await on.ready()

    assert on.listener.news.empty()


async def test_a_batch_goes_to_the_worker_and_its_answer_comes_back(on: Stage) -> None:
    """Unchanged, with the bodies split; the worker is busy in between, and idle afterwards."""
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


async def test_a_worker_that_waits_but_does_not_answer_is_dropped(on: Stage) -> None:
    worker, number = await on.ready(index=4)
    on.pool.ping_idle()
    assert on.listener.dropped == []
    on.pool.ping_idle()
    assert (await worker.frame()).message == Ping()
    await worker.dropped()

    assert await on.news() == ("lost", number)
    assert on.listener.dropped == [1]


async def test_a_worker_that_answers_stays(on: Stage) -> None:
    worker, _ = await on.ready(index=4)
    for _ in range(3):
        on.pool.ping_idle()
        assert (await worker.frame()).message == Ping()
        worker.send(Pong())
        await turns(20)

    assert (on.listener.dropped, on.pool.states()) == ([], ["idle"])


async def test_a_worker_that_runs_a_batch_is_not_pinged(on: Stage) -> None:
    """Only idle workers are pinged: batches have timeouts, and a setup may take long."""
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


async def test_a_worker_with_concurrency_replies_in_any_order(on: Stage) -> None:
    """Its batches never share a file, whose halves follow the order."""
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


HEAD = AnswerHead(status=200, content_type="text/plain")
Pieces = list[tuple[AnswerHead | None, bytes]]


async def test_pieces_are_passed_on_before_the_end(on: Stage) -> None:
    """At once; the worker is busy until its reply, and can stream again."""
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


async def test_the_worker_that_runs_a_batch_is_told_to_stop(on: Stage) -> None:
    """No other worker, and not after the end; pieces until then are passed on."""
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


NONSENSE = {
    "no frame": b"HTTP/1.1 200 OK\r\n\r\n",
    "no header": b"\x00\x00\x00\x01\x00\x00\x00\x00\xc0",
    "a batch": encode_frame(BATCH, BODIES),
    "a file": encode_frame(TakeFile()),
    "a cancel": encode_frame(Cancel(5, (0,))),
    "a piece that nobody asked for": encode_frame(Piece(5, HEAD), [b"x"]),
    "another batch's answer": encode_frame(Reply(6, True, 0.5, [200, 200], [1, 1], []), [b"x", b"y"]),
    "too few answers": encode_frame(Reply(5, True, 0.5, [200], [1], []), [b"x"]),
    "too many answers": encode_frame(Reply(5, True, 0.5, [200] * 3, [1] * 3, []), [b"xyz"]),
    "too few lengths": encode_frame(Reply(5, True, 0.5, [200, 200], [2], []), [b"xy"]),
    "wrong lengths": encode_frame(Reply(5, True, 0.5, [200, 200], [1, 2], []), [b"xy"]),
    "bodies that are not in the file": encode_frame(
        Reply(5, True, 0.5, [200, 200], [1, 1], [], in_file=True)
    ),
    "no such status": encode_frame(Reply(5, True, 0.5, [200, 0], [1, 1], []), [b"xy"]),
    "a batch in less than no time": encode_frame(Reply(5, True, -0.5, [200, 200], [1, 1], []), [b"xy"]),
    "a call of no rows": encode_frame(Reply(5, True, 0.5, [200, 200], [1, 1], [(0, 0.1)]), [b"xy"]),
    "a negative time": encode_frame(Reply(5, True, 0.5, [200, 200], [1, 1], [(3, -0.1)]), [b"xy"]),
    "a time that is none": encode_frame(
        Reply(5, True, 0.5, [200, 200], [1, 1], [(3, float("nan"))]), [b"xy"]
    ),
    "too few forms": encode_frame(Reply(5, True, 0.5, [200, 200], [1, 1], [], forms=()), [b"xy"]),
    "too many forms": encode_frame(Reply(5, True, 0.5, [200, 200], [1, 1], [], forms=(None,) * 3), [b"xy"]),
    "too few content types": encode_frame(
        Reply(5, True, 0.5, [200, 200], [1, 1], [], content_types=["text/plain"]), [b"xy"]
    ),
    "too many headers": encode_frame(
        Reply(5, True, 0.5, [200, 200], [1, 1], [], content_types=["", ""], headers=[[]] * 3), [b"xy"]
    ),
    "a reason for no request": encode_frame(
        Reply(5, True, 0.5, [200, 400], [1, 1], [], reasons={2: ["x"]}), [b"xy"]
    ),
    "a reason for no request, negative": encode_frame(
        Reply(5, True, 0.5, [200, 400], [1, 1], [], reasons={-1: ["x"]}), [b"xy"]
    ),
    "a name of a metric in two lines": encode_frame(
        Reply(5, True, 0.5, [200, 200], [1, 1], [], observed={"a\n": [1.0]}), [b"xy"]
    ),
    **{
        f"labels {labels!r}": encode_frame(
            Reply(5, True, 0.5, [200, 200], [1, 1], [], counts=[("a", dict.fromkeys(labels, ""), 1)]), [b"xy"]
        )
        for labels in (["a\n"], ["api"], ["service"], ["le"], list("abcdef"))
    },
    "too many GPUs": encode_frame(Gpus({str(name): Gpu() for name in range(65)})),
    "a long name of a GPU": encode_frame(Gpus({97 * "x": Gpu()})),
    "less than no memory": encode_frame(Gpus({"0": Gpu(memory_used_bytes=-1)})),
    "memory that is no number": encode_frame(Gpus({"0": Gpu(memory_total_bytes=cast(int, 0.5))})),
    "a busier GPU than any": encode_frame(Gpus({"0": Gpu(utilization=1.01)})),
    "no utilization": encode_frame(Gpus({"0": Gpu(utilization=float("nan"))})),
    "text that is none": encode_frame(Failed(1, "load", "???")).replace(b"???", b"\xff\xff\xff"),
}


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE.keys())
async def test_a_worker_that_talks_nonsense_is_dropped(
    tmp_path: Path, nonsense: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Its connection is closed, its batch is lost, its process is reported, and the log gives the reason."""
    async with stage(tmp_path) as on:
        worker, number = await on.ready(index=6)
        executing = on.execute(number)
        await worker.batch()
        worker.send_bytes(nonsense)

        with pytest.raises(WorkerLost, match="worker 6 died"):
            await executing
        await worker.dropped()
        assert await on.news() == ("lost", number)
        assert on.pool.states() == []
        assert on.listener.dropped == [1]  # so that its process is killed
        assert not on.listener.batches
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith("dropping worker 6: it sent an invalid message: ")


@pytest.mark.parametrize(
    "nonsense",
    [[Piece(5)], [Piece(5, HEAD), Piece(5, HEAD)], [Piece(6, HEAD)]],
    ids=["no head", "two heads", "another batch's"],
)
async def test_pieces_out_of_order_are_nonsense(
    tmp_path: Path, nonsense: list[Piece], caplog: pytest.LogCaptureFixture
) -> None:
    async with stage(tmp_path) as on:
        worker, number = await on.ready()
        pieces: list[bytes] = []
        executing = on.execute(number, on_piece=lambda head, data: pieces.append(data))
        await worker.batch()
        for number, piece in enumerate(nonsense):
            worker.send(piece, [b"%d" % number])

        with pytest.raises(WorkerLost):
            await executing
        assert pieces == [b"%d" % number for number in range(len(nonsense) - 1)]
    assert "it sent an invalid message" in caplog.text
