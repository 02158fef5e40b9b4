"""``uncork serve``: brings gateway and supervisor together."""

from __future__ import annotations

import socket
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvloop

from uncork.serving import base_url, listening_socket, log_to_terminal, serve_until_signal
from uncork_gateway import Gateway, GatewaySettings
from uncork_gateway.app import ServiceUnusable
from uncork_workers.description import ServiceDescription
from uncork_workers.supervisor import Supervisor


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
    drain_timeout_s: float
    log_level: str


def run(options: ServeOptions) -> int:
    """Serve until a signal; returns the exit code.

    Raises:
        UsageError: if the target cannot be served.
        OSError: if the port cannot be had.
    """
    log_to_terminal(options.log_level)
    with (
        listening_socket(options.host, options.port) as listener,
        # Made accessible to this user alone.
        tempfile.TemporaryDirectory(prefix="uncork-") as folder,
    ):
        return uvloop.run(_serve(options, listener, str(Path(folder) / "workers.sock")))


async def _serve(options: ServeOptions, listener: socket.socket, socket_path: str) -> int:
    supervisor: Supervisor
    gateway = Gateway(
        GatewaySettings(
            overrides=options.overrides,
            max_body_bytes=options.max_body_bytes,
            max_queue_rows=options.max_queue_rows,
        ),
        kill_worker=lambda index: supervisor.kill(index),
        restarts=lambda: supervisor.restarts,
    )
    supervisor = Supervisor(
        options.target,
        workers=options.workers,
        socket_path=socket_path,
        log_level=options.log_level,
        on_exit=gateway.worker_exited,
    )

    async def close() -> None:
        await gateway.close()
        await supervisor.stop()

    await gateway.listen(socket_path)
    supervisor.start()
    try:
        return await serve_until_signal(
            gateway,
            listener,
            announcing=_announce(gateway, options, listener),
            drain_timeout_s=options.drain_timeout_s,
            close=close,
        )
    except ServiceUnusable as error:
        raise UsageError(str(error)) from None


async def _announce(gateway: Gateway, options: ServeOptions, listener: socket.socket) -> None:
    """Say what is served, and when it is ready."""
    started = time.monotonic()
    service = await gateway.described
    print(_banner(service, options.workers, base_url(listener)), flush=True)
    await gateway.ready.wait()
    print(f"ready after {time.monotonic() - started:.1f} s; Ctrl-C stops", flush=True)


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
