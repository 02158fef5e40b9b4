"""Keeps worker processes alive, and replaces them.

A dead worker is started again: at once if it had finished a batch, otherwise later each time. A replacement
connects to a socket of its own and stands by there; when all that are to take over are ready they do so
together, and if one of them fails, nothing has changed. So all workers are replaced at once when there is
new code, and a single one that is to be recycled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from uncork_workers.supervision.backoff import Backoff
from uncork_workers.supervision.processes import Life, Processes

_RESTARTS = Backoff(first_s=0.1, longest_s=10.0)


class ReplacementFailed(Exception):
    """The new workers could not take over; the old ones go on. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExit:
    """A worker process that ended, unless another had taken over from it.

    Attributes:
        index: of the worker.
        how: it ended, for people.
        failures: how often in a row this worker has ended without having finished a batch.
        retry_s: seconds until it is started again.
    """

    index: int
    how: str
    failures: int = 0
    retry_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Place:
    """An index that is to have a living worker, until another worker has taken over."""

    index: int
    life: Life | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Supervisor:
    """Keeps ``workers`` processes of one service alive.

    Args:
        target: what they serve.
        workers: how many there are to be.
        socket_path: the Unix socket to which they connect.
        standby_path: the one to which those connect that are to replace them.
        log_level: of the workers' own logs.
        on_exit: told of every worker that ended.
        take_over: has the processes that it is given take the places of those of the same indexes; returns
            those that leave by themselves, when they have nothing to do any more. ValueError if it cannot be.
        explain: says why the worker of an index could not stand by, if it has said so.
        gpus: what a worker sees in ``CUDA_VISIBLE_DEVICES``, one after the other and from the start again.
        environment: more variables for the workers.
        arguments: more arguments of the workers.
    """

    def __init__(
        self,
        target: str,
        *,
        workers: int,
        socket_path: str,
        standby_path: str,
        log_level: str,
        on_exit: Callable[[WorkerExit], None],
        take_over: Callable[[Collection[int]], Collection[int]],
        explain: Callable[[int], str | None] = lambda index: None,
        gpus: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self._workers = workers
        self._socket_path = socket_path
        self._standby_path = standby_path
        self._on_exit = on_exit
        self._take_over = take_over
        self._explain = explain
        self._processes = Processes(
            target,
            workers=workers,
            arguments=("--log-level", log_level, *arguments),
            gpus=gpus,
            environment=environment or {},
        )
        self._places: dict[int, _Place] = {}
        self._keepers: set[asyncio.Task[None]] = set()
        self._standing_by: set[int] = set()
        self._news = asyncio.Event()
        """Something has become of a process that is to stand by."""
        self._one_at_a_time = asyncio.Lock()
        self._replacing_all = 0
        """How many callers want all workers replaced, or are having it done."""
        self.restarts = 0

    def start(self) -> None:
        """Start all workers, and go on healing them until :meth:`stop`."""
        for index in range(self._workers):
            self._fill(_Place(index))

    def kill(self, pid: int) -> None:
        """End a process at once; a worker in force is started again like one that died."""
        self._processes.kill(pid)

    def mark_ready(self, pid: int) -> None:
        """A process is ready to take over."""
        self._standing_by.add(pid)
        self._news.set()

    def finished_batch(self, pid: int) -> None:
        """A process has finished a batch: if it dies now, it did not die of its start."""
        life = self._processes.lives.get(pid)
        if life is not None:
            life.batches += 1

    def current_workers(self) -> list[Life]:
        """The processes that take batches, or will when they are ready."""
        return [place.life for place in self._places.values() if place.life is not None]

    async def replace_all(self) -> None:
        """Have new workers take over from all that there are. Callers are served one after the other.

        Raises:
            ReplacementFailed: if one of the new workers ended before all were ready, or they could not take
                over; none of them is left then, and the old ones go on.
        """
        self._replacing_all += 1
        self._news.set()  # for a single one, which gives way
        try:
            async with self._one_at_a_time:
                await self._replace(range(self._workers), lambda: False)
        finally:
            self._replacing_all -= 1

    async def replace(self, index: int) -> None:
        """Have a new worker take over from one; gives way when all are to be replaced.

        Raises:
            ReplacementFailed: as for :meth:`replace_all`.
        """
        async with self._one_at_a_time:
            await self._replace([index], lambda: self._replacing_all > 0)

    async def stop(self, *, grace_s: float = 2.0, hurry: asyncio.Event | None = None) -> None:
        """Start no more workers, give the running ones time to leave by themselves, then kill them.

        ``hurry`` ends the time that they are given.
        """
        keepers = list(self._keepers)
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        lives = self._processes.lives
        leaving = [life.ended for life in lives.values()]
        if leaving:
            left = asyncio.create_task(asyncio.wait(leaving))
            hurried = asyncio.create_task((hurry or asyncio.Event()).wait())
            awaited: set[asyncio.Task[Any]] = {left, hurried}
            await asyncio.wait(awaited, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
            for pid in list(lives):
                self.kill(pid)
            await left

    async def _replace(self, indexes: Sequence[int], gives_way: Callable[[], bool]) -> None:
        candidates: list[Life] = []
        try:
            for index in indexes:
                candidates.append(await self._processes.launch(index, self._standby_path))
            await self._all_stand_by(candidates, gives_way)
            leaving = self._take_over([life.pid for life in candidates])
        except BaseException as error:
            for life in candidates:
                self.kill(life.pid)
            if isinstance(error, OSError | ValueError):
                raise ReplacementFailed(str(error)) from error
            raise
        finally:
            self._standing_by.clear()
        for life in candidates:
            old = self._places[life.index]
            old.over.set()
            if old.life is not None and old.life.pid not in leaving:
                self.kill(old.life.pid)
            self._fill(_Place(life.index, life))

    async def _all_stand_by(self, candidates: Sequence[Life], gives_way: Callable[[], bool]) -> None:
        for life in candidates:
            life.ended.add_done_callback(lambda _: self._news.set())
        while True:
            self._news.clear()
            if gives_way():
                raise ReplacementFailed("all workers are to be replaced")
            for life in candidates:
                if life.ended.done():
                    why = self._explain(life.index) or f"new worker {life.index} {life.ended.result()}"
                    raise ReplacementFailed(why)
            if all(life.pid in self._standing_by for life in candidates):
                return
            await self._news.wait()

    def _fill(self, place: _Place) -> None:
        self._places[place.index] = place
        keeper = asyncio.create_task(self._keep(place))
        self._keepers.add(keeper)
        keeper.add_done_callback(self._keepers.discard)

    async def _keep(self, place: _Place) -> None:
        failures = 0
        while True:
            how, batches = await self._live(place)
            if place.over.is_set():
                return
            failures = 0 if batches else failures + 1
            retry_s = _RESTARTS.after(failures) if failures else 0.0
            self._on_exit(WorkerExit(index=place.index, how=how, failures=failures, retry_s=retry_s))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(place.over.wait(), retry_s)
            if place.over.is_set():
                return
            self.restarts += 1

    async def _live(self, place: _Place) -> tuple[str, int]:
        """One life of a worker; returns how it ended, and how many batches it had finished."""
        if place.life is None:
            try:
                place.life = await self._processes.launch(place.index, self._socket_path)
            except OSError as error:
                return f"could not be started ({error})", 0
            if place.over.is_set():
                self.kill(place.life.pid)
        life = place.life
        how = await asyncio.shield(life.ended)
        place.life = None
        return how, life.batches
