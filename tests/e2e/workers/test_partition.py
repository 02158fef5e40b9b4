"""A network that drops everything between a gateway and a worker, without an error to either."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.server import eventually
from tests.e2e.workers.remote import remotes
from tests.loops import HANG_S
from tests.namespaces import network

pytestmark = pytest.mark.slow
_PORT = "7000"
# Runs beside the gateway: eight clients until its input ends, then times and status of each request as JSON.
_LOAD = """
import json, sys, threading, time, httpx
ends, seen = threading.Event(), []
def client():
    with httpx.Client(base_url="http://127.0.0.1:3000", timeout=300) as http:
        while not ends.is_set():
            began = time.monotonic()
            reply = http.post("/add", json=[1, 2])
            seen.append((began, time.monotonic(), reply.status_code))
threads = [threading.Thread(target=client) for _ in range(8)]
[thread.start() for thread in threads]
sys.stdin.read()
ends.set()
[thread.join() for thread in threads]
print(json.dumps(seen))
"""
_CONNECTIONS = """
import psutil
print(sum(one.status == "ESTABLISHED" and one.laddr.port == 7000 for one in psutil.net_connections("tcp")))
"""


def test_a_partition_is_noticed_and_loses_nothing(tmp_path: Path) -> None:
    with network("gateway", "near", "far") as net, remotes(tmp_path) as on:
        inside = net.inside("gateway")
        address = net.address("gateway")
        options = ("--worker-port", _PORT, "--worker-host", address, "--worker-insecure", "--port", "3000")
        with on.gateway(*options, prefix=inside, wait=False) as server:
            workers = {}
            for name in ("near", "far"):
                workers[name] = on.start(
                    f"{address}:{_PORT}", options=["--node", name], prefix=net.inside(name)
                )
            eventually(lambda: server.output.count("is ready") == 2)
            load = subprocess.Popen(
                [*inside, sys.executable, "-c", _LOAD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                time.sleep(1.0)
                parted_at = time.monotonic()
                net.part("far")
                eventually(lambda: "on far has disconnected" in server.output)
                noticed_at = time.monotonic()
                eventually(lambda: "is gone" in workers["far"].output)
                net.heal("far")
                eventually(lambda: server.output.count("is ready") == 3)
                time.sleep(1.0)
            finally:
                printed, _ = load.communicate("", timeout=HANG_S)
            requests = [tuple(one) for one in json.loads(printed)]
            asked = subprocess.run(
                [*inside, sys.executable, "-c", _CONNECTIONS], capture_output=True, check=True
            )

    assert Counter(status for *_, status in requests).keys() == {200}
    # The clients would all wait if the gateway went on sending batches to the far worker.
    assert sum(parted_at < began and ended < noticed_at for began, ended, _ in requests) > 5 * 8
    assert int(asked.stdout) == 2, "half-open connections are left"
