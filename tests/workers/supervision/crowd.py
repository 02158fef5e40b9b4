"""A supervisor with real worker processes, and a gateway that only listens to them."""

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from pathlib import Path

from tests.loops import HANG_S
from uncork_workers.supervision.launcher import over_unix
from uncork_workers.supervision.oom_kills import OomKills
from uncork_workers.supervision.processes import LocalWorkers, Processes
from uncork_workers.supervision.supervisor import Supervisor, WorkerExit
from uncork_workers.wire.frames import FrameDecoder
from uncork_workers.wire.messages import Hello, Ready

# The API's docstring carries the worker's environment; a file shows that the worker exited by itself.
SERVICE = """
import atexit, json, os
from pathlib import Path
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import (Service, api)

def echo(self, items):
    return items

echo.__doc__ = json.dumps(dict(os.environ))

class Echo(Service):
    echo = api(input=Json())(echo)

    def setup(self):
        atexit.register(Path(f"{__file__}.{os.getpid()}").touch)
"""


async def replace_all(supervisor: Supervisor) -> None:
    async with supervisor.replacing_all() as standbys:
        standbys.take_over()


@dataclass
class Worker:
    hello: Hello
    connection: asyncio.StreamWriter

    @property
    def pid(self) -> int:
        return self.hello.pid

    @property
    def launch(self) -> int:
        assert self.hello.launch is not None
        return self.hello.launch

    def alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


class Crowd:
    """A supervisor, the gateway's socket, and everything the workers send."""

    def __init__(
        self, folder: Path, *, workers: int, target: str, gpus: list[str], oom_kills: OomKills | None
    ) -> None:
        self.arrivals: asyncio.Queue[Worker] = asyncio.Queue()
        self.newcomers: asyncio.Queue[Worker] = asyncio.Queue()
        """Replacement workers."""
        self.exits: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
        self.ends: asyncio.Queue[WorkerExit] = asyncio.Queue()
        """The same exits with all details."""
        self.socket_path = str(folder / "s")
        self.standby_path = str(folder / "s2")
        self.refusal: str | None = None
        """Why replacement workers may not take over."""
        self.leaving: set[int] = set()
        """The launches of processes that exit by themselves after they were replaced."""
        self.retiring: set[int] = set()
        """The launches of processes that finish their batch and exit when they are not needed any more."""
        self.took_over: list[set[int]] = []
        self.reasons: dict[int, str] = {}
        """Why replacement workers have failed, by index, as they have said."""
        self.local = LocalWorkers(
            target=target, workers=workers, gpus=gpus, environment={"GREETING": "hello"}
        )
        dialing = over_unix(self.socket_path, self.standby_path)
        self.processes = Processes(self.local, dialing=dialing, oom_kills=oom_kills)
        self.supervisor = Supervisor(
            self.processes,
            workers=workers,
            on_exit=self.exited,
            take_over=self.take_over,
            explain=lambda index: self.reasons.pop(index, None),
            retire=lambda launch: launch in self.retiring,
        )
        self._open: set[asyncio.StreamWriter] = set()

    def exited(self, end: WorkerExit) -> None:
        self.exits.put_nowait((end.index, end.how))
        self.ends.put_nowait(end)

    def take_over(self, launches: Collection[int]) -> set[int]:
        if self.refusal is not None:
            raise ValueError(self.refusal)
        self.took_over.append(set(launches))
        return self.leaving

    async def worker_came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._listen(reader, writer, self.arrivals)

    async def newcomer_came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._listen(reader, writer, self.newcomers)

    async def _listen(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        arrivals: asyncio.Queue[Worker],
    ) -> None:
        self._open.add(writer)
        decoder = FrameDecoder()
        while data := await reader.read(65536):
            for message, _ in decoder.feed(data):
                if isinstance(message, Hello):
                    worker = Worker(message, writer)
                    arrivals.put_nowait(worker)
                elif isinstance(message, Ready) and arrivals is self.newcomers:
                    self.supervisor.mark_ready(worker.launch)
        writer.close()
        self._open.discard(writer)

    async def workers(self, count: int) -> dict[int, Worker]:
        came = [await self.arrivals.get() for _ in range(count)]
        return {worker.hello.index: worker for worker in came}

    def hang_up(self) -> None:
        for writer in self._open:
            writer.close()


@contextlib.asynccontextmanager
async def crowd(
    folder: Path,
    *,
    workers: int,
    target: str = "",
    gpus: list[str] | None = None,
    oom_kills: OomKills | None = None,
) -> AsyncIterator[Crowd]:
    (folder / "echo.py").write_text(SERVICE)
    target = target or f"{folder}/echo.py:Echo"
    made = Crowd(folder, workers=workers, target=target, gpus=gpus or [], oom_kills=oom_kills)
    servers = [
        await asyncio.start_unix_server(made.worker_came, made.socket_path),
        await asyncio.start_unix_server(made.newcomer_came, made.standby_path),
    ]
    made.supervisor.start()
    try:
        async with asyncio.timeout(HANG_S):
            yield made
    finally:
        await made.supervisor.stop(grace_s=0)
        await made.processes.close()
        made.hang_up()
        for server in servers:
            server.close()


async def goes(worker: Worker) -> None:
    for _ in itertools.takewhile(lambda _: worker.alive(), itertools.count()):
        await asyncio.sleep(0)


async def only_alive(folder: Path, *workers: Worker) -> None:
    """Wait until no other worker process of this test is left; fail if one of these ends."""
    for _ in itertools.takewhile(
        lambda _: len(processes_with(str(folder))) > len(workers), itertools.count()
    ):
        await asyncio.sleep(0)
    assert all(worker.alive() for worker in workers)


def left_in_peace(folder: Path) -> set[int]:
    return {int(file.suffix.removeprefix(".")) for file in folder.glob("echo.py.*")}


def processes_with(argument: str) -> list[str]:
    """Return the command lines of running processes that contain a text."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            lines.append(file.read_text(errors="replace"))
    return [line for line in lines if argument in line]
