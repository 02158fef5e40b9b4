"""What workers do until they take batches: shown while they do it, or told in the log where nobody looks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from rich.console import Console
from rich.status import Status
from rich.text import Text

from uncork_dispatcher.plural import plural
from uncork_gateway.backends.worker_failures import WorkerStartup
from uncork_workers.process.logs import is_watched

log = logging.getLogger("uncork.gateway")

_SHOWN_EVERY_S = 0.2
_TOLD_EVERY_S = 1.0
_IMPORT = "import"


class Workers(Protocol):
    """Who knows what they do."""

    @property
    def draining(self) -> bool:
        """Whether the server is stopping."""
        ...

    def starts(self) -> Mapping[int, WorkerStartup]:
        """What those do that are not ready, by index, as far as they have said it."""
        ...

    def ready_workers(self) -> set[int]:
        """The indexes of those that take batches."""
        ...


class StartProgress:
    """What ``count`` workers do until all of them are ready.

    Args:
        workers: who knows.
        count: how many there are to be.
        console: that of stderr; on a terminal it has a last line that changes, else stages go to the log.
    """

    def __init__(
        self,
        workers: Workers,
        count: int,
        *,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workers = workers
        self._indexes = range(count)
        self._console = console
        self._clock = clock
        self._began = clock()
        self._told: dict[int, str] = {}
        self._status: Status | None = None
        """What is shown now."""

    async def run(self) -> None:
        """Go on until all are ready, or the server stops."""
        shown = is_watched(self._console)
        try:
            while not self._workers.draining and self._workers.ready_workers() < set(self._indexes):
                if shown:
                    with suppress(OSError):  # the terminal may be gone, which ends the server in a moment
                        self._show(self.line())
                await asyncio.sleep(_SHOWN_EVERY_S if shown else _TOLD_EVERY_S)
                if not shown:
                    self.tell()
        finally:
            self.hide()

    def line(self) -> str:
        """What is shown: how many are ready, and what the others do."""
        now, starts, ready = self._clock(), self._workers.starts(), self._workers.ready_workers()
        parts = [f"{len(ready)} of {plural(len(self._indexes), 'worker')} ready"] if ready else []
        for index in self._indexes:
            start = starts.get(index, WorkerStartup(_IMPORT, "", self._began))
            if index not in ready:
                parts.append(f"worker {index}: {start.doing}, {now - start.since:.0f} s")
        return " · ".join(parts)

    def tell(self) -> None:
        """Log the stages of workers that have begun with another one; one that is short goes untold."""
        starts, ready = self._workers.starts(), self._workers.ready_workers()
        for index in self._indexes:
            stage = "ready" if index in ready else starts[index].stage if index in starts else _IMPORT
            before = self._told.setdefault(index, "ready" if index in ready else "")
            if stage != before:
                self._told[index] = stage
                log.info("worker %d: %s", index, stage)

    def _show(self, line: str) -> None:
        text = Text(line)
        # One line, or what workers print would tear it; with a space behind it, for what they print there.
        text.truncate(self._console.width - 4, overflow="ellipsis")
        text.append(" ")
        if self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        else:
            self._status.update(text)

    def hide(self) -> None:
        """Make room for something else to be printed."""
        if self._status is not None:
            with suppress(OSError):
                self._status.stop()
            self._status = None
