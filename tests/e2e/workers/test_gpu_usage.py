"""Real workers report the GPUs that they may use, on machines without any: a library stands for NVML."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.server import HTTP, PROBE, Server, eventually, serving
from tests.e2e.workers.nvml import FakeGpus
from tests.e2e.workers.remote import remotes, wait_for, worker_port

pytestmark = pytest.mark.slow

BUSY = "uncork_gpu_utilization_ratio"


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpus:
    return FakeGpus(tmp_path, monkeypatch)


def ask(server: Server, path: str = "/remember") -> int:
    """Send a request; its reply takes the last reading along."""
    return HTTP.post(f"{server.base}{path}", json=1).status_code


def reported(server: Server) -> set[tuple[str, str]]:
    """Return worker and GPU of each series."""
    return {(labels["worker"], labels["gpu"]) for labels in server.labels(BUSY)}


def eventually_reports(server: Server, *series: tuple[str, str], path: str = "/remember") -> None:
    eventually(lambda: ask(server, path) == 200 and reported(server) == set(series))


def test_workers_report_the_gpus_that_they_have_been_assigned(gpus: FakeGpus) -> None:
    """Their successors too, after a death and after a reload."""
    with serving(PROBE, "--gpus", "0,GPU-b", "--workers", "2") as server:
        expected = {("0", "0"), ("1", "1")}
        eventually(lambda: ask(server) == 200 and reported(server) == expected)
        status = HTTP.get(f"{server.base}/status").json()
        assert [[gpu["name"] for gpu in worker["gpus"]] for worker in status["workers"]] == [["0"], ["1"]]

        os.kill(status["workers"][0]["pid"], signal.SIGKILL)
        eventually(lambda: reported(server) == {("1", "1")})
        eventually(lambda: ask(server) == 200 and reported(server) == expected)

        before = set(server.workers())
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: len(set(server.workers()) - before) == 2 and not before & set(server.workers()))
        eventually(lambda: ask(server) == 200 and reported(server) == expected)


def test_a_library_that_hangs_costs_nothing_but_the_gauges(gpus: FakeGpus) -> None:
    gpus.set(nvmlInit="hang")
    with serving(PROBE) as server:
        assert ask(server) == 200
        assert reported(server) == set()
        server.terminate()
        assert server.exit_code() == 0


BUSY_SERVICES = """
import time
from pathlib import Path
from uncork import Service, api
from uncork.adapters import Json

class Plain(Service):
    @api(input=Json(), policy="none")
    def stream(self, rows):
        while not Path(rows[0]).exists():
            yield "."
            time.sleep(0.01)

    @api(input=Json())
    def same(self, rows):
        return rows

class Concurrent(Plain):
    @api(input=Json(), concurrency=4)
    async def same(self, rows):
        return rows
"""


def test_streams_report_before_they_end(gpus: FakeGpus, tmp_path: Path) -> None:
    """With concurrency, several threads send."""
    (tmp_path / "busy.py").write_text(BUSY_SERVICES)
    end = tmp_path / "end"
    with ExitStack() as stack:
        servers = [
            stack.enter_context(serving(f"{tmp_path / 'busy.py'}:{name}")) for name in ("Plain", "Concurrent")
        ]
        for server in servers:
            eventually_reports(server, ("0", "0"), ("0", "1"), path="/same")
            reply = stack.enter_context(HTTP.stream("POST", f"{server.base}/stream", json=str(end)))
            assert next(reply.iter_bytes())
        gpus.set(percent=12)
        eventually(lambda: all(server.metric(BUSY, gpu="0") == 0.12 for server in servers))
        end.touch()
        assert [ask(server, "/same") for server in servers] == [200, 200]


def test_a_worker_on_another_machine_reports_its_gpus(
    gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with remotes(tmp_path) as on, on.gateway() as server:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        worker = on.start(worker_port(server), options=["--node", "far"])
        wait_for(server, 1)
        eventually_reports(server, ("0", "1"))
        assert worker.stop() == 0
        eventually(lambda: reported(server) == set())
