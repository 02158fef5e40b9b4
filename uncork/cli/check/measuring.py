"""Start one worker of a service as ``uncork serve`` would, and measure its batches."""

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
from uncork_workers.supervision.processes import Processes, worker_environment
from uncork_workers.supervision.recycling import resident_bytes
from uncork_workers.supervision.supervisor import Supervisor, WorkerExit
from uncork_workers.wire.messages import Batch, Failed, Ready
from uncork_workers.wire.overrides import Override, apply_overrides
from uncork_workers.wire.schema import JSON, ApiDescription, ServiceDescription

Tell = Callable[[str], None]
Profile = Mapping[str, Sequence[tuple[float, float]]]


class CheckFailed(Exception):
    """The service did not start; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The measured service.

    Attributes:
        worker_bytes: resident memory of the worker before its first batch.
    """

    service: str
    apis: tuple[ApiFigures, ...]
    worker_bytes: int


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """The service to measure, and how.

    Attributes:
        workers: workers of the server; one is started, with its share of the cores.
        arguments: arguments of the worker, as under ``uncork serve``.
        seconds: for all apis together.
        free_bytes: memory available to batches; None if unlimited.
    """

    target: str
    workers: int
    overrides: Sequence[Override]
    arguments: Sequence[str]
    gpus: Sequence[str]
    seconds: float
    free_bytes: int | None


async def measure(request: CheckRequest, folder: Path, *, tell: Tell) -> Measured:
    """Start a worker with sockets in ``folder``, measure each API, and stop the worker.

    Raises:
        CheckFailed: if the worker does not become ready.
        DefinitionError: if the service cannot be served under the overrides.
    """
    watch = _Watch(tell)
    pool = WorkerPool(watch)
    socket_path = str(folder / "workers.sock")
    processes = Processes(
        request.target,
        workers=1,
        # The check itself prints exceptions of handlers, as findings.
        arguments=(*request.arguments, "--log-level", "critical"),
        gpus=request.gpus,
        environment=worker_environment(request.workers),
    )
    supervisor = Supervisor(
        processes,
        socket_path=socket_path,
        standby_path=socket_path,
        on_exit=watch.exited,
        take_over=lambda pids: (),
    )
    await pool.listen(socket_path)
    tell("importing the service")
    supervisor.start()
    try:
        described = await watch.described
        worker = await watch.ready
        service = apply_overrides(described, request.overrides)
        [life] = supervisor.current_workers()
        worker_bytes = resident_bytes(life.pid)
        apis = await _measure_apis(service, request, _Runner(pool, worker, life.pid, watch.profile), tell)
        return Measured(service=service.name, apis=apis, worker_bytes=worker_bytes)
    finally:
        watch.is_over = True
        await pool.close()
        hurry = asyncio.Event()
        hurry.set()
        await supervisor.stop(hurry=hurry)


async def _measure_apis(
    service: ServiceDescription, request: CheckRequest, runner: _Runner, tell: Tell
) -> tuple[ApiFigures, ...]:
    found: list[ApiFigures] = []
    each_s = request.seconds / len(service.apis)
    for api in service.apis:
        tell(f"measuring {api.name}")
        if runner.why_not:
            found.append(ApiFigures(name=api.name, settings=api.settings, unmeasured=runner.why_not))
        else:
            found.append(await _measure_api(api, runner, seconds=each_s, free_bytes=request.free_bytes))
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
    """Runs batches in the worker."""

    def __init__(self, pool: WorkerPool, worker: int, pid: int, profile: Profile) -> None:
        self._pool = pool
        self._worker = worker
        self.pid = pid
        self.profile = profile
        """The worker's own measurements of APIs that give an example."""
        self.why_not = ""
        """Why the worker can run no more batches; a batch that timed out keeps it busy."""

    async def run(
        self, batch: Batch, bodies: Sequence[bytes], on_piece: OnPiece | None = None
    ) -> tuple[Executed, float]:
        """Run a batch; return its reply and the seconds until the reply.

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
        """Run a batch with a streamed reply, and cancel it after the first piece.

        Raises:
            Died: if the worker ended.
        """
        return await self.run(batch, bodies, lambda head, piece: self._pool.cancel(batch.batch))


class _Watch:
    """Follows the worker; implements the listener of the pool."""

    def __init__(self, tell: Tell) -> None:
        loop = asyncio.get_running_loop()
        self.described: asyncio.Future[ServiceDescription] = loop.create_future()
        self.ready: asyncio.Future[int] = loop.create_future()
        self.profile: Profile = {}
        self.is_over = False
        self._tell = tell
        # Both futures fail, but only one may be awaited.
        self.ready.add_done_callback(lambda one: one.cancelled() or one.exception())

    def exited(self, end: WorkerExit) -> None:
        self._fail(f"the worker {end.how}")

    def _fail(self, reason: str) -> None:
        for future in (self.described, self.ready):
            if not (future.done() or self.is_over):
                future.set_exception(CheckFailed(reason))

    def worker_imported(self, files: list[str]) -> None:
        pass  # nothing is reloaded

    def worker_described(self, service: ServiceDescription) -> None:
        if not self.described.done():
            self.described.set_result(service)

    def worker_connected(self, index: int) -> None:
        self._tell("setup of the service")

    def worker_warms_up(self, index: int, api: str, rows: int) -> None:
        self._tell(f"warm-up of {api} with {plural(rows, 'row')}")

    def worker_profiled(self, worker: int, ready: Ready) -> None:
        self.profile = ready.profile

    def worker_ready(self, worker: int, index: int) -> None:
        if not self.ready.done():
            self.ready.set_result(worker)

    def worker_lost(self, worker: int, index: int) -> None:
        pass  # the runner learns it from its batch

    def worker_failed(self, failed: Failed, *, standby: bool) -> None:
        trace = f"\n{failed.traceback.rstrip()}" if failed.traceback else ""
        self._fail(f"{failed.stage}: {failed.message}{trace}")

    def worker_stands_by(self, pid: int) -> None:
        pass

    def worker_retired(self, pid: int) -> None:
        pass

    def batch_finished(self, pid: int) -> None:
        pass

    def worker_dropped(self, pid: int) -> None:
        self._fail("the worker does not keep to the protocol")
