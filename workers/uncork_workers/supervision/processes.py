"""Start and kill worker processes."""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from uncork_workers.supervision.gpus import GPU_VARIABLE

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """One process of a worker.

    Attributes:
        launch: identifies the process, also among those that have ended and those on other machines.
        ended: completes when the process has ended, with a description of how.
        batches: number of finished batches.
    """

    index: int
    launch: int
    process: asyncio.subprocess.Process
    ended: asyncio.Task[str]
    batches: int = 0

    @property
    def pid(self) -> int:
        return self.process.pid


class Processes:
    """The worker processes of one service.

    Args:
        target: the service, as MODULE:SERVICE or FILE.py:SERVICE.
        workers: the number of workers, which share the cores.
        arguments: additional arguments of the workers.
        gpus: values of ``CUDA_VISIBLE_DEVICES``, assigned to workers in turn.
        environment: additional environment variables of the workers.
    """

    def __init__(
        self,
        target: str,
        *,
        workers: int,
        arguments: Sequence[str] = (),
        gpus: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.workers = workers
        self._target = target
        self._arguments = arguments
        self._gpus = gpus
        self._environment = {**worker_environment(workers), **(environment or {})}
        self.running: dict[int, WorkerProcess] = {}
        """By launch."""
        self._launches = itertools.count(1)

    async def launch(self, index: int, socket_path: str) -> WorkerProcess:
        """Start a worker process that connects to a Unix socket.

        Raises:
            OSError: if it cannot be started.
        """
        launch = next(self._launches)
        gpu = {GPU_VARIABLE: self._gpus[index % len(self._gpus)]} if self._gpus else {}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "uncork_workers",
            self._target,
            "--socket",
            socket_path,
            "--index",
            str(index),
            "--launch",
            str(launch),
            *self._arguments,
            "--parent",
            str(os.getpid()),
            stdin=asyncio.subprocess.DEVNULL,
            # Ctrl-C in the terminal must reach only the gateway, which lets the workers finish.
            start_new_session=True,
            env={**self._environment, **gpu},
        )
        ended = asyncio.create_task(self._wait_for_exit(launch, process))
        worker = self.running[launch] = WorkerProcess(index, launch, process, ended)
        return worker

    def kill(self, launch: int) -> None:
        """Kill a worker process; do nothing if it has ended."""
        worker = self.running.get(launch)
        if worker is not None:
            with contextlib.suppress(ProcessLookupError):
                worker.process.kill()

    async def _wait_for_exit(self, launch: int, process: asyncio.subprocess.Process) -> str:
        code = await process.wait()
        del self.running[launch]
        return _describe_exit(code)


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worker_environment(workers: int) -> dict[str, str]:
    """Return this process's environment, with each worker's share of the cores for OpenMP and BLAS."""
    share = str(max(1, usable_cores() // max(1, workers)))
    # Threads that spin while waiting would take cores from the gateway and the other workers.
    return {**dict.fromkeys(_THREAD_VARIABLES, share), "OMP_WAIT_POLICY": "passive", **os.environ}


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
