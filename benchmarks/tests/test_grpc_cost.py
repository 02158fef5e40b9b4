"""Each echo server answers, and a call has a cost."""

import shutil
from pathlib import Path

import pytest

from benchmarks.costs.echo_servers import HTTP, SERVERS
from benchmarks.costs.grpc_cost import LOADS, cost_us, running
from uncork_loadtests.servers import BenchError

needs_h2load = pytest.mark.skipif(shutil.which("h2load") is None, reason="needs h2load")


@needs_h2load
@pytest.mark.parametrize("transport", SERVERS)
def test_each_transport_has_a_cost(transport: str, tmp_path: Path) -> None:
    with running(transport) as server:
        for load in LOADS[:3]:
            assert 0 < cost_us(load, transport, server, body=tmp_path / "body", seconds=0.2) < 100_000


@needs_h2load
def test_calls_that_fail_have_none(tmp_path: Path) -> None:
    """A server of HTTP/1.1 does not understand calls."""
    with running(HTTP) as server, pytest.raises(BenchError):
        cost_us(LOADS[0], "gRPC", server, body=tmp_path / "body", seconds=0.2)
