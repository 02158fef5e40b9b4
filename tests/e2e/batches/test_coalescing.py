"""``coalesce`` with real processes: a storm of identical requests."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc

from tests.e2e.server import HTTP, SERVICES, Server, serving
from tests.gateway.client import parse_replies, request
from tests.loops import HANG_S

pytestmark = pytest.mark.slow

COALESCING = f"{SERVICES / 'gated.py'}:Coalescing"
CLIENTS = 64


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(COALESCING, "--grpc-port", "0") as running:
        yield running


def test_identical_requests_at_one_time_are_one_row(server: Server, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    body = json.dumps({"gate": str(gate), "number": 21}).encode()
    address = urlsplit(server.base)
    assert address.hostname is not None
    assert address.port is not None
    sockets = [socket.create_connection((address.hostname, address.port), HANG_S) for _ in range(CLIENTS)]
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


def test_clients_of_grpc_share_the_result(server: Server) -> None:
    """Each number is run by fewer calls than ask for it, and each call gets the double of its own."""

    def infer(number: int) -> int:
        values = triton_grpc.InferInput("input-0", [1, 1], "INT64")
        values.set_data_from_numpy(np.array([[number]]))
        with triton_grpc.InferenceServerClient(server.grpc) as client:
            result = client.infer("coalescing.slow", [values], client_timeout=HANG_S)
        return int(result.as_numpy("output-0")[0, 0])

    asked = [number % 4 for number in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as threads:
        assert list(threads.map(infer, asked)) == [2 * number for number in asked]
    joined = server.metric("uncork_coalesced_requests_total", api="slow")
    assert joined > 0
    assert server.metric("uncork_batch_rows_sum", api="slow") + joined == CLIENTS
