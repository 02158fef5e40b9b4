"""Workers that get a full batch while they run another one."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.load import Reply, are_doubles, asking
from tests.e2e.server import SERVICES, Server, eventually, serving

pytestmark = pytest.mark.slow

DOUBLER = f"{SERVICES / 'ahead.py'}:Doubler"
CLIENTS = 16


def ahead(server: Server, api: str) -> float:
    """Return how many batches have been sent ahead."""
    return server.metric("uncork_batches_ahead_total", api=api)


def more_full(server: Server, api: str, count: int = 10) -> None:
    """Wait until more full batches have been released."""

    def full() -> float:
        return server.metric("uncork_releases_total", api=api, reason="full")

    before = full()
    eventually(lambda: full() >= before + count)


def lost(server: Server, api: str) -> float:
    """Return how many batches were lost with their worker."""
    return server.metric("uncork_batches_total", api=api, outcome="lost")


def kill_in_a_batch(server: Server) -> None:
    """Kill the worker, which is stopped before, so that it does not end its batch."""
    [worker] = server.workers()
    os.kill(worker, signal.SIGSTOP)
    eventually(lambda: server.metric("uncork_workers", state="busy") == 1)
    os.kill(worker, signal.SIGKILL)


def test_nothing_that_must_not_run_twice_does_when_its_worker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only requests of the batches that ran get an error; the queued ones are answered by the next worker."""
    runs = tmp_path / "runs"
    monkeypatch.setenv("AHEAD_RUNS", str(runs))
    with serving(DOUBLER) as server:
        with asking(server, path="/once", clients=CLIENTS) as replies:
            for _ in range(3):
                more_full(server, "once")
                kill_in_a_batch(server)
            more_full(server, "once")
        assert ahead(server, "once") == 0

        numbers = [int(line) for line in runs.read_text().splitlines()]
        failed = [reply for reply in replies if reply.status != 200]
        assert len(numbers) == len(set(numbers)) >= len(replies) - len(failed) > 0
        assert are_doubles(replies)
        assert 0 < len(failed) <= 3 * 4, "a batch has at most 4 requests, and the worker had no other"
        assert {reply.status for reply in failed} == {502}


def row_of(number: int) -> np.ndarray[Any, Any]:
    return np.arange(12_000.0) + 1000 * number


def is_double(reply: Reply) -> bool:
    """Whether it is twice the row; one that mixes several replies need not be JSON."""
    try:
        return reply.status == 200 and np.array_equal(reply.value, 2 * row_of(reply.number))
    except ValueError:
        return False


def test_large_batches_arrive_whole() -> None:
    """They go through the shared file, also while workers are killed."""
    with serving(DOUBLER) as server:
        large = asking(server, path="/large", clients=CLIENTS, body=lambda number: row_of(number).tolist())
        with large as replies:
            # Once is enough: on a busy machine, batch times scatter too much for more.
            eventually(lambda: ahead(server, "large") > 0)
            assert lost(server, "large") == 0
            for _ in range(2):
                kill_in_a_batch(server)
                more_full(server, "large", count=5)
        assert all(map(is_double, replies))
        assert lost(server, "large") > 0
