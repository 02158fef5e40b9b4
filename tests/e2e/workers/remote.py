"""Gateways with a worker port, and ``uncork worker`` processes that connect to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.server import HTTP, PROBE, ROOT, Server, eventually, running
from tests.loops import HANG_S

TOKEN = "a token for these tests"


class RemoteWorker:
    """A running ``uncork worker``."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(HANG_S)


class Remotes:
    """Starts workers, and ends those that are left when the block ends.

    ``folder`` is for the token and the output of the workers. A ``prefix`` runs commands elsewhere, such as
    ``ip netns exec NAME``.
    """

    def __init__(self, folder: Path) -> None:
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN)
        self._folder = folder
        self.workers: list[RemoteWorker] = []

    def start(
        self, *gateways: str, target: str = PROBE, options: Sequence[str] = (), prefix: Sequence[str] = ()
    ) -> RemoteWorker:
        output = self._folder / f"worker-{len(self.workers)}.txt"
        address = ("--gateway", ",".join(gateways), "--token-file", str(self.token_file))
        with output.open("wb") as file:
            process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "uncork", "worker", target, *address, *options],
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        worker = RemoteWorker(process, output)
        self.workers.append(worker)
        return worker

    @contextmanager
    def gateway(
        self,
        *options: str,
        target: str = PROBE,
        workers: int | None = 0,
        wait: bool = False,
    ) -> Iterator[Server]:
        """Serve with a worker port until the block ends. ``workers`` is None if a file has their number."""
        port = () if "--worker-port" in options else ("--worker-port", "0")
        token = ("--worker-token-file", str(self.token_file))
        own = () if workers is None else ("--workers", str(workers))
        command = ("serve", target, *own, *port, *token, *options)
        with running(*command, wait=wait) as server:
            server.wait_for_address()
            yield server

    def close(self) -> None:
        """Kill the workers that are left."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait(HANG_S)


@contextmanager
def remotes(folder: Path) -> Iterator[Remotes]:
    """Give what starts workers, until the block ends."""
    made = Remotes(folder)
    try:
        yield made
    finally:
        made.close()


def worker_port(server: Server) -> str:
    """Return the address for workers that a server has printed."""
    found = re.search(r"workers can connect to (\S+): ", server.output)
    assert found is not None, server.output
    return found[1]


def idle(server: Server, workers: int) -> bool:
    """Whether so many workers wait for a batch."""
    return server.metric("uncork_workers", state="idle") == workers


def wait_for(server: Server, workers: int) -> None:
    """Wait until so many workers wait for a batch."""
    server.wait_until_ready()
    eventually(lambda: idle(server, workers))


def pid_of(server: Server) -> int:
    pid: int = HTTP.post(f"{server.base}/sleep", json=0).json()
    return pid
