"""Workers that get a full batch while they run another one."""

import asyncio
import os
import signal

import httpx
import numpy as np
import pytest

from tests.e2e.load import doubling
from tests.e2e.server import SERVICES, Server, eventually, serving

DOUBLER = f"{SERVICES / 'ahead.py'}:Doubler"
CLIENTS = 16


def ahead(server: Server, api: str) -> float:
    """Return how many batches have been sent ahead."""
    return server.metric("uncork_batches_ahead_total", api=api)


def more_ahead(server: Server, count: int = 5) -> None:
    """Wait until more batches have been sent ahead."""
    before = ahead(server, "double")
    eventually(lambda: ahead(server, "double") >= before + count)


@pytest.mark.parametrize("workers", [1, 2])
def test_every_request_is_answered_while_workers_are_killed(workers: int) -> None:
    with serving(DOUBLER, "--workers", str(workers)) as server:
        with doubling(server, path="/double", clients=CLIENTS * workers) as replies:
            more_ahead(server)
            for _ in range(3):
                os.kill(server.workers()[0], signal.SIGKILL)
                more_ahead(server)

        assert {(reply.status, reply.is_right) for reply in replies} == {(200, True)}
        assert server.metric("uncork_batches_total", api="double", outcome="lost") >= 3


def test_nothing_that_must_not_run_twice_is_sent_ahead() -> None:
    with serving(DOUBLER) as server:
        with doubling(server, path="/once", clients=CLIENTS) as replies:
            eventually(lambda: server.metric("uncork_releases_total", api="once", reason="full") >= 30)

        assert {(reply.status, reply.is_right) for reply in replies} == {(200, True)}
        assert ahead(server, "once") == 0


def test_large_batches_arrive_whole() -> None:
    """They go through the shared file, which holds one at a time."""

    async def client(http: httpx.AsyncClient, number: int) -> None:
        for step in range(8):
            row = np.arange(12_000.0) + number * 1000 + step
            reply = await http.post("/large", json=row.tolist())
            assert reply.status_code == 200
            assert np.array_equal(reply.json(), 2 * row)

    async def load(base: str) -> None:
        async with httpx.AsyncClient(base_url=base, timeout=60, verify=False) as http:
            await asyncio.gather(*(client(http, number) for number in range(CLIENTS)))

    with serving(DOUBLER) as server:
        asyncio.run(load(server.base))
        assert ahead(server, "large") > 0
