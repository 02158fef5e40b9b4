"""What real processes log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.server import HTTP, PROBE, eventually, running, serving

pytestmark = pytest.mark.slow

INFER = {"inputs": [{"name": "input-0", "shape": [1, 2], "datatype": "FP64", "data": [1, 2]}]}


def lines(output: str) -> list[dict[str, Any]]:
    """The lines of the log in JSON. The last one may still be incomplete."""
    return [json.loads(line) for line in output.splitlines(keepends=True) if line.endswith("\n")]


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
        # The banner, too: a collector of logs gets nothing but JSON objects.
        messages = [line["message"] for line in lines(server.output)]

    assert (asked["status"], asked["request_bytes"], asked["batch"]) == (200, 1, batch["batch"])
    assert asked["request"] == reply.headers["x-request-id"]
    assert (batch["rows"], batch["requests"], batch["outcome"], batch["reason"]) == (1, 1, "worked", "idle")
    assert batch["actual_ms"] > 0
    assert batch["process"] == "gateway"
    assert "Traceback" in error["exception"]
    assert any(message.startswith("uncork ") for message in messages)
    assert any(message.startswith(f"POST {server.base}/sleep   goal ") for message in messages)
    assert f"GET  {server.base}/status" in messages
    assert any(message.startswith("ready after ") for message in messages)


def test_a_proxy_logs_no_line_for_each_call_of_a_server() -> None:
    """Neither for batches, nor for requests that it passes through, nor for health checks.

    Nor does a server of its requests, by default; and lines are for people.
    """
    with (
        serving(PROBE) as server,
        running("proxy", server.base, "--protocol", "v2", "--log-format", "json") as proxy,
    ):
        proxy.wait_until_ready()
        assert HTTP.get(f"{proxy.base}/v2/models/probe").status_code == 404
        assert HTTP.post(f"{proxy.base}/v2/models/probe.add/infer", json=INFER).status_code == 200
        proxy.terminate()
        assert proxy.exit_code() == 0
        assert server.metric("uncork_requests_total", api="add") == 1
        assert "infer" not in server.output.split("ready after")[1]
        loggers = {line["logger"] for line in lines(proxy.output)}

    assert loggers == {"uncork.gateway"}
