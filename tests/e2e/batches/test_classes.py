"""Classes of requests with real processes: interactive clients beside bulk, and a queue that is full."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from playwright.sync_api import Browser, expect

from tests.e2e.pages.browser import browser, needs_chromium
from tests.e2e.pages.dashboard import field, looking
from tests.e2e.server import HTTP, SERVICES, Server, serving

__all__ = ["browser"]

pytestmark = pytest.mark.slow

CLASSES = f"{SERVICES / 'groups.py'}:Classes"
BULK = {"X-Request-Class": "bulk"}
V1 = "/v1/models/classes:predict"
CLIENTS, REQUESTS = 8, 10


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(CLASSES, "--grpc-port", "0", "--max-queue-rows", "200") as running:
        yield running


def counted(server: Server, name: str, status: int = 200, protocol: str = "http") -> float:
    labels = {"class": name, "status": str(status), "protocol": protocol}
    return server.metric("uncork_requests_total", **labels)


def test_interactive_clients_beside_bulk_are_answered(server: Server) -> None:
    """Each in its class, and with its own row; bulk rides in their batches or runs alone."""
    before = {name: counted(server, name) for name in ("interactive", "bulk")}
    ended = Event()

    def bulk(client: int) -> int:
        answered = 0
        with httpx.Client(base_url=server.base, timeout=None) as http:
            while not ended.is_set():
                rows = list(range(client, client + 4))
                reply = http.post(V1, json={"instances": rows}, headers=BULK)
                assert (reply.status_code, reply.json()["predictions"]) == (200, rows)
                answered += 1
        return answered

    def interactive(client: int) -> None:
        with httpx.Client(base_url=server.base, timeout=None) as http:
            for number in range(REQUESTS):
                reply = http.post("/predict", json=client * REQUESTS + number)
                assert (reply.status_code, reply.json()) == (200, client * REQUESTS + number)

    with ThreadPoolExecutor(2 * CLIENTS) as threads:
        of_bulk = [threads.submit(bulk, client) for client in range(CLIENTS)]
        try:
            list(threads.map(interactive, range(CLIENTS)))
        finally:
            ended.set()
        answered = sum(each.result() for each in of_bulk)
    assert counted(server, "interactive") - before["interactive"] == CLIENTS * REQUESTS
    assert counted(server, "bulk") - before["bulk"] == answered
    assert server.metric("uncork_bulk_rows_total") >= 4 * answered
    [api] = HTTP.get(f"{server.base}/status").json()["apis"]
    assert [each["name"] for each in api["classes"]] == ["interactive", "bulk"]
    assert [each["goal_ms"] for each in api["classes"]] == [2000, None]


def test_a_large_bulk_request_is_divided_and_joined(server: Server) -> None:
    """Its parts are requests of the queue; the client gets one response."""
    before = server.metric("uncork_batch_requests_sum")
    rows = list(range(190))
    reply = HTTP.post(f"{server.base}{V1}", json={"instances": rows}, headers=BULK)
    assert (reply.status_code, reply.json()["predictions"]) == (200, rows)
    assert server.metric("uncork_batch_requests_sum") - before > 10


def test_clients_of_triton_send_priorities(server: Server) -> None:
    def inputs(kind: Any) -> list[Any]:
        tensor = kind("x", [1], "INT64")
        tensor.set_data_from_numpy(np.array([7]))
        return [tensor]

    over_http = triton_http.InferenceServerClient(server.base.removeprefix("http://"))
    over_grpc = triton_grpc.InferenceServerClient(server.grpc)
    before = counted(server, "bulk"), counted(server, "bulk", protocol="grpc")
    over_http.infer("classes", inputs(triton_http.InferInput), priority=2)
    over_grpc.infer("classes", inputs(triton_grpc.InferInput), priority=2)
    over_grpc.infer("classes", inputs(triton_grpc.InferInput), headers={"x-request-class": "bulk"})
    assert counted(server, "bulk") == before[0] + 1
    assert counted(server, "bulk", protocol="grpc") == before[1] + 2
    for client, kind in ((over_http, triton_http.InferInput), (over_grpc, triton_grpc.InferInput)):
        with pytest.raises(Exception, match="'priority' must be 0"):
            client.infer("classes", inputs(kind), priority=3)


def test_bulk_that_fills_the_queue_is_displaced(server: Server) -> None:
    """No interactive request is refused, because all of them fit; bulk gets a Retry-After."""
    with ThreadPoolExecutor(64) as threads:
        asked = [
            threads.submit(
                HTTP.post,
                f"{server.base}{V1}",
                json={"instances": [number] * 20},
                headers=BULK if number % 8 else {},
            )
            for number in range(64)
        ]
        replies = [each.result() for each in asked]
    statuses = Counter((number % 8 > 0, reply.status_code) for number, reply in enumerate(replies))
    refused = [reply for reply in replies if reply.status_code == 503]
    assert statuses[False, 200] == 8, statuses
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
    assert server.metric("uncork_shed_total", **{"class": "bulk"}) == len(refused)


@needs_chromium
def test_the_dashboard_shows_both_classes(server: Server, browser: Browser) -> None:
    for name in ("interactive", "bulk"):
        for _ in range(20):
            assert HTTP.post(f"{server.base}/predict", json=1, headers={"X-Request-Class": name}).is_success
    with looking(browser, server) as page:
        expect(field(page, "latencyText")).to_have_text(
            re.compile(r"interactive: p50 .* ms; goal 2,000 ms\. bulk: p50 .* ms; no goal\.")
        )
        expect(field(page, "queueText")).to_have_text(re.compile("interactive: .* queued.* bulk: .* queued"))


def test_an_unknown_class_is_refused(server: Server) -> None:
    reply = HTTP.post(f"{server.base}/predict", json=1, headers={"X-Request-Class": "fast"})
    assert (reply.status_code, "interactive or bulk" in reply.json()["detail"]) == (400, True)
