"""An API with a worker of its own beside one whose batches take long, with real processes."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.server import HTTP, SERVICES, eventually, run_uncork, serving

pytestmark = pytest.mark.slow

GATED = f"{SERVICES / 'gated.py'}:Gated"


def test_long_batches_do_not_delay_an_api_with_its_own_worker(tmp_path: Path) -> None:
    """The second slow request waits for the first, although a worker is idle."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with (
        serving(GATED, "--workers", "2", "--environment", f"GATE={gate}") as server,
        ThreadPoolExecutor(2) as threads,
    ):
        slow = [threads.submit(HTTP.post, f"{server.base}/slow", json=number) for number in range(2)]
        eventually(lambda: server.metric("uncork_queue_rows", api="slow") == 1)
        for number in range(5):
            reply = HTTP.post(f"{server.base}/fast", json=number)
            assert (reply.status_code, reply.json()) == (200, number)
        assert not any(reply.done() for reply in slow)

        gate.write_text("open")
        eventually(lambda: any(reply.done() for reply in slow))
        gate.write_text("open")
        assert [reply.result().json() for reply in slow] == [0, 1]


def test_a_reservation_that_leaves_no_worker_is_refused_at_the_start() -> None:
    refused = run_uncork("serve", GATED, "--workers", "1", "--port", "0")
    assert refused.returncode == 2
    assert "reserves 1 for fast, which leaves none for slow; set --workers to 2" in " ".join(
        refused.stderr.split()
    )
