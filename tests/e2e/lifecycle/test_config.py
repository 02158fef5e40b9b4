"""``uncork config``, and a server with settings from a file, the environment and the command line."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from tests.e2e.server import HTTP, run_uncork, serving
from tests.expected import check_texts

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


def shown(folder: Path, *arguments: str) -> str:
    """What is printed of settings that are not the defaults."""
    result = run_uncork("config", "serve", *arguments)
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stdout
    lines = [re.sub(" {2,}", "  ", line) for line in result.stdout.replace(str(folder), "").splitlines()]
    return "".join(f"{line}\n" for line in lines if not line.endswith("  default"))


def answers(base: str) -> set[tuple[int, str, int]]:
    """Status, rows of the batch and version, for some clients at once."""
    with ThreadPoolExecutor(_CLIENTS) as pool:
        replies = list(pool.map(lambda n: HTTP.post(f"{base}/elsewhere", json=n), range(_CLIENTS)))
    return {(reply.status_code, reply.headers["x-batch-size"], reply.json()) for reply in replies}


def test_a_server_runs_under_the_settings_that_are_shown(place: Path) -> None:
    """The route, cap and sizes of the file, the policy of the environment; a reload reads the file again."""
    with serving("--mb-max-latency", "9000") as server:
        assert answers(server.base) == {(200, "2", 1)}  # each waits for the cap, long before its goal
        assert HTTP.post(f"{server.base}/predict", json=1).status_code == 404
        assert HTTP.post(f"{server.base}/compiled", json=1).json() == 3

        write(place, version=2)
        assert "settings" not in server.run("reload").stdout
        assert answers(server.base) == {(200, "2", 2)}
        (place / "uncork.toml").write_text(FILE.replace("[3, 5]", "[4]"))
        reload = server.run("reload")
        assert reload.stdout.endswith("; settings changed: api.compiled.allowed_batch_sizes\n")
        assert answers(server.base) == {(200, "2", 2)}
        assert HTTP.post(f"{server.base}/compiled", json=1).json() == 4


def test_what_is_in_force_is_shown_with_its_source(place: Path) -> None:
    """Of the command and of each API. The service is not set up, and what it prints is no part of it."""
    document = run_uncork("config", "serve", "--json", "--workers", "3")
    settings = msgspec.json.decode(document.stdout)["settings"]

    check_texts(Path(__file__).parent / "config.txt", shown(place, "--workers", "3"))
    assert settings["workers"] == {"value": "3", "source": "--workers", "text": "3"}
    assert settings["admin_port"] == {"value": None, "source": "default", "text": "(served on --port)"}
    assert not (place / "was set up").exists()


def test_several_services_are_shown_one_after_the_other(tmp_path: Path) -> None:
    """Each with its own settings and APIs; what they share is above. Secrets are not shown."""
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
    text = shown(tmp_path, "--config", str(file), "--mb-max-latency", "100")
    check_texts(Path(__file__).parent / "config_of_services.txt", text)
