"""What real processes log."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.server import HTTP, PROBE, eventually, serving


def lines(output: str) -> list[dict[str, Any]]:
    """The lines of the log; what else is printed is the banner."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def test_all_processes_log_json() -> None:
    """The access log, one line for each batch, and what the user's code raises, with its batch."""
    with serving(PROBE, "--log-format", "json", "--log-level", "debug", "--access-log") as server:
        reply = HTTP.post(f"{server.base}/sleep?q=1", json=0)
        HTTP.post(f"{server.base}/fail", json=11)
        HTTP.get(f"{server.base}/nowhere")

        def found(**wanted: object) -> list[dict[str, Any]]:
            return [line for line in lines(server.output) if wanted.items() <= line.items()]

        eventually(lambda: len(found(logger="uncork.access", path="/nowhere")) == 1)
        [asked] = found(logger="uncork.access", path="/sleep")
        [batch] = found(logger="uncork.batches", batch=reply.headers["x-batch-id"])
        [failed] = found(logger="uncork.access", path="/fail")
        [error] = found(level="error", batch=failed["batch"], process="worker 0")

    assert (asked["status"], asked["request_bytes"], asked["batch"]) == (200, 1, batch["batch"])
    assert (batch["rows"], batch["requests"], batch["outcome"], batch["reason"]) == (1, 1, "worked", "idle")
    assert batch["actual_ms"] > 0
    assert batch["process"] == "gateway"
    assert "Traceback" in error["exception"]


def test_nothing_is_logged_of_requests_by_default() -> None:
    """Neither of batches; and lines are for people."""
    with serving(PROBE) as server:
        HTTP.post(f"{server.base}/sleep", json=0)
        assert "sleep" not in server.output.split("ready after")[1]
