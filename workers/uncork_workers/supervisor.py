"""Launches worker processes, heals and replaces them.

A dead worker is started again, later each time it dies young. A replacement is a second set of workers that
connects to a socket of its own and stands by there; when all of them are ready they take over together, and
if one of them fails, nothing has changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 10.0
# A worker that has lived this long did not die of its start; the next one is started without delay.
_GROWN_UP_S = 10.0
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"
_GPU_NAME = re.compile(r"[0-9]{1,4}|(GPU|MIG)-[0-9A-Za-z/-]+")


class ReplacementFailed(Exception):
    """The new workers could not take over; the old ones go on. The message says why."""


@dataclass(frozen=True, slots=True)
class _Life:
    """One process; ``ended`` gives how it ended."""

    index: int
    process: asyncio.subprocess.Process
    ended: asyncio.Task[str]


@dataclass(slots=True, eq=False)
class _Place:
    """An index that is to have a living worker, until another set of workers has taken over."""

    index: int
    life: _Life | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Supervisor:
    """Keeps ``workers`` processes of one service alive.

    Args:
        target: what they serve.
        workers: how many there are to be.
        socket_path: the Unix socket to which they connect.
        standby_path: the one to which those connect that are to replace them.
        log_level: of the workers' own logs.
        on_exit: told the index of a worker that ended, and how.
        take_over: has the processes that it is given take the place of all others; returns those that leave
            by themselves, when they have nothing to do any more. ValueError if it cannot be.
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
        on_exit: Callable[[int, str], None],
        take_over: Callable[[Collection[int]], Collection[int]],
        gpus: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self._target = target
        self._workers = workers
        self._socket_path = socket_path
        self._standby_path = standby_path
        self._log_level = log_level
        self._on_exit = on_exit
        self._take_over = take_over
        self._gpus = gpus
        self._environment = {**_environment(workers), **(environment or {})}
        self._arguments = arguments
        self._lives: dict[int, _Life] = {}
        """All processes, by their numbers."""
        self._places: list[_Place] = []
        self._keepers: set[asyncio.Task[None]] = set()
        self._standing_by: set[int] = set()
        self._news = asyncio.Event()
        """Something has become of a process that is to stand by."""
        self.restarts = 0

    def start(self) -> None:
        """Start all workers, and go on healing them until :meth:`stop`."""
        self._staff([_Place(index) for index in range(self._workers)])

    def kill(self, pid: int) -> None:
        """End a process at once; a worker in force is started again like one that died."""
        life = self._lives.get(pid)
        if life is not None:
            with contextlib.suppress(ProcessLookupError):
                life.process.kill()

    def stands_by(self, pid: int) -> None:
        """A process is ready to take over."""
        self._standing_by.add(pid)
        self._news.set()

    async def replace(self) -> None:
        """Have new workers take over from all that there are. To be called once at a time.

        Raises:
            ReplacementFailed: if one of the new workers ended before all were ready, or they could not take
                over; none of them is left then, and the old ones go on.
        """
        candidates: list[_Life] = []
        try:
            for index in range(self._workers):
                candidates.append(await self._launch(index, self._standby_path))
            await self._all_stand_by(candidates)
            leaving = self._take_over([life.process.pid for life in candidates])
        except BaseException as error:
            for life in candidates:
                self.kill(life.process.pid)
            if isinstance(error, OSError | ValueError):
                raise ReplacementFailed(str(error)) from error
            raise
        finally:
            self._standing_by.clear()
        for place in self._places:
            place.over.set()
            if place.life is not None and place.life.process.pid not in leaving:
                self.kill(place.life.process.pid)
        self._staff([_Place(life.index, life) for life in candidates])

    async def stop(self, *, grace_s: float = 2.0) -> None:
        """Start no more workers, give the running ones time to leave by themselves, then kill them."""
        keepers = list(self._keepers)
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        leaving = [life.ended for life in self._lives.values()]
        if leaving:
            await asyncio.wait(leaving, timeout=grace_s)
        for pid in list(self._lives):
            self.kill(pid)
        await asyncio.gather(*leaving)

    async def _all_stand_by(self, candidates: Sequence[_Life]) -> None:
        for life in candidates:
            life.ended.add_done_callback(lambda _: self._news.set())
        while True:
            self._news.clear()
            for life in candidates:
                if life.ended.done():
                    raise ReplacementFailed(f"new worker {life.index} {life.ended.result()}")
            if all(life.process.pid in self._standing_by for life in candidates):
                return
            await self._news.wait()

    def _staff(self, places: list[_Place]) -> None:
        self._places = places
        for place in places:
            keeper = asyncio.create_task(self._keep(place))
            self._keepers.add(keeper)
            keeper.add_done_callback(self._keepers.discard)

    async def _keep(self, place: _Place) -> None:
        failures = 0
        while True:
            started = time.monotonic()
            how = await self._live(place)
            if place.over.is_set():
                return
            lived_s = time.monotonic() - started
            failures = 0 if lived_s > _GROWN_UP_S else failures + 1
            self._on_exit(place.index, how)
            if failures:
                await asyncio.sleep(min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** (failures - 1)))
            if place.over.is_set():
                return
            self.restarts += 1

    async def _live(self, place: _Place) -> str:
        """One life of a worker; returns how it ended."""
        if place.life is None:
            try:
                place.life = await self._launch(place.index, self._socket_path)
            except OSError as error:
                return f"could not be started ({error})"
            if place.over.is_set():
                self.kill(place.life.process.pid)
        how = await asyncio.shield(place.life.ended)
        place.life = None
        return how

    async def _launch(self, index: int, socket_path: str) -> _Life:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "uncork_workers",
            self._target,
            "--socket",
            socket_path,
            "--index",
            str(index),
            "--log-level",
            self._log_level,
            *self._arguments,
            stdin=asyncio.subprocess.DEVNULL,
            # Ctrl-C in the terminal is for the gateway, which lets the workers finish.
            start_new_session=True,
            env={**self._environment, **self._gpu(index)},
        )
        life = _Life(index, process, asyncio.create_task(self._outlive(process)))
        self._lives[process.pid] = life
        return life

    async def _outlive(self, process: asyncio.subprocess.Process) -> str:
        code = await process.wait()
        del self._lives[process.pid]
        return _describe_exit(code)

    def _gpu(self, index: int) -> dict[str, str]:
        return {_GPU_VARIABLE: self._gpus[index % len(self._gpus)]} if self._gpus else {}


