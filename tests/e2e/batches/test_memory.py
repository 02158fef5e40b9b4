"""A model with too little memory for the batches that would suit it otherwise."""

import os
import signal

import pytest

from tests.e2e.load import statuses_while
from tests.e2e.server import SERVICES, Server, eventually, serving

pytestmark = pytest.mark.slow

SERVICE = f"{SERVICES / 'short_of_memory.py'}:ShortOfMemory"
ROOM = 31
# Holds the requests of all clients until there are 64, or as many as fit.
POLICY = ("--policy", "fixed:1000:64", "--mb-max-latency", "60000")


def failures(server: Server) -> float:
    return server.metric("uncork_memory_failures_total", api="double")


def limit(server: Server, api: str = "double") -> float:
    return server.metric("uncork_batch_limit", api=api, worker="0")


def more_batches(server: Server, count: int = 20, *, api: str = "double") -> None:
    def ended() -> float:
        return server.metric("uncork_batches_total", api=api, outcome="worked")

    before = ended()
    eventually(lambda: ended() >= before + count)


def test_batches_come_to_fit_and_no_request_fails() -> None:
    """The next process of a worker that is killed does not have to learn it again."""
    with serving(SERVICE, *POLICY) as server:
        # The warm-up ends with what fits.
        assert "of worker 0; its batches have at most" in server.output
        assert 0.85 * ROOM <= limit(server, "warm") <= ROOM

        def act() -> None:
            eventually(lambda: 0.85 * ROOM <= limit(server) <= 1.25 * ROOM + 1)
            more_batches(server)
            [worker] = server.workers()
            os.kill(worker, signal.SIGKILL)
            eventually(lambda: server.workers() not in ([], [worker]))
            before = failures(server)
            more_batches(server)
            assert failures(server) <= before + 1  # a try of a larger size

        statuses = statuses_while(server, act, path="/double", body=4, answer=8, clients=64)

        assert set(statuses) == {200}
        assert failures(server) > 0


def test_batches_that_kill_workers_become_smaller() -> None:
    """No request fails: those of the last such batch run alone first."""
    with serving(SERVICE, *POLICY, "--warmup-seconds", "0") as server:

        def act() -> None:
            eventually(lambda: 0 < limit(server, "lethal") <= ROOM)
            more_batches(server, api="lethal")
            restarts = server.metric("uncork_worker_restarts_total")
            more_batches(server, api="lethal")
            assert server.metric("uncork_worker_restarts_total") == restarts

        statuses = statuses_while(server, act, path="/lethal", body=4, answer=8, clients=64)

        assert set(statuses) == {200}


def test_main_memory_can_be_limited_in_the_same_way() -> None:
    """64 requests need 1.3 GB, and the worker may have 700 MB, with what it needs to start."""
    options = ("--worker-memory-limit", "700MB", "--warmup-seconds", "0")
    with serving(SERVICE, *POLICY, *options) as server:
        workers = server.workers()

        def act() -> None:
            eventually(lambda: limit(server, "allocate") > 0)
            more_batches(server, 5, api="allocate")

        statuses = statuses_while(server, act, path="/allocate", body=4, answer=8, clients=64)

        assert set(statuses) == {200}
        assert server.workers() == workers
