"""Reload a running server: read its settings again, replace its workers, and apply both together."""

import asyncio
import logging
import os
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from uncork.config.changes import Change, Effect, names_of, needing
from uncork.config.errors import WrongUsage
from uncork.server.control_socket import Outcome
from uncork.server.credentials import files_of, read_credentials
from uncork.server.options import ServeOptions
from uncork.server.running.revision import Revision
from uncork.server.running.service import RunningServer
from uncork.server.running.settings import check_options
from uncork.server.services import ONLY, services_of
from uncork_gateway.repository import NotLoaded
from uncork_workers.supervision.file_watching import FileWatcher
from uncork_workers.supervision.supervisor import ReplacementFailed

log = logging.getLogger("uncork.gateway")

_MOST_FILES_NAMED = 3
_LOOK_EVERY_S = 0.5
_LONG_S = 60.0
_MOST_WAITING = 16
_LONGEST_NAME = 100
_NOTHING = ("", "", None)
_LATE = (
    "%s: the new workers are not ready after %g s; until all are, or one ends, nothing changes, and other "
    "reloads wait"
)


class Reloader:
    """Reloads when files change, on SIGHUP, for `uncork reload` and for clients; one reload at a time.

    A reload changes everything or nothing. Workers are replaced unless only settings have changed that do not
    concern them, and nobody asked for new workers. A request during a reload waits and then reloads again:
    the code may have changed meanwhile. Reloads by the operator go before clients' changes that wait.
    """

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._reloading = asyncio.Lock()
        self._reloads: set[asyncio.Task[Outcome]] = set()
        self._clients_turn = asyncio.Lock()
        # What clients want of which service, the next first.
        self._waiting: deque[tuple[str, str, asyncio.Task[Outcome]]] = deque()
        self._askers: Counter[asyncio.Task[Outcome]] = Counter()
        self._settling: set[asyncio.Task[None]] = set()

    def on_hangup(self) -> None:
        self._begin(self._reload("SIGHUP"))

    async def reload_requested(self) -> Outcome:
        """Reload for `uncork reload`; cancelling this cancels the reload."""
        return await self._begin(self._reload("uncork reload"))

    async def diff_requested(self) -> Outcome:
        """Return the settings that a reload would change; the code is 1 if there are any, 2 for an error."""
        try:
            revision = self.read()
            await revision.check()
        except WrongUsage as error:
            return Outcome(2, str(error))
        return Outcome(1 if revision.changes else 0, "", tuple(revision.changes))

    def _begin(self, reload: Coroutine[Any, Any, Outcome]) -> asyncio.Task[Outcome]:
        task = asyncio.create_task(reload)
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)
        return task

    async def watch(self) -> None:
        """Replace the workers whenever a file of a service changes."""
        # Workers on other machines may never come, and nothing is watched for them.
        local = [one for one in self._server.services.values() if one.options.worker_count.most]
        if described := [one.served.events.described for one in local]:
            # The others may take minutes; their files are watched from then on.
            await asyncio.wait(described, return_when=asyncio.FIRST_COMPLETED)
        watch = FileWatcher(
            lambda: {file for service in self._server.gateway.services for file in service.events.files}
        )
        async with aclosing(watch.changes()) as changes:
            async for files in changes:
                outcome = await self._reload(f"{_names(files)} changed")
                if outcome.code:
                    watch.include_new_files()

    async def watch_settings(self) -> None:
        async for reason in changed_settings(lambda: files_of(self._server.options)):
            await self._reload(reason, renewed=())

    def unloaded(self) -> Collection[str]:
        return self._server.unloaded

    async def load(self, name: str) -> None:
        """Load a service for a client; see :class:`~uncork_gateway.repository.Repository`."""
        await self._change(
            "load",
            name,
            read=partial(self.loading, name),
            renewed=[name],
            in_force=lambda: self._server.unloaded.discard(name),
        )

    async def unload(self, name: str) -> None:
        """Unload a service for a client; see :class:`~uncork_gateway.repository.Repository`."""
        await self._change(
            "unload",
            name,
            read=partial(self.unloading, name),
            renewed=(),
            in_force=lambda: self._server.unloaded.add(name),
        )

    async def _change(self, verb: str, name: str, **change: Any) -> None:
        """Load or unload a service for a client, as the last change of it that waits if that is the same."""
        shown = repr(name[:_LONGEST_NAME])
        failed = f"failed to {verb} {shown}"
        last_verb, _, task = next((one for one in reversed(self._waiting) if one[1] == name), _NOTHING)
        if task is None or last_verb != verb:
            if len(self._waiting) == _MOST_WAITING:
                raise NotLoaded(
                    f"{failed}: {_MOST_WAITING} changes by clients wait; try again later", status=503
                )
            task = self._begin(self._in_turn(f"{verb} {shown}", failed=failed, **change))
            self._waiting.append((verb, name, task))
        self._askers[task] += 1
        try:
            outcome = await asyncio.shield(task)
        finally:
            self._askers[task] -= 1
            if not self._askers[task]:
                del self._askers[task]
                self._forget(task)
        if outcome.code:
            raise NotLoaded(outcome.message)

    def _forget(self, task: asyncio.Task[Outcome]) -> None:
        """Drop a change if it has not begun: its clients have left."""
        for change in self._waiting:
            if change[2] is task:
                self._waiting.remove(change)
                task.cancel()
                return

    async def _in_turn(self, reason: str, **change: Any) -> Outcome:
        """Reload for a client, after all changes that clients have asked for before."""
        async with self._clients_turn:
            self._waiting.popleft()
            return await self._reload(reason, **change)

    async def _reload(
        self,
        reason: str,
        *,
        read: Callable[[], Revision] | None = None,
        renewed: Collection[str] | None = None,
        in_force: Callable[[], object] = lambda: None,
        failed: str = "failed",
    ) -> Outcome:
        """Reload; report the result to terminal and log.

        ``read`` returns the settings; by default, it reads all files. The workers of ``renewed`` services, by
        default of all services, are replaced even if nothing has changed. ``in_force`` is called as soon as
        the change is in force, before the next reload reads the settings. Errors begin with ``failed``.
        """
        async with self._reloading:
            try:
                revision = (read or self.read)()
                changes = revision.changes
                renewed = revision.services if renewed is None else renewed
                refuse_restart(changes)
                await revision.check()
                await revision.wake(renewed)
                if revision.needs_workers(renewed):
                    message = await self._replace(revision, reason, renewed)
                elif changes:
                    await revision.apply()
                    message = "reloaded, the workers keep running"
                else:
                    self._server.unloaded.difference_update(revision.forgotten)
                    return Outcome(0, "no setting has changed")
            except ReplacementFailed as error:
                is_serving = any(one.view.any_ready for one in self._server.gateway.services)
                state = "the old workers keep running" if is_serving else "no worker is ready"
                return not_reloaded(reason, failed, state, error)
            except (WrongUsage, ValueError) as error:
                return not_reloaded(reason, failed, "nothing has changed", error)
            in_force()
            self._server.unloaded.difference_update(revision.forgotten)
            if changes:
                log.info("%s: settings changed: %s", reason, names_of(changes))
                message = f"{message}; settings changed: {names_of(changes)}"
            await self._settle(revision)
            return Outcome(0, message)

    async def _settle(self, revision: Revision) -> None:
        """Complete a reload whose settings are in use, even if its caller gives up, until :meth:`close`."""
        settling = asyncio.create_task(revision.settle())
        self._settling.add(settling)
        settling.add_done_callback(self._settling.discard)
        try:
            await asyncio.shield(settling)
        except asyncio.CancelledError:
            # The next reload must find what this one leaves.
            await asyncio.wait([settling])
            raise

    async def _replace(self, revision: Revision, reason: str, renewed: Collection[str]) -> str:
        """Replace the workers, and apply the settings with the new ones; return the outcome."""
        started = time.monotonic()
        log.info("%s: starting new workers", reason)
        late = asyncio.get_running_loop().call_later(_LONG_S, log.info, _LATE, reason, _LONG_S)
        try:
            await revision.replace(renewed)
        finally:
            late.cancel()
        message = f"reloaded after {time.monotonic() - started:.1f} s"
        log.info("%s: %s", reason, message)
        return message

    async def close(self) -> None:
        """Cancel reloads that are under way."""
        tasks = [*self._reloads, *self._settling]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def read(self) -> Revision:
        """Read the files again.

        Raises:
            WrongUsage: if a setting is wrong; the message is the same as at the start.
        """
        options, services = self._read()
        forgotten = self._server.unloaded - services.keys()
        loaded = {name: one for name, one in services.items() if name not in self._server.unloaded}
        return Revision(self._server, options, loaded, read_credentials(options), forgotten=forgotten)

    def loading(self, name: str) -> Revision:
        """Return a revision that starts a service with its current configuration, or replaces its workers.

        Raises:
            WrongUsage: if it is not configured, or its settings are wrong.
        """
        _, services = self._read()
        if ONLY in self._server.services:
            raise WrongUsage(
                f"service {name[:100]!r} cannot be loaded: the only service has no name of its own; give it "
                "one, as in NAME=FILE.py:SERVICE, and restart the server"
            )
        if name not in services:
            known = ", ".join(filter(None, services)) or "none, the only service has no name of its own"
            raise WrongUsage(f"no service {name[:100]!r} is configured; those that can be loaded: {known}")
        return self._with({**self._running(), name: services[name]})

    def unloading(self, name: str) -> Revision:
        """Return a revision that stops a service.

        Raises:
            WrongUsage: if it does not run.
        """
        running = self._running()
        if not name or name not in running:
            known = ", ".join(filter(None, running)) or "none"
            raise WrongUsage(f"no service {name[:100]!r} is loaded; those that can be unloaded: {known}")
        del running[name]
        return self._with(running)

    def _with(self, services: Mapping[str, ServeOptions]) -> Revision:
        """Return a revision after which the server has these services."""
        return Revision(self._server, self._server.options, services, self._server.credentials)

    def _running(self) -> dict[str, ServeOptions]:
        return {name: service.options for name, service in self._server.services.items()}

    def _read(self) -> tuple[ServeOptions, dict[str, ServeOptions]]:
        """Read the files again; return the options of the server and of each service."""
        options = self._server.options
        options = options if options.reread is None else options.reread()
        services = services_of(options)
        check_options(options, services)
        return options, services


