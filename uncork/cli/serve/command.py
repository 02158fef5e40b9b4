"""``uncork serve``."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import typer
import uvloop
from rich.console import Console

from uncork.cli.configurable import takes_options
from uncork.cli.serve import banner
from uncork.cli.serve.gpus import require_gpus
from uncork.cli.serve.options import ServeOptions, WorkerCount
from uncork.cli.serve.placement import STANDBYS_SOCKET, WORKERS_SOCKET, launching
from uncork.cli.serve.running_settings import Parts, RunningSettings, check_options, gateway_settings
from uncork.cli.serve.startup_progress import StartupProgress
from uncork.cli.serve.worker_port import open_worker_port
from uncork.cli.usage import exit_code
from uncork.config.errors import WrongUsage
from uncork.server.control_socket import DIFF, RELOAD, listening
from uncork.server.listeners import Listeners, open_listeners
from uncork.server.private_folders import own_folder
from uncork.server.reloading import Reloader
from uncork.server.servers import Servers
from uncork.server.serving import log_to_terminal, serve_until_signal
from uncork.server.tracing import tracing
from uncork_gateway import Gateway
from uncork_gateway.backends.worker_listener import WorkerPort
from uncork_gateway.scaling import Scaling
from uncork_gateway.worker_events import ServiceUnusable, SupervisorActions
from uncork_workers.supervision.launcher import Launcher
from uncork_workers.supervision.recycling import Recycler
from uncork_workers.supervision.supervisor import Supervisor, WorkerExit

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import Traces

log = logging.getLogger("uncork.gateway")


@takes_options
def serve(options: ServeOptions) -> None:
    """Serve a model service behind a gateway that merges concurrent requests into batches."""
    raise typer.Exit(exit_code("serve", lambda: run(options)))


def run(options: ServeOptions) -> int:
    """Serve until a signal and return the exit code.

    Raises:
        WrongUsage: if the target cannot be served, or a GPU is missing.
        OSError: if the port cannot be opened.
    """
    if options.reload and find_spec("watchfiles") is None:
        raise WrongUsage("--reload requires watchfiles; run pip install 'uncork[reload]'")
    console = log_to_terminal(options.log_level, options.log_format.value)
    check_options(options)
    require_gpus(options, warn=lambda text: log.warning("%s", text))
    on_ray = options.ray_address is not None
    with (
        open_listeners(options) as listeners,
        open_worker_port(options, workers=options.worker_count.most, on_ray=on_ray) as worker_port,
        own_folder() as folder,
        tracing(options.traces, os.environ) as traces,
    ):
        return uvloop.run(_serve(options, listeners, worker_port, folder, traces, console))


async def _serve(
    options: ServeOptions,
    listeners: Listeners,
    worker_port: WorkerPort | None,
    folder: Path,
    traces: Traces | None,
    console: Console,
) -> int:
    supervisor: Supervisor
    gateway = _gateway(options, listeners, traces, lambda: supervisor)
    waiting = gateway.events.failures.waiting
    async with launching(options, folder, worker_port, on_waiting=waiting) as (launcher, starter_with):
        supervisor = _supervisor(options, launcher, gateway)
        await gateway.listen(str(folder / WORKERS_SOCKET))
        await gateway.listen(str(folder / STANDBYS_SOCKET), standby=True)
        if worker_port is not None:
            gateway.listen_on_tcp(worker_port)
            if options.worker_token_file is not None:
                target, file = options.target, options.worker_token_file
                how = banner.waiting_for_workers(worker_port, listeners, target=target, token_file=file)
                log.info("%s", how)
        parts = Parts(
            gateway=gateway,
            supervisor=supervisor,
            starter_with=starter_with,
            scaling=_scaling(gateway, supervisor, options.worker_count),
            recycler=Recycler(supervisor, options.recycling),
            servers=Servers(gateway.front_end, listeners),
        )
        return await _run(RunningSettings(options, listeners.keys, parts), listeners, console)


async def _run(settings: RunningSettings, listeners: Listeners, console: Console) -> int:
    options, gateway, supervisor = settings.options, settings.parts.gateway, settings.parts.supervisor
    reloader = Reloader(gateway, supervisor, settings)
    progress = StartupProgress(gateway, lambda: settings.options.worker_count.least, console=console)
    background: list[asyncio.Task[None]] = []

    async def close(hurry: asyncio.Event) -> None:
        for task in background:
            task.cancel()
        await asyncio.gather(*background, reloader.close(), return_exceptions=True)
        await gateway.close()
        await supervisor.stop(hurry=hurry)

    supervisor.start()
    gateway.events.expect_workers(range(options.worker_count.least))
    background.append(asyncio.create_task(settings.parts.scaling.run()))
    background.append(asyncio.create_task(settings.parts.recycler.run()))
    if options.reload:
        background.append(asyncio.create_task(reloader.watch()))
    if options.watch_config:
        background.append(asyncio.create_task(reloader.watch_settings()))
    try:
        handlers = {RELOAD: reloader.reload_requested, DIFF: reloader.diff_requested}
        async with listening(listeners.port, handlers):
            return await serve_until_signal(
                gateway.front_end,
                settings.parts.servers,
                announcing=_announce(gateway, options, listeners, background, progress),
                drain=lambda: settings.options.drain,
                close=close,
                reload=reloader.on_hangup,
            )
    except ServiceUnusable as error:
        raise WrongUsage(str(error)) from None


def _gateway(
    options: ServeOptions,
    listeners: Listeners,
    traces: Traces | None,
    supervisor: Callable[[], Supervisor],
) -> Gateway:
    """Return the gateway, which calls the supervisor once there is one."""
    return Gateway(
        gateway_settings(
            options,
            listeners.keys,
            admin=listeners.admin is not None,
            grpc=listeners.grpc is not None,
            traces=traces,
        ),
        SupervisorActions(
            kill=lambda launch: supervisor().kill(launch),
            restarts=lambda: supervisor().restarts,
            stands_by=lambda launch: supervisor().mark_ready(launch),
            finished_batch=lambda launch: supervisor().finished_batch(launch),
            connection_lost=lambda launch: supervisor().connection_lost(launch),
        ),
    )


def _supervisor(options: ServeOptions, launcher: Launcher, gateway: Gateway) -> Supervisor:
    """Return the supervisor of the workers, which notifies the gateway."""

    def exited(end: WorkerExit) -> None:
        gateway.events.worker_exited(end.index, end.how, failures=end.failures, retry_s=end.retry_s)

    return Supervisor(
        launcher,
        workers=options.worker_count.least,
        on_exit=exited,
        take_over=gateway.take_over,
        explain=gateway.events.failures.why_no_standby,
        retire=gateway.retire,
    )


def _scaling(gateway: Gateway, supervisor: Supervisor, count: WorkerCount) -> Scaling:
    """Return what computes how many workers the traffic needs, and keeps so many, within a range."""

    async def resize(workers: int) -> None:
        before = supervisor.workers
        await supervisor.resize(workers)
        gateway.events.expect_workers(range(before, workers))
        gateway.events.forget_workers(range(workers, before))

    if not count.most:
        return gateway.follow_traffic(least=1, most=1)
    return gateway.follow_traffic(
        least=count.least,
        most=count.most,
        target=lambda: supervisor.workers,
        resize=resize,
    )


async def _announce(
    gateway: Gateway,
    options: ServeOptions,
    listeners: Listeners,
    background: Sequence[asyncio.Task[None]],
    progress: StartupProgress,
) -> None:
    """Print what is served, and when it is ready; raise the errors of background tasks."""
    started = time.monotonic()
    watching = asyncio.create_task(progress.run())
    try:
        service = await gateway.events.described
        lines = banner.of_service(
            service, workers=options.worker_count, gpus=options.gpu_names, listeners=listeners
        )
        progress.hide()
        banner.print_lines(lines)
        await gateway.front_end.ready.wait()
        progress.hide()
        banner.print_ready(time.monotonic() - started)
        await asyncio.gather(watching, *background)
    finally:
        watching.cancel()
