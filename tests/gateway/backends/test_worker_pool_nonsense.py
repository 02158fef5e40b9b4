"""Workers that violate the protocol, on real sockets."""

import logging
from pathlib import Path
from typing import cast

import pytest

from tests.gateway.backends.pool_stage import BATCH, BODIES, stage
from uncork_dispatcher import WorkerLost
from uncork_workers.wire.frames import encode_frame
from uncork_workers.wire.messages import AnswerHead, Cancel, Failed, Gpu, Gpus, Piece, Reply, TakeFile

HEAD = AnswerHead(status=200, content_type="text/plain")
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
