"""Several services in one gateway: their routes, environments, faults and changes."""

from __future__ import annotations

import importlib
import os
import re
import signal
import site
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.load import statuses_while
from tests.e2e.server import HTTP, ROOT, Server, eventually, run_uncork, serving

pytestmark = pytest.mark.slow

KEY = "a-key-of-the-tests"
_SOURCE = """
import os, time
from uncork import Service, api
from uncork.adapters import Json

class {name}(Service):
    def setup(self):
        {setup}

    @api(input=Json(), mb_max_latency=60_000)
    def predict(self, items):
        time.sleep({seconds})
        return [["{says}", item] for item in items]

    @api(input=Json(), route="/pid-of-{name}")
    def pid(self, items):
        return [os.getpid()] * len(items)
"""


def write(folder: Path, name: str, says: str = "", **others: Any) -> str:
    """Write a service that says something to each item; return its target."""
    file = folder / f"{name.lower()}.py"
    values = {"setup": "pass", "seconds": 0.002, **others}
    file.write_text(_SOURCE.format(name=name, says=says or name, **values))
    return f"{file}:{name}"


class Config:
    """A configuration file with services."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "uncork.toml"
        self.services: dict[str, dict[str, str]] = {}

    def set(self, name: str, **settings: str) -> None:
        """Give a service settings, in TOML."""
        self.services[name] = {**self.services.get(name, {}), **settings}
        self.write()

    def remove(self, name: str) -> None:
        del self.services[name]
        self.write()

    def write(self) -> None:
        lines = []
        for name, settings in self.services.items():
            lines += [f'[services."{name}"]', *[f"{key} = {value}" for key, value in settings.items()]]
        self.file.write_text("\n".join(lines))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Two services, of which one has only the routes with its name."""
    config = Config(tmp_path)
    config.set("digits", target=f"'{write(tmp_path, 'Digits')}'")
    config.set("wine", target=f"'{write(tmp_path, 'Wine')}'", own_routes="false")
    return config


@pytest.fixture
def server(config: Config) -> Iterator[Server]:
    """A gateway with both."""
    with serving("--config", str(config.file)) as server:
        yield server


def ask(server: Server, path: str, item: Any = 1) -> Any:
    """Return the answer to a request; fail unless it is 200."""
    reply = HTTP.post(f"{server.base}{path}", json=item)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_both_answer_under_all_their_names(server: Server) -> None:
    assert ask(server, "/predict", 5) == ask(server, "/digits/predict", 5) == ["Digits", 5]
    assert ask(server, "/wine/predict", 5) == ["Wine", 5]
    assert HTTP.post(f"{server.base}/pid-of-Wine", json=1).status_code == 404
    models = HTTP.get(f"{server.base}/v1/models").json()["models"]
    assert models == ["digits", "digits.pid", "digits.predict", "wine", "wine.pid", "wine.predict"]
    for model, says in (("digits", "Digits"), ("wine", "Wine")):
        answer = ask(server, f"/v1/models/{model}:predict", {"instances": [7]})
        assert answer["predictions"] == [[says, 7]]
    for path in ("/readyz", "/readyz/digits", "/readyz/wine"):
        assert HTTP.get(f"{server.base}{path}").status_code == 200
    assert server.metric("uncork_requests_total", service="wine", api="predict", status="200") == 2


def test_targets_can_be_named_on_the_command_line(tmp_path: Path) -> None:
    """A route that both have is refused, unless one keeps to its name. They are reloaded too."""
    one, other = write(tmp_path, "Digits"), write(tmp_path, "Wine")
    refused = run_uncork("serve", one, other, "--port", "0")
    assert refused.returncode == 2
    assert "both serve POST /predict; set own_routes = false" in refused.stderr
    with serving(one, f"second={other}", "--no-own-routes") as server:
        assert ask(server, "/digits/predict") == ["Digits", 1]
        assert ask(server, "/second/predict") == ["Wine", 1]
        assert HTTP.post(f"{server.base}/predict", json=1).status_code == 404
        write(tmp_path, "Digits", "new")
        assert server.run("reload").returncode == 0
        assert ask(server, "/digits/predict") == ["new", 1]
        assert ask(server, "/second/predict") == ["Wine", 1]


