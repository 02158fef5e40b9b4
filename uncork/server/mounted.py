"""Runs services inside another program, which serves the clients: ``uncork serve`` without ports."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from uncork.config.errors import WrongUsage
from uncork.server.credentials import Credentials
from uncork.server.options import ServeOptions
from uncork.server.private_folders import own_folder
from uncork.server.running.reloading import Reloader
from uncork.server.running.service import RunningServer, RunningService
from uncork.server.services import service_settings, services_of
from uncork.server.workers.requirements import require_resources
from uncork_gateway import Gateway, GatewaySettings
from uncork_gateway.auth import ApiKeys
from uncork_gateway.front_end import FrontEnd
from uncork_workers.supervision.supervisor import ReplacementFailed

log = logging.getLogger("uncork.gateway")


@asynccontextmanager
async def running_services(options: ServeOptions, *, admin: bool) -> AsyncIterator[FrontEnd]:
    """Run services until the block ends; it begins when each has a ready worker.

    At its end, accepted requests are answered before the workers stop, within the time for a drain.

    Args:
        options: those of the services; options of listeners have no effect.
        admin: serve the dashboard, and let clients load and unload the services.

    Raises:
        RuntimeError: if a service does not start; the message says why.
    """
    async with AsyncExitStack() as stack:
        try:
            services = services_of(options)
            # It may wait for other processes.
            await asyncio.to_thread(require_resources, services, warn=log.warning)
            running = _running(options, stack.enter_context(own_folder()), admin=admin)
            await stack.enter_async_context(_started(running, services))
        except (OSError, ReplacementFailed, WrongUsage) as error:
            raise RuntimeError(f"{', '.join(options.target or ())} does not start: {error}") from None
        yield running.gateway.front_end


def _running(options: ServeOptions, folder: Path, *, admin: bool) -> RunningServer:
    """Return a server that has no services yet."""

    def settings_with(own: ServeOptions, keys: ApiKeys | None) -> GatewaySettings:
        return GatewaySettings(dashboard=admin, open_repository=admin, **service_settings(own))

    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    failed.add_done_callback(_log_failure)
    return RunningServer(
        options=options,
        credentials=Credentials(),
        gateway=Gateway(settings_with(options, None)),
        settings=settings_with,
        folder=folder,
        failed=failed,
    )


def _log_failure(failed: asyncio.Future[None]) -> None:
    if not failed.cancelled() and (error := failed.exception()) is not None:
        log.critical("the workers are not watched any more; restart the server", exc_info=error)


@asynccontextmanager
async def _started(running: RunningServer, services: dict[str, ServeOptions]) -> AsyncIterator[None]:
    """Run the services of a server until the block ends; it begins when all are ready."""
    gateway = running.gateway
    reloader = gateway.repository = Reloader(running)
    try:
        for name, own in services.items():
            running.services[name] = await RunningService.open(name, own, running)
        for service in running.services.values():
            service.start()
        await asyncio.gather(*(service.first_ready() for service in running.services.values()))
        yield
        await _drain(gateway.front_end, timeout_s=running.options.drain_timeout)
    finally:
        await reloader.close()
        left = [*running.services.values(), *running.leaving]
        await asyncio.gather(*(service.close() for service in left))
        gateway.front_end.close()


async def _drain(front_end: FrontEnd, *, timeout_s: float) -> None:
    """Answer all accepted requests; refuse the rest after ``timeout_s``."""
    draining = asyncio.create_task(front_end.drain())
    await asyncio.wait([draining], timeout=timeout_s)
    if not draining.done():
        log.warning("stopping before all requests are complete: the rest are refused with 503")
        front_end.give_up()
    draining.cancel()
