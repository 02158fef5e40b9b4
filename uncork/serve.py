"""``uncork serve``: brings gateway and supervisor together."""

from __future__ import annotations

import asyncio
import json
import logging
import os
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

from uncork.doors import DoorOptions, Doors, open_doors
from uncork.serving import log_to_terminal, serve_until_signal
from uncork.usage import WrongUsage
from uncork_gateway import Gateway, GatewaySettings
from uncork_gateway.app import ServiceUnusable
from uncork_workers.description import ApiDescription, ServiceDescription
from uncork_workers.supervisor import ReplacementFailed, Supervisor
from uncork_workers.watching import Watch

log = logging.getLogger("uncork.gateway")

_MOST_FILES_NAMED = 3
# What Python keeps of a module passes for that of another which was written within the same second.
_RELOADING = {"PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of ``uncork serve``, as the command line describes them."""

    target: str
    workers: int
    doors: DoorOptions
    overrides: dict[str, Any]
    max_body_bytes: int
    max_queue_rows: int
    drain_timeout_s: float
    log_level: str
    reload: bool
    gpus: Sequence[str]
    warmup_s: float


def run(options: ServeOptions) -> int:
    """Serve until a signal; returns the exit code.

    Raises:
        WrongUsage: if the target cannot be served.
        OSError: if the port cannot be had.
    """
    if options.reload and find_spec("watchfiles") is None:
        raise WrongUsage("--reload needs watchfiles: pip install 'uncork[reload]'")
    log_to_terminal(options.log_level)
    with (
        open_doors(options.doors) as doors,
        # Made accessible to this user alone.
        tempfile.TemporaryDirectory(prefix="uncork-") as folder,
    ):
        return uvloop.run(_serve(options, doors, Path(folder)))


async def _serve(options: ServeOptions, doors: Doors, folder: Path) -> int:
    socket_path, standby_path = str(folder / "workers.sock"), str(folder / "standby.sock")
    supervisor: Supervisor
    gateway = Gateway(
        GatewaySettings(
            overrides=options.overrides,
            max_body_bytes=options.max_body_bytes,
            max_queue_rows=options.max_queue_rows,
            keys=doors.keys,
            admin=doors.admin is not None,
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
        arguments=_worker_arguments(options),
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
            doors,
            announcing=_announce(gateway, options, doors, beside),
            drain_timeout_s=options.drain_timeout_s,
            close=close,
        )
    except ServiceUnusable as error:
        raise WrongUsage(str(error)) from None


def _worker_arguments(options: ServeOptions) -> list[str]:
    """Workers warm up under the settings that are in force for their batches."""
    return ["--warmup-seconds", str(options.warmup_s), "--overrides", json.dumps(options.overrides)]


async def _announce(
    gateway: Gateway, options: ServeOptions, doors: Doors, beside: Sequence[asyncio.Task[None]]
) -> None:
    """Say what is served, and when it is ready; raise what goes wrong ``beside``."""
    started = time.monotonic()
    service = await gateway.described
    print(_banner(service, options.workers, doors), flush=True)
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


def _banner(service: ServiceDescription, workers: int, doors: Doors) -> str:
    lines = [f"uncork {version('uncork')}: {service.name} with {workers} worker{'s'[: workers > 1]}"]
    lines += [f"  POST {doors.url}{api.route}   {_manner(api)}" for api in service.apis]
    lines.append(f"  GET  {doors.admin_url}/readyz  /livez  /metrics")
    return "\n".join(lines)


def _manner(api: ApiDescription) -> str:
    """How an api answers."""
    settings = api.settings
    if api.streams:
        return f"streams, one request at a time, for at most {settings.timeout:g} s"
    counted = "rows" if settings.cost is None else "in cost"
    return (
        f"goal {settings.mb_max_latency:g} ms, policy {settings.policy}, "
        f"at most {settings.mb_max_batch_size} {counted} a batch"
    )
