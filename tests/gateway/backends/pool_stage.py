"""A worker pool on a real socket, with a listener that records its notifications."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from tests.gateway.fake_worker import FakeWorker, service
from tests.gateway.running import turns
from uncork_dispatcher import WorkerLost
from uncork_gateway.backends.worker_connection import OnPiece
from uncork_gateway.backends.worker_pool import WorkerPool
from uncork_gateway.backends.worker_replies import Executed
from uncork_gateway.service_log import ServiceLog
from uncork_workers.wire.messages import Batch, Failed, Hello, Ready
from uncork_workers.wire.schema import ServiceDescription

BATCH = Batch(batch=5, api="echo", limit_rows=10, lengths=[1, 2], rows=[1, 2])
BODIES = [b"a", b"bc"]
News = tuple[str, object]


class Listener:
    """Records notifications."""

    log = ServiceLog("")

    def __init__(self) -> None:
        self.news: asyncio.Queue[News] = asyncio.Queue()
        self.files: list[str] = []
        self.connected: list[int] = []
        self.dropped: list[int] = []
        self.batches: Counter[int] = Counter()
        """Finished batches by process."""

    def worker_imported(self, files: list[str]) -> None:
        self.files += files

    def worker_described(self, service: ServiceDescription) -> None:
        self.news.put_nowait(("described", service))

    def worker_ready(self, worker: int, hello: Hello, *, takes_ahead: bool = True) -> None:
        self.news.put_nowait(("ready" if takes_ahead else "ready, but takes none ahead", worker))

    def worker_profiled(self, worker: int, ready: Ready) -> None:
        if ready.profile:
            self.news.put_nowait(("profiled", (worker, ready.profile)))

    def worker_lost(self, worker: int, hello: Hello) -> None:
        self.news.put_nowait(("lost", worker))

    def worker_leaves(self, worker: int) -> None:
        self.news.put_nowait(("leaves", worker))

    def worker_gone(self, index: int) -> None:
        self.news.put_nowait(("gone", index))

    def joining_changed(self) -> None:
        self.news.put_nowait(("joining", None))

    def worker_connected(self, index: int) -> None:
        self.connected.append(index)

    def worker_warms_up(self, index: int, api: str, rows: int) -> None:
        self.news.put_nowait(("warms up", (index, api, rows)))

    def batch_finished(self, launch: int) -> None:
        self.batches[launch] += 1

    def worker_dropped(self, launch: int) -> None:
        self.dropped.append(launch)

    def worker_failed(self, failed: Failed, *, standby: bool) -> None:
        self.news.put_nowait(("failed standby" if standby else "failed", failed))

    def worker_stands_by(self, launch: int) -> None:
        self.news.put_nowait(("stands by", launch))

    def worker_retired(self, launch: int) -> None:
        self.news.put_nowait(("retired", launch))


class Stage:
    """A listening pool, its listener, and the workers that connect."""

    def __init__(self, socket_path: str, listener: Listener, *, ping_interval_s: float) -> None:
        self.socket_path = socket_path
        self.standby_path = f"{socket_path}2"
        self.listener = listener
        self.pool = WorkerPool(self.listener, ping_interval_s=ping_interval_s)
        self._workers: list[FakeWorker] = []

    async def news(self) -> News:
        """Return the next notification."""
        return await self.listener.news.get()

    async def connect(self) -> FakeWorker:
        """Connect a worker that has sent nothing yet."""
        worker = await FakeWorker.connect(self.socket_path)
        self._workers.append(worker)
        return worker

    async def standby(self, *, index: int = 0, launch: int = 2) -> FakeWorker:
        """Connect a worker that is ready to take over."""
        worker = await FakeWorker.connect(self.standby_path)
        self._workers.append(worker)
        worker.send(Hello(index=index, launch=launch, service=service()))
        worker.send(Ready())
        assert await self.news() == ("stands by", launch)
        return worker

    async def ready(self, *, index: int = 0, launch: int = 1) -> tuple[FakeWorker, int]:
        """Connect a worker that accepts batches, and return its number too."""
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
        """Run a batch on a worker."""
        future: asyncio.Future[Executed] = asyncio.get_running_loop().create_future()

        def done(outcome: Executed | WorkerLost) -> None:
            if future.done():
                return
            if isinstance(outcome, WorkerLost):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

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
