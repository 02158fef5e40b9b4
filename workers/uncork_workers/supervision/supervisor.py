"""Keep worker processes alive, and replace them.

A worker that exits is started again: at once if it had finished a batch, else after a growing delay.
Replacement workers stand by. When all of them are ready they take over together;
if one fails, the old workers stay. Reloading replaces all workers this way, recycling a single one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from uncork_workers.supervision.launcher import Launcher, Starter, WorkerProcess, backoff_s

log = logging.getLogger("uncork.gateway")

# The longest time between the notices that a process and its connection have ended. A launcher that watches
# processes on this machine knows within milliseconds that one has ended.
_NOTICED_S = 2.0
# How long the kernel may need to free the memory of a killed process. One that waits for a device or a disk
# that does not answer may never end.
_KILLED_S = 30.0

TakeOver = Callable[[Collection[int]], Collection[int]]
"""Switches to the processes of these launches from those with the same indexes. Returns the launches of old
processes that exit by themselves when idle; raises ValueError if it cannot switch."""


class ReplacementFailed(Exception):
    """The new workers could not take over, so the old ones stay. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExit:
    """The exit of a worker process that was not replaced.

    Attributes:
        failures: number of exits in a row without a finished batch.
        retry_s: seconds until the worker is started again.
        victim: the launch of the process if the kernel has killed it for lack of memory.
    """

    index: int
    how: str
    failures: int = 0
    retry_s: float = 0.0
    victim: int | None = None


@dataclass(slots=True, eq=False)
class _WorkerHandle:
    """A worker that is kept alive, across restarts of its process, until it is replaced."""

    index: int
    process: WorkerProcess | None = None
    replaced: asyncio.Event = field(default_factory=asyncio.Event)


class Standbys:
    """Processes that are ready to take over from workers of a supervisor.

    ``start`` starts all others from their takeover on; None: as before.
    """

    def __init__(self, supervisor: Supervisor, start: Starter | None) -> None:
        self._supervisor = supervisor
        self.start = start
        self.processes: list[WorkerProcess] = []
        self.are_ready = False
        """Whether they can take over; False if they give way to others."""
        self.in_force = False
        """Whether they have taken over."""

    @property
    def launches(self) -> list[int]:
        return [process.launch for process in self.processes]

    def take_over(self, take_over: TakeOver | None = None) -> None:
        """Take over, by default as the supervisor was told.

        Raises:
            ValueError: if that is impossible.
        """
        leaving = (take_over or self._supervisor.switch)(self.launches)
        self.in_force = True
        self._supervisor.keep_instead(self, leaving)