def test_a_route_that_two_services_get_in_one_reload_is_refused(config: Config) -> None:
    """As at a start, although neither has it yet."""
    config.set("digits", own_routes="false")
    with serving("--config", str(config.file)) as server:
        for name in ("digits", "wine"):
            config.set(name, own_routes="true")
        refused = server.run("reload")
        assert refused.returncode == 1
        assert "both serve POST /predict; set own_routes = false" in refused.stderr
        assert HTTP.post(f"{server.base}/predict", json=1).status_code == 404
        assert ask(server, "/wine/predict") == ["Wine", 1]


def environment(folder: Path, flavour: str) -> str:
    """Make a virtual environment with another version of a module; return its path."""
    venv.create(folder)
    [packages] = folder.glob("lib/python*/site-packages")
    rooms = [str(ROOT), *[str(ROOT / room) for room in ("gateway", "dispatcher", "workers", "loadtests")]]
    (packages / "uncork.pth").write_text("\n".join([*site.getsitepackages(), *rooms]))
    (packages / "flavour.py").write_text(f"VERSION = {flavour!r}")
    return str(folder)


def test_services_can_have_contradictory_environments(tmp_path: Path) -> None:
    """Each its interpreter with its packages, and its variables."""
    source = """
import os, flavour
from uncork import Service, api
from uncork.adapters import Json

class {name}(Service):
    @api(input=Json())
    def taste(self, items):
        return [[flavour.VERSION, os.environ["COLOUR"]]] * len(items)
"""
    config = Config(tmp_path)
    for name, colour in (("Digits", "blue"), ("Wine", "red")):
        (tmp_path / f"{name}.py").write_text(source.format(name=name))
        config.set(
            name.lower(),
            target=f"'{tmp_path}/{name}.py:{name}'",
            own_routes="false",
            python=f"'{environment(tmp_path / f'env-{name}', f'for {name}')}'",
            environment=f"{{ COLOUR = '{colour}' }}",
        )
    with serving("--config", str(config.file)) as server:
        assert ask(server, "/digits/taste") == ["for Digits", "blue"]
        assert ask(server, "/wine/taste") == ["for Wine", "red"]


def test_a_service_that_crashes_disturbs_no_other(config: Config) -> None:
    """Its workers are killed under load."""
    config.set("wine", workers="2")
    with serving("--config", str(config.file)) as server:

        def act() -> None:
            for _ in range(5):
                HTTP.post(f"{server.base}/wine/predict", json=1)
                for pid in {ask(server, "/wine/pid") for _ in range(4)}:
                    os.kill(pid, signal.SIGKILL)
                eventually(lambda: HTTP.get(f"{server.base}/readyz/wine").status_code == 200)

        statuses = statuses_while(server, act, path="/predict", body=1, answer=["Digits", 1], clients=4)
        assert statuses.keys() == {200}
        assert server.metric("uncork_worker_restarts_total", service="wine") >= 5
        assert server.metric("uncork_worker_restarts_total", service="digits") == 0


def test_services_change_under_load(tmp_path: Path, config: Config, server: Server) -> None:
    """One is added, replaced, scaled and removed, and settings of the other change; no request is lost."""

    def act() -> None:
        config.set("third", target=f"'{write(tmp_path, 'Third')}'", own_routes="false")
        assert server.run("reload").returncode == 0
        assert ask(server, "/third/predict") == ["Third", 1]
        write(tmp_path, "Third", "Third, again")
        config.set("third", workers="2")
        assert server.run("reload").returncode == 0
        assert ask(server, "/third/predict") == ["Third, again", 1]
        eventually(lambda: server.metric("uncork_workers", service="third", state="idle") == 2)
        config.set("digits", mb_max_latency="900", policy="'fixed:1'")
        changed = server.run("reload")
        assert "services.digits.policy" in changed.stdout
        assert server.metric("uncork_goal_seconds", service="digits", api="predict") == 0.9
        config.remove("third")
        assert server.run("reload").returncode == 0
        assert HTTP.post(f"{server.base}/third/predict", json=1).status_code == 404
        assert server.metric("uncork_workers", service="third") == 0
        eventually(lambda: len(server.workers()) == 2)

    statuses = statuses_while(server, act, path="/predict", body=1, answer=["Digits", 1], clients=4)
    assert statuses.keys() == {200}


