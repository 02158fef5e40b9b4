"""A service whose handlers start processes."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from uncork import Service, api
from uncork.adapters import Json


def double(number: int) -> int:
    """Run in a child."""
    return 2 * number


def sleep_for_good() -> None:
    """What an outlived child does."""
    while True:
        time.sleep(600)


class Children(Service):
    """Starts processes in all ways."""

    @api(input=Json(), timeout=20, mb_max_latency=5000)
    def pool(self, methods: list[str]) -> list[list[int]]:
        """Double numbers in a pool of multiprocessing with a start method."""
        results = []
        for method in methods:
            with multiprocessing.get_context(method).Pool(2) as pool:
                results.append(pool.map(double, [1, 2, 3]))
        return results

    @api(input=Json(), timeout=20, mb_max_latency=5000)
    def executor(self, methods: list[str]) -> list[list[int]]:
        """Double numbers in an executor."""
        results = []
        for method in methods:
            with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
                results.append(list(pool.map(double, [1, 2, 3])))
        return results

    @api(input=Json(), timeout=20, mb_max_latency=5000)
    def signal_program(self, numbers: list[int]) -> list[int]:
        """Start another program, end it by a signal, and return how it ended."""
        codes = []
        for number in numbers:
            with subprocess.Popen(
                [sys.executable, "-c", "import time; print(); time.sleep(600)"], stdout=-1
            ) as child:
                assert child.stdout is not None
                child.stdout.read(1)
                child.send_signal(number)
                codes.append(child.wait())
        return codes

    @api(input=Json(), timeout=20, mb_max_latency=5000)
    def signal_fork(self, numbers: list[int]) -> list[int]:
        """Fork, end the child by a signal at once, and return how it ended."""
        codes = []
        for number in numbers:
            pid = os.fork()
            if pid == 0:
                sleep_for_good()
            os.kill(pid, number)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        return codes

    @api(input=Json(), timeout=60, mb_max_latency=5000)
    def fork_and_hang(self, files: list[str]) -> list[Any]:
        """Fork a child that sleeps, write the process ids of both into a file, and sleep, too."""
        pid = os.fork()
        if pid == 0:
            sleep_for_good()
        Path(files[0]).write_text(f"{os.getpid()} {pid}")
        sleep_for_good()
        return files

    @api(input=Json(), timeout=60, idempotent=False, mb_max_latency=5000)
    def detach_and_hang(self, files: list[str]) -> list[Any]:
        """Like ``fork_and_hang``, but the C library forks, and the child leaves the worker's group."""
        libc = ctypes.PyDLL(None)
        pid = libc.fork()
        if pid == 0:
            libc.setsid()
            libc.sleep(600)
            libc._exit(0)
        Path(files[0]).write_text(f"{os.getpid()} {pid}")
        sleep_for_good()
        return files

    @api(input=Json(), timeout=20, mb_max_latency=5000)
    def fork_and_fail(self, items: list[Any]) -> list[Any]:
        """Fork a child that raises, and return its exit code for each row."""
        pid = os.fork()
        if pid == 0:
            raise ValueError("in the child")
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return [code] * len(items)

    @api(input=Json(), timeout=20, mb_max_latency=5000)
    def fork_and_return(self, items: list[Any]) -> list[Any]:
        """Fork a child that returns, and return its exit code for each row."""
        pid = os.fork()
        if pid == 0:
            return ["child"] * len(items)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return [code] * len(items)

    @api(input=Json(), timeout=20, mb_max_latency=5000)
    async def fork_and_fail_async(self, items: list[Any]) -> list[Any]:
        """Like ``fork_and_fail``."""
        pid = os.fork()
        if pid == 0:
            raise ValueError("in the child")
        return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])] * len(items)  # noqa: ASYNC222

    @api(input=Json(), timeout=20, policy="none")
    def stream(self, items: list[Any]) -> Iterator[str]:
        """Yield, fork a child that raises, and yield its exit code."""
        yield "first "
        pid = os.fork()
        if pid == 0:
            raise ValueError("in the child")
        yield str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


class Helped(Service):
    """Starts a helper in ``setup``, and a fork that raises there."""

    def setup(self) -> None:
        """Fork twice."""
        if os.fork() == 0:
            raise ValueError("in the child of setup")
        self.helper = os.fork()
        if self.helper == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            sleep_for_good()

    @api(input=Json())
    def pids(self, items: list[Any]) -> list[list[int]]:
        """Return the process ids of worker and helper."""
        return [[os.getpid(), self.helper]] * len(items)
