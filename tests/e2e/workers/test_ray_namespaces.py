"""Failures of a Ray cluster on network namespaces, which share neither memory nor the files of Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from tests.e2e.load import are_doubles, asking
from tests.e2e.server import HTTP, ROOT, Server, eventually, running
from tests.namespaces import Network, network

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray; scripts/nightly installs it"),
]
_WORKERS = 4
_CPUS = 2 * _WORKERS  # of each node: one can run all workers, and their replacements
_CLIENTS = 8
_SERVICE = """
import time
from uncork import Service, api
from uncork.adapters import Json

class Svc(Service):
    @api(input=Json(), mb_max_latency=1000)
    def double(self, items):
        time.sleep(0.02)
        return [2 * number for number in items]
"""
_TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
_OWN_FILES = 'mount -t tmpfs tmpfs /dev/shm && mount --bind "$0" /tmp/ray && exec "$@"'


class Cluster:
    """A Ray head and two nodes, each a machine of a network."""

    def __init__(self, net: Network, folder: Path) -> None:
        self._net = net
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.address = f"ray://{net.address('head')}:10001"
        Path("/tmp/ray").mkdir(exist_ok=True)

    def start(self, name: str) -> None:
        """Start Ray on a machine; do nothing if it runs."""
        if name in self._processes and self._processes[name].poll() is None:
            return
        head = f"{self._net.address('head')}:6379"
        role = [f"--address={head}", f"--num-cpus={_CPUS}"]
        if name == "head":
            role = ["--head", "--port=6379", "--num-cpus=0", "--include-dashboard=false"]
        common = (
            f"--node-ip-address={self._net.address(name)}",
            "--object-store-memory=100000000",
            "--block",
        )
        ray = (sys.executable, "-m", "ray.scripts.scripts", "start", *role, *common)
        files = self._folder / name
        files.mkdir(exist_ok=True)
        output = files / "output.txt"
        with output.open("wb") as file:
            self._processes[name] = subprocess.Popen(
                [*self._net.inside(name), "bash", "-c", _OWN_FILES, str(files), *ray],
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(sys.path),
                    "TMPDIR": "/tmp/ray",
                    "RAY_USAGE_STATS_ENABLED": "0",
                },
            )
        eventually(lambda: "Ray runtime started" in output.read_text())

    def kill(self, name: str) -> None:
        """Kill all processes of a machine."""
        for pid in self._net.pids(name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._processes[name].wait()

    def has_ended(self, name: str) -> bool:
        """Return whether Ray on a machine has ended by itself."""
        return self._processes[name].poll() is not None

    def close(self) -> None:
        for name in self._processes:
            self.kill(name)


@contextmanager
def cluster_on(net: Network, folder: Path) -> Iterator[Cluster]:
    """Run a cluster until the block ends."""
    cluster = Cluster(net, folder)
    try:
        for name in ("head", "near", "far"):
            cluster.start(name)
        yield cluster
    finally:
        cluster.close()


class Stage:
    """A server with workers on a cluster, and the failures that happen to it."""

    def __init__(self, server: Server, cluster: Cluster, net: Network) -> None:
        self._server = server
        self._cluster = cluster
        self._net = net

    def is_full(self) -> bool:
        """Return whether all workers run and take batches."""
        return len(self._workers()) == _WORKERS

    def _workers(self) -> set[int]:
        """Return the processes that take batches."""
        workers = HTTP.get(f"{self._server.base}/status?format=json").json()["workers"]
        return {one["pid"] for one in workers if one["state"] in ("idle", "busy")}

    def break_all(self) -> float:
        """Break one thing after another, each when the cluster has recovered from the one before.

        Returns when the head died, by the monotonic clock.
        """
        time.sleep(5.0)
        self._until_lost(lambda: self._cluster.kill("far"))
        eventually(self.is_full)
        self._cluster.start("far")
        self._reload()
        self._until_lost(lambda: self._net.part("far"))
        eventually(self.is_full)
        self._net.heal("far")
        self._reload()
        self._kill_the_helper()
        eventually(self.is_full)
        head_died = time.monotonic()
        self._kill_the_head()
        for name in ("head", "near", "far"):
            self._cluster.start(name)
        eventually(self.is_full)
        return head_died

    def _until_lost(self, happens: Callable[[], object]) -> None:
        """Wait until what happens to a node, which has a part of the workers, has ended their connections."""
        lost = self._workers() & set(self._net.pids("far"))
        assert 0 < len(lost) < _WORKERS
        happens()
        eventually(lambda: not lost & self._workers())

    def _reload(self) -> None:
        """Spread the workers over both nodes again."""
        succeeded, failed = self._reloads()
        self._server.process.send_signal(signal.SIGHUP)

        def is_reloaded() -> bool:
            nonlocal failed
            # A node that Ray has given up ends when it hears so; then an operator starts it again.
            self._cluster.start("far")
            if self._reloads()[1] > failed:  # Ray has placed a worker on a node that it lost later
                failed += 1
                self._server.process.send_signal(signal.SIGHUP)
            return self._reloads()[0] > succeeded

        eventually(is_reloaded)
        eventually(self.is_full)

    def _reloads(self) -> tuple[int, int]:
        output = self._server.output
        return output.count("reloaded after"), output.count("reload failed")

    def _kill_the_helper(self) -> None:
        before = self._server.output.count("connected to Ray again")
        [helper] = self._server.workers()
        os.kill(helper, signal.SIGKILL)
        eventually(lambda: self._server.output.count("connected to Ray again") > before)

    def _kill_the_head(self) -> None:
        """Ray ends the nodes after a minute, and the workers with them."""
        self._cluster.kill("head")
        reason = f"the Ray head at {self._cluster.address.removeprefix('ray://')} cannot be reached"
        eventually(lambda: reason in HTTP.get(f"{self._server.base}/readyz").text)
        assert not self._server.ready()
        # Ray has started no cluster of its own where the gateway is.
        assert len(psutil.Process(self._server.process.pid).children(recursive=True)) <= 1
        for name in ("near", "far"):
            eventually(lambda name=name: self._cluster.has_ended(name))  # type: ignore[misc]


def test_failures_of_a_cluster_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nodes and the head fail, one after another, every request gets its own answer, or a 503."""
    for name, value in _TOKEN.items():
        monkeypatch.setenv(name, value)
    service = tmp_path / "service"
    service.mkdir()
    (service / "svc.py").write_text(_SERVICE)
    with (
        network("gateway", "head", "near", "far") as net,
        cluster_on(net, tmp_path) as cluster,
        net.entered("gateway"),
    ):
        command = ("serve", f"{service}/svc.py:Svc", "--workers", str(_WORKERS), "--on", cluster.address)
        address = ("--worker-host", net.address("gateway"), "--worker-insecure")
        with running(*command, *address, wait=False) as server:
            stage = Stage(server, cluster, net)
            try:
                eventually(
                    lambda: "/readyz" in server.output or server.process.poll() is not None,
                )
                server.wait_for_address()
                eventually(stage.is_full)
                with asking(server, path="/double", clients=_CLIENTS) as replies:
                    head_died = stage.break_all()
                answered = server.metric("uncork_requests_total", status="200")
            finally:
                print(server.output)

    assert are_doubles(replies)
    assert answered == sum(one.status == 200 for one in replies), "answers were lost or given twice"
    assert {one.status for one in replies if one.began + one.seconds < head_died} == {200}
    assert {one.status for one in replies} <= {200, 503}, Counter(one.status for one in replies)
