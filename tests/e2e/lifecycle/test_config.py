"""``uncork config``, and a server with settings from a file, the environment and the command line."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e.server import HTTP, run_uncork, serving

pytestmark = pytest.mark.slow

SERVICE = """
from pathlib import Path

from uncork import Service, api
from uncork.adapters import Json

print("imported")

class Echo(Service):
    def setup(self):
        Path(__file__).with_name("was set up").touch()

    @api(input=Json(), timeout=7)
    def predict(self, items):
        return [VERSION] * len(items)

    @api(input=Json(), allowed_batch_sizes=[1, 2])
    def compiled(self, items):
        return [len(items)] * len(items)

    @api(input=Json(), policy="none")
    def stream(self, items):
        yield "a"
"""
FILE = """
mb-max-latency = 1000

[api.predict]
mb_max_latency = 2000
mb_max_batch_size = 2
route = "/elsewhere"

[api.compiled]
allowed_batch_sizes = [3, 5]
"""
_CLIENTS = 4


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service and a file; the environment names both."""
    write(tmp_path, version=1)
    (tmp_path / "uncork.toml").write_text(FILE)
    monkeypatch.setenv("UNCORK_TARGET", f"{tmp_path / 'service.py'}:Echo")
    monkeypatch.setenv("UNCORK_CONFIG", str(tmp_path / "uncork.toml"))
    monkeypatch.setenv("UNCORK_API_PREDICT_POLICY", "fixed:4000")
    return tmp_path


def write(folder: Path, *, version: int) -> None:
    text = SERVICE.replace("VERSION", str(version)).replace(
        "self.place", f"__import__('pathlib').Path('{folder}')"
    )
    file = folder / "service.py"
    file.write_text(text)
    # A cached module counts as current if its source has the same size and was written in the same second.
    os.utime(file, (version, version))


def in_force(*arguments: str) -> Any:
    result = run_uncork("config", "serve", "--json", *arguments)
    assert result.returncode == 0, result.stderr
    return msgspec.json.decode(result.stdout)


def answers(base: str) -> set[tuple[int, str, int]]:
    """Status, rows of the batch and version, for some clients at once."""
    with ThreadPoolExecutor(_CLIENTS) as pool:
        replies = list(pool.map(lambda n: HTTP.post(f"{base}/elsewhere", json=n), range(_CLIENTS)))
    return {(reply.status_code, reply.headers["x-batch-size"], reply.json()) for reply in replies}


def test_a_server_runs_under_the_settings_that_are_shown(place: Path) -> None:
    """The route, cap and sizes of the file, the policy of the environment; a reload reads the file again."""
    with serving("--mb-max-latency", "9000") as server:
        port = server.base.rpartition(":")[2]
        assert answers(server.base) == {(200, "2", 1)}  # each waits for the cap, long before its goal
        assert HTTP.post(f"{server.base}/predict", json=1).status_code == 404
        assert HTTP.post(f"{server.base}/compiled", json=1).json() == 3

        write(place, version=2)
        assert "settings" not in run_uncork("reload", "--port", port).stdout
        assert answers(server.base) == {(200, "2", 2)}
        (place / "uncork.toml").write_text(FILE.replace("[3, 5]", "[4]"))
        reload = run_uncork("reload", "--port", port)
        assert reload.stdout.endswith("; settings changed: api.compiled.allowed_batch_sizes\n")
        assert answers(server.base) == {(200, "2", 2)}
        assert HTTP.post(f"{server.base}/compiled", json=1).json() == 4


