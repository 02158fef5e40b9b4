"""Replace the workers of a running server."""

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from uncork.server.control_socket import Outcome
from uncork_gateway import Gateway
from uncork_workers.supervision.file_watching import FileWatcher
from uncork_workers.supervision.supervisor import ReplacementFailed, Supervisor

log = logging.getLogger("uncork.gateway")

_MOST_FILES_NAMED = 3


class Reloader:
    """Replaces all workers when files change, on SIGHUP, and for `uncork reload`.

    A request during a replacement waits and then replaces again: the code may have changed meanwhile.
    Settings stay as they are; the message says so if their file, ``config``, has changed.
    """

    def __init__(self, gateway: Gateway, supervisor: Supervisor, config: Path | None) -> None:
        self._gateway = gateway
        self._supervisor = supervisor
        self._config = config
        self._settings = _content(config)
        self._reloads: set[asyncio.Task[Outcome]] = set()

    def on_hangup(self) -> None:
        self._begin("SIGHUP")

    async def reload_requested(self) -> Outcome:
        """Reload for `uncork reload`; cancelling this cancels the replacement."""
        return await self._begin("uncork reload")

    def _begin(self, reason: str) -> asyncio.Task[Outcome]:
        task = asyncio.create_task(self._reload(reason))
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)
        return task

    async def watch(self) -> None:
        """Replace the workers whenever a file of the service changes."""
        await self._gateway.events.described
        watch = FileWatcher(self._gateway.events.files)
        async with aclosing(watch.changes()) as changes:
            async for files in changes:
                outcome = await self._reload(f"{_names(files)} changed")
                if outcome.code:
                    watch.include_new_files()

    async def _reload(self, reason: str) -> Outcome:
        """Replace the workers; report the result to terminal and log."""
        started = time.monotonic()
        log.info("%s: starting new workers", reason)
        try:
            await self._supervisor.replace_all()
        except ReplacementFailed as error:
            goes_on = "the old workers keep running" if self._gateway.any_ready else "no worker is ready"
            log.error("%s: reload failed, %s: %s", reason, goes_on, error)
            return Outcome(1, f"failed, {goes_on}: {error}")
        message = f"reloaded after {time.monotonic() - started:.1f} s"
        if _content(self._config) != self._settings:
            message = f"{message}; {self._config} has changed too: restart the server to apply it"
        print(f"{message}: {reason}", flush=True)
        return Outcome(0, message)

    async def close(self) -> None:
        """Cancel replacements that are under way."""
        for task in self._reloads:
            task.cancel()
        await asyncio.gather(*self._reloads, return_exceptions=True)


def _content(file: Path | None) -> bytes | None:
    try:
        return None if file is None else file.read_bytes()
    except OSError:
        return None


def _names(files: Sequence[str]) -> str:
    """Name some files, relative to the current folder."""
    named = ", ".join(os.path.relpath(file) for file in files[:_MOST_FILES_NAMED])
    more = len(files) - _MOST_FILES_NAMED
    return f"{named} and {more} more" if more > 0 else named
