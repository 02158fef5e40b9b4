"""Launches worker processes and heals them: a dead one is started again, later each time it dies young."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable

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


class Supervisor:
    """Keeps ``workers`` processes of one service alive.

    Args:
        target: what they serve.
        workers: how many there are to be.
        socket_path: the Unix socket to which they connect.
        log_level: of the workers' own logs.
        on_exit: told the index of a worker that ended, and how.
    """

    def __init__(
        self,
        target: str,
        *,
        workers: int,
        socket_path: str,
        log_level: str,
        on_exit: Callable[[int, str], None],
    ) -> None:
        self._target = target
        self._workers = workers
        self._socket_path = socket_path
        self._log_level = log_level
        self._on_exit = on_exit
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self.restarts = 0

    def start(self) -> None:
        """Start all workers, and go on healing them until :meth:`stop`."""
        self._keepers = [asyncio.create_task(self._keep(index)) for index in range(self._workers)]

    def kill(self, index: int) -> None:
        """End a worker at once; it is started again like one that died."""
        process = self._processes.get(index)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def stop(self, *, grace_s: float = 2.0) -> None:
        """Start no more workers, give the running ones time to leave by themselves, then kill them."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        leaving = [asyncio.create_task(process.wait()) for process in self._processes.values()]
        if leaving:
            await asyncio.wait(leaving, timeout=grace_s)
        for index in list(self._processes):
            self.kill(index)
        await asyncio.gather(*leaving)

    async def _keep(self, index: int) -> None:
        failures = 0
        while True:
            started = time.monotonic()
            how = await self._live(index)
            lived_s = time.monotonic() - started
            failures = 0 if lived_s > _GROWN_UP_S else failures + 1
            self._on_exit(index, how)
            if failures:
                await asyncio.sleep(min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** (failures - 1)))
            self.restarts += 1

    async def _live(self, index: int) -> str:
        """One life of a worker; returns how it ended."""
        try:
            process = await self._launch(index)
        except OSError as error:
            return f"could not be started ({error})"
        self._processes[index] = process
        code = await process.wait()
        del self._processes[index]
        return _describe_exit(code)

    async def _launch(self, index: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "uncork_workers",
            self._target,
            "--socket",
            self._socket_path,
            "--index",
            str(index),
            "--log-level",
            self._log_level,
            stdin=asyncio.subprocess.DEVNULL,
            # Ctrl-C in the terminal is for the gateway, which lets the workers finish.
            start_new_session=True,
            env=_environment(self._workers),
        )


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
