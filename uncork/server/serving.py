"""What is the same in every server of ours: listen, serve until a signal, answer all, go."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from uncork.server.http_servers import Apps, Servers
from uncork.server.listeners import Listeners
from uncork_workers.process.logs import LogFormat, log_to_stderr
from uncork_workers.process.memory import keep_freed_memory

log = logging.getLogger("uncork.gateway")


class Front(Apps, Protocol):
    """What answers, and how it is stopped."""

    def retire(self) -> None:
        """Have /readyz say no from now on; requests are taken all the same."""
        ...

    async def drain(self) -> None:
        """Refuse new requests, and return when all others have been answered."""
        ...

    def unanswered(self) -> int:
        """How many requests are held or run."""
        ...

    def give_up(self) -> None:
        """Refuse what has not been answered yet."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """How a server stops.

    Attributes:
        delay_s: seconds for which requests are still taken, so that load balancers notice.
        timeout_s: seconds after that in which what was accepted is to be answered.
    """

    delay_s: float
    timeout_s: float


async def serve_until_signal(
    front: Front,
    listeners: Listeners,
    *,
    announcing: Coroutine[Any, Any, None],
    drain: Drain,
    close: Callable[[asyncio.Event], Awaitable[None]],
    reload: Callable[[], None],
) -> int:
    """Serve until SIGTERM or SIGINT, then answer what was accepted; returns the exit code.

    ``announcing`` runs beside; what it raises ends the server and is raised here. ``close`` is awaited at
    the end, when nobody asks any more; its argument is set when there is to be no more waiting. ``reload`` is
    called on SIGHUP.
    """
    signals = _Signals(reload)
    _calm_garbage_collector()
    keep_freed_memory()
    server = Servers(front, listeners, drain_timeout_s=drain.timeout_s)
    serving = asyncio.create_task(server.serve())
    announced = asyncio.create_task(announcing)
    stopping = asyncio.create_task(signals.stop.wait())
    try:
        waiting: set[asyncio.Task[Any]] = {serving, stopping, announced}
        while not stopping.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises what makes it useless to go on, or broke the server
            if serving in done:
                return 1
        await _let_notice(front, serving, signals.hurry, drain.delay_s)
        _tell_of_unanswered(front.unanswered())
    finally:
        signals.stop.set()  # whatever the reason: from now on a signal ends the waiting
        await _take_down(front, server, serving, hurry=signals.hurry, timeout_s=drain.timeout_s)
        await close(signals.hurry)
        for task in (announced, stopping):
            task.cancel()
    log.info("stopped")
    return 0


class _Signals:
    """SIGTERM and SIGINT: the first sets ``stop``, the second ``hurry``. SIGHUP calls ``reload``.

    SIGHUP because the terminal is gone, in which the server was started, is a SIGTERM.
    """

    def __init__(self, reload: Callable[[], None]) -> None:
        self.stop, self.hurry = asyncio.Event(), asyncio.Event()
        self._reload = reload
        self._had_terminal = _has_terminal()
        # Not known any more when it is gone.
        self._on_terminal = [stream for stream in (1, 2) if os.isatty(stream)]
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _end(self) -> None:
        (self.hurry if self.stop.is_set() else self.stop).set()

    def _hang_up(self) -> None:
        if self._had_terminal and not _has_terminal():
            # What cannot be written there any more would be an error, at the latest when Python exits.
            for stream in self._on_terminal:
                with Path(os.devnull).open("wb") as nowhere:
                    os.dup2(nowhere.fileno(), stream)
            self.stop.set()
        elif not self.stop.is_set():
            self._reload()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


async def _let_notice(
    front: Front, serving: asyncio.Task[None], hurry: asyncio.Event, delay_s: float
) -> None:
    """Go on for a while, but not ready any more."""
    front.retire()
    if delay_s > 0:
        log.info("stopping: not ready any more, requests are taken for another %g s", delay_s)
        hurried = asyncio.create_task(hurry.wait())
        await asyncio.wait({serving, hurried}, timeout=delay_s, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()


def _tell_of_unanswered(requests: int) -> None:
    if requests:
        are = "request is" if requests == 1 else "requests are"
        log.info("stopping: %d %s not answered yet; Ctrl-C again cuts off what is left", requests, are)


async def _take_down(
    front: Front,
    server: Servers,
    serving: asyncio.Task[None],
    *,
    hurry: asyncio.Event,
    timeout_s: float,
) -> None:
    """Answer everything that was accepted, within bounds."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + timeout_s
    draining = asyncio.create_task(front.drain())
    hurried = asyncio.create_task(hurry.wait())
    await asyncio.wait({draining, hurried}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    if not draining.done():
        log.warning("stopping with requests unanswered")
        front.give_up()
        server.force_exit()
    server.exit()
    left_s = max(0.0, ends_at - loop.time())
    await asyncio.wait({serving, hurried}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
    server.force_exit()
    await serving
    for task in (draining, hurried):
        task.cancel()


def log_to_terminal(level: str, log_format: LogFormat) -> Console:
    """Have the gateway's log go to stderr; returns the console on which it is."""
    # Who reads JSON, on a terminal or not, wants nothing beside it.
    console = Console(stderr=True, force_terminal=False if log_format == "json" else None)
    log_to_stderr(level, "gateway", log_format=log_format, console=console)
    return console


def _calm_garbage_collector() -> None:
    """Look for cycles rarely: requests make none, and a look at all that a full queue holds is a pause."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
