"""``python -m tests.e2e.workers.ray_cluster``: a Ray cluster of a head and two nodes on this machine.

Prints the address of its head and that of its Ray Client server, and runs until its input ends.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.server import ROOT
from tests.loops import HANG_S
from uncork_loadtests.servers import reserved_port

CPUS = 4
_STORE_BYTES = 100_000_000
_ACTORS = """
import ray, sys
ray.init(sys.argv[1], logging_level="error", log_to_driver=False)
print(len(ray.util.list_named_actors(all_namespaces=True)))
"""


class RayCluster(NamedTuple):
    """The addresses of a running cluster."""

    head: str
    client: str

    def actors(self) -> int:
        """Return the number of detached actors that have not ended."""
        asked = subprocess.run(
            [sys.executable, "-c", _ACTORS, self.head],
            capture_output=True,
            text=True,
            check=True,
            timeout=HANG_S,
        )
        return int(asked.stdout)


@contextmanager
def ray_cluster(log: Path) -> Iterator[RayCluster]:
    """Run a cluster until the block ends; its output goes to ``log``."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.workers.ray_cluster"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            cwd=ROOT,
            # The nodes find this checkout, as they would an installed uncork. Without a mode, Ray requires
            # a token if there is one in the home folder.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RAY_AUTH_MODE": "disabled"},
        )
    assert process.stdout is not None
    printed = (re.match(r"(\S+:\d+) (ray://\S+)", line) for line in process.stdout)
    found = next((one for one in printed if one is not None), None)
    try:
        assert found is not None, log.read_text()
        yield RayCluster(found[1], found[2])
    finally:
        process.communicate("", timeout=HANG_S)


def main() -> None:
    with reserved_port() as client_port:
        _run(client_port)


def _run(client_port: int) -> None:
    from ray.cluster_utils import Cluster

    arguments: dict[str, Any] = {"object_store_memory": _STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "ray_client_server_port": client_port, **arguments},
    )
    for _ in range(2):
        cluster.add_node(num_cpus=CPUS, **arguments)
    print(cluster.address, f"ray://127.0.0.1:{client_port}", flush=True)
    sys.stdin.read()
    cluster.shutdown()  # type: ignore[no-untyped-call,unused-ignore]


if __name__ == "__main__":
    main()
