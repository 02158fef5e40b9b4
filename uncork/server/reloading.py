"""Has new workers take over while a service is served."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from uncork.server.control_socket import Outcome
from uncork_gateway import Gateway
from uncork_workers.supervision.file_watching import Watch
from uncork_workers.supervision.supervisor import ReplacementFailed, Supervisor

log = logging.getLogger("uncork.gateway")

_MOST_FILES_NAMED = 3


class Reloader:
    """Replaces all workers when files change, on SIGHUP, and for `uncork reload`.

    Whoever comes while it does so waits, for there may be newer code again. Settings stay as they are; if
    their file, ``config``, is not what it was, it says so.
    """

    def __init__(self, gateway: Gateway, supervisor: Supervisor, config: Path | None) -> None:
        self._gateway = gateway
        self._supervisor = supervisor
        self._config = config
        self._settings = _content(config)
        self._wished: set[asyncio.Task[Outcome]] = set()

    def on_hangup(self) -> None:
        """SIGHUP has come."""
        self._begin("SIGHUP")

    async def wished(self) -> Outcome:
        """Somebody has called `uncork reload`; if they leave, they do not wish it any more."""
        return await self._begin("uncork reload")

    def _begin(self, reason: str) -> asyncio.Task[Outcome]:
        task = asyncio.create_task(self._reload(reason))
        self._wished.add(task)
        task.add_done_callback(self._wished.discard)
        return task

    async def watch(self) -> None:
        """Replace the workers whenever files of the service change."""
        await self._gateway.events.described
        watch = Watch(self._gateway.events.files)
        async with aclosing(watch.changes()) as changes:
            async for files in changes:
                outcome = await self._reload(f"{_names(files)} changed")
                if outcome.code:
                    watch.take_all()

    async def _reload(self, reason: str) -> Outcome:
        """Replace the workers; tells terminal and log what came of it."""
        started = time.monotonic()
        log.info("%s: starting new workers", reason)
        try:
            await self._supervisor.replace_all()
        except ReplacementFailed as error:
            goes_on = "the old workers go on" if self._gateway.any_ready else "no worker is ready"
            log.error("%s, but %s: %s", reason, goes_on, error)
            return Outcome(1, f"{goes_on}: {error}")
        told = f"reloaded after {time.monotonic() - started:.1f} s"
        if _content(self._config) != self._settings:
            told = f"{told}, under the old settings: {self._config} has changed, which takes a restart"
        print(f"{told}: {reason}", flush=True)
        return Outcome(0, told)

    async def close(self) -> None:
        """Give up what is being done."""
        for task in self._wished:
            task.cancel()
        await asyncio.gather(*self._wished, return_exceptions=True)


def _content(file: Path | None) -> bytes | None:
    try:
        return None if file is None else file.read_bytes()
    except OSError:
        return None


def _names(files: Sequence[str]) -> str:
    """Some files for people, as seen from the current folder."""
    named = ", ".join(os.path.relpath(file) for file in files[:_MOST_FILES_NAMED])
    more = len(files) - _MOST_FILES_NAMED
    return f"{named} and {more} more" if more > 0 else named
