"""``uncork proxy`` in front of a gRPC server, which is one of ours, with Triton's client."""

from __future__ import annotations

import asyncio
import queue
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
import trustme

from tests.e2e.clients.test_grpc import code, floats
from tests.e2e.clients.test_protocols import DOUBLED, MODELS, ROWS
from tests.e2e.server import HTTP, Server, eventually, proxying, running, serving
from tests.loops import HANG_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def behind() -> Iterator[Server]:
    """The server behind the proxy, which releases every batch at once."""
    with serving(MODELS, "--grpc-port", "0", "--policy", "none") as server:
        yield server


@pytest.fixture(scope="module")
def proxy(behind: Server) -> Iterator[Server]:
    """A proxy that waits for more rows."""
    with proxying(f"grpc://{behind.grpc}", "--grpc-port", "0", "--policy", "fixed:100") as server:
        yield server


def test_calls_at_the_same_time_are_merged(behind: Server, proxy: Server) -> None:
    async def ask() -> list[Any]:
        async with triton_aio.InferenceServerClient(proxy.grpc) as one:
            return await asyncio.gather(*[one.infer("models", [floats([row])]) for row in ROWS])

    before = behind.metric("uncork_requests_total", api="predict", protocol="grpc")
    results = asyncio.run(ask())

    assert [result.as_numpy("output-0")[0].tolist() for result in results] == DOUBLED
    calls = behind.metric("uncork_requests_total", api="predict", protocol="grpc") - before
    assert 1 <= calls <= len(ROWS) / 4
    assert proxy.metric("uncork_requests_total", protocol="grpc", status="200") == len(ROWS)


def test_errors_come_as_the_server_sent_them(behind: Server, proxy: Server) -> None:
    def failure(server: Server) -> tuple[str, str]:
        with (
            triton.InferenceServerClient(server.grpc) as client,
            pytest.raises(triton.InferenceServerException) as caught,
        ):
            client.infer("modles", [floats(ROWS[:1])])
        return code(caught.value), str(caught.value)

    assert failure(proxy) == failure(behind)
    assert failure(proxy)[0] == "NOT_FOUND"


def test_other_methods_and_streams_pass_through(proxy: Server) -> None:
    with triton.InferenceServerClient(proxy.grpc) as client:
        assert client.is_server_ready()
        assert client.get_model_metadata("models").inputs[0].shape == [-1, 3]
        answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        for row in ROWS[:3]:
            client.async_stream_infer("models", [floats([row])])
        found = [answers.get(timeout=HANG_S) for _ in range(3)]
        client.stop_stream()
        assert [result.as_numpy("output-0")[0].tolist() for result, _ in found] == DOUBLED[:3]


def test_servers_with_tls_are_verified_by_their_own_authority(tmp_path: Path) -> None:
    """Over gRPC and over HTTP, for merged requests and for others."""
    authority = trustme.CA()
    ca, server = (str(tmp_path / name) for name in ("ca.pem", "server.pem"))
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(server)
    options = ("--grpc-port", "0", "--tls-cert", server, "--admin-port", "0")
    with serving(MODELS, *options) as behind:
        found = re.search(r"https://127\.0\.0\.1:\d+", behind.output)
        assert found is not None, behind.output
        grpcs = (f"grpcs://{behind.grpc}", "--grpc-port", "0")
        with proxying(*grpcs, "--server-ca", ca) as proxy, triton.InferenceServerClient(proxy.grpc) as client:
            result = client.infer("models", [floats(ROWS[:2])])
            assert result.as_numpy("output-0").tolist() == DOUBLED[:2]
            assert client.get_server_metadata().name == "uncork"
        with proxying(found[0], "--server-ca", ca) as proxy:
            asked = HTTP.post(f"{proxy.base}/v1/models/models:predict", json={"instances": ROWS[:2]})
            assert asked.json()["predictions"] == DOUBLED[:2]
            assert HTTP.get(f"{proxy.base}/v2").json()["name"] == "uncork"
        with running("proxy", *grpcs, wait=False) as proxy:
            proxy.wait_for_address()
            eventually(lambda: "CERTIFICATE_VERIFY_FAILED" in proxy.output)
            assert not proxy.ready()


def test_a_server_that_ends_makes_the_proxy_unready() -> None:
    with (
        serving(MODELS, "--grpc-port", "0") as ending,
        proxying(f"grpc://{ending.grpc}", "--grpc-port", "0") as proxy,
    ):
        ending.terminate()
        assert ending.exit_code() == 0
        eventually(lambda: not proxy.ready())
        with (
            triton.InferenceServerClient(proxy.grpc) as client,
            pytest.raises(triton.InferenceServerException) as caught,
        ):
            client.infer("models", [floats(ROWS[:1])])
        assert code(caught.value) == "UNAVAILABLE"
        proxy.terminate()
        assert proxy.exit_code() == 0
