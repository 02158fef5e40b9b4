"""Connections to the worker port that say nothing, while the gateway serves."""

import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.e2e import load
from tests.e2e.server import Server, eventually
from tests.e2e.workers.remote import TOKEN, Remotes, remotes, wait_for, worker_port
from tests.loops import HANG_S
from uncork_workers.wire.dialing import Address, Dialer

_SILENT = 1000
_REFUSED = "uncork_worker_connections_refused_total"


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Remotes]:
    with remotes(tmp_path) as made:
        yield made


@pytest.fixture
def files() -> Iterator[None]:
    """Allow this process a file for each silent connection, if the system does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _SILENT + 500
    if hard not in (resource.RLIM_INFINITY,) and hard < needed:
        pytest.skip(f"needs {needed} open files; the system allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connections(server: Server, port: str) -> int:
    """Count the server's connections to its worker port."""
    found = psutil.Process(server.process.pid).net_connections("tcp")
    return sum(one.laddr.port == int(port) and one.status != psutil.CONN_LISTEN for one in found)


@contextmanager
def silent_peers(address: tuple[str, int], open_now: ExitStack) -> Iterator[None]:
    """Open a silent connection every 10 ms until the block ends: eight times as many as may be pending."""
    ends = threading.Event()

    def connect() -> None:
        while not ends.wait(0.01):
            open_now.enter_context(socket.create_connection(address))

    thread = threading.Thread(target=connect)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


@pytest.mark.slow
def test_silent_connections_keep_neither_requests_nor_workers_out(on: Remotes, files: None) -> None:
    """A thousand at once and then a hundred per second. Nothing is left of them afterwards."""
    with on.gateway() as server:
        host, _, port = worker_port(server).rpartition(":")
        address = Address(host, int(port))
        first = on.start(worker_port(server))
        wait_for(server, 1)

        def flood() -> None:
            with ExitStack() as open_now:
                for _ in range(_SILENT):
                    open_now.enter_context(socket.create_connection(address, timeout=HANG_S))
                # As many as may be pending are: a worker gets through nevertheless, at its first attempt.
                for _ in range(5):
                    Dialer(addresses=[address], token=TOKEN.encode(), instance="x").dial().connection.close()
                assert connections(server, port) < 200
                with silent_peers(address, open_now):
                    on.start(worker_port(server))
                    wait_for(server, 2)
                eventually(lambda: server.metric(_REFUSED) >= _SILENT)

        statuses = load.statuses_while(server, flood, path="/add", body=[1, 2], answer=3, clients=8)

        assert statuses.keys() == {200}
        assert first.process.poll() is None
        eventually(lambda: connections(server, port) == 2)
        assert server.metric(_REFUSED, reason="too_many") >= _SILENT - 64
        assert server.output.count("refused") < 10
