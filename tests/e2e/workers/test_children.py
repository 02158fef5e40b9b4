"""Processes that a service starts: they behave as in a script, and end with their worker."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.e2e.lifecycle.test_lifecycle import is_alive
from tests.e2e.server import HTTP, SERVICES, Server, eventually, serving

pytestmark = pytest.mark.slow

CHILDREN = f"{SERVICES / 'children.py'}:Children"
HELPED = f"{SERVICES / 'children.py'}:Helped"
POOLS = [("fork", "pool"), ("spawn", "pool"), ("forkserver", "pool"), ("spawn", "executor")]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(CHILDREN) as server:
        yield server


def post(server: Server, path: str, item: object) -> httpx.Response:
    return HTTP.post(f"{server.base}/{path}", json=item)


@pytest.mark.parametrize(("method", "api"), POOLS)
def test_pools_of_processes_start_and_end(server: Server, method: str, api: str) -> None:
    for _ in range(2):
        reply = post(server, api, method)
        assert (reply.status_code, reply.json()) == (200, [2, 4, 6])


@pytest.mark.parametrize("api", ["signal_program", "signal_fork"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_children_end_by_signals(server: Server, number: int, api: str) -> None:
    assert post(server, api, number).json() == -number


def test_children_are_interrupted_as_in_a_script(server: Server) -> None:
    assert post(server, "signal_program", signal.SIGINT).json() == -signal.SIGINT
    # Python's handler raises KeyboardInterrupt, which ends a fork like any exception.
    assert post(server, "signal_fork", signal.SIGINT).json() in (1, -signal.SIGINT)


@pytest.mark.parametrize(
    ("api", "code"), [("fork_and_fail", 1), ("fork_and_return", 0), ("fork_and_fail_async", 1)]
)
def test_a_fork_does_not_reply_in_place_of_the_worker(server: Server, api: str, code: int) -> None:
    """Not for one request, nor for several in one batch: a fork that raises does not run them again."""
    assert post(server, api, 0).json() == code
    with ThreadPoolExecutor(16) as clients:
        replies = list(clients.map(partial(post, server, api), range(16)))
    assert [reply.json() for reply in replies] == [code] * 16
    if code:
        eventually(lambda: "ValueError: in the child" in server.output)


def test_a_fork_of_a_stream_does_not_go_on_with_it(server: Server) -> None:
    assert post(server, "stream", 0).text == "first 1"


@pytest.mark.parametrize("api", ["fork_and_hang", "detach_and_hang"])
def test_the_end_of_a_worker_is_noticed_although_a_child_lives(tmp_path: Path, api: str) -> None:
    """The batch is given up long before its timeout of a minute."""
    with serving(CHILDREN) as server, ThreadPoolExecutor(1) as client:
        file = tmp_path / "pids"
        reply = client.submit(post, server, api, str(file))
        eventually(lambda: file.exists() and " " in file.read_text())
        worker, child = map(int, file.read_text().split())
        file.unlink()
        killed_at = time.monotonic()
        os.kill(worker, signal.SIGKILL)
        if api == "fork_and_hang":
            eventually(lambda: not is_alive(child))
            eventually(file.exists)  # the batch runs again elsewhere
            again = [int(pid) for pid in file.read_text().split()]
            server.terminate()
            eventually(lambda: "press Ctrl-C again" in server.output)
            server.terminate()
            assert server.exit_code() == 0
            assert [pid for pid in again if is_alive(pid)] == []
        else:
            assert reply.result().status_code == 502
            assert time.monotonic() - killed_at < 30
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_helpers_end_with_the_server(number: int) -> None:
    """In a reload, they end with their worker.

    The server may be interrupted in a terminal, whose signal reaches its whole group.
    """
    with serving(HELPED) as server:
        former = post(server, "pids", 0).json()
        assert all(map(is_alive, former))
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: not any(map(is_alive, former)))
        worker, helper = post(server, "pids", 0).json()
        eventually(lambda: "ValueError: in the child of setup" in server.output)
        (os.killpg if number == signal.SIGINT else os.kill)(server.process.pid, number)
        server.exit_code()
        eventually(lambda: not is_alive(worker))
        if number != signal.SIGKILL:  # nothing is left that could end a helper that ignores SIGTERM
            assert not is_alive(helper)
        else:
            os.kill(helper, signal.SIGKILL)
