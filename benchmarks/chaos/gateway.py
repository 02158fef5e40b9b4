"""The gateway under test, seen from its host: workers, open files, memory."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from benchmarks.chaos.streams import fetch
from benchmarks.chaos.waiting import comes_true
from uncork_loadtests.servers import BenchError, Server

if TYPE_CHECKING:
    from benchmarks.chaos.hosts import Hosts

_EVERY_S = 0.25
_READY = re.compile(rb'^uncork_workers\{service="chaos",state="(?:idle|busy)"\} ([0-9.]+)$', re.MULTILINE)
_GONE = (psutil.NoSuchProcess, psutil.ZombieProcess)
_BUG = re.compile(r"internal error \[|never retrieved|Exception in callback|Fatal error|never awaited")


class Possessions(NamedTuple):
    """The resources of a process; at rest they must be the same before and after."""

    files: int
    sockets: int
    children: int

    def __str__(self) -> str:
        return f"{self.files} file descriptors ({self.sockets} sockets), {self.children} child processes"


class Usage(NamedTuple):
    """What a process uses at a time."""

    at_s: float
    memory_bytes: int
    files: int
    threads: int


class Gateway:
    """A running gateway, polled while :meth:`watch` runs.

    Args:
        workers: of the service under test.
        grpc_port: 0 if it has none.
        config: its configuration file, if it has one.
        hosts: where its workers run; None: on this machine.
    """

    def __init__(
        self,
        server: Server,
        *,
        workers: int,
        grpc_port: int = 0,
        config: Path | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        self.server = server
        self.port = server.port
        self.grpc_port = grpc_port
        self.pid = server.pid
        self.size = workers
        self.config = config
        self.hosts = hosts
        self._process = psutil.Process(server.pid)
        self._seen_s = 0.0
        self._ready = 0
        self.usage: list[Usage] = []

    def workers(self) -> list[int]:
        """Return the process ids of live workers."""
        if self.hosts is not None:
            return self.hosts.pids()
        try:
            return sorted(child.pid for child in self._process.children() if _lives(child))
        except _GONE:
            return []

    def possessions(self) -> Possessions:
        sockets = [one for one in self._process.net_connections("all") if one.status != psutil.CONN_LISTEN]
        return Possessions(self._process.num_fds(), len(sockets), len(self.workers()))

    async def watch(self) -> None:
        """Poll until cancelled.

        Raises:
            BenchError: if the gateway ends.
        """
        while self.server.exit_code() is None:
            now_s = time.monotonic()
            page = await fetch(self.port, "/metrics")
            self._ready = round(sum(float(count) for count in _READY.findall(page or b"")))
            self._seen_s = now_s
            process = self._process
            self.usage.append(
                Usage(now_s, process.memory_info().rss, process.num_fds(), process.num_threads())
            )
            await asyncio.sleep(_EVERY_S)
        raise BenchError(f"the gateway ended by itself:\n{self.server.last_words()}")

    async def all_ready(self, *, without: int | None = None, within_s: float) -> bool:
        """Wait until all workers are ready and process ``without`` is gone; return False on timeout."""
        asked_s = time.monotonic()
        return await comes_true(
            lambda: self._seen_s > asked_s and self._ready >= self.size and without not in self.workers(),
            within_s=within_s,
            every_s=_EVERY_S / 2,
        )


def bug_lines(server: Server) -> list[str]:
    """Return the log lines that indicate a bug."""
    return [line for line in server.written().splitlines() if _BUG.search(line)]


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    except _GONE:
        return False
