"""``uncork proxy`` in front of a gRPC server, which is one of ours, with Triton's client."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
import trustme

from tests.e2e.clients.test_grpc import floats
from tests.e2e.clients.test_protocols import DOUBLED, MODELS, ROWS
from tests.e2e.server import HTTP, Server, eventually, proxying, running, serving

pytestmark = pytest.mark.slow


async def ask(proxy: Server) -> list[Any]:
    async with triton_aio.InferenceServerClient(proxy.grpc) as client:
        return await asyncio.gather(*[client.infer("models", [floats([row])]) for row in ROWS])


def test_calls_are_merged_for_a_server_that_its_own_authority_verifies(tmp_path: Path) -> None:
    """Over gRPC and over HTTP; other requests are passed through. Without the authority nothing is."""
    authority = trustme.CA()
    ca, server = (str(tmp_path / name) for name in ("ca.pem", "server.pem"))
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(server)
    options = ("--grpc-port", "0", "--tls-cert", server, "--admin-port", "0", "--policy", "none")
    with serving(MODELS, *options) as behind:
        found = re.search(r"https://127\.0\.0\.1:\d+", behind.output)
        assert found is not None, behind.output
        grpcs = (f"grpcs://{behind.grpc}", "--grpc-port", "0")
        verified = (*grpcs, "--server-ca", ca, "--policy", "fixed:100")
        with proxying(*verified) as proxy, triton.InferenceServerClient(proxy.grpc) as client:
            results = asyncio.run(ask(proxy))
            assert [result.as_numpy("output-0")[0].tolist() for result in results] == DOUBLED
            calls = behind.metric("uncork_requests_total", api="predict", protocol="grpc")
            assert 1 <= calls <= len(ROWS) / 4
            assert proxy.metric("uncork_requests_total", protocol="grpc", status="200") == len(ROWS)
            assert client.get_server_metadata().name == "uncork"
        with proxying(found[0], "--server-ca", ca) as proxy:
            asked = HTTP.post(f"{proxy.base}/v1/models/models:predict", json={"instances": ROWS[:2]})
            assert asked.json()["predictions"] == DOUBLED[:2]
            assert HTTP.get(f"{proxy.base}/v2").json()["name"] == "uncork"
        with running("proxy", *grpcs, wait=False) as proxy:
            proxy.wait_for_address()
            eventually(lambda: "CERTIFICATE_VERIFY_FAILED" in proxy.output)
            assert not proxy.ready()