def test_a_reload_that_fails_waits_no_longer_than_a_drain_for_what_it_had_added(
    tmp_path: Path, config: Config
) -> None:
    """A client has found the new service, and its request takes minutes."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    slow = write(tmp_path, "Slow", seconds=600)
    broken = write(tmp_path, "Broken", setup=f"open({str(gate)!r}).close(); raise OSError('no weights')")
    arguments = ("--config", str(config.file), "--drain-timeout", "0")
    with serving(*arguments) as server, ThreadPoolExecutor(1) as clients:
        for name, target in (("slow", slow), ("broken", broken)):
            config.set(name, target=f"'{target}'", own_routes="false")
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: server.metric("uncork_workers", service="slow", state="idle") == 1)
        asking = clients.submit(HTTP.post, f"{server.base}/slow/predict", json=1)
        eventually(lambda: server.metric("uncork_workers", service="slow", state="busy") == 1)
        gate.write_text("")
        assert asking.result().status_code == 503
        eventually(lambda: "reload failed" in server.output)


def test_tritons_client_loads_and_unloads(tmp_path: Path, config: Config) -> None:
    """Over HTTP and over gRPC. What is loadable is configured; a reload does not load what was unloaded."""
    keys = tmp_path / "keys"
    keys.write_text(KEY)
    with serving(
        "--config", str(config.file), "--api-key-file", str(keys), "--grpc-port", "0", wait=False
    ) as server:
        server.wait_for_address()
        eventually(server.ready)
        for over, address in (("http", server.base.removeprefix("http://")), ("grpc", server.grpc)):
            load_and_unload(server, over, address, tmp_path)


def load_and_unload(server: Server, over: str, address: str, folder: Path) -> None:
    client: Any = importlib.import_module(f"tritonclient.{over}")
    # Python does not notice a changed file with the same second and size.
    says = {"http": "over HTTP", "grpc": "over gRPC, later"}[over]
    mine: Any = {"headers": {"x-api-key": KEY}}
    with client.InferenceServerClient(address) as triton:
        triton.unload_model("wine", **mine)
        assert HTTP.post(f"{server.base}/wine/predict", json=1, **mine).status_code == 404
        assert states(triton, over, mine)["wine"] == ("UNAVAILABLE", "unloaded")
        assert server.run("reload").returncode == 0
        eventually(lambda: len(server.workers()) == 1)

        with pytest.raises(client.InferenceServerException, match=r"failed to load 'beer', .*no service"):
            triton.load_model("beer", **mine)
        with pytest.raises(client.InferenceServerException, match="'config' is not supported"):
            triton.load_model("wine", config="{}", **mine)
        write(folder, "Wine", says)
        triton.load_model("wine", **mine)
        assert states(triton, over, mine)["wine"] == ("READY", "")
        said = HTTP.post(f"{server.base}/wine/predict", json=1, **mine)
        assert said.json() == [says, 1]
        write(folder, "Digits", says)
        triton.load_model("digits", **mine)
        assert HTTP.post(f"{server.base}/predict", json=1, **mine).json() == [says, 1]


def states(triton: Any, over: str, mine: Any) -> dict[str, tuple[str, str]]:
    index = triton.get_model_repository_index(**mine)
    if over == "grpc":
        return {model.name: (model.state, model.reason) for model in index.models}
    return {model["name"]: (model["state"], model["reason"]) for model in index}


def test_without_a_key_only_operators_load_and_unload(tmp_path: Path, config: Config) -> None:
    """All or nothing, although an interpreter is missing for a while: its environment is made anew."""
    config.set("digits", python=f"'{environment(tmp_path / 'env', 'any')}'")
    python = tmp_path / "env/bin/python"
    with serving("--config", str(config.file), "--admin-port", "0") as server:
        path = "/v2/repository/models/wine/unload"
        public = re.search(r"POST (http://[^/\s]+)/", server.output)
        assert public is not None
        refused = HTTP.post(f"{public[1]}{path}")
        assert refused.status_code == 403
        assert "only with an API key" in refused.json()["error"]
        away = python.rename(python.with_name("away"))
        refused = HTTP.post(f"{server.base}{path}")
        assert refused.status_code == 400
        assert "nothing has changed: " in refused.json()["error"]
        away.rename(python)
        assert HTTP.post(f"{server.base}{path}").status_code == 200
        assert HTTP.post(f"{public[1]}/wine/predict", json=1).status_code == 404
