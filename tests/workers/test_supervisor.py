"""The supervisor of worker processes, with real ones."""

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

from uncork_workers.frames import FrameDecoder, Hello
from uncork_workers.supervisor import Supervisor

# The documentation of its api carries the worker's environment; a file says that it left by itself.
SERVICE = """
import atexit, json, os
from pathlib import Path
from uncork_workers.adapters import Json
from uncork_workers.service import Service, api

def echo(self, items):
    return items

echo.__doc__ = json.dumps(dict(os.environ))

class Echo(Service):
    echo = api(input=Json())(echo)

    def setup(self):
        atexit.register(Path(f"{__file__}.{os.getpid()}").touch)
"""
Run = Callable[[Coroutine[Any, Any, None]], None]
# Nothing takes this long; a test that goes wrong should end all the same.
PATIENCE_S = 10


@dataclass
class Worker:
    """A worker that has said hello."""

    hello: Hello

    def alive(self) -> bool:
        """Whether there still is such a process."""
        try:
            os.kill(self.hello.pid, 0)
        except ProcessLookupError:
            return False
        return True


class Crowd:
    """A supervisor, the gateway's socket, and everything that is heard of the workers."""

    def __init__(self, folder: Path, *, workers: int, target: str) -> None:
        self.arrivals: asyncio.Queue[Worker] = asyncio.Queue()
        self.exits: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
        self.socket_path = str(folder / "s")
        self.supervisor = Supervisor(
            target,
            workers=workers,
            socket_path=self.socket_path,
            log_level="info",
            on_exit=lambda index, how: self.exits.put_nowait((index, how)),
        )
        self._open: set[asyncio.StreamWriter] = set()

    async def worker_came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Listen to one worker until it goes."""
        self._open.add(writer)
        decoder = FrameDecoder()
        while data := await reader.read(65536):
            for message, _ in decoder.feed(data):
                if isinstance(message, Hello):
                    self.arrivals.put_nowait(Worker(message))
        writer.close()
        self._open.discard(writer)

    async def workers(self, count: int) -> dict[int, Worker]:
        """Wait for so many workers, by index."""
        came = [await self.arrivals.get() for _ in range(count)]
        return {worker.hello.index: worker for worker in came}

    def hang_up(self) -> None:
        """Close all connections, as a gateway that goes."""
        for writer in self._open:
            writer.close()


@contextlib.asynccontextmanager
async def crowd(folder: Path, *, workers: int, target: str = "") -> AsyncIterator[Crowd]:
    """A started supervisor with a listening gateway."""
    (folder / "echo.py").write_text(SERVICE)
    made = Crowd(folder, workers=workers, target=target or f"{folder}/echo.py:Echo")
    server = await asyncio.start_unix_server(made.worker_came, made.socket_path)
    made.supervisor.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield made
    finally:
        await made.supervisor.stop(grace_s=0)
        made.hang_up()
        server.close()


def test_workers_are_started_and_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as asked for, each with its share of the cores; those who leave by themselves need no kill."""
    monkeypatch.setenv("MKL_NUM_THREADS", "77")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        monkeypatch.delenv(name, raising=False)

    async def scenario() -> None:
        async with crowd(tmp_path, workers=2) as all_of_them:
            workers = await all_of_them.workers(2)
            environment = json.loads(workers[0].hello.service.apis[0].doc)
            sessions = {worker.hello.pid: os.getsid(worker.hello.pid) for worker in workers.values()}
            all_of_them.hang_up()
            await all_of_them.supervisor.stop(grace_s=10 * PATIENCE_S)

            assert sorted(workers) == [0, 1]
            assert all(pid == session for pid, session in sessions.items())  # Ctrl-C is not for them
            assert not any(worker.alive() for worker in workers.values())
            assert all_of_them.supervisor.restarts == 0
            assert all_of_them.exits.empty()
            assert left_in_peace(tmp_path) == {worker.hello.pid for worker in workers.values()}
            share = str(max(1, len(os.sched_getaffinity(0)) // 2))
            assert environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == share
            assert environment["NUMEXPR_NUM_THREADS"] == environment["VECLIB_MAXIMUM_THREADS"] == share
            assert environment["MKL_NUM_THREADS"] == "77"
            assert environment["PATH"] == os.environ["PATH"]

    asyncio.run(scenario())


def test_a_killed_worker_is_started_again(tmp_path: Path) -> None:
    """Under its index, as another process; the other is left alone. Those who stay too long are killed."""

    async def scenario() -> None:
        async with crowd(tmp_path, workers=2) as all_of_them:
            first = await all_of_them.workers(2)
            all_of_them.supervisor.kill(1)
            exited = await all_of_them.exits.get()
            again = await all_of_them.workers(1)

            assert exited == (1, "was killed by SIGKILL")
            assert not first[1].alive()
            assert list(again) == [1]
            assert again[1].hello.pid not in {worker.hello.pid for worker in first.values()}
            assert all_of_them.supervisor.restarts == 1
            assert first[0].alive()

            await all_of_them.supervisor.stop(grace_s=0)

            assert not again[1].alive()
            assert not first[0].alive()
            assert all_of_them.exits.empty()

    asyncio.run(scenario())


def test_a_worker_that_exits_is_reported_with_its_code(tmp_path: Path) -> None:
    """Here because there is nothing to serve; and it is started again, in case that there is later."""

    async def scenario() -> None:
        async with crowd(tmp_path, workers=1, target=f"{tmp_path}/later.py:Echo") as all_of_them:
            exited = await all_of_them.exits.get()
            (tmp_path / "later.py").write_text(SERVICE)
            again = await all_of_them.workers(1)
            all_of_them.hang_up()

            assert exited == (0, "exited with code 2")
            assert list(again) == [0]
            assert await all_of_them.exits.get() == (0, "exited with code 0")

    asyncio.run(scenario())


def test_a_worker_that_dies_young_is_started_later_each_time(tmp_path: Path) -> None:
    """After 0.1 s, 0.2 s, 0.4 s: a crash loop leaves the machine some air. Here it cannot even be started."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with crowd(tmp_path, workers=1, target="x" * 200_000) as all_of_them:
            exits, times = [], []
            for _ in range(4):
                exits.append(await all_of_them.exits.get())
                times.append(loop.time())

            assert {index for index, _ in exits} == {0}
            assert all(how.startswith("could not be started (") for _, how in exits)
            assert "Argument list too long" in exits[0][1]
            waits = [later - earlier for earlier, later in itertools.pairwise(times)]
            assert all(wait >= least for wait, least in zip(waits, (0.099, 0.199, 0.399), strict=True))
            assert all_of_them.supervisor.restarts == 3

    asyncio.run(scenario())


def test_killing_a_worker_that_does_not_run_does_nothing(tmp_path: Path) -> None:
    """Whether it was never there, or has gone."""

    async def scenario() -> None:
        async with crowd(tmp_path, workers=1) as all_of_them:
            await all_of_them.workers(1)
            all_of_them.supervisor.kill(5)
            await all_of_them.supervisor.stop(grace_s=0)
            all_of_them.supervisor.kill(0)

            assert all_of_them.exits.empty()

    asyncio.run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("turns", range(4))
def test_stopping_at_once_leaves_nobody_behind(tmp_path: Path, run: Run, turns: int) -> None:
    """Also while workers are only being started, on both kinds of event loop."""

    async def scenario() -> None:
        async with crowd(tmp_path, workers=2) as all_of_them:
            for _ in range(turns):
                await asyncio.sleep(0)
            await all_of_them.supervisor.stop(grace_s=0)

            # uvloop kills them without waiting for their end; the timeout ends this if they do not.
            for _ in itertools.takewhile(lambda _: processes_with(str(tmp_path)), itertools.count()):
                await asyncio.sleep(0)

    run(scenario())


def left_in_peace(folder: Path) -> set[int]:
    """The numbers of the processes that were not killed."""
    return {int(file.suffix.removeprefix(".")) for file in folder.glob("echo.py.*")}


def processes_with(argument: str) -> list[str]:
    """The command lines of running processes in which something occurs."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            lines.append(file.read_text(errors="replace"))
    return [line for line in lines if argument in line]
