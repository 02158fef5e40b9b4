"""Starts a real ``uncork serve`` with real workers, or a real proxy, and ends it by process id."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.loops import HANG_S

SERVICES = Path(__file__).parent / "services"
PROBE = f"{SERVICES / 'probe.py'}:Probe"
ROOT = Path(__file__).parent.parent.parent
OVER_TCP = os.environ.get("E2E_WORKERS") == "tcp"
"""Whether workers connect to ``uncork serve`` over TCP, like those on other machines; see scripts/nightly."""

# For requests without a client of their own. httpx.get and httpx.post read the system's certificates for each
# request, which takes 20 ms of the processor: polls then slow down the server that they wait for.
# Each request closes its connection: httpcore's pool may close an idle one just given to another thread.
HTTP = httpx.Client(verify=False, timeout=HANG_S, headers={"connection": "close"})


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is so.

    Raises:
        AssertionError: if the test hangs.
    """
    gives_up_at, pause_s = time.monotonic() + HANG_S, 0.005
    while not condition():
        assert time.monotonic() < gives_up_at, f"not so within {HANG_S} s"
        # Each request for metrics costs the server 20 ms, which slows down what the test waits for.
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, 0.05)


class Server:
    """A running ``uncork serve`` or ``uncork proxy``."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output
        self.base = ""

    @property
    def output(self) -> str:
        return self._output.read_text()

    def wait_for_address(self) -> None:
        """Wait until it says where it listens."""
        eventually(lambda: self._address() is not None or self.process.poll() is not None)
        address = self._address()
        assert address is not None, self.output
        self.base = address

    def wait_until_ready(self) -> None:
        self.wait_for_address()
        eventually(self.ready)

    @property
    def grpc(self) -> str:
        found = re.search(r"gRPC +(\S+:\d+)", self.output)
        assert found is not None, self.output
        return found[1]

    @property
    def port(self) -> str:
        return urlsplit(self.base).netloc.rpartition(":")[2]

    def connect(self) -> socket.socket:
        """Return a new connection to the port for clients."""
        return socket.create_connection(("127.0.0.1", int(self.port)), HANG_S)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command that asks something of this server, such as `reload`."""
        return run_uncork(*command, "--port", self.port)

    def ready(self) -> bool:
        return HTTP.get(f"{self.base}/readyz").status_code == 200

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of one name that have these labels."""
        samples = self._samples(name)
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    def labels(self, name: str) -> list[dict[str, str]]:
        """Labels of the samples of one name."""
        return [sample.labels for sample in self._samples(name)]

    def _samples(self, name: str) -> list[Sample]:
        lines = HTTP.get(f"{self.base}/metrics").text.splitlines(keepends=True)
        text = "".join(line for line in lines if line.startswith(name))
        families = text_string_to_metric_families(text)
        return [sample for family in families for sample in family.samples if sample.name == name]

    def workers(self) -> list[int]:
        """Process ids of the workers that live."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(child) for child in children.split()]

    def terminate(self) -> None:
        """Ask it to stop, as a service manager does."""
        self.process.send_signal(signal.SIGTERM)

    def exit_code(self) -> int:
        return self.process.wait(HANG_S)

    def _address(self) -> str | None:
        found = re.search(r"(?:GET |see) +(http://[^/\s]+)/(?:readyz|status)", self.output)
        return found[1] if found else None


@contextmanager
def process_of(*command: str, folder: Path = ROOT, **environment: str) -> Iterator[Server]:
    """Run any command that serves, and end it with the block."""
    with (
        tempfile.NamedTemporaryFile(prefix="uncork-e2e-") as output,
        tempfile.TemporaryDirectory(prefix="uncork-e2e-state-") as state,
    ):
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            # A group of its own, so that a test can send what a terminal sends on Ctrl-C.
            start_new_session=True,
            # What a server learns is neither for the next one nor for the user's home.
            env={**os.environ, "PYTHONUNBUFFERED": "1", "XDG_STATE_HOME": state, **environment},
        )
        server = Server(process, Path(output.name))
        try:
            yield server
        finally:
            if process.poll() is None:
                server.terminate()
                try:
                    process.wait(HANG_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


@contextmanager
def running(
    *command: str,
    wait: bool = True,
    python: str = sys.executable,
    folder: Path = ROOT,
    prefix: Sequence[str] = (),
) -> Iterator[Server]:
    """Run a command that serves, on a free port unless it names one, until the block ends.

    ``prefix`` runs it elsewhere, such as ``ip netns exec NAME``.
    """
    port = () if "--port" in command else ("--port", "0")
    module = "tests.e2e.over_tcp" if OVER_TCP else "uncork"
    with process_of(*prefix, python, "-m", module, *command, *port, folder=folder) as server:
        if wait:
            server.wait_until_ready()
        yield server


@contextmanager
def serving(*arguments: str, wait: bool = True) -> Iterator[Server]:
    """Serve a target until the block ends."""
    with running("serve", *arguments, wait=wait) as server:
        yield server


@contextmanager
def proxying(*arguments: str) -> Iterator[Server]:
    """A proxy for some servers until the block ends."""
    with running("proxy", *arguments) as server:
        yield server


def run_uncork(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "uncork", *arguments],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        cwd=ROOT,
        check=False,
    )
