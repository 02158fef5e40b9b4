"""The situations of which users ask: /status of a real gateway names the cause of each."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.server import HTTP, SERVICES, Server, eventually, serving
from tests.loops import HANG_S

pytestmark = pytest.mark.slow

STAGED = f"{SERVICES / 'staged.py'}:Staged"
Document = dict[str, Any]


def status(server: Server) -> Document:
    document: Document = HTTP.get(f"{server.base}/status").json()
    return document


def of(document: Document, api: str) -> Document:
    told: Document = next(one for one in document["apis"] if one["name"] == api)
    return told


def advice(document: Document, api: str) -> dict[str, str]:
    return {one["code"]: one["text"] for one in of(document, api)["advice"]}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Give a gateway with one worker."""
    with serving(STAGED, "--workers", "1") as running:
        yield running


def ask(server: Server, path: str, body: Any, *, times: int) -> None:
    """Ask several times, one after the other."""
    with httpx.Client(base_url=server.base, timeout=HANG_S) as http:
        for _ in range(times):
            http.post(path, json=body)


async def burst(server: Server, path: str, body: Any, *, times: int) -> int:
    """Ask several times at once; returns how many got 503."""
    async with httpx.AsyncClient(base_url=server.base, timeout=HANG_S) as http:
        replies = await asyncio.gather(*(http.post(path, json=body) for _ in range(times)))
    return sum(reply.status_code == 503 for reply in replies)


def test_overload(server: Server) -> None:
    """More comes than one worker can do: some is refused, and it is said why and what to do."""

    rows = list(range(10))
    ask(server, "/loaded", rows, times=12)
    refused = asyncio.run(burst(server, "/loaded", rows, times=30))
    document = status(server)

    loaded = of(document, "loaded")
    assert refused > 1
    assert loaded["requests"]["503"] == loaded["sheds"]["deadline"] == refused
    assert loaded["limited_by"] == "workers"
    assert f"The gateway refused {refused} of 42 requests (" in loaded["sentence"]
    assert f"The gateway refused {refused} of 42 requests (" in loaded["why_refused"]
    assert "with 503 (deadline)" in loaded["why_refused"]
    assert advice(document, "loaded")["add_workers"].endswith(" (--workers).")
    assert (loaded["refused"], loaded["refused_share"]) == (refused, pytest.approx(refused / 42))
    expected = "failing" if refused >= 21 else "degraded"
    assert (loaded["state"], document["state"]) == (expected, expected)


def test_a_dead_worker(server: Server) -> None:
    """Until its replacement is ready, /status names its end and counts the refused requests."""
    [before] = status(server)["workers"]
    os.kill(before["pid"], signal.SIGKILL)
    eventually(lambda: status(server)["state"] == "not_ready")
    refusal = HTTP.post(f"{server.base}/unasked", json=1)
    document = status(server)
    eventually(server.ready)
    after = status(server)

    assert refusal.status_code == 503
    assert document["sentence"] == "No worker is ready: worker 0 was killed by SIGKILL."
    unasked = of(document, "unasked")
    assert unasked["limited_by"] == "workers"
    assert unasked["sentence"].endswith(document["sentence"])
    assert advice(document, "unasked")["no_worker"].startswith(document["sentence"].removesuffix("."))
    [worker] = document["workers"]
    assert (worker["index"], worker["state"]) in ((0, "lost"), (0, "starting"))
    assert worker["doing"] == "worker 0 was killed by SIGKILL"
    assert of(after, "unasked")["why_refused"] == (
        "The gateway refused 1 of 1 request (100 %) with 503 (no_worker), because no worker was ready."
    )
    assert after["restarts"] == 1
    assert after["state"] != "not_ready"
    assert after["workers"][0]["pid"] != before["pid"]
