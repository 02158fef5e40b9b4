"""Start and kill worker processes on this machine."""

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from uncork_workers.cores import usable_cores
from uncork_workers.supervision.gpus import GPU_VARIABLE
from uncork_workers.supervision.launcher import Dialing, Starter, WorkerProcess
from uncork_workers.supervision.oom_kills import OomKills

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
# A resource tracker of multiprocessing removes shared memory when the last process that uses it has ended.
_GRACE_S = 1.0
_LOOK_EVERY_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalWorkers:
    """What to start on this machine.

    Attributes:
        target: the service, as MODULE:SERVICE or FILE.py:SERVICE.
        workers: the most workers at a time on this machine, of all services; they share the cores.
        python: the interpreter that runs them; Uncork must be installed there in the same version.
        arguments: additional arguments of the workers.
        gpus: values of ``CUDA_VISIBLE_DEVICES``, assigned to workers in turn.
        environment: additional environment variables of the workers.
    """

    target: str
    workers: int
    python: str = sys.executable
    arguments: Sequence[str] = ()
    gpus: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def environment_of(self, index: int) -> dict[str, str]:
        gpu = {GPU_VARIABLE: self.gpus[index % len(self.gpus)]} if self.gpus else {}
        return worker_environment(self.workers, {**self.environment, **gpu})


class Processes:
    """The worker processes of one service on this machine; a :class:`Launcher`.

    ``workers`` is what to start, and ``dialing`` how they reach the gateway. ``oom_kills`` is shared by all
    services of a server.
    """

    def __init__(self, workers: LocalWorkers, *, dialing: Dialing, oom_kills: OomKills | None = None) -> None:
        self._workers = workers
        self._dialing = dialing
        self._oom_kills = oom_kills or OomKills(None)
        self.running: dict[int, WorkerProcess] = {}
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._ending: set[asyncio.Task[None]] = set()
        """Ends what ended workers have left running."""
        self._launches = itertools.count(1)

    def starter(self, workers: LocalWorkers) -> Starter:
        """Return what starts other workers."""
        return partial(self._launch, workers)

    async def launch(self, index: int, *, standby: bool = False) -> WorkerProcess:
        """Start a worker process; see :class:`Launcher`."""
        return await self._launch(self._workers, index, standby=standby)

    async def _launch(self, workers: LocalWorkers, index: int, *, standby: bool = False) -> WorkerProcess:
        launch = next(self._launches)
        process = await asyncio.create_subprocess_exec(
            workers.python,
            "-m",
            "uncork_workers",
            workers.target,
            *(self._dialing.standby_arguments if standby else self._dialing.arguments),
            "--index",
            str(index),
            "--launch",
            str(launch),
            *workers.arguments,
            "--parent",
            str(os.getpid()),
            stdin=asyncio.subprocess.DEVNULL,
            # Ctrl-C in the terminal must reach only the gateway, which lets the workers finish. The worker
            # and the processes that it starts are a group, which ends with the worker.
            start_new_session=True,
            env={**workers.environment_of(index), **self._dialing.environment_of(launch)},
        )
        ended = asyncio.create_task(self._wait_for_exit(launch, process))
        self._processes[launch] = process
        worker = self.running[launch] = WorkerProcess(index, launch, ended, process.pid)
        return worker

    def kill(self, launch: int) -> None:
        """Kill a worker process; do nothing if it has ended."""
        process = self._processes.get(launch)
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()

    async def close(self) -> None:
        """Wait until the processes that ended workers have left running have ended, too."""
        await asyncio.gather(*self._ending)

    async def _wait_for_exit(self, launch: int, process: asyncio.subprocess.Process) -> str:
        code = await process.wait()
        del self._processes[launch]
        worker = self.running.pop(launch)
        worker.lacked_memory = self._oom_kills.is_one_more() and code == -signal.SIGKILL
        ending = asyncio.create_task(asyncio.to_thread(end_group, process.pid))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        return f"{describe_exit(code)}{', for lack of memory' if worker.lacked_memory else ''}"


def worker_environment(workers: int, added: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment and ``added``, with a worker's share of the cores."""
    return limiting_threads({**os.environ, **added}, share=max(1, usable_cores() // max(1, workers)))


def limiting_threads(environment: Mapping[str, str], *, share: int) -> dict[str, str]:
    """Return an environment that limits OpenMP and BLAS to ``share`` threads, or to what it says itself.

    ``OMP_NUM_THREADS``, where it is set, counts for all: PyTorch prefers ``MKL_NUM_THREADS`` to it.
    """
    # For nested loops, it may have several numbers.
    threads = environment.get("OMP_NUM_THREADS", "").partition(",")[0].strip() or str(share)
    # Threads that spin while waiting would take cores from the gateway and the other workers.
    return {**dict.fromkeys(_THREAD_VARIABLES, threads), "OMP_WAIT_POLICY": "passive", **environment}


def describe_exit(code: int) -> str:
    """Return how a process ended, given its exit code; negative codes are signals."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def end_group(group: int) -> None:
    """End all processes of a group whose leader has ended: by SIGTERM, and after 1 s by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(OSError):  # the last one has ended, or belongs to another user
            os.killpg(group, number)
        gives_up_at = time.monotonic() + _GRACE_S
        while _is_left(group):
            if time.monotonic() > gives_up_at:
                break
            time.sleep(_LOOK_EVERY_S)
        else:
            return


def _is_left(group: int) -> bool:
    try:
        # Processes without a parent become children of process 1, which may be this one.
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True
