"""Serve until a signal, then drain and stop; the same for ``uncork serve`` and ``uncork proxy``."""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from rich.console import Console

from uncork.server.server_options import ServerOptions
from uncork.server.servers import Servers
from uncork_dispatcher.wording import plural
from uncork_gateway.front_end import FrontEnd
from uncork_workers.process.libc import keep_freed_memory
from uncork_workers.process.logs import LogFormat, log_to_stderr
from uncork_workers.process.streams import outlive_readers

log = logging.getLogger("uncork.gateway")


async def serve_until_signal(
    front_end: FrontEnd,
    server: Servers,
    *,
    announcing: Coroutine[Any, Any, None],
    options: Callable[[], ServerOptions],
    close: Callable[[asyncio.Event], Awaitable[None]],
    reload: Callable[[], None],
) -> int:
    """Serve until SIGTERM or SIGINT, answer the accepted requests, and return the exit code.

    Args:
        options: returns the current ones, with the times of the stop.
        announcing: runs while the server does; its exceptions end the server and are raised here.
        close: awaited after the last request; its argument is set when it must not wait any longer.
        reload: called on SIGHUP.
    """
    stop, hurry = _on_signals(reload)
    _calm_garbage_collector()
    keep_freed_memory()
    serving = asyncio.create_task(server.serve())
    announced = asyncio.create_task(announcing)
    stopping = asyncio.create_task(stop.wait())
    hurried = asyncio.create_task(hurry.wait())
    try:
        waiting: set[asyncio.Task[Any]] = {serving, stopping, announced}
        while not stopping.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises the error that ends the server
            if serving in done:
                return 1
        await _retire(front_end, server, serving, hurried, delay_s=options().drain_delay)
    finally:
        stop.set()  # from now on, any signal ends the waiting
        try:
            await _take_down(front_end, server, serving, hurried, timeout_s=options().drain_timeout)
        finally:  # the server may have failed
            await close(hurry)
            for task in (announced, stopping, hurried):
                task.cancel()
    log.info("stopped")
    return 0


def _on_signals(reload: Callable[[], None]) -> tuple[asyncio.Event, asyncio.Event]:
    """Return an event that the first SIGTERM or SIGINT sets, and one of the second. SIGHUP calls ``reload``.

    A SIGHUP because the terminal of the server has closed counts as SIGTERM.
    """
    stop, hurry = asyncio.Event(), asyncio.Event()
    had_terminal = _has_terminal()

    def end() -> None:
        (hurry if stop.is_set() else stop).set()

    def hang_up() -> None:
        if had_terminal and not _has_terminal():
            stop.set()
        elif not stop.is_set():
            reload()

    loop = asyncio.get_running_loop()
    for number, handle in ((signal.SIGTERM, end), (signal.SIGINT, end), (signal.SIGHUP, hang_up)):
        loop.add_signal_handler(number, handle)
    return stop, hurry


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


async def _retire(
    front_end: FrontEnd,
    server: Servers,
    serving: asyncio.Task[None],
    hurried: asyncio.Task[Any],
    *,
    delay_s: float,
) -> None:
    """Turn /readyz to 503, accept requests for ``delay_s``, and log how many are not answered then."""
    front_end.retire()
    server.retire()
    if delay_s > 0:
        log.info("stopping: /readyz returns 503, accepting requests for another %g s", delay_s)
        await _first_of(serving, hurried, timeout_s=delay_s)
    if requests := front_end.unanswered():
        pending = plural(requests, "pending request")
        log.info("stopping: waiting for %s; press Ctrl-C again to drop the rest", pending)


async def _first_of(*tasks: asyncio.Task[Any], timeout_s: float) -> None:
    await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)


async def _take_down(
    front_end: FrontEnd,
    server: Servers,
    serving: asyncio.Task[None],
    hurried: asyncio.Task[Any],
    *,
    timeout_s: float,
) -> None:
    """Answer all accepted requests, within ``timeout_s`` and until a second signal."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + timeout_s
    draining = asyncio.create_task(front_end.drain())
    server.drain()
    await _first_of(draining, hurried, timeout_s=timeout_s)
    if not draining.done():
        log.warning(
            "stopping before all requests are complete: the rest are refused with 503; to wait longer, raise "
            "--drain-timeout"
        )
        front_end.give_up()
        server.force_exit()
    server.exit(timeout_s=timeout_s)
    await _first_of(serving, hurried, timeout_s=max(0.0, ends_at - loop.time()))
    server.force_exit()
    await serving
    draining.cancel()


def log_to_terminal(level: str, log_format: LogFormat, *, again: bool = False) -> Console:
    """Send the gateway's log to stderr; return its console. ``again`` as for :func:`log_to_stderr`."""
    outlive_readers()
    # JSON must not be mixed with anything else, even on a terminal.
    console = Console(stderr=True, force_terminal=False if log_format == "json" else None)
    log_to_stderr(level, "gateway", log_format=log_format, console=console, again=again)
    # It logs a line at level info for each request that the gateway sends.
    logging.getLogger("httpx").setLevel(logging.NOTSET if level == "debug" else logging.WARNING)
    return console


def _calm_garbage_collector() -> None:
    """Collect cycles rarely: requests make none, and a collection over a full queue is a pause."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
