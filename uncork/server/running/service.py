"""A running ``uncork serve``, and each of its services: what the gateway knows of it, and its workers."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uncork.server.credentials import Credentials, read_worker_credentials
from uncork.server.options import ServeOptions
from uncork.server.running.kept_estimates import KeptEstimates
from uncork.server.servers import Servers
from uncork.server.services import about
from uncork.server.workers.placement import STANDBYS_SOCKET, WORKERS_SOCKET, StarterWith, launching
from uncork.server.workers.worker_port import open_worker_port, waiting_for_workers
from uncork_gateway import Gateway, GatewaySettings
from uncork_gateway.auth import ApiKeys
from uncork_gateway.backends.worker_failures import WorkerStartup
from uncork_gateway.backends.worker_listener import WorkerPort
from uncork_gateway.services.scaling import Scaling
from uncork_gateway.services.served_service import ServedService
from uncork_gateway.services.worker_events import SupervisorActions
from uncork_workers.supervision.launcher import Launcher
from uncork_workers.supervision.oom_kills import OomKills
from uncork_workers.supervision.recycling import Recycler
from uncork_workers.supervision.supervisor import ReplacementFailed, Supervisor, WorkerExit

log = logging.getLogger("uncork.gateway")

WithSettings = Callable[[ServeOptions, ApiKeys | None], GatewaySettings]
"""Returns the settings of a service with these options, and those of the server with these API keys."""


@dataclass(slots=True, kw_only=True)
class RunningServer:
    """A server: its services, and the current settings.

    Attributes:
        credentials: the current keys and certificates.
        folder: a private folder, in which each service has one of its own.
        failed: gets the first unexpected error of what keeps workers running.
        admin_url: the base URL for operators.
        servers: serve clients; None if another application does.
        leaving: services that a reload has removed, and that answer what they have accepted.
        unloaded: services that clients have unloaded; a reload does not start them again.
        oom_kills: counts the processes that the kernel kills.
    """

    options: ServeOptions
    credentials: Credentials
    gateway: Gateway
    settings: WithSettings
    folder: Path
    failed: asyncio.Future[None]
    admin_url: str = ""
    servers: Servers | None = None
    services: dict[str, RunningService] = field(default_factory=dict)
    leaving: list[RunningService] = field(default_factory=list)
    unloaded: set[str] = field(default_factory=set)
    oom_kills: OomKills = field(default_factory=OomKills.here)

    @property
    def draining(self) -> bool:
        return self.gateway.front_end.draining

    def expected(self) -> list[str]:
        """Return the names of the workers that are to start first."""
        return [
            about(name, f"worker {index}")
            for name, service in self.services.items()
            for index in range(service.options.worker_count.first)
        ]

    def starts(self) -> dict[str, WorkerStartup]:
        """Return the stages of the workers that are not ready."""
        return {
            about(name, f"worker {index}"): start
            for name, service in self.services.items()
            for index, start in service.served.events.failures.starts().items()
        }

    def ready_workers(self) -> set[str]:
        return {
            about(name, f"worker {index}")
            for name, service in self.services.items()
            for index in service.served.pool.ready()
        }


@dataclass(kw_only=True, eq=False)
class RunningService:
    """A service, its workers, and what keeps them running; made by :meth:`open`.

    Attributes:
        name: empty if it is the only one and has none.
        kept: what it has learned, in a file; None without ``--state``.
        credentials: the current token and certificates for workers.
    """

    name: str
    options: ServeOptions
    served: ServedService
    supervisor: Supervisor
    starter_with: StarterWith
    kept: KeptEstimates | None
    credentials: Credentials
    port: WorkerPort | None
    resources: AsyncExitStack
    first_exit: asyncio.Future[str]
    failed: asyncio.Future[None]

    def __post_init__(self) -> None:
        self.scaling = _scaling(self.served, self.supervisor, self.options)
        self.recycler = Recycler(
            self.supervisor,
            most_batches=self.options.max_batches_per_worker,
            most_bytes=self.options.max_worker_bytes,
        )
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(cls, name: str, options: ServeOptions, server: RunningServer) -> RunningService:
        """Open what the service needs; its workers start with :meth:`start`.

        Raises:
            WrongUsage: if its workers can never be started.
            OSError: if a port cannot be opened.
        """
        supervisor: Supervisor
        settings = server.settings(options, server.credentials.keys)
        served = server.gateway.add(settings, _actions(lambda: supervisor), name=name or None)
        try:
            async with AsyncExitStack() as resources:
                folder = _folder_in(server.folder)
                resources.callback(lambda: shutil.rmtree(folder, ignore_errors=True))
                on_ray = options.ray_address is not None
                credentials = read_worker_credentials(options, on_ray=on_ray)
                port = resources.enter_context(
                    open_worker_port(options, credentials, workers=options.worker_count.most, on_ray=on_ray)
                )
                waiting = served.events.failures.waiting
                launcher, starter_with = await resources.enter_async_context(
                    launching(options, folder, port, on_waiting=waiting, oom_kills=server.oom_kills)
                )
                first_exit: asyncio.Future[str] = asyncio.get_running_loop().create_future()
                supervisor = _supervisor(options, launcher, served, first_exit)
                await served.pool.listen(str(folder / WORKERS_SOCKET))
                await served.pool.listen(str(folder / STANDBYS_SOCKET), standby=True)
                kept = await _recalled(name, options, served)
                if port is not None:
                    _listen_on_tcp(served, port, options, server.admin_url)
                return cls(
                    name=name,
                    options=options,
                    served=served,
                    supervisor=supervisor,
                    starter_with=starter_with,
                    kept=kept,
                    credentials=credentials,
                    port=port,
                    resources=resources.pop_all(),
                    first_exit=first_exit,
                    failed=server.failed,
                )
        except BaseException:
            await server.gateway.remove(served)
            raise

    def renew(self, credentials: Credentials) -> None:
        """Require another token and use other certificates for the workers that connect from now on."""
        port, self.credentials = self.port, credentials
        if port is None or self.options.ray_address is not None:
            return
        if credentials.token is not None:
            port.token = credentials.token
        if port.tls is not None and credentials.tls is not None:
            port.tls.renew(credentials.tls)

    def start(self) -> None:
        """Start the workers, and keep them running."""
        self.supervisor.start()
        self.served.events.expect_workers(range(self.options.worker_count.first))
        self._tasks = [asyncio.create_task(self.scaling.run()), asyncio.create_task(self.recycler.run())]
        if self.kept is not None:
            self._tasks.append(asyncio.create_task(self.kept.keep(self.served)))
        for task in self._tasks:
            task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def first_ready(self) -> None:
        """Return when a worker is ready, or the service waits for workers on other machines.

        Raises:
            ReplacementFailed: if a worker has exited before that, or cannot be served.
        """
        if not self.options.worker_count.most:
            return
        described = self.served.events.described
        ready = asyncio.create_task(self.served.batching.ready.wait())
        try:
            # A worker that cannot be served describes itself, but is never ready.
            for awaited in (described, ready):
                either: set[asyncio.Future[Any]] = {awaited, self.first_exit}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if described.done() and (error := described.exception()) is not None:
                    raise ReplacementFailed(str(error))
            if not ready.done():
                raise ReplacementFailed(self.served.view.not_ready_reason)
        finally:
            ready.cancel()

    async def close(self, *, hurry: asyncio.Event | None = None) -> None:
        """Disconnect the workers, and wait for their ends; ``hurry`` ends the wait, and kills them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.kept is not None:
            await self.kept.write(self.served)
        await self.served.close()
        # Disconnected workers exit by themselves.
        await self.supervisor.stop(hurry=hurry)
        await self.resources.aclose()


