"""Our users under locust, as people run it. How fast anything is, no test asks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import PROBE, ROOT, Server, eventually, serving
from tests.loops import HANG_S
from uncork_loadtests.servers import reserved_port

pytestmark = pytest.mark.slow

COMMON = ("--path", "/add", "--headless", "--json", "--shape", "2")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Run a service that adds two numbers."""
    with serving(PROBE) as running:
        yield running


@pytest.fixture
def base(server: Server) -> str:
    return server.base


def locust(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "locust", "-f", "loadtests/locustfile.py", *arguments]


def run(base: str, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = subprocess.run(
        locust(*COMMON, "--host", base, *arguments),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        cwd=ROOT,
        check=False,
    )
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    return done, rows["/add"]


def code(log: str) -> int:
    """What the exit code must be: a machine that is busy may void any run."""
    return 1 if "void: the load generator fell behind" in log else 0


def test_open_loop(base: str, tmp_path: Path) -> None:
    """Requests of the schedule, the warm-up apart; wrong answers are failures; then locust ends by itself."""
    bodies, answers = tmp_path / "bodies", tmp_path / "answers"
    bodies.write_text("[1,2]\n[3,4]\n")
    answers.write_text("3.0\n8.0\n")
    done, row = run(
        base, "--rate", "40", "--arrivals", "constant", "--seconds", "0.5",
        "--warmup-seconds", "0.1", "--lines", str(bodies), "--expected", str(answers),
    )  # fmt: skip

    assert done.returncode == 1
    assert (row["num_requests"], row["num_failures"]) == (20, 10)
    # The service sleeps for 5 ms.
    assert row["min_response_time"] >= 5


def test_clients_that_wait(server: Server, tmp_path: Path) -> None:
    """Random rows, if nothing else is said."""
    before, log = server.metric("uncork_requests_total"), tmp_path / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            locust(*COMMON, "--host", server.base, "-u", "3", "-r", "10"),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
        )
    eventually(lambda: '{"ClosedLoopUser": 3}' in log.read_text())
    eventually(lambda: server.metric("uncork_requests_total") > before)
    process.terminate()
    printed, _ = process.communicate(timeout=HANG_S)

    [row] = json.loads(printed)
    assert process.returncode == 0, log.read_text()
    assert row["num_requests"] > 0
    assert row["num_failures"] == 0


def test_locust_workers_share_one_schedule(base: str) -> None:
    """Each sends its part of it: together as many as one would."""
    with reserved_port() as port:
        _share_one_schedule(base, str(port))


def _share_one_schedule(base: str, port: str) -> None:
    workers = [
        subprocess.Popen(
            locust("--worker", "--master-port", port),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
        )
        for _ in range(2)
    ]
    try:
        done, row = run(
            base, "--master", "--master-bind-port", port, "--expect-workers", "2", "-u", "2",
            "-r", "9", "--rate", "60", "--arrivals", "constant", "--seconds", "0.5", "--warmup-seconds", "0",
        )  # fmt: skip

        assert row["num_requests"] == 30
        assert done.returncode == code(done.stderr), done.stderr
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait(HANG_S)
