"""``uncork loadtest`` with real generators against a real gateway. How fast anything is, no test asks."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.commands.test_simulate import children, is_gone
from tests.e2e.server import HTTP, PROBE, ROOT, SERVICES, eventually, run_uncork, serving
from tests.loops import HANG_S
from uncork_loadtests.generator.fleet import run
from uncork_loadtests.traffic.plan import Payload, Plan

pytestmark = pytest.mark.slow

STREAMS = f"{SERVICES / 'streams.py'}:Streams"
BRIEF = ("--seconds", "0.3", "--warmup-seconds", "0")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where a served api is that adds two numbers."""
    with serving(PROBE) as server:
        yield f"{server.base}/add"


def figures(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What was printed with --json -; a machine that is busy may void any run."""
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if found["void"] else 0), done.stderr
    return found


def test_a_service_is_served_while_the_test_lasts(tmp_path: Path) -> None:
    """Its first api is asked, and judged by its own goal; estimate and reports come with it."""
    page = tmp_path / "page.html"
    done = run_uncork(
        "loadtest", PROBE, "--rate", "200", "--shape", "2", *BRIEF, "--json", "-", "--workers", "2",
        "--mb-max-latency", "4000", "--report", str(page),
    )  # fmt: skip
    found = figures(done)

    assert found["plan"]["url"].endswith("/add")
    assert found["plan"]["goal_s"] == 4
    assert found["summary"]["statuses"] == {"200": found["summary"]["requests"]}
    assert found["summary"]["in_goal"] == 1
    assert found["summary"]["held"]["count"] == found["summary"]["good"]
    assert found["estimate"]["intercept_ms"] > 0
    assert "Plotly.newPlot" in page.read_text()


def test_one_of_several_services_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration may have others, with APIs of the same names, and TLS and ports of their server."""
    file = tmp_path / "uncork.toml"
    file.write_text(f"own_routes = false\n[services.other]\ntarget = '{PROBE}'")
    monkeypatch.setenv("UNCORK_CONFIG", str(file))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for option in ("ADMIN_PORT", "GRPC_PORT"):
            monkeypatch.setenv(f"UNCORK_{option}", str(taken.getsockname()[1]))
        monkeypatch.setenv("UNCORK_TLS_CERT", str(file))
        done = run_uncork("loadtest", PROBE, "--rate", "200", "--shape", "2", *BRIEF, "--json", "-")
    found = figures(done)
    assert found["summary"]["statuses"] == {"200": found["summary"]["requests"]}
    assert found["plan"]["url"].endswith("/probe/add")
    assert found["estimate"]["intercept_ms"] > 0


def test_a_service_that_only_streams(tmp_path: Path) -> None:
    """It has no goal and no estimate; its answers have a first chunk and an end."""
    page = tmp_path / "page.html"
    done = run_uncork(
        "loadtest", STREAMS, "--rate", "100", "--shape", "5", *BRIEF, "--json", "-", "--report", str(page)
    )
    found = figures(done)

    assert found["plan"]["url"].endswith("/count")
    assert (found["plan"]["goal_s"], found["estimate"]) == (None, None)
    assert found["summary"]["statuses"] == {"200": found["summary"]["requests"]}
    assert found["summary"]["chunks_by_answer"] == 5
    assert found["summary"]["first_chunk"]["count"] == found["summary"]["good"] > 0
    assert "first chunk" in page.read_text()


def test_a_server_behind_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    ca, server_pem, client_pem = (str(tmp_path / f"{name}.pem") for name in ("ca", "server", "client"))
    tls = ("--tls-cert", server_pem, "--tls-client-ca", ca, "--admin-port", "0")
    with serving(PROBE, *tls) as server:
        found = re.search(r"POST (https://\S+/add)", server.output)
        assert found is not None, server.output
        common = ("loadtest", found[1], "--rate", "50", "--shape", "2", *BRIEF)
        trusted = figures(run_uncork(*common, "--json", "-", "--ca", ca, "--cert", client_pem))
        not_trusted = run_uncork(*common, "--cert", client_pem)

    assert trusted["summary"]["statuses"] == {"200": trusted["summary"]["requests"]}
    assert not_trusted.returncode == 1
    assert "its certificate is not trusted" in not_trusted.stderr


def test_processes_share_the_schedule(url: str) -> None:
    """Together they send what one would, each request once."""
    plan = Plan(
        url=url, payload=Payload(bodies=(b"[1,2]",)), rate=300.0, seconds=0.5, warmup_s=0.2, processes=2
    )
    outcome = run(plan)

    assert outcome.samples["scheduled_s"].tolist() == pytest.approx(plan.schedule())
    assert set(outcome.samples["status"]) == {200}
    assert len(outcome.cpu_s) == 2
    assert not outcome.interrupted


def test_clients_that_wait_for_their_answers(url: str) -> None:
    done = run_uncork(
        "loadtest",
        url,
        "--clients",
        "5",
        "--processes",
        "2",
        "--shape",
        "2",
        *BRIEF,
        "--json",
        "-",
        "--header",
        "X-Api-Key: secret",
    )
    found = figures(done)

    assert found["plan"]["headers"] == ["X-Api-Key"]
    assert found["connections"] == 5
    assert found["summary"]["good"] == found["summary"]["requests"] > 0


def test_a_wrong_answer_fails_the_run(url: str, tmp_path: Path) -> None:
    bodies, answers = tmp_path / "bodies", tmp_path / "answers"
    bodies.write_text("[1, 2]\n[3, 4]\n")
    answers.write_text("3.0\n8.0\n")
    done = run_uncork(
        "loadtest", url, "--rate", "50", "--lines", str(bodies), "--expected", str(answers), *BRIEF
    )

    assert done.returncode == 1
    assert "wrong responses" in done.stdout
    assert "first: sent b'[3, 4]', expected b'8.0', got b'7.0'" in done.stderr


def test_ctrl_c_shows_what_was_seen_and_ends_everything() -> None:
    """130, the table, and neither gateway nor generators are left."""
    process = subprocess.Popen(
        [
            sys.executable, "-m", "uncork", "loadtest", PROBE, "--rate", "100", "--shape", "2",
            "--seconds", "60", "--warmup-seconds", "0",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
        text=True,
    )  # fmt: skip
    below: list[int] = []
    try:
        eventually(lambda: any(answers_of(pid) > 10 for pid in children(process.pid)))
        below = children(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=HANG_S)
        assert process.returncode == 130, err
        assert "offered" in out
        assert "Traceback" not in err
        assert all(is_gone(pid) for pid in below)
    finally:
        for pid in (process.pid, *below):
            if not is_gone(pid):
                os.killpg(pid, signal.SIGKILL)
        process.wait()


def answers_of(pid: int) -> float:
    """How many requests a process has answered; 0 if it is no gateway, or not yet one."""
    command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    if "--admin-port" not in command:
        return 0
    try:
        text = HTTP.get(f"http://127.0.0.1:{command[command.index('--admin-port') + 1]}/metrics").text
    except httpx.HTTPError:
        return 0
    families = text_string_to_metric_families(text)
    samples = (sample for family in families for sample in family.samples)
    return sum(sample.value for sample in samples if sample.name == "uncork_requests_total")
