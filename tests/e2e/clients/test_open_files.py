"""A server with a low limit of open files, and more clients than that."""

import os
import signal
import socket
from contextlib import ExitStack

import pytest

from tests.e2e.server import PROBE, Server, eventually, running

pytestmark = pytest.mark.slow

REQUEST = (
    b"POST /remember HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n1"
)


def status(connection: socket.socket) -> int:
    """Send a request; return the status of the response, 0 without one."""
    try:
        connection.sendall(REQUEST)
        start = connection.recv(65536)
    except OSError:
        return 0
    return int(start.split()[1]) if start else 0


def test_clients_leave_files_for_workers_and_operators() -> None:
    """Of 100 clients as many are served as the limit allows; the log says that others are refused."""
    limited = ("bash", "-c", 'ulimit -n 64; exec "$@"', "bash")
    command = ("serve", PROBE, "--admin-port", "0", "--grpc-port", "0")
    with running(*command, prefix=limited, wait=False) as server, ExitStack() as stack:
        server.wait_for_address()
        admin, server.base = server.base, public(server)
        eventually(lambda: "ready after" in server.output)
        clients = [stack.enter_context(server.connect()) for _ in range(100)]
        statuses = [status(client) for client in clients]
        served = [client for client, code in zip(clients, statuses, strict=True) if code == 200]
        assert len(served) >= 22
        assert 503 in statuses
        assert server.output.count("refusing client connections") == 1

        [worker] = server.workers()
        os.kill(worker, signal.SIGKILL)
        server.base = admin
        eventually(lambda: server.metric("uncork_worker_restarts_total") == 1)
        eventually(lambda: server.metric("uncork_workers", state="idle") == 1)
        assert status(served[0]) == 200
        assert "Too many open files" not in server.output


def public(server: Server) -> str:
    """Where clients are served; the operators' pages have another port."""
    [port] = {
        line.split("POST")[1].split()[0].rpartition("/")[0]
        for line in server.output.splitlines()
        if "POST" in line and "/remember" in line
    }
    return port