def _listen_on_tcp(served: ServedService, port: WorkerPort, options: ServeOptions, admin_url: str) -> None:
    served.listen_on_tcp(port)
    if options.worker_token_file is not None:
        file = options.worker_token_file
        how = waiting_for_workers(port, admin_url, target=options.service, token_file=file)
        log.info("%s", how)


async def _recalled(name: str, options: ServeOptions, served: ServedService) -> KeptEstimates | None:
    """Let the first worker recall what an earlier run has learned."""
    if not options.state:
        return None
    kept = KeptEstimates(name, options)
    await kept.read()
    served.events.recall = kept.of
    return kept


def _folder_in(folder: Path) -> Path:
    """Make a folder for one service. Its path is short: those of Unix sockets must be."""
    taken = {one.name for one in folder.iterdir()}
    made = next(folder / str(number) for number in range(len(taken) + 1) if str(number) not in taken)
    made.mkdir()
    return made


def _actions(supervisor: Callable[[], Supervisor]) -> SupervisorActions:
    """Return what the gateway calls, once there is a supervisor."""
    return SupervisorActions(
        kill=lambda launch: supervisor().kill(launch),
        restarts=lambda: supervisor().restarts,
        stands_by=lambda launch: supervisor().mark_ready(launch),
        finished_batch=lambda launch: supervisor().finished_batch(launch),
        connection_lost=lambda launch: supervisor().connection_lost(launch),
    )


def _supervisor(
    options: ServeOptions, launcher: Launcher, served: ServedService, first_exit: asyncio.Future[str]
) -> Supervisor:
    """Return the supervisor of the workers, which notifies the gateway."""

    def exited(end: WorkerExit) -> None:
        if not first_exit.done():
            first_exit.set_result(end.how)
        served.events.worker_exited(end.index, end.how, failures=end.failures, retry_s=end.retry_s)
        if end.victim is not None:
            served.lethal.killed(end.victim)

    return Supervisor(
        launcher,
        workers=options.worker_count.first,
        on_exit=exited,
        take_over=served.take_over,
        explain=served.events.failures.why_no_standby,
        retire=served.pool.retire_launch,
        drop=served.pool.drop_launch,
    )


def _scaling(served: ServedService, supervisor: Supervisor, options: ServeOptions) -> Scaling:
    """Return what computes how many workers the traffic needs, and keeps so many, within a range."""
    count = options.worker_count

    async def resize(workers: int) -> None:
        before = await supervisor.resize(workers)
        served.events.expect_workers(range(before, workers))
        served.events.forget_workers(range(workers, before))

    if not count.most:
        return served.follow_traffic(least=1, most=1)
    return served.follow_traffic(
        least=count.least,
        most=count.most,
        idle_after_s=options.idle_after,
        target=lambda: supervisor.workers,
        resize=resize,
        is_replacing=supervisor.is_replacing,
    )
