"""Starts one worker of a service, as ``uncork serve`` would, and sees how long its batches take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from uncork.cli.check.figures import ApiFigures, Failure
from uncork.cli.check.growing import Batches, Died, Refused, Slow, Unknown, grow, of_profile, try_once
from uncork_dispatcher import WorkerLost
from uncork_dispatcher.plural import plural
from uncork_gateway.backends.worker_connection import Executed, OnPiece
from uncork_gateway.backends.worker_pool import WorkerPool
from uncork_workers.definition.adapters.base import Sample
from uncork_workers.process.warmup import Example
from uncork_workers.supervision.processes import worker_environment
from uncork_workers.supervision.recycling import resident_bytes
from uncork_workers.supervision.supervisor import Supervisor, WorkerExit
from uncork_workers.wire.messages import Batch, Failed, Ready
from uncork_workers.wire.overrides import Override, apply_overrides
from uncork_workers.wire.schema import JSON, ApiDescription, ServiceDescription

Tell = Callable[[str], None]
Profile = Mapping[str, Sequence[tuple[float, float]]]


class CheckFailed(Exception):
    """The service could not be started; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was seen.

    Attributes:
        worker_bytes: resident memory of the worker before its first batch.
    """

    service: str
    apis: tuple[ApiFigures, ...]
    worker_bytes: int


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be measured.

    Attributes:
        workers: how many there are to be; one is started, with its share of the cores.
        arguments: of the worker, as under ``uncork serve``.
        seconds: for all apis together.
        free_bytes: memory that batches may take up; None: not limited.
    """

    target: str
    workers: int
    overrides: Sequence[Override]
    arguments: Sequence[str]
    gpus: Sequence[str]
    seconds: float
    free_bytes: int | None


async def measure(wanted: Wanted, folder: Path, *, tell: Tell) -> Measured:
    """Start a worker with sockets in ``folder``, measure each api, and end it.

    Raises:
        CheckFailed: if it does not become ready.
        DefinitionError: if the service cannot be served under the overrides.
    """
    watch = _Watch(tell)
    pool = WorkerPool(watch)
    socket_path = str(folder / "workers.sock")
    supervisor = Supervisor(
        wanted.target,
        workers=1,
        socket_path=socket_path,
        standby_path=socket_path,
        # Exceptions of handlers are findings, which the check itself prints.
        log_level="critical",
        on_exit=watch.exited,
        take_over=lambda pids: (),
        gpus=wanted.gpus,
        environment=worker_environment(wanted.workers),
        arguments=wanted.arguments,
    )
    await pool.listen(socket_path)
    tell("importing the service")
    supervisor.start()
    try:
        described = await watch.described
        worker = await watch.ready
        service = apply_overrides(described, wanted.overrides)
        [life] = supervisor.current_workers()
        worker_bytes = resident_bytes(life.pid)
        apis = await _measure_apis(service, wanted, _Runner(pool, worker, life.pid, watch.profile), tell)
        return Measured(service=service.name, apis=apis, worker_bytes=worker_bytes)
    finally:
        watch.is_over = True
        await pool.close()
        hurry = asyncio.Event()
        hurry.set()
        await supervisor.stop(hurry=hurry)


async def _measure_apis(
    service: ServiceDescription, wanted: Wanted, runner: _Runner, tell: Tell
) -> tuple[ApiFigures, ...]:
    found: list[ApiFigures] = []
    each_s = wanted.seconds / len(service.apis)
    for api in service.apis:
        tell(f"measuring {api.name}")
        if runner.why_not:
            found.append(ApiFigures(name=api.name, settings=api.settings, unmeasured=runner.why_not))
        else:
            found.append(await _measure_api(api, runner, seconds=each_s, free_bytes=wanted.free_bytes))
    return tuple(found)


async def _measure_api(
    api: ApiDescription, runner: _Runner, *, seconds: float, free_bytes: int | None
) -> ApiFigures:
    figures = ApiFigures(
        name=api.name,
        settings=api.settings,
        streams=api.streams,
        row_is_made_up=api.name not in runner.profile,
    )
    example = None
    if api.example_type == JSON and api.input["kind"] != "raw":
        example = Example(api=api.name, sample=Sample(api.example), settings=api.settings)
    try:
        if api.streams:
            run = Batches(example, runner.run_to_first_piece) if example else None
            return figures if run is None else replace(figures, failure=await try_once(run))
        if example is None:
            return replace(figures, times=of_profile(runner.profile.get(api.name, ())))
        batches = Batches(example, runner.run)
        times, failure = await grow(batches, seconds=seconds, pid=runner.pid, free_bytes=free_bytes)
        return replace(figures, times=times, failure=failure)
    except Refused as error:
        if figures.row_is_made_up:
            return replace(figures, unmeasured=f"a row made from the schema got {error}")
        return replace(figures, failure=Failure(rows=1, says=f"answers with {error}"))
    except Slow:
        return replace(figures, timed_out=True)
    except Unknown as error:
        return replace(figures, unmeasured=str(error))


