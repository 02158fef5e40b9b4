"""Large batches: through the file that a worker on this host shares, or else through its socket."""

import asyncio
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from tests.file_sizes import file_size_limit
from tests.gateway.backends.listener_stage import LOOPS, run_on
from tests.gateway.backends.pool_stage import Stage, stage
from tests.gateway.fake_worker import service
from uncork_gateway.backends.worker_connection import Owner, WorkerConnection
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.wire.messages import Batch, Hello, Ready, Reply
from uncork_workers.wire.shared_file import MOST_BYTES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="shared files need Linux")

LARGE = [b"a" * 100_000, b"b" * 100_000]
SMALL = [b"c", b"d"]


class LocalWorker:
    """A worker's end of its connection to a pool, used in a thread."""

    def __init__(self, socket_path: str) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(socket_path)
        self._link = GatewayConnection(connection)
        self._batches = self._link.batches()
        self._link.send(Hello(index=0, launch=1, service=service()))
        self._link.send(Ready())

    async def batch(self) -> tuple[Batch, list[bytes]]:
        return await asyncio.to_thread(next, self._batches)

    async def echo(self, batch: Batch, bodies: list[bytes]) -> None:
        await asyncio.to_thread(self._echo, batch, bodies)

    def serve_now(self, *replies: list[bytes]) -> None:
        """Take the next batches and reply to them, while the event loop stands still."""
        for bodies in replies:
            batch, _ = next(self._batches)
            self._echo(batch, bodies)

    def _echo(self, batch: Batch, bodies: list[bytes]) -> None:
        statuses, lengths = [200] * len(bodies), [len(body) for body in bodies]
        reply = Reply(batch.batch, True, 0.001, statuses, lengths, [(1.0, 0.001)])
        self._link.reply(reply, bodies)

    def close(self) -> None:
        self._link.close()


def shared_files() -> set[tuple[str, int]]:
    """Return this process's descriptors of shared files, each with the number of its file."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor that lists the folder, and those of other threads
            if "memfd:uncork-payload" in str(link.readlink()):
                found.add((link.name, link.stat().st_ino))
    return found


async def local_worker(on: Stage) -> tuple[LocalWorker, int]:
    """Connect a worker that accepts batches, and return its number too."""
    worker = LocalWorker(on.socket_path)
    await on.news()
    what, number = await on.news()
    assert what == "ready"
    assert isinstance(number, int)
    return worker, number


async def run(on: Stage, worker: LocalWorker, number: int, bodies: list[bytes]) -> bool:
    """Run a batch that the worker sends back; return whether its bodies came and went in the file."""
    batch = Batch(batch=5, api="echo", limit_rows=10, lengths=list(map(len, bodies)), rows=[1, 1])
    executing = on.execute(number, batch, bodies=bodies)
    received, arrived = await worker.batch()
    assert arrived == bodies
    await worker.echo(received, arrived)
    reply, answers = await executing
    assert answers == bodies
    assert reply.in_file == received.in_file
    return received.in_file


@pytest.mark.parametrize("loop", LOOPS)
def test_large_batches_go_through_a_file(loop: str, tmp_path: Path) -> None:
    """Small ones do not, nor do batches beyond the limit; at the end both ends are closed."""

    async def scenario() -> None:
        async with stage(tmp_path) as on:
            before = shared_files()
            worker, number = await local_worker(on)
            assert not await run(on, worker, number, SMALL)
            assert len(shared_files() - before) == 2
            for bodies in (LARGE, SMALL, LARGE[::-1]):
                assert await run(on, worker, number, bodies) == (bodies is not SMALL)
            assert not await run(on, worker, number, [b"x" * MOST_BYTES, b"y"])
            worker.close()
            assert await on.news() == ("lost", number)
            assert shared_files() <= before

    run_on(loop, scenario())


async def test_without_memory_the_socket_takes_the_batch(on: Stage) -> None:
    worker, number = await local_worker(on)
    with file_size_limit(1000):
        assert not await run(on, worker, number, LARGE)
    assert await run(on, worker, number, LARGE)
    worker.close()


def test_a_worker_that_is_gone_gets_no_file() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    before = shared_files()
    WorkerConnection(cast(Owner, None), standby=False).connection_made(asyncio.Transport({"socket": ours}))
    assert shared_files() <= before
    ours.close()
