"""``uncork serve``: brings gateway and supervisor together."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import tempfile
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import uvloop

from uncork.serving import base_url, listening_socket, log_to_terminal, serve_until_signal
from uncork_gateway import Gateway, GatewaySettings
from uncork_gateway.app import ServiceUnusable
from uncork_workers.description import ServiceDescription
from uncork_workers.supervisor import ReplacementFailed, Supervisor
from uncork_workers.watching import Watch

log = logging.getLogger("uncork.gateway")

_MOST_FILES_NAMED = 3
# What Python keeps of a module passes for that of another which was written within the same second.
_RELOADING = {"PYTHONDONTWRITEBYTECODE": "1"}


class UsageError(Exception):
    """What was asked for cannot be served; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of ``uncork serve``, as the command line describes them."""

    target: str
    workers: int
    host: str
    port: int
    overrides: dict[str, Any]
    max_body_bytes: int
    max_queue_rows: int
    max_queue_bytes: int
    fair_by: bytes | None
    drain_timeout_s: float
    log_level: str
    reload: bool
    gpus: Sequence[str]


def run(options: ServeOptions) -> int:
    """Serve until a signal; returns the exit code.

    Raises:
        UsageError: if the target cannot be served.
        OSError: if the port cannot be had.
    """
    if options.reload and find_spec("watchfiles") is None:
        raise UsageError("--reload needs watchfiles: pip install 'uncork[reload]'")
    log_to_terminal(options.log_level)
    with (
        listening_socket(options.host, options.port) as listener,
        # Made accessible to this user alone.
        tempfile.TemporaryDirectory(prefix="uncork-") as folder,
    ):
        return uvloop.run(_serve(options, listener, Path(folder)))


async def _serve(options: ServeOptions, listener: socket.socket, folder: Path) -> int:
    socket_path, standby_path = str(folder / "workers.sock"), str(folder / "standby.sock")
    supervisor: Supervisor
    gateway = Gateway(
        GatewaySettings(
            overrides=options.overrides,
            max_body_bytes=options.max_body_bytes,
            max_queue_rows=options.max_queue_rows,
            max_queue_bytes=options.max_queue_bytes,
            fair_by=options.fair_by,
        ),
        kill_worker=lambda pid: supervisor.kill(pid),
        restarts=lambda: supervisor.restarts,
        stands_by=lambda pid: supervisor.stands_by(pid),
    )
    supervisor = Supervisor(
        options.target,
        workers=options.workers,
        socket_path=socket_path,
        standby_path=standby_path,
        log_level=options.log_level,
        on_exit=gateway.worker_exited,
        take_over=gateway.take_over,
        gpus=options.gpus,
        environment=_RELOADING if options.reload else {},
    )
    beside: list[asyncio.Task[None]] = []

    async def close() -> None:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await gateway.close()
        await supervisor.stop()

    await gateway.listen(socket_path)
    await gateway.listen(standby_path, standby=True)
    supervisor.start()
    if options.reload:
        beside.append(asyncio.create_task(_reload(gateway, supervisor)))
    try:
        return await serve_until_signal(
            gateway,
            listener,
            announcing=_announce(gateway, options, listener, beside),
            drain_timeout_s=options.drain_timeout_s,
            close=close,
        )
    except ServiceUnusable as error:
        raise UsageError(str(error)) from None


async def _announce(
    gateway: Gateway, options: ServeOptions, listener: socket.socket, beside: Sequence[asyncio.Task[None]]
) -> None:
    """Say what is served, and when it is ready; raise what goes wrong ``beside``."""
    started = time.monotonic()
    service = await gateway.described
    print(_banner(service, options.workers, base_url(listener)), flush=True)
    await gateway.ready.wait()
    print(f"ready after {time.monotonic() - started:.1f} s; Ctrl-C stops", flush=True)
    await asyncio.gather(*beside)


async def _reload(gateway: Gateway, supervisor: Supervisor) -> None:
    """Replace the workers whenever files of the service change."""
    await gateway.described
    watch = Watch(gateway.files)
    async with aclosing(watch.changes()) as changes:
        async for files in changes:
            started, names = time.monotonic(), _names(files)
            log.info("%s changed: starting new workers", names)
            try:
                await supervisor.replace()
            except ReplacementFailed as error:
                watch.take_all()
                log.error("%s changed, but the old workers go on: %s", names, error)
            else:
                print(f"reloaded after {time.monotonic() - started:.1f} s: {names} changed", flush=True)


def _names(files: Sequence[str]) -> str:
    """Some files for people, as seen from the current folder."""
    named = ", ".join(os.path.relpath(file) for file in files[:_MOST_FILES_NAMED])
    more = len(files) - _MOST_FILES_NAMED
    return f"{named} and {more} more" if more > 0 else named


def _banner(service: ServiceDescription, workers: int, base: str) -> str:
    lines = [f"uncork {version('uncork')}: {service.name} with {workers} worker{'s'[: workers > 1]}"]
    for api in service.apis:
        settings = api.settings
        counted = "rows" if settings.cost is None else "in cost"
        lines.append(
            f"  POST {base}{api.route}   goal {settings.mb_max_latency:g} ms, policy {settings.policy}, "
            f"at most {settings.mb_max_batch_size} {counted} a batch"
        )
    lines.append(f"  GET  {base}/readyz  /livez  /metrics")
    return "\n".join(lines)
