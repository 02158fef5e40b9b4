"""Failures of a Ray cluster whose machines are network namespaces. They share neither memory nor Ray's files.

With ``-s``, prints what clients saw during each failure.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.e2e.load import Reply, doubling
from tests.e2e.server import HTTP, ROOT, Server, eventually, running
from tests.namespaces import Network, network

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray; scripts/nightly installs it"),
]
_WORKERS = 4
_CPUS = 2 * _WORKERS  # of each node: one can run all workers, and their replacements
_CLIENTS = 8
_GOAL_S = 1.0
_SERVICE = f"""
import time
from uncork import Service, api
from uncork.adapters import Json

class Svc(Service):
    @api(input=Json(), mb_max_latency={_GOAL_S * 1000:g})
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


class Phase(NamedTuple):
    """A failure or a repair under load.

    Attributes:
        began: by the monotonic clock; a phase lasts until the next one.
        full_after_s: seconds until all workers ran; None if they did not run again in this phase.
    """

    name: str
    began: float
    full_after_s: float | None


def table(phases: Sequence[Phase], replies: Sequence[Reply]) -> str:
    """Return what clients saw in each phase, as Markdown."""
    lines = [
        f"| event | answers | over {_GOAL_S:g} s | slowest | 502 | 503 | others | full strength after |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ends = [phase.began for phase in phases[1:]] + [float("inf")]
    for phase, end in zip(phases, ends, strict=True):
        mine = [one for one in replies if phase.began <= one.began + one.seconds < end]
        statuses = Counter(one.status for one in mine)
        seconds = [one.seconds for one in mine if one.status == 200]
        late = sum(one > _GOAL_S for one in seconds)
        full = "" if phase.full_after_s is None else f"{phase.full_after_s:.0f} s"
        others = sum(statuses.values()) - statuses[200] - statuses[502] - statuses[503]
        lines.append(
            f"| {phase.name} | {statuses[200]:,} | {late} | {max(seconds, default=0.0):.1f} s "
            f"| {statuses[502]} | {statuses[503]:,} | {others} | {full} |"
        )
    return "\n".join(lines)


class Stage:
    """A server with workers on a cluster, and the failures that happen to it."""

    def __init__(self, server: Server, cluster: Cluster, net: Network) -> None:
        self._server = server
        self._cluster = cluster
        self._net = net
        self.phases: list[Phase] = []

    def is_full(self) -> bool:
        """Return whether all workers run and take batches."""
        return len(self._workers()) == _WORKERS

    def _workers(self) -> set[int]:
        """Return the processes that take batches."""
        workers = HTTP.get(f"{self._server.base}/status?format=json").json()["workers"]
        return {one["pid"] for one in workers if one["state"] in ("idle", "busy")}

    def break_all(self) -> None:
        """Break one thing after another, each when the cluster has recovered from the one before."""
        self._phase("none, for 5 s", lambda: time.sleep(5.0), ends_full=False)
        self._phase("a node dies", self._kill_a_node)
        self._cluster.start("far")
        self._phase("it is back; a reload", self._reload)
        self._phase("a node is cut off", self._cut_a_node_off)
        self._net.heal("far")
        self._phase("it is reachable again; a reload", self._reload)
        self._phase("the helper process dies", self._kill_the_helper)
        self._phase("the head dies", self._kill_the_head, ends_full=False)
        self._phase("head and nodes start again", self._start_all_again)

    def _phase(self, name: str, happens: Callable[[], None], *, ends_full: bool = True) -> None:
        began = time.monotonic()
        happens()
        if ends_full:
            eventually(self.is_full)
        self.phases.append(Phase(name, began, time.monotonic() - began if ends_full else None))

    def _until_lost(self, happens: Callable[[], object]) -> None:
        """Wait until what happens to a node, which has a part of the workers, has ended their connections."""
        lost = self._workers() & set(self._net.pids("far"))
        assert 0 < len(lost) < _WORKERS
        happens()
        eventually(lambda: not lost & self._workers())

    def _kill_a_node(self) -> None:
        self._until_lost(lambda: self._cluster.kill("far"))

    def _cut_a_node_off(self) -> None:
        self._until_lost(lambda: self._net.part("far"))

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

    def _start_all_again(self) -> None:
        for name in ("head", "near", "far"):
            self._cluster.start(name)


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
                with doubling(server, path="/double", clients=_CLIENTS) as replies:
                    stage.break_all()
                answered = server.metric("uncork_requests_total", status="200")
            finally:
                print(server.output)

    print(table(stage.phases, replies))
    assert all(one.is_right for one in replies), "an answer is not that of its request"
    assert answered == sum(one.status == 200 for one in replies), "answers were lost or given twice"
    without_head = next(phase.began for phase in stage.phases if phase.name == "the head dies")
    assert {one.status for one in replies if one.began + one.seconds < without_head} == {200}
    assert {one.status for one in replies} <= {200, 503}, Counter(one.status for one in replies)
