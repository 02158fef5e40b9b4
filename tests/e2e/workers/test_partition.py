"""A network that drops everything between a gateway and a worker, without an error to either."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.load import are_doubles, asking
from tests.e2e.server import eventually
from tests.e2e.workers.remote import remotes
from tests.namespaces import network

pytestmark = pytest.mark.slow
_PORT = 7000


def test_a_partition_is_noticed_and_loses_nothing(tmp_path: Path) -> None:
    with network("gateway", "near", "far") as net, remotes(tmp_path) as on, net.entered("gateway"):
        address = net.address("gateway")
        options = ("--worker-port", str(_PORT), "--worker-host", address, "--worker-insecure")
        with on.gateway(*options) as server:
            far, _ = (
                on.start(f"{address}:{_PORT}", options=["--node", name], prefix=net.inside(name))
                for name in ("far", "near")
            )
            eventually(lambda: server.output.count("is ready") == 2)
            with asking(server, path="/add", clients=8, body=lambda number: [number, number]) as replies:
                eventually(lambda: len(replies) > 50)
                parted_at = time.monotonic()
                net.part("far")
                eventually(lambda: "on far has disconnected" in server.output)
                noticed_at = time.monotonic()
                eventually(lambda: "is gone" in far.output)
                net.heal("far")
                eventually(lambda: server.output.count("is ready") == 3)
            opened = psutil.Process(server.process.pid).net_connections("tcp")
            to_workers = [one for one in opened if one.laddr.port == _PORT and one.status == "ESTABLISHED"]

    assert are_doubles(replies)
    assert {reply.status for reply in replies} == {200}
    # The clients would all wait if the gateway went on sending batches to the far worker.
    meanwhile = [one for one in replies if parted_at < one.began and one.began + one.seconds < noticed_at]
    assert len(meanwhile) > 5 * 8
    assert len(to_workers) == 2, "half-open connections are left"