def test_what_is_in_force_is_shown_with_its_source(place: Path) -> None:
    """Of the command and of each api; the service is not set up."""
    shown = in_force("--workers", "3")

    settings, predict, stream = shown["settings"], shown["apis"]["predict"], shown["apis"]["stream"]
    file = place / "uncork.toml"
    assert shown["config"] == str(file)
    assert settings["workers"] == {"value": "3", "source": "--workers", "text": "3"}
    assert settings["mb_max_latency"] == {
        "value": 1000.0,
        "source": f"{file}: mb-max-latency",
        "text": "1000",
    }
    assert settings["admin_port"] == {"value": None, "source": "default", "text": "(served on --port)"}
    assert {name: (one["value"], one["source"]) for name, one in predict.items()} == {
        "route": ("/elsewhere", f"{file}: api.predict.route"),
        "mb_max_latency": (2000, f"{file}: api.predict.mb_max_latency"),
        "mb_max_batch_size": (2, f"{file}: api.predict.mb_max_batch_size"),
        "mb_max_batch_bytes": (64 * 2**20, "default"),
        "policy": ("fixed:4000", "UNCORK_API_PREDICT_POLICY"),
        "timeout": (7, "code"),
        "idempotent": (True, "default"),
        "cost": (None, "default"),
        "allowed_batch_sizes": (None, "default"),
        "allowed_lengths": (None, "default"),
        "workers": (None, "default"),
    }
    assert (stream["policy"]["value"], stream["policy"]["source"]) == ("none", "code")
    assert not (place / "was set up").exists()


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """A file with two services, of which one keeps to routes with its name."""
    write(tmp_path, version=1)
    target = f"target = '{tmp_path / 'service.py'}:Echo'"
    file = tmp_path / "several.toml"
    file.write_text(
        f"""
        policy = "aimd"
        [services.echo]
        {target}
        environment = {{ TOKEN = "secret" }}
        [services.echo.api.predict]
        timeout = 5
        [services.other]
        {target}
        own_routes = false
        workers = 3
        """
    )
    return file


def test_several_services_are_shown_one_after_the_other(several: Path) -> None:
    """Each with its own settings and APIs; what they share is above. Secrets are not shown."""
    shown = in_force("--config", str(several), "--mb-max-latency", "100")
    echo, other = shown["services"]["echo"], shown["services"]["other"]

    assert shown["apis"] == {}
    assert "workers" not in shown["settings"]
    assert "port" in shown["settings"]
    assert echo["settings"]["environment"]["value"] == ["TOKEN=***"]
    own = {
        name: (other["settings"][name]["value"], other["settings"][name]["source"])
        for name in ("workers", "policy")
    }
    assert own == {
        "workers": ("3", f"{several}: services.other.workers"),
        "policy": ("aimd", f"{several}: policy"),
    }
    assert echo["apis"]["predict"]["timeout"]["source"] == f"{several}: services.echo.api.predict.timeout"
    assert other["apis"]["predict"]["timeout"]["source"] == "code"
    assert other["apis"]["predict"]["route"] == {
        "value": "/other/predict",
        "source": f"{several}: services.other.own_routes",
        "text": "/other/predict",
    }
    assert other["apis"]["compiled"]["mb_max_latency"]["source"] == "--mb-max-latency"

    table = [
        line.split() for line in run_uncork("config", "serve", "--config", str(several)).stdout.splitlines()
    ]
    headings = [line[:-2] for line in table if line[-2:] == ["value", "from"]]
    apis = ("predict", "compiled", "stream")
    assert headings == [
        ["uncork", "serve"],
        *[["service", "echo"], *[["API", f"echo/{api}"] for api in apis]],
        *[["service", "other"], *[["API", f"other/{api}"] for api in apis]],
    ]
    assert ["environment", "TOKEN=***", f"{several}:", "services.echo.environment"] in table


def test_tables_for_people(place: Path) -> None:
    table = run_uncork("config", "serve", "--policy", "aimd").stdout.splitlines()

    assert table[0].split() == ["uncork", "serve", "value", "from"]
    assert ["policy", "aimd", "--policy"] in [line.split() for line in table]
    assert "\x1b" not in "".join(table)
    assert "imported" not in table  # what the service prints is no part of it
    assert ["API", "predict", "value", "from"] in [line.split() for line in table]
