"""``uncork serve``: brings gateway, supervisor and HTTP server together, and takes them down in order."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from uncork_gateway import Gateway, GatewaySettings
from uncork_gateway.app import ServiceUnusable
from uncork_workers.description import ServiceDescription
from uncork_workers.memory import keep_freed_memory
from uncork_workers.supervisor import Supervisor

log = logging.getLogger("uncork.gateway")

# Load balancers keep connections open for about a minute; they should be the ones to close them.
_KEEP_ALIVE_S = 75


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
    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)s gateway: %(message)s"
    )
    # Before any worker is started: a port in use should be known at once.
    with (
        _listening_socket(options.host, options.port) as listener,
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
    stop = _stop_on_signals()
    await gateway.listen(socket_path)
    supervisor.start()
    _calm_garbage_collector()
    keep_freed_memory()
    server = _HttpServer(_http_config(gateway, options))
    serving = asyncio.create_task(server.serve([listener]))
    announcing = asyncio.create_task(_announce(gateway, options, listener))
    stopping = asyncio.create_task(stop.wait())
    try:
        waiting: set[asyncio.Task[Any]] = {serving, stopping, announcing}
        while not stopping.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises what makes the service unusable, or broke the server
            if serving in done:
                return 1
        return 0
    except ServiceUnusable as error:
        raise UsageError(str(error)) from None
    finally:
        stop.clear()
        await _take_down(gateway, supervisor, server, serving, again=stop, options=options)
        for task in (announcing, stopping):
            task.cancel()


async def _take_down(
    gateway: Gateway,
    supervisor: Supervisor,
    server: _HttpServer,
    serving: asyncio.Task[None],
    *,
    again: asyncio.Event,
    options: ServeOptions,
) -> None:
    """Answer everything that was accepted, within bounds; a second signal ends the wait."""
    draining = asyncio.create_task(gateway.drain())
    interrupted = asyncio.create_task(again.wait())
    await asyncio.wait(
        {draining, interrupted}, timeout=options.drain_timeout_s, return_when=asyncio.FIRST_COMPLETED
    )
    if not draining.done():
        log.warning("stopping with requests unanswered")
        server.force_exit = True
    server.should_exit = True
    await asyncio.wait({serving, interrupted}, return_when=asyncio.FIRST_COMPLETED)
    server.force_exit = True
    await serving
    for task in (draining, interrupted):
        task.cancel()
    await gateway.close()
    await supervisor.stop()


async def _announce(gateway: Gateway, options: ServeOptions, listener: socket.socket) -> None:
    """Say what is served, and when it is ready."""
    started = time.monotonic()
    service = await gateway.described
    host, port = listener.getsockname()[:2]
    base = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    print(_banner(service, options.workers, base), flush=True)
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


def _calm_garbage_collector() -> None:
    """Look for cycles rarely: requests make none, and a look at all that a full queue holds is a pause."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def _listening_socket(host: str, port: int) -> socket.socket:
    """Bind, with a message for people if that fails."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise OSError(error.errno, f"cannot listen on {host!r}: {error.strerror}") from error
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise OSError(
            error.errno, f"cannot listen on {host}:{port}: {error.strerror}; choose another --port"
        ) from error
    return listener


def _http_config(gateway: Gateway, options: ServeOptions) -> uvicorn.Config:
    return uvicorn.Config(
        gateway.app,
        http=gateway.protocol,  # type: ignore[arg-type]  # uvicorn calls it, whatever it is
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(options.drain_timeout_s)),
    )


class _HttpServer(uvicorn.Server):
    """uvicorn, with the signals left to us: it would end the process by the signal instead of with 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield
