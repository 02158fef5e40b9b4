"""``uncork worker``: workers that connect to a gateway by themselves, over TCP."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from tests.e2e import load
from tests.e2e.server import HTTP, SERVICES, Server, eventually
from tests.e2e.workers.remote import Remotes, idle, pid_of, remotes, wait_for, worker_port
from tests.loops import HANG_S

pytestmark = pytest.mark.slow

OTHER = f"{SERVICES / 'probe.py'}:Warm"


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Remotes]:
    with remotes(tmp_path) as made:
        yield made


def statuses_while(server: Server, act: Callable[[], None]) -> Counter[int]:
    return load.statuses_while(server, act, path="/add", body=[1, 2], answer=3, clients=16)


def test_workers_that_stop_or_are_killed_under_load_cost_no_answer(on: Remotes) -> None:
    """The gateway has no workers of its own, and waits for the first."""
    with on.gateway() as server:
        stopped, killed, stays = (
            on.start(worker_port(server), options=["--node", node]) for node in ("near", "near", "far")
        )
        wait_for(server, 3)

        def more() -> None:
            seen = server.metric("uncork_requests_total")
            eventually(lambda: server.metric("uncork_requests_total") > seen + 50)

        def act() -> None:
            more()
            assert stopped.stop() == 0
            more()
            assert server.metric("uncork_batches_total", outcome="lost") == 0
            os.kill(killed.pid, signal.SIGKILL)
            more()

        assert statuses_while(server, act).keys() == {200}
        eventually(lambda: idle(server, 1))
        assert "leaving the gateway" in stopped.output
        assert "is leaving" in server.output
        assert pid_of(server) == stays.pid
        [described] = HTTP.get(f"{server.base}/status?format=json").json()["workers"]
        assert (described["pid"], described["host"]) == (stays.pid, "far")


def test_a_new_version_takes_over_when_it_is_as_strong_as_the_old_one(on: Remotes) -> None:
    with on.gateway() as server:
        old = [on.start(worker_port(server)) for _ in range(2)]
        wait_for(server, 2)
        new = [on.start(worker_port(server), target=OTHER)]
        eventually(lambda: "stands by" in HTTP.get(f"{server.base}/status").text)
        assert HTTP.post(f"{server.base}/add", json=[1, 2]).status_code == 200

        new.append(on.start(worker_port(server), target=OTHER))

        eventually(lambda: HTTP.post(f"{server.base}/echo", json=1).status_code == 200)
        assert HTTP.post(f"{server.base}/add", json=[1, 2]).status_code == 404
        assert "the workers with another version of the service take over" in server.output
        # The old workers come back, stand by, and return when all new ones have gone.
        eventually(lambda: all(worker.output.count("connected to gateway") == 2 for worker in old))
        for worker in old:
            assert "workers with another version of the service have taken over; dialing" in worker.output
            assert "is gone" not in worker.output
        assert HTTP.post(f"{server.base}/echo", json=1).status_code == 200
        for worker in new:
            assert worker.stop() == 0
        eventually(lambda: HTTP.post(f"{server.base}/add", json=[1, 2]).status_code == 200)


def test_workers_here_and_elsewhere_share_the_load(on: Remotes) -> None:
    async def both(server: Server) -> set[int]:
        async with httpx.AsyncClient(base_url=server.base, timeout=HANG_S, verify=False) as http:
            replies = await asyncio.gather(*[http.post("/sleep_once", json=0.3) for _ in range(2)])
        return {reply.json() for reply in replies}

    with on.gateway("--policy", "none", workers=1, wait=True) as server:
        [here] = server.workers()
        there = on.start(worker_port(server))
        wait_for(server, 2)

        assert asyncio.run(both(server)) == {here, there.pid}
        workers = HTTP.get(f"{server.base}/status?format=json").json()["workers"]
        assert [(one["index"], one["pid"]) for one in workers] == [(0, here), (1, there.pid)]


def test_tls_protects_both_sides(on: Remotes, tmp_path: Path) -> None:
    authority, of_workers, other = trustme.CA(), trustme.CA(), trustme.CA()
    names = {"ca": authority, "workers-ca": of_workers, "other-ca": other}
    files = {name: tmp_path / f"{name}.pem" for name in (*names, "server", "worker")}
    for name, ca in names.items():
        ca.cert_pem.write_to_path(str(files[name]))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(files["server"]))
    of_workers.issue_cert("worker@x").private_key_and_cert_chain_pem.write_to_path(str(files["worker"]))
    tls = ("--worker-tls-cert", str(files["server"]), "--worker-tls-client-ca", str(files["workers-ca"]))
    with on.gateway(*tls) as server:
        address = worker_port(server)
        known = ["--ca", str(files["ca"])]
        stranger = on.start(
            address, options=["--ca", str(files["other-ca"]), "--tls-cert", str(files["worker"])]
        )
        nameless = on.start(address, options=known)
        worker = on.start(address, options=[*known, "--tls-cert", str(files["worker"])])
        wait_for(server, 1)

        assert pid_of(server) == worker.pid
        assert stranger.process.wait(HANG_S) == 2
        assert "unable to get local issuer certificate" in stranger.output
        assert nameless.process.wait(HANG_S) == 2
        assert "this gateway requires a certificate of the worker; give --tls-cert" in nameless.output
        assert server.metric("uncork_worker_connections_refused_total", reason="tls") >= 2
