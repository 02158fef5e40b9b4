"""Clients of real processes that leave while a worker runs their batch."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from tritonclient.utils import InferenceServerException

from tests.e2e.server import HTTP, SERVICES, Server, eventually, proxying, serving
from tests.gateway.client import parse_replies, request
from tests.loops import HANG_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(f"{SERVICES / 'leaving.py'}:Leaving", "--grpc-port", "0") as running:
        yield running


def sent(server: Server, path: bytes, body: bytes = b"1") -> socket.socket:
    """Return the connection of a client that has sent a request."""
    connection = server.connect()
    connection.sendall(request(body, path=path))
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


async def call(address: str, api: str, until: Callable[[], None], *, timeout_s: float | None = None) -> str:
    """Call an API over gRPC, cancel the call after ``until``, and return how the call ended."""
    rows = triton.InferInput("input-0", [1, 1], "INT64")
    rows.set_data_from_numpy(np.array([[1]]))
    async with triton.InferenceServerClient(address) as client:
        asked = client.infer(f"leaving.{api}", [rows], client_timeout=timeout_s)
        calling = asyncio.ensure_future(asked)
        await asyncio.to_thread(until)
        if timeout_s is None:
            calling.cancel()
        with pytest.raises((asyncio.CancelledError, InferenceServerException)) as caught:
            await calling
    return str(caught.value)


@pytest.mark.parametrize("api", ["asks", "waits"])
def test_a_call_that_is_cancelled_frees_the_worker(server: Server, api: str) -> None:
    asyncio.run(call(server.grpc, api, lambda: until_busy(server)))
    assert is_free(server)


def test_a_call_whose_deadline_has_passed_frees_the_worker(server: Server) -> None:
    assert "DEADLINE_EXCEEDED" in asyncio.run(call(server.grpc, "waits", lambda: None, timeout_s=0.5))
    assert is_free(server)


def test_a_client_of_the_proxy_frees_the_worker_of_the_server(server: Server) -> None:
    """By leaving, or when its time has passed; the proxy then has room for the next call."""
    path, body = "/v1/models/leaving.waits:predict", {"instances": [1]}
    with proxying(server.base) as proxy:
        connection = sent(proxy, path.encode(), json.dumps(body).encode())
        until_busy(server)
        connection.close()
        assert is_free(server)
        late = HTTP.post(f"{proxy.base}{path}", json=body, headers={"x-request-timeout-ms": "500"})
        assert late.status_code == 504
        assert is_free(server)
        ready = HTTP.post(f"{proxy.base}/v1/models/leaving.ready:predict", json=body)
        assert ready.json()["predictions"] == [1]
        eventually(lambda: proxy.metric("uncork_batches_total", outcome="cancelled") >= 1)


def test_a_call_through_the_proxy_frees_the_worker_of_the_server(server: Server) -> None:
    with proxying(f"grpc://{server.grpc}", "--grpc-port", "0") as proxy:
        asyncio.run(call(proxy.grpc, "waits", lambda: until_busy(server)))
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