async def changed_settings(files: Callable[[], Collection[str]]) -> AsyncIterator[str]:
    """Yield a reason to reload whenever files have changed, and did not change since the last look."""
    watch = FileWatcher(files)
    # They may have changed since the start of the process read them.
    changed = dict.fromkeys(files())
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        # An editor may truncate a file before it writes: for a moment, no setting is in it.
        if latest := watch.changed_files():
            changed |= dict.fromkeys(latest)
        elif changed:
            reason = f"{_names(list(changed))} changed"
            changed.clear()
            yield reason


def refuse_restart(changes: Sequence[Change]) -> None:
    """Raise WrongUsage if a setting has changed that a reload cannot change."""
    fixed = needing(Effect.RESTART, changes)
    if fixed:
        named = ", ".join(f"{change.name} (from {change.before} to {change.after})" for change in fixed)
        verb = "needs" if len(fixed) == 1 else "need"
        raise WrongUsage(f"{named} {verb} a restart; restart the server, or restore the value")


def not_reloaded(reason: str, failed: str, state: str, error: Exception) -> Outcome:
    """Log why a reload has failed, and return that."""
    log.error("%s: reload failed, %s: %s", reason, state, error)
    return Outcome(1, f"{failed}, {state}: {error}")


def _names(files: Sequence[str]) -> str:
    """Name some files, relative to the current folder."""
    named = ", ".join(os.path.relpath(file) for file in files[:_MOST_FILES_NAMED])
    more = len(files) - _MOST_FILES_NAMED
    return f"{named} and {more} more" if more > 0 else named
