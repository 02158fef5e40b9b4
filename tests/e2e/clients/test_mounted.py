"""Services inside a FastAPI application that a real uvicorn serves, with real workers."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from tests.e2e.server import HTTP, ROOT, SERVICES, Server, eventually, process_of
from tests.gateway.client import request
from tests.markdown_pages import DOCS, blocks

pytestmark = pytest.mark.slow

APP = "tests.e2e.services.mounted_app:app"
KEY = {"x-key": "right"}


@contextmanager
def uvicorn(*arguments: str, app: str = APP, target: str = "", folder: Path = ROOT) -> Iterator[Server]:
    """Run the application, whose first service is at ``base``, until the block ends."""
    command = (sys.executable, "-m", "uvicorn", app, "--port", "0", *arguments)
    with process_of(*command, folder=folder, MOUNTED_TARGET=target) as server:
        eventually(lambda: address_in(server) is not None or server.process.poll() is not None)
        server.base = f"{address_in(server)}/models"
        yield server


def address_in(server: Server) -> str | None:
    found = re.search(r"running on (http://\S+)", server.output)
    return found[1] if found and "startup complete" in server.output else None


def at(server: Server, path: str) -> str:
    """Return the URL of a path of the whole application."""
    return server.base.removesuffix("/models") + path


def workers_of(server: Server) -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process(server.process.pid).children(recursive=True)
        if "uncork_workers" in child.cmdline()
    ]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with uvicorn() as running:
        yield running


def test_requests_share_batches(server: Server) -> None:
    """Requests in KServe's protocols do, too."""

    def ask(number: int) -> httpx.Response:
        return HTTP.post(f"{server.base}/add", json=[number, 1])

    with ThreadPoolExecutor(32) as pool:
        replies = list(pool.map(ask, range(64)))
    assert [reply.json() for reply in replies] == [number + 1 for number in range(64)]
    assert max(int(reply.headers["x-batch-size"]) for reply in replies) > 1
    v1 = HTTP.post(f"{server.base}/v1/models/probe.add:predict", json={"instances": [[1, 2]]})
    assert v1.json()["predictions"] == [3]


def test_the_middleware_and_the_routes_of_the_application_stay(server: Server) -> None:
    own, ours = HTTP.get(at(server, "/own")), HTTP.post(f"{server.base}/hasty", json=1)
    assert (own.json(), ours.json()) == ("own", 1)
    assert own.headers["x-outer"] == ours.headers["x-outer"] == "yes"
    assert "/models/{path}" not in HTTP.get(at(server, "/openapi.json")).text


def test_the_pages_are_below_the_prefix(server: Server) -> None:
    document = HTTP.get(f"{server.base}/openapi.json").json()
    assert document["servers"] == [{"url": "/models"}]
    home = HTTP.get(f"{server.base}/", headers={"accept": "text/html"}).text
    for link in re.findall(r'(?:href|src)="([^"]+)"', home):
        assert HTTP.get(f"{server.base}/{link}").status_code == 200, link
    assert HTTP.get(f"{server.base}/dashboard").status_code in (200, 501)


def test_a_dependency_refuses_clients(server: Server) -> None:
    """Before anything reaches the service."""
    url = at(server, "/guarded/leaving")
    assert [HTTP.post(f"{url}/ready", json=[1]).status_code, HTTP.get(f"{url}/status").status_code] == [
        401,
        401,
    ]
    assert HTTP.post(f"{url}/ready", json=[1], headers=KEY).json() == [1]
    document = HTTP.get(f"{url}/openapi.json", headers=KEY).json()
    assert document["servers"] == [{"url": "/guarded/leaving"}]


def test_a_client_that_leaves_frees_the_worker(server: Server) -> None:
    url = at(server, "/guarded/leaving")
    with server.connect() as connection:
        connection.sendall(request(b"1", path=b"/guarded/leaving/asks", headers=[(b"x-key", b"right")]))
        eventually(lambda: 'state="busy"} 1' in HTTP.get(f"{url}/metrics", headers=KEY).text)
    assert HTTP.post(f"{url}/ready", json=[1], headers=KEY).json() == [1]


def test_a_killed_worker_is_replaced(server: Server) -> None:
    before = HTTP.post(f"{server.base}/sleep", json=0).json()
    os.kill(before, signal.SIGKILL)

    def is_replaced() -> bool:
        reply = HTTP.post(f"{server.base}/sleep", json=0)
        return reply.status_code == 200 and reply.json() != before

    eventually(is_replaced)


def test_services_are_unloaded_and_loaded_where_the_application_allows_it(server: Server) -> None:
    repository = f"{server.base}/v2/repository/models/probe"
    assert HTTP.post(f"{repository}/unload").status_code == 200
    assert HTTP.post(f"{server.base}/hasty", json=1).status_code in (404, 503)
    assert HTTP.post(f"{repository}/load").status_code == 200
    assert HTTP.post(f"{server.base}/hasty", json=1).json() == 1
    guarded = at(server, "/guarded/leaving/v2/repository/models/leaving/unload")
    assert HTTP.post(guarded, headers=KEY).status_code == 403


def test_a_stop_answers_accepted_requests_and_ends_the_workers() -> None:
    """It goes to the whole group, as from a terminal."""
    with uvicorn() as server, ThreadPoolExecutor(1) as pool:
        workers = workers_of(server)
        asking = pool.submit(HTTP.post, f"{server.base}/sleep", json=0.5)
        eventually(lambda: server.metric("uncork_workers", state="busy") == 1)
        os.killpg(server.process.pid, signal.SIGINT)
        assert asking.result().status_code == 200
        server.exit_code()

        assert len(workers) == 2
        assert not any(worker.is_running() for worker in workers)
        assert server.output.index("the application starts") < server.output.index("the application ends")
        assert "Traceback" not in server.output


def test_a_service_that_does_not_start_fails_the_lifespan_with_the_reason() -> None:
    target = f"{SERVICES / 'probe.py'}:NoSetup"
    with uvicorn(target=target) as server:
        assert server.exit_code() == 3
        [failure] = re.findall("^RuntimeError: .+ does not start: .+$", server.output, re.MULTILINE)
        assert "no weights here" in failure
        assert target in failure
        assert "the application starts" not in server.output


def test_each_process_of_uvicorn_has_its_own_workers() -> None:
    with uvicorn("--workers", "2") as server:
        eventually(lambda: server.output.count("startup complete") == 2)
        owners = {worker.ppid() for worker in workers_of(server)}
        assert len(owners) == 2
        assert len(workers_of(server)) == 4


def test_the_guide_works(tmp_path: Path) -> None:
    """Its programs, each with the service in a file beside it."""
    function, service, whole, guarded = [block.code for block in blocks(DOCS / "guides/fastapi.md", "python")]
    (tmp_path / "service.py").write_text(service)
    for name, code in {"function": function, "whole": whole, "guarded": guarded}.items():
        (tmp_path / f"{name}.py").write_text(code)
    with uvicorn(app="function:app", folder=tmp_path) as server:
        assert HTTP.get(at(server, "/length"), params={"text": "four"}).json() == 4
    with uvicorn("--app-dir", str(tmp_path), app="whole:app") as server:
        assert HTTP.post(f"{server.base}/predict", json=[1, 2]).json() == 3
        assert len(workers_of(server)) == 2
    with uvicorn(app="guarded:app", folder=tmp_path) as server:
        assert HTTP.post(f"{server.base}/predict", json=[1, 2]).status_code == 401
        assert HTTP.post(f"{server.base}/predict?token=secret", json=[1, 2]).json() == 3
