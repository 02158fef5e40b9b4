"""The settings of a running server change under load, all or nothing, and no request is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.load import statuses_while
from tests.e2e.server import HTTP, PROBE, Server, eventually, serving
from tests.e2e.workers.remote import remotes, wait_for, worker_port

pytestmark = pytest.mark.slow

KEY, OTHER = "a-key-of-the-tests", "another-key-of-the-tests"
AT_ONCE = [
    ("mb_max_latency", "mb-max-latency = 4000"),
    ("policy", "policy = 'fixed:5'"),
    ("mb_max_batch_size", "mb-max-batch-size = 2"),
    ("max_queue_rows", "max-queue-rows = 500"),
    ("max_body_bytes", "max-body-bytes = 100000"),
    ("fair_by", "fair-by = 'X-Client'"),
    ("log_level", "log-level = 'debug'"),
    ("access_log", "access-log = true"),
    ("api.remember.timeout", "[api.remember]\ntimeout = 20"),
]
"""Settings, and lines of the file that change them; each line stays when the next one is added."""


def replace_by_rename(file: Path, text: str) -> None:
    """Write a file as most editors do."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def status(server: Server, key: str = KEY) -> Any:
    return HTTP.get(f"{server.base}/status", headers={"x-api-key": key}).json()


def load(server: Server, act: Callable[[], None], *, key: str = KEY) -> dict[int, int]:
    """Return the statuses of clients while something happens."""
    return statuses_while(
        server, act, path="/remember", body=[1, "a"], answer=[1, "a"], clients=6, headers={"x-api-key": key}
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration file without settings."""
    file = tmp_path / "uncork.toml"
    file.touch()
    return file


def test_a_watched_file_changes_settings_one_by_one(file: Path) -> None:
    """However it is written; workers stay, unless their number changes or a setting concerns them."""
    with serving(PROBE, "--config", str(file), "--watch-config") as server:
        first = server.workers()
        lines = [""]

        def write(name: str, line: str) -> None:
            lines.append(line) if line.startswith("[") else lines.insert(0, line)
            writes = replace_by_rename if len(lines) % 2 else Path.write_text
            writes(file, "\n".join(lines))
            eventually(lambda: f"{file.name} changed: settings changed: {name}\n" in server.output)

        def act() -> None:
            for name, line in AT_ONCE:
                if name in ("mb_max_latency", "policy", "mb_max_batch_size", "access_log"):
                    write(name, line)
            assert server.workers() == first
            write("workers", "workers = 3")
            eventually(lambda: len(server.workers()) == 3)
            lines.remove("workers = 3")
            write("workers", "workers = 2")
            eventually(lambda: len(server.workers()) == 2)
            assert set(first) < set(server.workers())
            write("warmup_seconds", "warmup-seconds = 0")
            eventually(lambda: not set(first) & set(server.workers()))

        assert load(server, act).keys() == {200}
        shown = status(server)
        remember = next(api for api in shown["apis"] if api["name"] == "remember")
        assert (remember["policy"], remember["goal_ms"], remember["max_batch_rows"]) == ("fixed:5", 4000, 2)
        assert shown["settings_change"]["names"] == ["warmup_seconds"]
        assert "POST /remember 200" in server.output
        assert "Traceback" not in server.output


def test_everything_changes_in_one_reload(file: Path) -> None:
    """With new workers; only the removed key is refused. The diff says beforehand what will happen."""
    keys = file.with_name("keys")
    keys.write_text(f"{KEY}\n{OTHER}")
    arguments = ("--config", str(file), "--api-key-file", str(keys))
    with serving(PROBE, *arguments) as server:
        first = server.workers()
        same = server.run("config", "diff")
        assert (same.returncode, same.stdout, same.stderr) == (0, "no setting differs\n", "")

        keys.write_text(KEY)
        file.write_text("\n".join(["workers = 3", *[line for _, line in AT_ONCE]]))
        other = server.run("config", "diff")
        rows = [line.split() for line in other.stdout.splitlines()]
        assert (other.returncode, rows[0]) == (1, ["setting", "now", "after", "reload", "effect"])
        assert ["workers", "1", "3", "at", "once"] in rows
        assert ["api_key_file", str(keys), str(keys), "(other", "content)", "at", "once"] in rows
        assert KEY not in other.stdout
        assert HTTP.post(f"{server.base}/remember", json=1, headers={"x-api-key": OTHER}).status_code == 200

        def act() -> None:
            up = server.run("reload")
            assert (up.returncode, up.stderr) == (0, "")
            assert up.stdout.startswith("reloaded after ")
            assert {name for name, _ in AT_ONCE} < set(
                up.stdout.strip().partition("changed: ")[2].split(", ")
            )
            eventually(lambda: len(server.workers()) == 3)
            file.write_text("workers = 1")
            assert server.run("reload").returncode == 0
            eventually(lambda: len(server.workers()) == 1)

        assert load(server, act).keys() == {200}
        assert not set(first) & set(server.workers())
        assert HTTP.post(f"{server.base}/remember", json=1, headers={"x-api-key": OTHER}).status_code == 401
        assert server.run("config", "diff").returncode == 0
        assert {"workers", "fair_by"} <= set(status(server)["settings_change"]["names"])


def test_settings_change_while_all_workers_are_remote(file: Path, tmp_path: Path) -> None:
    """They keep running."""
    with remotes(tmp_path) as on, on.gateway("--config", str(file)) as server:
        assert "this server starts no workers" in server.run("reload").stderr
        on.start(worker_port(server))
        wait_for(server, 1)

        def act() -> None:
            file.write_text("mb-max-latency = 1000\n[api.remember]\nallowed_batch_sizes = [1, 8]")
            changed = server.run("reload")
            assert (changed.returncode, changed.stderr) == (0, "")
            assert changed.stdout == (
                "reloaded, the workers keep running; settings changed: mb_max_latency, "
                "api.remember.allowed_batch_sizes\n"
            )
            seen = server.metric("uncork_requests_total")
            eventually(lambda: server.metric("uncork_requests_total") > seen + 50)

        assert load(server, act).keys() == {200}
        assert status(server)["apis"][0]["goal_ms"] == 1000
        assert "has disconnected" not in server.output


def test_the_port_of_operators_gets_the_limits_of_a_reload_too(file: Path) -> None:
    """With the limits of the start, operators would be refused while there are more clients than then."""
    with serving(PROBE, "--config", str(file), "--admin-port", "0", "--watch-config") as server:
        file.write_text("allowed-hosts = ['models.example.com']")
        eventually(lambda: "settings changed: allowed_hosts" in server.output)
        for host, code in (("models.example.com", 200), ("another.example.com", 421)):
            assert HTTP.get(f"{server.base}/livez", headers={"host": host}).status_code == code
