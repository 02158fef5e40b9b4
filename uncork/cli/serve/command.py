"""``uncork serve``."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
import uvloop
from rich.console import Console

from uncork.cli.configurable import takes_options
from uncork.cli.serve import banner
from uncork.cli.serve.startup_progress import StartupProgress
from uncork.cli.usage import exit_code
from uncork.config.errors import WrongUsage
from uncork.server.control_socket import DIFF, RELOAD, listening
from uncork.server.listeners import Listeners, open_listeners
from uncork.server.options import ServeOptions
from uncork.server.otlp_metrics import sending_metrics
from uncork.server.private_folders import own_folder
from uncork.server.running.reloading import Reloader
from uncork.server.running.service import RunningServer, RunningService
from uncork.server.running.settings import to_start
from uncork.server.servers import Servers
from uncork.server.services import errors_of, service_settings
from uncork.server.serving import log_to_terminal, serve_until_signal
from uncork.server.tracing import tracing
from uncork_gateway import Gateway, GatewaySettings
from uncork_gateway.auth import ApiKeys
from uncork_gateway.services.worker_events import ServiceUnusable

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import Traces

log = logging.getLogger("uncork.gateway")


@takes_options
def serve(options: ServeOptions) -> None:
    """Serve model services behind a gateway that merges concurrent requests into batches."""
    raise typer.Exit(exit_code("serve", lambda: run(options)))


def run(options: ServeOptions) -> int:
    """Serve until a signal and return the exit code.

    Raises:
        WrongUsage: if a target cannot be served, or a GPU is missing.
        OSError: if a port cannot be opened.
    """
    console = log_to_terminal(options.log_level, options.log_format)
    options, services = to_start(options, warn=log.warning)
    with (
        open_listeners(options) as listeners,
        own_folder() as folder,
        tracing(options.traces, os.environ) as traces,
    ):
        return uvloop.run(_serve(options, services, listeners, folder, traces, console))


async def _serve(
    options: ServeOptions,
    services: Mapping[str, ServeOptions],
    listeners: Listeners,
    folder: Path,
    traces: Traces | None,
    console: Console,
) -> int:
    def settings_with(own: ServeOptions, keys: ApiKeys | None) -> GatewaySettings:
        return GatewaySettings(
            keys=keys,
            # What follows cannot change while the server runs.
            admin=listeners.admin is not None,
            grpc=listeners.grpc is not None,
            traces=traces,
            **service_settings(own),
        )

    gateway = Gateway(settings_with(options, listeners.credentials.keys))
    servers = Servers(gateway.front_end, listeners)
    running = RunningServer(
        options=options,
        credentials=listeners.credentials,
        gateway=gateway,
        settings=settings_with,
        folder=folder,
        failed=asyncio.get_running_loop().create_future(),
        admin_url=listeners.admin_url,
        servers=servers,
    )
    try:
        for name, own in services.items():
            with errors_of(name):
                running.services[name] = await RunningService.open(name, own, running)
        return await _run(running, servers, listeners, console)
    finally:
        gateway.front_end.close()


async def _run(running: RunningServer, servers: Servers, listeners: Listeners, console: Console) -> int:
    options, front_end = running.options, running.gateway.front_end
    reloader = running.gateway.repository = Reloader(running)
    progress = StartupProgress(running, console=console)
    background: list[asyncio.Task[None]] = []

    async def close(hurry: asyncio.Event) -> None:
        for task in background:
            task.cancel()
        await asyncio.gather(*background, reloader.close(), return_exceptions=True)
        services = [*running.services.values(), *running.leaving]
        await asyncio.gather(*(service.close(hurry=hurry) for service in services))

    for service in running.services.values():
        service.start()
    if options.reload:
        background.append(asyncio.create_task(reloader.watch()))
    if options.watch_config:
        background.append(asyncio.create_task(reloader.watch_settings()))
    try:
        handlers = {RELOAD: reloader.reload_requested, DIFF: reloader.diff_requested}
        metrics = front_end.exposition.registry
        async with listening(listeners.port, handlers), sending_metrics(metrics, os.environ):
            return await serve_until_signal(
                front_end,
                servers,
                announcing=_announce(running, listeners, background, progress),
                options=lambda: running.options,
                close=close,
                reload=reloader.on_hangup,
            )
    except ServiceUnusable as error:
        raise WrongUsage(str(error)) from None


async def _announce(
    running: RunningServer,
    listeners: Listeners,
    background: Sequence[asyncio.Task[None]],
    progress: StartupProgress,
) -> None:
    """Print what is served, and when it is ready; raise the errors of background tasks."""
    tasks = [asyncio.create_task(one) for one in (progress.run(), _print(running, listeners, progress))]
    try:
        await asyncio.gather(*tasks, running.failed, *background)
    finally:
        for task in tasks:
            task.cancel()


async def _print(running: RunningServer, listeners: Listeners, progress: StartupProgress) -> None:
    started = time.monotonic()
    log_format = running.options.log_format
    described = {one.served.events.described: one for one in running.services.values()}
    done, _ = await asyncio.wait(described, return_when=asyncio.FIRST_EXCEPTION)
    shown = [
        banner.Shown(service.name, future.result(), service.options)
        for future, service in described.items()
        if future in done and not future.cancelled()  # as of services that clients have unloaded
    ]
    lines = banner.of_services(shown, listeners=listeners)
    progress.hide()
    banner.print_lines(lines, log_format)
    await running.gateway.front_end.ready.wait()
    progress.hide()
    banner.print_ready(time.monotonic() - started, log_format)
