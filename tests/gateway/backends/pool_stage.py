"""A worker pool on a real socket, with a listener that records its notifications."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from tests.gateway.fake_worker import FakeWorker, service
from tests.gateway.running import turns
from uncork_dispatcher import WorkerLost
from uncork_gateway.backends.worker_connection import Executed, OnPiece, PoolEvent, WorkerConnection
from uncork_gateway.backends.worker_pool import WorkerPool
from uncork_gateway.service_log import ServiceLog
from uncork_workers.wire.messages import Batch, Failed, Hello, Ready, WarmUp

BATCH = Batch(batch=5, api="echo", limit_rows=10, lengths=[1, 2], rows=[1, 2])
BODIES = [b"a", b"bc"]
News = tuple[str, object]


class Listener:
    """Records notifications."""

    def __init__(self) -> None:
        self.news: asyncio.Queue[News] = asyncio.Queue()
        self.joined: list[int] = []
        """Places of workers that gave up standing by."""
        self.dropped: list[int] = []
        self.batches: Counter[int] = Counter()
        """Finished batches by process."""
        self._running: list[tuple[int, asyncio.Future[Executed]]] = []

    def runs(self, worker: int, batch: asyncio.Future[Executed]) -> None:
        """Have a batch fail if its worker is lost, as the dispatcher would."""
        self._running.append((worker, batch))

    def on_worker(self, worker: WorkerConnection, event: PoolEvent) -> None:
        match event:
            case "described" if worker.hello is not None:
                self._note("described", worker.hello.service)
            case "joined" if worker.hello is not None:
                self.joined.append(worker.hello.index)
            case WarmUp(api=api, rows=rows):
                self._note("warms up", (worker.index, api, rows))
            case "ready":
                self._note("stands by" if worker.standby else "ready", worker.key)
            case Failed():
                self._note("failed standby" if worker.standby else "failed", event)
            case "leaves":
                self._note("leaves", worker.key)
            case "gone":
                self._lose(worker)
            case _:
                raise AssertionError(event)

    def _lose(self, worker: WorkerConnection) -> None:
        accepted = worker.ready is not None and not worker.standby
        self._note("lost" if accepted and not worker.is_retiring else "gone", worker.key)
        for key, batch in self._running:
            if key == worker.key and not batch.done():
                batch.set_exception(WorkerLost(f"worker {worker.index} died"))

    def _note(self, what: str, of: object) -> None:
        self.news.put_nowait((what, of))

    def finished_batch(self, launch: int) -> None:
        self.batches[launch] += 1


class Stage:
    """A listening pool, its listener, and the workers that connect."""

    def __init__(self, socket_path: str, listener: Listener, *, ping_interval_s: float) -> None:
        self.socket_path = socket_path
        self.standby_path = f"{socket_path}2"
        self.listener = listener
        self.pool = WorkerPool(
            self.listener.on_worker,
            log=ServiceLog(""),
            kill=self.listener.dropped.append,
            finished_batch=self.listener.finished_batch,
            ping_interval_s=ping_interval_s,
        )
        self._workers: list[FakeWorker] = []

    async def news(self) -> News:
        return await self.listener.news.get()

    async def connect(self) -> FakeWorker:
        worker = await FakeWorker.connect(self.socket_path)
        self._workers.append(worker)
        return worker

    async def standby(self, *, index: int = 0, launch: int = 2) -> FakeWorker:
        """Connect a worker that is ready to take over."""
        worker = await FakeWorker.connect(self.standby_path)
        self._workers.append(worker)
        worker.send(Hello(index=index, launch=launch, service=service()))
        worker.send(Ready())
        assert (await self.news())[0] == "described"
        assert await self.news() == ("stands by", launch)
        return worker

    async def ready(self, *, index: int = 0, launch: int = 1) -> tuple[FakeWorker, int]:
        worker = await self.connect()
        worker.send(Hello(index=index, launch=launch, service=service()))
        worker.send(Ready())
        assert (await self.news())[0] == "described"
        what, number = await self.news()
        assert what == "ready"
        assert isinstance(number, int)
        return worker, number

    def execute(
        self,
        number: int,
        batch: Batch = BATCH,
        *,
        bodies: Sequence[bytes] = BODIES,
        on_piece: OnPiece | None = None,
    ) -> asyncio.Future[Executed]:
        future: asyncio.Future[Executed] = asyncio.get_running_loop().create_future()

        def done(executed: Executed) -> None:
            if not future.done():
                future.set_result(executed)

        self.listener.runs(number, future)
        self.pool.execute(number, batch, bodies, done, on_piece=on_piece)
        return future

    async def close(self) -> None:
        await self.pool.close()
        for worker in self._workers:
            worker.close()
        await turns()


@contextlib.asynccontextmanager
async def stage(
    folder: Path, listener: Listener | None = None, *, ping_interval_s: float = 10.0
) -> AsyncIterator[Stage]:
    """Run a pool on a socket in a folder."""
    made = Stage(str(folder / "s"), listener or Listener(), ping_interval_s=ping_interval_s)
    await made.pool.listen(made.socket_path)
    await made.pool.listen(made.standby_path, standby=True)
    try:
        yield made
    finally:
        await made.close()
