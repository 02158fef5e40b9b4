"""Classes of requests with real processes: interactive clients beside bulk, and a queue that is full."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import httpx
import pytest
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


def counted(server: Server, name: str) -> float:
    return server.metric("uncork_requests_total", **{"class": name, "status": "200"})


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