def read_gpus(text: str) -> list[str]:
    """The GPUs that ``text`` names: a list with commas, or how many of those there are to be seen here.

    Names are what ``CUDA_VISIBLE_DEVICES`` takes: numbers, or UUIDs such as ``GPU-8932f937``.

    Raises:
        ValueError: if it is neither; the message says what is accepted.
    """
    names = [name.strip() for name in text.split(",")]
    is_count = len(names) == 1
    if not is_count and not names[-1]:
        names.pop()
    for name in names:
        if not _GPU_NAME.fullmatch(name):
            raise ValueError(
                f"{text!r} names no GPUs: give a count such as 2, or numbers or UUIDs with commas between "
                "them such as 0,1 (one alone with a comma behind it: 1,)"
            )
    if is_count and text.strip().isdecimal():
        return _first_gpus(int(text))
    if len(set(names)) < len(names):
        raise ValueError(
            f"{text!r} names a GPU twice; workers share GPUs when there are more workers than GPUs"
        )
    return names


def _first_gpus(count: int) -> list[str]:
    visible = os.environ.get(_GPU_VARIABLE)
    names = [str(number) for number in range(count)] if visible is None else visible.split(",")[:count]
    if count < 1:
        raise ValueError("the count of GPUs must be at least 1")
    if len(names) < count or not all(names):
        raise ValueError(f"there are no {count} GPUs here: {_GPU_VARIABLE} is {visible!r}")
    return names


def _environment(workers: int) -> dict[str, str]:
    """Ours, with each worker's share of the cores for OpenMP and BLAS unless something is said there."""
    share = str(max(1, len(os.sched_getaffinity(0)) // workers))
    return {**dict.fromkeys(_THREAD_VARIABLES, share), **os.environ}


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