class Supervisor:
    """Keeps the workers of one service alive.

    Args:
        workers: how many to keep alive, until :meth:`resize`.
        on_exit: called for every worker that exits without being replaced.
        explain: returns why the replacement worker of an index failed, if the worker reported it.
        retire: lets the process of a launch finish its batch and exit; returns False if it is not connected.
        drop: closes the connection of a launch whose process has ended, if something else holds it open.
    """

    def __init__(
        self,
        launcher: Launcher,
        *,
        workers: int,
        on_exit: Callable[[WorkerExit], None],
        take_over: TakeOver,
        explain: Callable[[int], str | None] = lambda index: None,
        retire: Callable[[int], bool] = lambda launch: False,
        drop: Callable[[int], object] = lambda launch: None,
    ) -> None:
        self._launcher = launcher
        self._start: Starter = launcher.launch
        self.workers = workers
        """How many workers there should be."""
        self._on_exit = on_exit
        self.switch = take_over
        self._explain = explain
        self._retire = retire
        self._drop = drop
        self._handles: dict[int, _WorkerHandle] = {}
        self._monitors: set[asyncio.Task[None]] = set()
        self._ready: set[int] = set()
        """The launches of replacement processes that are ready."""
        self._standby_changed = asyncio.Event()
        self._replacing = asyncio.Lock()
        self._wanted = workers
        """How many workers there are after all pending calls of :meth:`resize`."""
        self._replacing_all = 0
        """The number of pending calls of :meth:`replacing_all`."""
        self.restarts = 0

    def start(self) -> None:
        """Start all workers, and restart them until :meth:`stop`."""
        for index in range(self.workers):
            self._monitor(_WorkerHandle(index))

    async def resize(self, workers: int) -> int:
        """Keep another number of workers alive, after the replacements that are under way.

        Those with the highest indexes start, or finish their batch and exit. Return the number until then.
        """
        self._wanted = workers
        self._standby_changed.set()  # makes a pending replace() give way to more workers
        async with self._replacing:
            for index in range(self.workers, workers):
                self._monitor(_WorkerHandle(index))
            for index in range(workers, self.workers):
                handle = self._handles.pop(index)
                handle.replaced.set()
                if handle.process is not None and not self._retire(handle.process.launch):
                    self.kill(handle.process.launch)
            before, self.workers = self.workers, workers
        return before

    def kill(self, launch: int) -> None:
        """Kill a process; unless it was replaced, its worker is started again."""
        self._launcher.kill(launch)

    def connection_lost(self, launch: int) -> None:
        """Kill a process that lost its connection to the gateway, unless its end is noticed soon.

        A launcher notices only after a minute that another machine cannot be reached any more.
        """
        asyncio.get_running_loop().call_later(_NOTICED_S, self.kill, launch)

    def mark_ready(self, launch: int) -> None:
        """Note that a replacement process is ready to take over."""
        self._ready.add(launch)
        self._standby_changed.set()

    def finished_batch(self, launch: int) -> None:
        """Count a batch of a process; one that exits after its first batch is restarted at once."""
        process = self._launcher.running.get(launch)
        if process is not None:
            process.batches += 1

    def current_workers(self) -> list[WorkerProcess]:
        """Return the running processes, without those that are being replaced or standing by."""
        return [handle.process for handle in self._handles.values() if handle.process is not None]

    def is_replacing(self) -> bool:
        return self._replacing.locked()

    @asynccontextmanager
    async def replacing_all(self, *, start: Starter | None = None) -> AsyncIterator[Standbys]:
        """Start a standby for every worker, and give them once all are ready.

        The block decides by :meth:`Standbys.take_over`; without it, they are killed at its end. Blocks run
        one after the other.

        Args:
            start: starts them, and from their takeover on all others; by default what starts workers now. It
                must be of the launcher.

        Raises:
            ReplacementFailed: if a new worker exited before all were ready, or they could not take over; the
                new workers are killed then.
        """
        if not self.workers:
            raise ReplacementFailed(
                "this server starts no workers; restart those on other machines, and they take over when "
                "enough of them are ready"
            )
        self._replacing_all += 1
        self._standby_changed.set()  # makes a pending replace() give way
        try:
            async with (
                self._replacing,
                self._standing_by(range(self.workers), start) as standbys,
            ):
                yield standbys
        finally:
            self._replacing_all -= 1

    async def replace(self, worker: WorkerProcess) -> bool:
        """Replace one worker; gives way to :meth:`replacing_all`, and to :meth:`resize` with more workers.

        Returns False, and does nothing, if it has ended, was replaced meanwhile, or gave way.

        Raises:
            ReplacementFailed: see :meth:`replacing_all`.
        """
        async with self._replacing:
            if worker not in self.current_workers():
                return False
            async with self._standing_by([worker.index], gives_way=True) as standbys:
                if standbys.are_ready:
                    standbys.take_over()
        return standbys.in_force

    def start_by(self, start: Starter) -> None:
        """Start workers in another way from now on; those that run stay. It must be of the launcher."""
        self._start = start

    async def stop(self, *, grace_s: float = 2.0, hurry: asyncio.Event | None = None) -> None:
        """Stop restarting workers, wait for the running ones to exit, then kill them.

        ``hurry`` ends the wait before ``grace_s``.
        """
        monitors = list(self._monitors)
        for monitor in monitors:
            monitor.cancel()
        await asyncio.gather(*monitors, return_exceptions=True)
        running = self._launcher.running
        leaving = [process.ended for process in running.values()]
        if leaving:
            left = asyncio.create_task(asyncio.wait(leaving))
            hurried = asyncio.create_task((hurry or asyncio.Event()).wait())
            awaited: set[asyncio.Task[Any]] = {left, hurried}
            await asyncio.wait(awaited, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
            for launch in list(running):
                self.kill(launch)
            await asyncio.wait([left], timeout=_KILLED_S)
            left.cancel()

    @asynccontextmanager
    async def _standing_by(
        self, indexes: Sequence[int], start: Starter | None = None, *, gives_way: bool = False
    ) -> AsyncIterator[Standbys]:
        """Give standbys for these workers once they are ready; kill those that do not take over."""
        standbys = Standbys(self, start)
        for index in indexes:
            self._explain(index)  # forgets what a standby of an earlier attempt has said
        try:
            for index in indexes:
                standbys.processes.append(await self._start_standby(index, start or self._start))
            standbys.are_ready = await self._wait_until_ready(standbys.processes, gives_way=gives_way)
            yield standbys
        except (OSError, ValueError) as error:
            raise ReplacementFailed(str(error)) from error
        finally:
            self._ready.clear()
            if not standbys.in_force:
                for process in standbys.processes:
                    self.kill(process.launch)

    async def _start_standby(self, index: int, start: Starter) -> WorkerProcess:
        try:
            return await start(index, standby=True)
        except Exception as error:  # as in _run: whatever it is, another attempt may succeed
            raise ReplacementFailed(str(error) or repr(error)) from error

    def keep_instead(self, standbys: Standbys, leaving: Collection[int]) -> None:
        """Keep these processes alive, instead of those with the same indexes."""
        self._start = standbys.start or self._start
        for process in standbys.processes:
            old = self._handles[process.index]
            old.replaced.set()
            if old.process is not None and old.process.launch not in leaving:
                self.kill(old.process.launch)
            self._monitor(_WorkerHandle(process.index, process))

    async def _wait_until_ready(self, candidates: Sequence[WorkerProcess], *, gives_way: bool) -> bool:
        """Return True once all are ready, or False to give way."""
        for process in candidates:
            process.ended.add_done_callback(lambda _: self._standby_changed.set())
        while True:
            self._standby_changed.clear()
            for process in candidates:
                if process.ended.done():
                    how = f"new worker {process.index} {process.ended.result()}"
                    raise ReplacementFailed(self._explain(process.index) or how)
            if all(process.launch in self._ready for process in candidates):
                return True
            if gives_way and (self._replacing_all or self._wanted > self.workers):
                return False
            await self._standby_changed.wait()

    def _monitor(self, handle: _WorkerHandle) -> None:
        self._handles[handle.index] = handle
        monitor = asyncio.create_task(self._keep_alive(handle))
        self._monitors.add(monitor)
        monitor.add_done_callback(self._monitors.discard)

    async def _keep_alive(self, handle: _WorkerHandle) -> None:
        failures = 0
        while True:
            how, process = await self._run(handle)
            if handle.replaced.is_set():
                return
            failures = 0 if process is not None and process.batches else failures + 1
            retry_s = backoff_s(failures, first_s=0.1, longest_s=10.0) if failures else 0.0
            victim = process.launch if process is not None and process.lacked_memory else None
            try:
                self._on_exit(
                    WorkerExit(index=handle.index, how=how, failures=failures, retry_s=retry_s, victim=victim)
                )
            except Exception:
                log.exception("the end of worker %d could not be reported; it is started again", handle.index)
            with suppress(TimeoutError):
                await asyncio.wait_for(handle.replaced.wait(), retry_s)
            if handle.replaced.is_set():
                return
            self.restarts += 1

    async def _run(self, handle: _WorkerHandle) -> tuple[str, WorkerProcess | None]:
        """Run a process until it ends; return how it ended, and the process if it could be started."""
        if handle.process is None:
            try:
                handle.process = await self._start(handle.index)
            except Exception as error:
                # Whatever it is, another attempt may succeed, and without one the worker is gone for good.
                if not isinstance(error, OSError):
                    log.exception("worker %d could not be started", handle.index)
                return f"could not be started ({error})", None
            if handle.replaced.is_set():
                self.kill(handle.process.launch)
        process = handle.process
        how = await asyncio.shield(process.ended)
        handle.process = None
        # Not at once: its last reply may not have been read.
        asyncio.get_running_loop().call_later(_NOTICED_S, self._drop, process.launch)
        return how, process
