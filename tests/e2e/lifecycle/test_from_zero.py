"""Services whose last worker stops when nobody asks, with real processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx
import psutil
import pytest

from tests.e2e.server import HTTP, Server, eventually, serving

pytestmark = pytest.mark.slow

SERVICE = """
import os

from uncork import Service, api
from uncork.adapters import Json


class Sleepy(Service):
    @api(input=Json(), mb_max_latency=60_000)
    def patient(self, rows: list) -> list:
        return [[os.getpid(), VERSION] for _ in rows]

    @api(input=Json(), mb_max_latency=1)
    def hasty(self, rows: list) -> list:
        return rows
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    write(tmp_path, 1)
    return f"{tmp_path / 'sleepy.py'}:Sleepy"


def write(folder: Path, version: int) -> None:
    (folder / "sleepy.py").write_text(SERVICE.replace("VERSION", str(version)))


def asleep(server: Server) -> None:
    """Wait until no worker is left."""
    eventually(lambda: server.metric("uncork_workers", state="idle") == 0 and not server.workers())
    assert "stopping all workers: no request has arrived for 1 s" in server.output


def post(server: Server, api: str = "patient") -> httpx.Response:
    return HTTP.post(f"{server.base}/{api}", json=1)


def test_a_request_waits_for_the_worker_that_it_starts(target: str) -> None:
    """Before and after, the service is ready; nothing that it has learned is lost.

    A request that cannot wait is refused, and starts a worker for the next one.
    """
    with serving(target, "--workers", "0-2", "--idle-after", "1") as server:
        [first, version] = post(server).json()
        asleep(server)
        assert not psutil.pid_exists(first)
        status = HTTP.get(f"{server.base}/status?format=json").json()
        assert status["sentence"] == "No worker runs; the next request starts one."
        assert HTTP.get(f"{server.base}/readyz").status_code == 200
        assert server.metric("uncork_workers_wanted") == 0
        estimate = server.metric("uncork_estimate_intercept_seconds", api="patient")

        [second, version] = post(server).json()
        assert (second != first, version) == (True, 1)
        assert server.metric("uncork_worker_restarts_total") == 0
        assert estimate > 0
        asleep(server)
        refused = post(server, "hasty")
        assert (refused.status_code, refused.json()["reason"]) == (503, "no_worker")
        assert int(refused.headers["retry-after"]) >= 1
        eventually(lambda: post(server, "hasty").status_code == 200)
        server.terminate()
        assert server.exit_code() == 0


def test_a_reload_of_a_service_that_sleeps_checks_and_serves_new_code(target: str, tmp_path: Path) -> None:
    with serving(target, "--workers", "0-1", "--idle-after", "1") as server:
        asleep(server)
        write(tmp_path, 2)
        os.kill(server.process.pid, signal.SIGHUP)
        eventually(lambda: "reloaded" in server.output)
        assert post(server).json()[1] == 2
        asleep(server)
        (tmp_path / "sleepy.py").write_text("broken")
        os.kill(server.process.pid, signal.SIGHUP)
        eventually(lambda: "reload failed" in server.output or "NameError" in server.output)
