"""Clients of real processes that leave while a worker runs their batch."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from tests.e2e.server import HTTP, SERVICES, Server, eventually, serving
from tests.gateway.client import parse_replies, request
from tests.loops import HANG_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(f"{SERVICES / 'leaving.py'}:Leaving") as running:
        yield running


def sent(server: Server, path: bytes) -> socket.socket:
    """Return the connection of a client that has sent a request."""
    address = urlsplit(server.base)
    assert address.hostname is not None
    assert address.port is not None
    connection = socket.create_connection((address.hostname, address.port), HANG_S)
    connection.sendall(request(b"1", path=path))
    return connection


def until_busy(server: Server) -> None:
    eventually(lambda: server.metric("uncork_workers", state="busy") == 1)


def is_free(server: Server) -> bool:
    """Return True if the worker runs the next batch; nobody waits for it while it is busy."""
    return HTTP.post(f"{server.base}/ready", json=[1]).status_code == 200


@pytest.mark.parametrize("api", ["asks", "waits"])
def test_a_worker_is_free_when_its_clients_have_left(server: Server, api: str) -> None:
    def cancelled() -> float:
        return server.metric("uncork_batches_total", api=api, outcome="cancelled")

    for times in (1, 2):
        connection = sent(server, b"/" + api.encode())
        until_busy(server)
        connection.close()
        assert is_free(server)
        assert cancelled() == times
    assert server.metric("uncork_worker_restarts_total") == 0
    assert "Traceback" not in server.output


@pytest.mark.parametrize("api", ["asks", "waits"])
def test_a_worker_is_free_when_its_clients_time_has_passed(server: Server, api: str) -> None:
    """On a busy machine, the time may pass before the worker has the request."""
    before = server.metric("uncork_batches_total", api=api, outcome="cancelled")
    while server.metric("uncork_batches_total", api=api, outcome="cancelled") == before:
        late = HTTP.post(f"{server.base}/{api}", json=[1], headers={"x-request-timeout-ms": "500"})
        assert (late.status_code, late.json()["reason"]) == (504, "client_deadline")
        assert is_free(server)


def test_a_stream_that_waits_ends_with_its_client(server: Server) -> None:
    connection = sent(server, b"/streams")
    assert connection.recv(4096)
    until_busy(server)
    connection.close()
    assert is_free(server)


def test_the_other_client_of_a_batch_is_answered(server: Server) -> None:
    staying, leaving = sent(server, b"/pairs"), sent(server, b"/pairs")
    until_busy(server)
    leaving.close()
    with staying, ThreadPoolExecutor(1) as pool:
        received = pool.submit(staying.recv, 65536).result(HANG_S)
    [reply] = parse_replies(received)
    assert (reply.status, reply.body) == (200, b"true")
