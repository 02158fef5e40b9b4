"""Server processes that a load test starts, watches and stops."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import IO, NoReturn

import httpx
import psutil

HOST = "127.0.0.1"
_READY_SECONDS = 60.0
_STOP_SECONDS = 15.0


class BenchError(Exception):
    """A measurement has no result: a server did not start, say, or its responses make it pointless."""


@dataclass(frozen=True, kw_only=True)
class Cpu:
    """Processor seconds used by a server process, and by all its descendants."""

    server: float
    workers: float


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running server."""

    name: str
    command: tuple[str, ...]
    port: int
    pid: int
    last_words: Callable[[], str] = str
    """Returns the last lines of its output, and its exit code if it has ended."""
    written: Callable[[], str] = str
    """Returns its output so far."""
    exit_code: Callable[[], int | None] = lambda: None
    """Returns its exit code, None while it runs; negative is a signal."""
    admin_port: int | None = None
    """Port of its pages for operators, if not `port`."""

    def url(self, path: str) -> str:
        return f"http://{HOST}:{self.port}{path}"

    def admin_url(self, path: str) -> str:
        return f"http://{HOST}:{self.admin_port or self.port}{path}"

    def cpu(self) -> Cpu | None:
        """Return the CPU time used so far; None if the process is gone."""
        try:
            process = psutil.Process(self.pid)
            below = [_cpu_seconds(child) for child in process.children(recursive=True)]
            return Cpu(server=_cpu_seconds(process), workers=sum(below))
        except psutil.NoSuchProcess:
            return None


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.ZombieProcess:
        return 0.0
    return float(times.user + times.system)


@contextlib.contextmanager
def serve(
    name: str, *, command: Sequence[str], ready_path: str = "/readyz", ready_s: float = _READY_SECONDS
) -> Iterator[Server]:
    """Run `command --port P` on a free port until the block ends; enter once it is ready.

    It is ready when it answers GET `ready_path` with 200.

    Raises:
        BenchError: if it ends before, or takes longer than `ready_s`; with the last lines of its output.
    """
    with reserved_port() as port, tempfile.TemporaryFile() as output:
        whole = (*command, "--port", str(port))
        # A session of its own, so that Ctrl-C reaches only this process, which then stops its servers.
        process = subprocess.Popen(
            whole, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        server = Server(
            name=name,
            command=whole,
            port=port,
            pid=process.pid,
            last_words=partial(_last_words, process, output=output),
            written=partial(_written, output),
            exit_code=process.poll,
        )
        try:
            _wait_until_ready(server, path=ready_path, ready_s=ready_s)
            yield server
        finally:
            _stop(process)


def words(options: Mapping[str, object]) -> list[str]:
    """Return options and their values as arguments, without those that are None."""
    return [str(text) for pair in options.items() if pair[1] is not None for text in pair]


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Yield a port for a server; until the block ends, the system chooses it for nobody else."""
    with socket.socket() as holder:
        # As this socket does not listen, one that reuses addresses, as servers do, can still have the port.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", 0))
        yield holder.getsockname()[1]


def end_on_sigterm() -> None:
    """Let SIGTERM unwind the stack, so that servers are stopped."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)


def _wait_until_ready(server: Server, *, path: str, ready_s: float) -> None:
    deadline = time.monotonic() + ready_s
    with httpx.Client(timeout=1.0, trust_env=False, verify=False) as http:
        while not _answers_200(http, server.url(path)):
            ended = server.exit_code()
            if ended is not None:
                raise BenchError(
                    f"{server.name} exited with {ended} before it was ready:\n{server.last_words()}"
                )
            if time.monotonic() > deadline:
                raise BenchError(f"{server.name} was not ready after {ready_s:g} s:\n{server.last_words()}")
            time.sleep(0.05)


def _answers_200(http: httpx.Client, url: str) -> bool:
    try:
        return http.get(url).status_code == 200
    except httpx.HTTPError:
        return False


def _last_words(process: subprocess.Popen[bytes], *, output: IO[bytes]) -> str:
    ended = process.poll()
    tail = "\n".join(_written(output).splitlines()[-20:])
    return tail + ("" if ended is None else f"\n(exited with {ended})")


def _written(output: IO[bytes]) -> str:
    # pread, because seeking would move the position at which the server writes.
    return os.pread(output.fileno(), os.fstat(output.fileno()).st_size, 0).decode(errors="replace")


def _stop(process: subprocess.Popen[bytes]) -> None:
    below: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        # Listed before the end: workers of a killed server get another parent.
        below = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        for child in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
