"""What is the same in every server of ours: listen, serve until a signal, answer all, go."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import uvicorn

from uncork_gateway.http import HttpProtocol
from uncork_workers.memory import keep_freed_memory

log = logging.getLogger("uncork.gateway")

# Load balancers keep connections open for about a minute; they should be the ones to close them.
_KEEP_ALIVE_S = 75
# A client that takes none of its answer for so long is cut off by the system, which alone sees what it takes.
_UNREAD_MS = 30_000


class Front(Protocol):
    """What answers."""

    app: Any

    def protocol(self, **uvicorn: Any) -> HttpProtocol:
        """A new connection."""
        ...

    async def drain(self) -> None:
        """Refuse new requests, and return when all others have been answered."""
        ...


async def serve_until_signal(
    front: Front,
    listener: socket.socket,
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
    server = _HttpServer(_http_config(front, drain_timeout_s))
    serving = asyncio.create_task(server.serve([listener]))
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
    server: _HttpServer,
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
        server.force_exit = True
    server.should_exit = True
    await asyncio.wait({serving, interrupted}, return_when=asyncio.FIRST_COMPLETED)
    server.force_exit = True
    await serving
    for task in (draining, interrupted):
        task.cancel()


def listening_socket(host: str, port: int) -> socket.socket:
    """Bind, before anything is started: a port in use should be known at once.

    Raises:
        OSError: with a message for people.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise OSError(error.errno, f"cannot listen on {host!r}: {error.strerror}") from error
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # on Linux; connections have it from their listener
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise OSError(
            error.errno, f"cannot listen on {host}:{port}: {error.strerror}; choose another --port"
        ) from error
    return listener


def base_url(listener: socket.socket) -> str:
    """Where clients reach a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


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


def _http_config(front: Front, drain_timeout_s: float) -> uvicorn.Config:
    return uvicorn.Config(
        front.app,
        http=front.protocol,  # type: ignore[arg-type]  # uvicorn calls it, whatever it is
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(drain_timeout_s)),
    )


class _HttpServer(uvicorn.Server):
    """uvicorn, with the signals left to us: it would end the process by the signal instead of with 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield
