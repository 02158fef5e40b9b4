"""``coalesce`` with real processes: a storm of identical requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.server import HTTP, SERVICES, serving
from tests.gateway.client import parse_replies, request

pytestmark = pytest.mark.slow

COALESCING = f"{SERVICES / 'gated.py'}:Coalescing"
CLIENTS = 64


def test_identical_requests_at_one_time_are_one_row(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    body = json.dumps({"gate": str(gate), "number": 21}).encode()
    with serving(COALESCING) as server:
        sockets = [server.connect() for _ in range(CLIENTS)]
        for each in sockets:
            each.sendall(request(body, path=b"/gated"))
        # The gateway reads from all sockets before it turns to later connections.
        for _ in range(2):
            assert HTTP.get(f"{server.base}/livez").status_code == 200
        gate.touch()
        replies = []
        for each in sockets:
            received = b""
            while not parse_replies(received):
                received += each.recv(65536)
            replies += parse_replies(received)
            each.close()
        assert {(reply.status, reply.body) for reply in replies} == {(200, b"42")}
        assert len({reply.headers["x-batch-id"] for reply in replies}) == 1
        assert server.metric("uncork_batch_rows_sum", api="gated") == 1
        assert server.metric("uncork_coalesced_requests_total", api="gated") == CLIENTS - 1
        api = HTTP.get(f"{server.base}/status").json()["apis"][0]
        assert (api["name"], api["coalesced"]) == ("gated", CLIENTS - 1)
