"""The batching proxy as a process, in front of model servers that are processes too."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.clients.test_protocols import MODELS, infer, post
from tests.e2e.lifecycle.test_lifecycle import is_alive
from tests.e2e.load import asking
from tests.e2e.server import Server, eventually, proxying, serving

# What the servers behind it hold is not what is tested here.
UNBATCHED = ("--policy", "none")
# The server that is left must refuse nothing, however busy this machine is.
PATIENT = ("--mb-max-latency", "30000")


@pytest.fixture(scope="module")
def model_server() -> Iterator[Server]:
    """A server that speaks V1 and V2, and does not batch."""
    with serving(MODELS, *UNBATCHED) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(model_server: Server) -> Iterator[Server]:
    with proxying(model_server.base, "--policy", "fixed:30", "--max-batch-size", "32") as server:
        yield server


def texts(server: Server, items: list[str]) -> httpx.Response:
    """Ask for texts in V1."""
    return post(server, "/v1/models/models.texts:predict", {"instances": items})


def ask_all(server: Server, items: list[str]) -> list[httpx.Response]:
    """Each from a client of its own, at once."""
    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(lambda item: texts(server, [item]), items))


def test_concurrent_clients_are_merged_and_each_gets_its_own(model_server: Server, proxy: Server) -> None:
    before = model_server.metric("uncork_requests_total")
    items = [f"item {number}" for number in range(64)]
    replies = ask_all(proxy, items)

    assert [reply.json()["predictions"] for reply in replies] == [
        [{"item": item, "length": len(item)}] for item in items
    ]
    assert model_server.metric("uncork_requests_total") - before < 32
    assert max(int(reply.headers["x-batch-size"]) for reply in replies) > 4
    assert all(reply.json()["batchId"] == reply.headers["x-batch-id"] for reply in replies)


@pytest.mark.parametrize("binary", [True, False])
def test_tritons_clients_are_merged(proxy: Server, binary: bool) -> None:
    """JSON and binary; answers are those of the server alone."""
    rows = [[[float(number), 0.25, -1.0]] * (1 + number % 3) for number in range(16)]

    def ask(own: list[list[float]]) -> list[Any]:
        found: list[Any] = infer(proxy, own, binary=binary).tolist()
        return found

    with ThreadPoolExecutor(len(rows)) as pool:
        found = list(pool.map(ask, rows))
    assert found == [[[2 * value for value in row] for row in own] for own in rows]


def test_a_proxy_reloads_and_a_stop_answers_what_is_held(model_server: Server, tmp_path: Path) -> None:
    """For the command and for SIGHUP. SIGTERM releases requests at once."""
    config = tmp_path / "uncork.toml"

    def write(server: Server, policy: str, **more: object) -> None:
        lines = [
            f'urls = ["{server.base}"]',
            f'policy = "{policy}"',
            *(f"{k} = {v}" for k, v in more.items()),
        ]
        config.write_text("\n".join(lines))

    write(model_server, "fixed:0")
    with (
        serving(MODELS, *UNBATCHED) as unused_server,
        proxying("--config", str(config), "--drain-delay", "0.5") as server,
        ThreadPoolExecutor(1) as pool,
    ):
        write(unused_server, "fixed:600000", max_latency=600000)
        difference = server.run("config", "diff")
        reload = server.run("reload")

        assert (difference.returncode, reload.returncode) == (1, 0), reload.stderr
        assert {"urls", "policy", "max_latency"} <= set(difference.stdout.split())
        assert "settings changed: urls, max_latency, policy" in reload.stdout
        write(unused_server, "magic")
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: "SIGHUP: reload failed, nothing has changed" in server.output)
        asking = pool.submit(texts, server, ["held"])
        eventually(lambda: server.metric("uncork_queue_rows") == 1)
        server.terminate()
        assert asking.result().json()["predictions"][0]["item"] == "held"
        assert server.exit_code() == 0
        assert "accepting requests for another 0.5 s" in server.output
        assert unused_server.metric("uncork_requests_total") == 1


def test_imported_settings_are_changes_too(model_server: Server, tmp_path: Path) -> None:
    """As a reload would change them; a file that is wrong is an error."""
    imported = tmp_path / "model-settings.json"
    imported.write_text('{"max_batch_size": 16, "max_batch_time": 0.01}')
    with proxying(model_server.base, "--model-settings", str(imported)) as server:
        assert server.run("config", "diff").returncode == 0
        imported.write_text('{"max_batch_size": 8, "max_batch_time": 0.02}')
        difference = server.run("config", "diff")
        reload = server.run("reload")

        assert (difference.returncode, reload.returncode) == (1, 0), reload.stderr
        assert [line.split()[:3] for line in difference.stdout.splitlines()[1:]] == [
            ["max_batch_size", "16", "8"],
            ["max_latency", "10", "20"],
        ]
        assert "settings changed: max_batch_size, max_latency" in reload.stdout
        imported.write_text("{")
        wrong = server.run("config", "diff")
        assert (wrong.returncode, "is not JSON" in wrong.stderr) == (2, True)


@pytest.mark.slow
def test_a_server_that_is_killed_under_load_costs_nobody_an_answer() -> None:
    with (
        serving(MODELS, *UNBATCHED, *PATIENT) as one,
        serving(MODELS, *UNBATCHED, *PATIENT) as other,
        proxying(one.base, other.base) as front,
    ):
        asked = asking(
            front,
            path="/v1/models/models.texts:predict",
            clients=8,
            body=lambda number: {"instances": [number]},
        )
        with asked as replies:
            eventually(lambda: len(replies) > 50)
            workers = other.workers()
            other.process.kill()
            so_far = len(replies)
            eventually(lambda: len(replies) > so_far + 100)
        assert {reply.status for reply in replies} == {200}
        assert all(reply.value["predictions"][0]["item"] == reply.number for reply in replies)
        assert front.ready()
        for worker in workers:
            eventually(lambda worker=worker: not is_alive(worker))  # type: ignore[misc]
