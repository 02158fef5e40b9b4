"""Starts and ends worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from uncork_workers.supervision.cores import usable_cores
from uncork_workers.supervision.gpus import GPU_VARIABLE

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


@dataclass(slots=True, eq=False)
class Life:
    """One process.

    Attributes:
        index: of the worker.
        process: it.
        ended: gives how it ended.
        batches: how many it has finished.
    """

    index: int
    process: asyncio.subprocess.Process
    ended: asyncio.Task[str]
    batches: int = 0

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self.process.pid


class Processes:
    """All processes of the workers of one service; arguments as for the supervisor."""

    def __init__(
        self,
        target: str,
        *,
        workers: int,
        arguments: Sequence[str],
        gpus: Sequence[str],
        environment: Mapping[str, str],
    ) -> None:
        self._target = target
        self._arguments = arguments
        self._gpus = gpus
        self._environment = {**environment_of(workers), **environment}
        self.lives: dict[int, Life] = {}
        """Those that run, by their numbers."""

    async def launch(self, index: int, socket_path: str) -> Life:
        """Start one that connects to a Unix socket; OSError if it cannot be started."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "uncork_workers",
            self._target,
            "--socket",
            socket_path,
            "--index",
            str(index),
            *self._arguments,
            "--parent",
            str(os.getpid()),
            stdin=asyncio.subprocess.DEVNULL,
            # Ctrl-C in the terminal is for the gateway, which lets the workers finish.
            start_new_session=True,
            env={**self._environment, **self._gpu(index)},
        )
        life = Life(index, process, asyncio.create_task(self._outlive(process)))
        self.lives[life.pid] = life
        return life

    def kill(self, pid: int) -> None:
        """End one at once; numbers of others are passed over."""
        life = self.lives.get(pid)
        if life is not None:
            with contextlib.suppress(ProcessLookupError):
                life.process.kill()

    async def _outlive(self, process: asyncio.subprocess.Process) -> str:
        code = await process.wait()
        del self.lives[process.pid]
        return _describe_exit(code)

    def _gpu(self, index: int) -> dict[str, str]:
        return {GPU_VARIABLE: self._gpus[index % len(self._gpus)]} if self._gpus else {}


def environment_of(workers: int) -> dict[str, str]:
    """Ours, with each worker's share of the cores for OpenMP and BLAS unless something is said there."""
    share = str(max(1, usable_cores() // workers))
    # Threads that spin while they wait for each other take the cores from the gateway and other workers.
    return {**dict.fromkeys(_THREAD_VARIABLES, share), "OMP_WAIT_POLICY": "passive", **os.environ}


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
