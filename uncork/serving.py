"""What is the same in every server of ours: listen, serve until a signal, answer all, go."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import uvicorn

from uncork.doors import Doors
from uncork_gateway.http import HotRoutes, HttpProtocol
from uncork_workers.memory import keep_freed_memory

log = logging.getLogger("uncork.gateway")

# Load balancers keep connections open for about a minute; they should be the ones to close them.
_KEEP_ALIVE_S = 75


class Front(Protocol):
    """What answers."""

    app: Any
    admin_app: Any

    def protocol(self, **uvicorn: Any) -> HttpProtocol:
        """A new connection."""
        ...

    async def drain(self) -> None:
        """Refuse new requests, and return when all others have been answered."""
        ...


async def serve_until_signal(
    front: Front,
    doors: Doors,
    *,
    announcing: Coroutine[Any, Any, None],
    drain_timeout_s: float,
    close: Callable[[], Awaitable[None]],
) -> int:
    """Serve until SIGTERM or SIGINT, then answer what was accepted; returns the exit code.

    ``announcing`` runs beside; what it raises ends the server and is raised here. ``close`` is awaited at
    the end, when nobody asks any more.
    """
    stop = _stop_on_signals()
    _calm_garbage_collector()
    keep_freed_memory()
    server = _Servers(front, doors, drain_timeout_s=drain_timeout_s)
    serving = asyncio.create_task(server.serve())
    announced = asyncio.create_task(announcing)
    stopping = asyncio.create_task(stop.wait())
    try:
        waiting: set[asyncio.Task[Any]] = {serving, stopping, announced}
        while not stopping.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises what makes it useless to go on, or broke the server
            if serving in done:
                return 1
        return 0
    finally:
        stop.clear()
        await _take_down(front, server, serving, again=stop, drain_timeout_s=drain_timeout_s)
        await close()
        for task in (announced, stopping):
            task.cancel()


async def _take_down(
    front: Front,
    server: _Servers,
    serving: asyncio.Task[None],
    *,
    again: asyncio.Event,
    drain_timeout_s: float,
) -> None:
    """Answer everything that was accepted, within bounds; a second signal ends the wait."""
    draining = asyncio.create_task(front.drain())
    interrupted = asyncio.create_task(again.wait())
    await asyncio.wait({draining, interrupted}, timeout=drain_timeout_s, return_when=asyncio.FIRST_COMPLETED)
    if not draining.done():
        log.warning("stopping with requests unanswered")
        server.force_exit()
    server.exit()
    await asyncio.wait({serving, interrupted}, return_when=asyncio.FIRST_COMPLETED)
    server.force_exit()
    await serving
    for task in (draining, interrupted):
        task.cancel()


def log_to_terminal(level: str) -> None:
    """Have the gateway's log go to stderr."""
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s gateway: %(message)s")


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


def _http_config(app: Any, protocol: Callable[..., HttpProtocol], **others: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol,  # type: ignore[arg-type]  # uvicorn calls it, whatever it is
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        **others,
    )


class _Servers:
    """One server for each door; they begin and end together."""

    def __init__(self, front: Front, doors: Doors, *, drain_timeout_s: float) -> None:
        patience: dict[str, Any] = {"timeout_graceful_shutdown": max(1, round(drain_timeout_s))}
        public = _http_config(front.app, front.protocol, **patience, **doors.tls)
        self._servers = [(_HttpServer(public), doors.public)]
        if doors.admin is not None:
            admin = _http_config(front.admin_app, partial(HttpProtocol, HotRoutes()), **patience)
            self._servers.append((_HttpServer(admin), doors.admin))

    async def serve(self) -> None:
        """Return when all have ended."""
        await asyncio.gather(*(server.serve([listener]) for server, listener in self._servers))

    def exit(self) -> None:
        """Have them end when their connections have."""
        for server, _ in self._servers:
            server.should_exit = True

    def force_exit(self) -> None:
        """Have them end at once, if they are to end."""
        for server, _ in self._servers:
            server.force_exit = True


class _HttpServer(uvicorn.Server):
    """uvicorn, with the signals left to us: it would end the process by the signal instead of with 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield
