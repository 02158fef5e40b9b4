"""The progress of starting workers: a line on the terminal, or messages in the log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from uncork.server.running.service import RunningServer
from uncork_dispatcher.wording import plural
from uncork_gateway.backends.worker_failures import WorkerStartup
from uncork_workers.process.logs import is_watched

if TYPE_CHECKING:
    from rich.status import Status

log = logging.getLogger("uncork.gateway")

_SHOW_EVERY_S = 0.2
_LOG_EVERY_S = 1.0
_IMPORT = "import"


class StartupProgress:
    """Reports the stages of the first workers until all of them are ready.

    Args:
        console: that of stderr; a terminal shows a changing last line, otherwise stages are logged.
    """

    def __init__(
        self,
        workers: RunningServer,
        *,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workers = workers
        self._console = console
        self._clock = clock
        self._began = clock()
        self._logged: dict[str, str] = {}
        self._status: Status | None = None

    async def run(self) -> None:
        """Report until all workers are ready, or the server stops."""
        on_terminal = is_watched(self._console)
        try:
            while not self._workers.draining and self._workers.ready_workers() < set(
                self._workers.expected()
            ):
                if on_terminal:
                    with suppress(OSError):  # the terminal has closed; SIGHUP is about to end the server
                        self._show(self.line())
                await asyncio.sleep(_SHOW_EVERY_S if on_terminal else _LOG_EVERY_S)
                if not on_terminal:
                    self.log_stages()
        finally:
            self.hide()

    def line(self) -> str:
        """Return the line: how many are ready, and the stages of the others."""
        now, starts, ready = self._clock(), self._workers.starts(), self._workers.ready_workers()
        expected = self._workers.expected()
        parts = [f"{len(ready)} of {plural(len(expected), 'worker')} ready"] if ready else []
        for worker in expected:
            start = starts.get(worker, WorkerStartup(_IMPORT, "", self._began))
            if worker not in ready:
                parts.append(f"{worker}: {start.doing}, {now - start.since:.0f} s")
        return " · ".join(parts)

    def log_stages(self) -> None:
        """Log the workers whose stage has changed since the last call."""
        starts, ready = self._workers.starts(), self._workers.ready_workers()
        for worker in self._workers.expected():
            stage = "ready" if worker in ready else starts[worker].stage if worker in starts else _IMPORT
            before = self._logged.setdefault(worker, "ready" if worker in ready else "")
            if stage != before:
                self._logged[worker] = stage
                log.info("%s: %s", worker, stage)

    def _show(self, line: str) -> None:
        text = Text(line)
        # One line that ends in a space: workers print behind it, and would tear a longer one.
        text.truncate(self._console.width - 4, overflow="ellipsis")
        text.append(" ")
        if self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        else:
            self._status.update(text)

    def hide(self) -> None:
        """Remove the line, before something else is printed."""
        if self._status is not None:
            with suppress(OSError):
                self._status.stop()
            self._status = None
