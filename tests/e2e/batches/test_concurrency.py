"""APIs of which one worker process runs several batches at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server import HTTP, SERVICES, Server, eventually, serving
from tests.e2e.workers.remote import remotes, wait_for, worker_port

pytestmark = pytest.mark.slow

UPSTREAM = f"{SERVICES / 'upstream.py'}:Upstream"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def post(server: Server, api: str, row: Any = 1) -> httpx.Response:
    return HTTP.post(f"{server.base}/{api}", json=row)


@pytest.fixture(scope="module")
def local() -> Iterator[Server]:
    """The service with one worker, which runs nothing after each test."""
    with serving(UPSTREAM) as server:
        yield server


def waiting(server: Server, threads: ThreadPoolExecutor, count: int) -> list[Future[httpx.Response]]:
    """Return requests that all run, in batches of their own, until ``open`` is called."""
    before = server.metric("uncork_releases_total", api="fetch")
    posted = [threads.submit(post, server, "fetch", "wait") for _ in range(count)]
    eventually(lambda: server.metric("uncork_releases_total", api="fetch") == before + count)
    return posted


def hold_up_no_others(server: Server, threads: ThreadPoolExecutor) -> None:
    """The fourth slot serves; a stream and a plain API run beside them; all end well."""
    slow = waiting(server, threads, 3)
    assert [post(server, "fetch", number).json() for number in range(5)] == [0, 1, 2, 3, 4]
    with HTTP.stream("POST", f"{server.base}/stream", json=7) as stream:
        pieces = stream.iter_text()
        assert next(pieces) == "7"
        assert post(server, "pid").status_code == 200
        assert not any(reply.done() for reply in slow)
        assert post(server, "open").status_code == 200
        assert "".join(pieces) == "77"
    assert server.metric("uncork_batches_total", api="stream", outcome="worked") == 1
    assert [reply.result().json() for reply in slow] == ["wait"] * 3


def test_calls_that_wait_hold_up_no_others(local: Server, threads: ThreadPoolExecutor) -> None:
    hold_up_no_others(local, threads)


def test_nor_do_those_of_a_worker_that_connects_over_tcp(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    with remotes(tmp_path) as on, on.gateway(target=UPSTREAM) as server:
        on.start(worker_port(server), target=UPSTREAM)
        wait_for(server, 1)
        hold_up_no_others(server, threads)


def test_large_bodies_stay_apart_in_any_order(local: Server, threads: ThreadPoolExecutor) -> None:
    """A worker without concurrency shares a file with room for two batches."""
    texts = [
        f"{kind} {number} ".ljust(300_000, str(number)) for number in range(3) for kind in ("wait", "go")
    ]
    before = local.metric("uncork_releases_total", api="fetch")
    pid = post(local, "pid").json()
    os.kill(pid, signal.SIGSTOP)  # so that it reads the batches when all have been sent
    posted = [threads.submit(post, local, "fetch", text) for text in texts if text.startswith("wait")]
    eventually(lambda: local.metric("uncork_releases_total", api="fetch") == before + 3)
    os.kill(pid, signal.SIGCONT)
    for text in texts:
        if text.startswith("go"):
            assert post(local, "fetch", text).json() == text
    post(local, "open")
    assert [reply.result().json() for reply in posted] == texts[::2]


def test_a_call_past_its_timeout_leaves_the_worker_to_the_others(
    local: Server, threads: ThreadPoolExecutor
) -> None:
    slow, pid = waiting(local, threads, 1), post(local, "pid").json()
    late = post(local, "slow")
    assert late.status_code == 504
    assert late.json()["detail"] == "the batch ran past the timeout of API 'slow', 0.2 s"
    assert local.metric("uncork_batches_total", api="slow", outcome="timed_out") == 1
    post(local, "open")
    assert slow[0].result().json() == "wait"
    assert post(local, "pid").json() == pid


def test_the_batches_of_a_killed_worker_run_again(local: Server, threads: ThreadPoolExecutor) -> None:
    """Each of them, on the worker that replaces it."""
    slow = waiting(local, threads, 4)
    os.kill(post(local, "pid").json(), signal.SIGKILL)
    eventually(lambda: local.metric("uncork_batches_total", api="fetch", outcome="lost") == 4)
    # Until then, no worker is ready, or none has all of the batches.
    eventually(lambda: post(local, "open").status_code == 200 and all(reply.done() for reply in slow))
    assert [reply.result().json() for reply in slow] == ["wait"] * 4
