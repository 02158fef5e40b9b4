"""Server processes that a bench starts, watches and ends by their process id."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

HOST = "127.0.0.1"
_READY_SECONDS = 60.0
_STOP_SECONDS = 15.0
_PROC = Path("/proc")


class BenchError(Exception):
    """A server did not start, or what it answers makes a measurement pointless."""


@dataclass(frozen=True, kw_only=True)
class Cpu:
    """Processor seconds used so far by a server process and by all processes below it."""

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
    """Gives the last lines that it has written, and how it ended if it has."""
    written: Callable[[], str] = str
    """Gives all that it has written."""
    exit_code: Callable[[], int | None] = lambda: None
    """Gives how it ended, None while it runs; negative is a signal."""
    admin_port: int | None = None
    """Where its pages for operators are, if not on `port`."""

    def url(self, path: str) -> str:
        """Where `path` is on this server."""
        return f"http://{HOST}:{self.port}{path}"

    def admin_url(self, path: str) -> str:
        """Where `path` is on this server, if it is for operators."""
        return f"http://{HOST}:{self.admin_port or self.port}{path}"

    def cpu(self) -> Cpu | None:
        """Read the processor time used so far; None where there is no /proc to read it from."""
        ticks = _ticks_by_process()
        if self.pid not in ticks:
            return None
        per_second = os.sysconf("SC_CLK_TCK")
        below = sum(ticks[pid][1] for pid in _descendants(self.pid, ticks=ticks))
        return Cpu(server=ticks[self.pid][1] / per_second, workers=below / per_second)


@contextlib.contextmanager
def serve(name: str, *, command: Sequence[str], ready_path: str = "/readyz") -> Iterator[Server]:
    """Run `command --port P` on a free port until the block ends; enter once it is ready.

    Ready is when GET `ready_path` is answered with 200. Raises BenchError with the last lines
    the server wrote when it ends before that or takes longer than a minute.
    """
    port = free_port()
    whole = (*command, "--port", str(port))
    with tempfile.TemporaryFile() as output:
        # A session of its own, so that Ctrl-C reaches the bench alone and it ends its servers.
        process = subprocess.Popen(
            whole, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            _wait_until_ready(process, name=name, port=port, path=ready_path, output=output)
            yield Server(
                name=name,
                command=whole,
                port=port,
                pid=process.pid,
                last_words=partial(_last_words, process, output=output),
                written=partial(_written, output),
                exit_code=process.poll,
            )
        finally:
            _stop(process)


def free_port() -> int:
    """Return a port that nobody listens on."""
    # Another process may take the port before the server does; it then fails to start and says so.
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(
    process: subprocess.Popen[bytes], *, name: str, port: int, path: str, output: IO[bytes]
) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not _answers_200(port, path=path):
        ended = process.poll()
        if ended is not None:
            raise BenchError(f"{name} ended with {ended} before it was ready:\n{_tail(output)}")
        if time.monotonic() > deadline:
            raise BenchError(f"{name} not ready after {_READY_SECONDS:g} s:\n{_tail(output)}")
        time.sleep(0.05)


def _answers_200(port: int, *, path: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=1.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _last_words(process: subprocess.Popen[bytes], *, output: IO[bytes]) -> str:
    ended = process.poll()
    return _tail(output) + ("" if ended is None else f"\n(ended with {ended})")


def _tail(output: IO[bytes]) -> str:
    return "\n".join(_written(output).splitlines()[-20:])


def _written(output: IO[bytes]) -> str:
    # Not by seeking: the server writes through the same file, at the same place in it.
    return os.pread(output.fileno(), os.fstat(output.fileno()).st_size, 0).decode(errors="replace")


def _stop(process: subprocess.Popen[bytes]) -> None:
    # Noted before the end: workers of a killed server have another parent afterwards.
    below = _descendants(process.pid, ticks=_ticks_by_process())
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _ticks_by_process() -> dict[int, tuple[int, int]]:
    """For every process: its parent, and the clock ticks it has run (user and system)."""
    found = {}
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended while we were looking
            found[int(folder.name)] = parse_stat((folder / "stat").read_text())
    return found


def parse_stat(line: str) -> tuple[int, int]:
    """Read parent process and clock ticks out of a line of /proc/PID/stat (see proc(5))."""
    # The name, in parentheses, may itself hold blanks and parentheses.
    fields = line.rpartition(")")[2].split()
    return int(fields[1]), int(fields[11]) + int(fields[12])


def _descendants(pid: int, *, ticks: dict[int, tuple[int, int]]) -> list[int]:
    children = [child for child, (parent, _) in ticks.items() if parent == pid]
    return children + [below for child in children for below in _descendants(child, ticks=ticks)]
