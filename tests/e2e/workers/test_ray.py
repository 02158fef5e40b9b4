"""``uncork serve --on ray``, with a Ray cluster of three nodes on this machine."""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.e2e import load
from tests.e2e.server import HTTP, Server, eventually, running
from tests.e2e.workers.ray_cluster import RayCluster, ray_cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray; scripts/nightly installs it"),
]
_SERVICE = """
import os
from uncork import Service, api
from uncork.adapters import Json

VERSION = 1

class Svc(Service):
    @api(input=Json())
    def who(self, items):
        from helper import NAME
        cuda = os.environ.get("CUDA_VISIBLE_DEVICES")
        return [{"pid": os.getpid(), "version": VERSION, "name": NAME, "cuda": cuda} for _ in items]
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with ray_cluster(tmp_path_factory.mktemp("ray") / "log") as made:
        yield made


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "service").mkdir()
    (tmp_path / "service/helper.py").write_text("NAME = 'shipped'\n")
    (tmp_path / "service/svc.py").write_text(_SERVICE)
    return f"{tmp_path}/service/svc.py:Svc"


@contextmanager
def serving(target: str, on: str, *options: str, workers: int = 2) -> Iterator[Server]:
    with running("serve", target, "--workers", str(workers), "--on", on, *options, wait=False) as server:
        try:
            yield server
        finally:
            print(server.output)  # if the test fails


def all_ready(server: Server, workers: int) -> None:
    """Wait until so many workers take batches; Ray starts one within seconds, later on a busy machine."""
    eventually(lambda: "/readyz" in server.output)
    server.wait_until_ready()
    eventually(lambda: server.metric("uncork_workers", state="idle") == workers)


def who(server: Server) -> dict[str, Any]:
    reply = HTTP.post(f"{server.base}/who", json=0)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def hosts(server: Server) -> dict[int, str]:
    """Return the node of each worker, by pid."""
    workers = HTTP.get(f"{server.base}/status?format=json").json()["workers"]
    return {one["pid"]: one["host"] for one in workers}


def statuses_while(server: Server, act: Callable[[], None]) -> Counter[int]:
    return load.statuses_while(server, act, path="/who", body=0, clients=8)


def test_workers_run_on_the_nodes_and_are_restarted(cluster: RayCluster, target: str) -> None:
    """With the whole folder of the service, and no GPU. A stop leaves nothing behind."""
    with serving(target, cluster.head) as server:
        all_ready(server, 2)
        answer = who(server)
        first = hosts(server)

        assert (answer["name"], answer["cuda"]) == ("shipped", "")
        assert answer["pid"] in first
        assert len(set(first.values())) == 2, "both workers run on one node"
        assert cluster.actors() == 2

        os.kill(answer["pid"], signal.SIGKILL)
        eventually(lambda: "was killed by SIGKILL" in server.output)
        eventually(lambda: answer["pid"] not in hosts(server) and len(hosts(server)) == 2)
        all_ready(server, 2)
        server.terminate()
        assert server.exit_code() == 0
    assert cluster.actors() == 0


def test_a_reload_ships_changed_code(cluster: RayCluster, target: str) -> None:
    with serving(target, cluster.head) as server:
        all_ready(server, 2)
        before = who(server)["version"]
        file = Path(target.removesuffix(":Svc"))
        file.write_text(_SERVICE.replace("VERSION = 1", "VERSION = 2"))

        def reload() -> None:
            server.process.send_signal(signal.SIGHUP)
            eventually(lambda: "reloaded after" in server.output)

        statuses = statuses_while(server, reload)

        assert (before, who(server)["version"]) == (1, 2)
        assert statuses.keys() == {200}


def test_workers_survive_the_helper(cluster: RayCluster, target: str) -> None:
    """Traffic continues, and the next helper notices when a worker ends."""
    with serving(target, cluster.head) as server:
        all_ready(server, 2)
        pids = set(hosts(server))
        [helper] = server.workers()

        def kill() -> None:
            os.kill(helper, signal.SIGKILL)
            eventually(lambda: "connected to Ray again" in server.output)
            time.sleep(1.0)

        statuses = statuses_while(server, kill)

        assert statuses.keys() == {200}
        assert set(hosts(server)) == pids
        os.kill(pids.pop(), signal.SIGKILL)
        eventually(lambda: "was killed by SIGKILL" in server.output.partition("connected to Ray again")[2])
        all_ready(server, 2)
        server.terminate()
        assert server.exit_code() == 0
    assert cluster.actors() == 0


def test_missing_resources_are_reported(cluster: RayCluster, target: str) -> None:
    """In the log and by /readyz. The gateway keeps waiting, as a node may join."""
    port = "3971"
    with serving(target, cluster.head, "--worker-gpus", "1", "--port", port) as server:
        eventually(lambda: "waiting for Ray" in server.output)
        why = "each needs 1 CPU and 1 GPU, the Ray cluster has 8 of 8 CPU and 0 of 0 GPU free, and no single"
        reply = HTTP.get(f"http://127.0.0.1:{port}/readyz")

        # The helper may have looked when it had the first of the two only.
        assert re.search(f"(1 worker is|2 workers are) waiting for Ray: {re.escape(why)}", server.output)
        assert reply.status_code == 503
        assert why in reply.text
        assert server.output.count(why) == 1
        assert "Traceback" not in server.output
    assert cluster.actors() == 0


def test_workers_can_be_started_through_ray_client(cluster: RayCluster, target: str, tmp_path: Path) -> None:
    """They connect over TLS, and trust the gateway's certificate although they do not know who signed it."""
    certificate = tmp_path / "server.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    options = ("--worker-tls-cert", str(certificate), "--worker-cpus", "0.5")
    with serving(target, cluster.client, *options, workers=1) as server:
        all_ready(server, 1)
        assert who(server)["version"] == 1
    assert cluster.actors() == 0


@pytest.mark.parametrize("on", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_a_wrong_address_is_an_error(target: str, on: str) -> None:
    says = "the Ray head at 127.0.0.1:1 cannot be reached: [Errno 111] Connection refused"
    with serving(target, on) as server:
        assert server.exit_code() == 2
        assert says in server.output
        assert len(server.output.splitlines()) == 1
