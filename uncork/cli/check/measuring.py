"""Start one worker of a service as ``uncork serve`` would, and measure its batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from uncork.cli.check.comparing import compare
from uncork.cli.check.figures import ApiFigures, Comparison, Failure, Figures, Plan, Times
from uncork.cli.check.growing import Batches, Died, Failed, Refused, Unknown, grow, of_profile
from uncork.config.errors import WrongUsage
from uncork.config.names import check_policy
from uncork.server.options import ServeOptions
from uncork.server.workers.placement import local_workers
from uncork_dispatcher.wording import plural
from uncork_gateway.backends.worker_connection import Executed, OnPiece, PoolEvent, WorkerConnection
from uncork_gateway.backends.worker_pool import WorkerPool
from uncork_gateway.service_log import ServiceLog
from uncork_gateway.services.paths import in_force, paths_of
from uncork_workers.definition.adapters.base import Sample
from uncork_workers.memory import resident_bytes
from uncork_workers.process.warmup import Example
from uncork_workers.supervision.launcher import over_unix
from uncork_workers.supervision.processes import Processes
from uncork_workers.supervision.supervisor import Supervisor, WorkerExit
from uncork_workers.wire import messages
from uncork_workers.wire.messages import Batch, WarmUp
from uncork_workers.wire.overrides import check_reserved
from uncork_workers.wire.schema import JSON, ApiDescription, ServiceDescription
from uncork_workers.wire.values import DefinitionError

Tell = Callable[[str], None]
Profile = Mapping[str, Sequence[tuple[float, float]]]


class CheckFailed(Exception):
    """The service did not start; the message says why."""


async def measure(
    name: str, options: ServeOptions, plan: Plan, folder: Path, *, seconds: float, tell: Tell
) -> Figures:
    """Start a worker with sockets in ``folder``, measure the APIs for ``seconds`` in all, and stop it.

    Args:
        name: of the service; empty if it is the only one.

    Raises:
        CheckFailed: if the worker does not become ready.
        WrongUsage: if the service cannot be loaded.
        DefinitionError: if the service cannot be served under the overrides.
    """
    worker = _Worker(tell)
    socket_path = str(folder / "workers.sock")
    # Only a worker that warms up says which APIs have an example, and how long rows take that are not JSON.
    local = local_workers(replace(options, warmup_seconds=options.warmup_seconds or seconds))
    # The check itself prints exceptions of handlers, as findings.
    quiet = replace(local, arguments=(*local.arguments, "--log-level", "critical"))
    processes = Processes(quiet, dialing=over_unix(socket_path, socket_path))
    supervisor = Supervisor(processes, workers=1, on_exit=worker.exited, take_over=lambda launches: ())
    await worker.pool.listen(socket_path)
    tell("importing the service")
    supervisor.start()
    try:
        described = await worker.described
        known_as = name or described.name.lower()
        service = _in_force(known_as, described, options)
        await worker.ready
        [process] = supervisor.current_workers()
        assert process.pid is not None
        worker.pid = process.pid
        plan = replace(plan, worker_bytes=resident_bytes(worker.pid))
        apis = []
        each_s = seconds / max(1, len(service.apis))
        for api in service.apis:
            tell(f"measuring {api.name}")
            apis.append(await _measure_api(api, worker, seconds=each_s, free_bytes=plan.room_bytes))
        # Last, because a changed row may end the worker.
        for at, api in enumerate(service.apis):
            tell(f"comparing rows of {api.name} alone and in batches")
            apis[at] = replace(apis[at], comparison=await _compare_rows(api, apis[at], worker, each_s))
        paths = paths_of(known_as, service)
        return Figures(service=service.name, plan=plan, apis=tuple(apis), paths=paths)
    finally:
        worker.is_over = True
        await worker.pool.close()
        hurry = asyncio.Event()
        hurry.set()
        await supervisor.stop(hurry=hurry)
        await processes.close()


def _in_force(name: str, described: ServiceDescription, options: ServeOptions) -> ServiceDescription:
    """Apply the overrides; raise DefinitionError for one that is wrong, or an unknown policy."""
    service = in_force(name, described, options.overrides, own_routes=options.own_routes)
    for api in service.apis:
        try:
            check_policy(api.settings.policy)
        except ValueError as error:
            raise DefinitionError(f"API {api.name!r}: policy: {error}") from None
    check_reserved(service, options.worker_count.most)
    return service


async def _measure_api(
    api: ApiDescription, worker: _Worker, *, seconds: float, free_bytes: int | None
) -> ApiFigures:
    figures = ApiFigures(
        name=api.name,
        settings=api.settings,
        streams=api.streams,
        concurrency=api.concurrency,
        row_is_made_up=api.name not in worker.profile,
    )
    if worker.why_not:
        return replace(figures, unmeasured=worker.why_not)
    try:
        times, failure = await _run_batches(api, worker, seconds=seconds, free_bytes=free_bytes)
        return replace(figures, times=times, failure=failure)
    except Refused as error:
        if figures.row_is_made_up:
            return replace(figures, unmeasured=f"a row generated from the schema got {error}")
        return replace(figures, failure=Failure(rows=1, says=f"returns {error}"))
    except Failed as error:
        return replace(figures, failure=Failure(rows=1, says=str(error)))
    except TimeoutError:
        return replace(figures, timed_out=True)
    except Unknown as error:
        return replace(figures, unmeasured=str(error))


async def _run_batches(
    api: ApiDescription, worker: _Worker, *, seconds: float, free_bytes: int | None
) -> tuple[Times | None, Failure | None]:
    """Return the times of an API and its failure; an API that streams is run once and has no times."""
    if not _is_json(api):
        return (None if api.streams else of_profile(worker.profile.get(api.name, ()))), None
    example = _example(api)
    if api.streams:
        await Batches(example, worker.run_to_first_piece).once(1)
        return None, None
    return await grow(Batches(example, worker.run), seconds=seconds, pid=worker.pid, free_bytes=free_bytes)


async def _compare_rows(
    api: ApiDescription, measured: ApiFigures, worker: _Worker, seconds: float
) -> Comparison | None:
    if measured.times is None or api.settings.limit_rows == 1:
        return None
    if worker.why_not or not _is_json(api):
        why = worker.why_not or "the example is not JSON"
        return Comparison(key="not-compared", figures={"why": why})
    example = _example(api)
    most_rows = measured.times.fits / example.padded_cost
    if measured.failure is not None:
        most_rows = min(most_rows, measured.failure.rows - 1)
    # The gateway keeps arrays of different shapes apart.
    resize = api.input["kind"] != "ndarray"
    return await compare(
        Batches(example, worker.run),
        most_rows=most_rows,
        seconds=seconds,
        resize=resize,
        keep=api.group_fields,
    )


def _is_json(api: ApiDescription) -> bool:
    return api.example_type == JSON and api.input["kind"] != "raw"


def _example(api: ApiDescription) -> Example:
    group = api.group_of(api.example)
    return Example(api=api.name, sample=Sample(api.example), settings=api.settings, group=group)


class _Worker:
    """The only worker, which is never replaced: its news, and the batches that it runs.

    Attributes:
        profile: its own measurements of APIs that give an example.
        why_not: why it can run no more batches; one that timed out keeps it busy.
    """

    def __init__(self, tell: Tell) -> None:
        loop = asyncio.get_running_loop()
        self.pool = WorkerPool(self._on_news, log=ServiceLog(""), kill=self._dropped)
        self.described: asyncio.Future[ServiceDescription] = loop.create_future()
        self.ready: asyncio.Future[int] = loop.create_future()
        self.pid = 0
        self.profile: Profile = {}
        self.why_not = ""
        self.is_over = False
        self._gone: asyncio.Future[None] = loop.create_future()
        self._last_number = 0
        self._tell = tell
        # Both futures fail, but only one may be awaited.
        self.ready.add_done_callback(lambda one: one.cancelled() or one.exception())

    async def run(
        self, batch: Batch, bodies: Sequence[bytes], on_piece: OnPiece | None = None
    ) -> tuple[Executed, float]:
        """Run a batch; return its reply and the seconds until the reply.

        Raises:
            Died: if the worker ended.
        """
        ended: asyncio.Future[Executed] = asyncio.get_running_loop().create_future()
        # Each has its own number: the worker may read that a batch is cancelled after it has ended.
        self._last_number += 1
        batch = msgspec.structs.replace(batch, batch=self._last_number)
        self.why_not = f"the worker was still running a batch of {batch.api}"
        began = time.perf_counter()
        self.pool.execute(self.ready.result(), batch, bodies, ended.set_result, on_piece=on_piece)
        awaited: set[asyncio.Future[Any]] = {ended, self._gone}
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            self.why_not = f"the worker died in a batch of {batch.api}"
            raise Died
        self.why_not = ""
        return ended.result(), time.perf_counter() - began

    async def run_to_first_piece(self, batch: Batch, bodies: Sequence[bytes]) -> tuple[Executed, float]:
        """Run a batch with a streamed reply, and cancel it after the first piece.

        Raises:
            Died: if the worker ended.
        """
        return await self.run(
            batch, bodies, lambda head, piece: self.pool.cancel(self.ready.result(), self._last_number, [0])
        )

    def exited(self, end: WorkerExit) -> None:
        self._fail(CheckFailed(f"the worker {end.how}"))

    def _fail(self, error: Exception) -> None:
        for future in (self.described, self.ready):
            if not (future.done() or self.is_over):
                future.set_exception(error)

    def _on_news(self, worker: WorkerConnection, event: PoolEvent) -> None:
        match event:
            case "described" if worker.hello is not None:
                if not self.described.done():
                    self.described.set_result(worker.hello.service)
                self._tell("setting up the service")
            case WarmUp(api=api, rows=rows):
                self._tell(f"warming up {api} with {plural(rows, 'row')}")
            case "ready" if not self.ready.done():
                self.profile = {} if worker.ready is None else worker.ready.profile
                self.ready.set_result(worker.key)
            case messages.Failed():
                trace = f"\n{event.traceback.rstrip()}" if event.traceback else ""
                if event.stage == "load":
                    self._fail(WrongUsage(f"{event.message}{trace}"))
                else:
                    self._fail(CheckFailed(f"{event.stage}: {event.message}{trace}"))
            case "gone" if not self._gone.done():
                self._gone.set_result(None)
            case _:
                pass

    def _dropped(self, launch: int) -> None:
        self._fail(CheckFailed("the worker violated the protocol"))