class _Runner:
    """Has the worker run batches."""

    def __init__(self, pool: WorkerPool, worker: int, pid: int, profile: Profile) -> None:
        self._pool = pool
        self._worker = worker
        self.pid = pid
        self.profile = profile
        """What it has measured itself, of apis that give an example."""
        self.why_not = ""
        """Why it can run no more batches; whoever gives up waiting leaves it busy."""

    async def run(
        self, batch: Batch, bodies: Sequence[bytes], on_piece: OnPiece | None = None
    ) -> tuple[Executed, float]:
        """Run a batch; the reply, and the seconds until it came.

        Raises:
            Died: if the worker ended.
        """
        ended: asyncio.Future[Executed | WorkerLost] = asyncio.get_running_loop().create_future()
        self.why_not = f"the worker was still busy with {batch.api}"
        began = time.perf_counter()
        self._pool.execute(self._worker, batch, bodies, ended.set_result, on_piece=on_piece)
        outcome = await ended
        if isinstance(outcome, WorkerLost):
            self.why_not = f"the worker had ended in {batch.api}"
            raise Died
        self.why_not = ""
        return outcome, time.perf_counter() - began

    async def run_to_first_piece(self, batch: Batch, bodies: Sequence[bytes]) -> tuple[Executed, float]:
        """Run a batch whose answer is streamed, and cancel it when the first piece has come.

        Raises:
            Died: if the worker ended.
        """
        return await self.run(batch, bodies, lambda head, piece: self._pool.cancel(batch.batch))


class _Watch:
    """Told what becomes of the worker; the listener of the pool."""

    def __init__(self, tell: Tell) -> None:
        loop = asyncio.get_running_loop()
        self.described: asyncio.Future[ServiceDescription] = loop.create_future()
        self.ready: asyncio.Future[int] = loop.create_future()
        self.profile: Profile = {}
        self.is_over = False
        self._tell = tell
        # Only one of them is waited for, but both fail.
        self.ready.add_done_callback(lambda one: one.cancelled() or one.exception())

    def exited(self, end: WorkerExit) -> None:
        """The process has ended."""
        self._fail(f"the worker {end.how}")

    def _fail(self, reason: str) -> None:
        for future in (self.described, self.ready):
            if not (future.done() or self.is_over):
                future.set_exception(CheckFailed(reason))

    # The pool's listener

    def worker_imported(self, files: list[str]) -> None:
        """Nothing is reloaded."""

    def worker_described(self, service: ServiceDescription) -> None:
        """It has been imported."""
        if not self.described.done():
            self.described.set_result(service)

    def worker_connected(self, index: int) -> None:
        """Its setup begins."""
        self._tell("setup of the service")

    def worker_warms_up(self, index: int, api: str, rows: int) -> None:
        """It runs its own examples."""
        self._tell(f"warm-up of {api} with {plural(rows, 'row')}")

    def worker_profiled(self, worker: int, ready: Ready) -> None:
        """It has warmed up."""
        self.profile = ready.profile

    def worker_ready(self, worker: int, index: int) -> None:
        """It takes batches."""
        if not self.ready.done():
            self.ready.set_result(worker)

    def worker_lost(self, worker: int, index: int) -> None:
        """The batch that it ran is told of."""

    def worker_failed(self, failed: Failed, *, standby: bool) -> None:
        """It cannot become ready."""
        trace = f"\n{failed.traceback.rstrip()}" if failed.traceback else ""
        self._fail(f"{failed.stage}: {failed.message}{trace}")

    def worker_stands_by(self, pid: int) -> None:
        """None does."""

    def worker_retired(self, pid: int) -> None:
        """None does."""

    def batch_finished(self, pid: int) -> None:
        """Batches are counted by who sends them."""

    def worker_dropped(self, pid: int) -> None:
        """It talks nonsense."""
        self._fail("the worker does not keep to the protocol")
