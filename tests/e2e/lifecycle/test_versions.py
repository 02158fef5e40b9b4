"""Versions of a service: how they are reached, a canary, and a shadow."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.lifecycle.test_services import Config, ask, write
from tests.e2e.load import statuses_while
from tests.e2e.server import HTTP, Server, eventually, serving

pytestmark = pytest.mark.slow


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Two versions of a service."""
    config = Config(tmp_path)
    config.set("digits", target=f"'{write(tmp_path, 'Digits', 'first')}'")
    config.set("digits@2", target=f"'{write(tmp_path, 'Newer', 'second')}'")
    return config


@pytest.fixture
def server(config: Config) -> Iterator[Server]:
    with serving("--config", str(config.file), "--grpc-port", "0") as server:
        yield server


def says(server: Server, path: str = "/predict") -> str:
    answer: list[str] = ask(server, path)
    return answer[0]


def test_each_version_can_be_asked_in_every_protocol(server: Server) -> None:
    """Without a version, the highest answers."""
    for version, said in (("", "second"), ("1", "first"), ("2", "second")):
        of = f"/versions/{version}" if version else ""
        v1 = ask(server, f"/v1/models/digits{of}:predict", {"instances": [1]})
        assert v1["predictions"] == [[said, 1]]
        tensor = {"name": "x", "shape": [1], "datatype": "BYTES", "data": ["a"]}
        v2 = ask(server, f"/v2/models/digits{of}/infer", {"inputs": [tensor]})
        assert (v2["outputs"][0]["data"][0], v2["model_version"]) == (said, version or "2")
        assert over_grpc(server, version) == (said, version or "2")
    assert [says(server, path) for path in ("/digits/predict", "/digits@2/predict")] == ["second", "second"]
    assert HTTP.get(f"{server.base}/v2/models/digits").json()["versions"] == ["1", "2"]
    unknown = HTTP.post(f"{server.base}/v1/models/digits/versions/3:predict", json={"instances": [1]})
    assert unknown.status_code == 404
    assert HTTP.get(f"{server.base}/v2/models/digits/versions/3").json() == {
        "error": "model 'digits' has no version '3'; send '1' or '2', or no version"
    }


def over_grpc(server: Server, version: str) -> tuple[str, str]:
    """Return what a version says to a client over gRPC, and the version in the answer."""
    from tritonclient import grpc

    given = grpc.InferInput("x", [1], "BYTES")
    given.set_data_from_numpy(np.array([b"a"], object))
    with grpc.InferenceServerClient(server.grpc) as client:
        result = client.infer("digits", [given], model_version=version)
        said: Any = result.as_numpy(result.get_response().outputs[0].name)
        return said.ravel()[0].decode(), result.get_response().model_version


def test_the_other_version_answers_while_one_has_no_worker(config: Config, tmp_path: Path) -> None:
    """As a version that cannot start does; killed workers come back."""
    write(tmp_path, "Newer", "second", setup="raise OSError('no weights')")
    with serving("--config", str(config.file), wait=False) as server:
        server.wait_for_address()
        eventually(lambda: HTTP.get(f"{server.base}/readyz/digits").status_code == 200)
        assert says(server) == "first"
        eventually(lambda: "no weights" in HTTP.get(f"{server.base}/readyz/digits@2").json()["detail"])
        assert HTTP.post(f"{server.base}/digits@2/predict", json=1).status_code == 503


def has_restarted(server: Server, service: str, times: int) -> bool:
    """Whether the workers of a service have been restarted so often, and are ready."""
    restarts = server.metric("uncork_worker_restarts_total", service=service)
    return restarts == times and HTTP.get(f"{server.base}/readyz/{service}").status_code == 200


def test_a_canary_gets_its_share_and_loses_nothing_when_it_dies(config: Config) -> None:
    config.set("digits", weight="9")
    config.set("digits@2", weight="1", workers="1")
    with serving("--config", str(config.file)) as server:
        counts = Counter(says(server) for _ in range(300))
        assert 5 <= counts["second"] <= 70
        assert counts.total() == 300

        def act() -> None:
            for number in range(1, 4):
                os.kill(ask(server, "/digits@2/pid"), signal.SIGKILL)
                eventually(partial(has_restarted, server, "digits@2", number))

        statuses = statuses_while(server, act, path="/predict", body=1, clients=4)
        assert statuses.keys() == {200}
        config.set("digits", weight="0")
        assert server.run("reload").returncode == 0
        assert {says(server) for _ in range(20)} == {"second"}


def test_a_shadow_gets_copies_and_answers_nobody(config: Config, tmp_path: Path) -> None:
    """However slow it is, and whatever it does."""
    config.set("digits@2", shadow="true")
    config.set("digits@3", target=f"'{write(tmp_path, 'Same', 'first')}'", shadow="true")
    slow = write(tmp_path, "Slow", seconds=0.5)
    config.set("digits@4", target=f"'{slow}'", shadow="true", mb_max_latency="50")
    with serving("--config", str(config.file)) as server:

        def act() -> None:
            for _ in range(200):
                ask(server, "/digits/predict")

        statuses = statuses_while(server, act, path="/predict", body=1, answer=["first", 1], clients=4)
        assert statuses.keys() == {200}
        asked = server.metric("uncork_requests_total", service="digits", api="predict")

        def copies(service: str, **labels: str) -> float:
            return server.metric("uncork_shadow_answers_total", service=service, api="predict", **labels)

        eventually(lambda: copies("digits@2", outcome="differed") == asked)
        eventually(lambda: copies("digits@3", outcome="agreed") == asked)
        eventually(lambda: copies("digits@4") == asked)
        assert copies("digits@4", outcome="agreed") == 0
        shown = {one["name"]: one["shadow"] for one in HTTP.get(f"{server.base}/status").json()["services"]}
        assert shown["digits"] is None
        assert shown["digits@3"] == {"agreed": asked}
        assert server.metric("uncork_requests_total", service="digits@2") == 0


def test_a_new_version_gets_nothing_before_its_reload_is_in_force(config: Config, tmp_path: Path) -> None:
    """Another service of the reload still starts; the new weight of the old version has no effect yet."""
    newer, gate = config.services["digits@2"]["target"], tmp_path / "gate"
    config.remove("digits@2")
    os.mkfifo(gate)
    slow = write(tmp_path, "Slow", setup=f"open({str(gate)!r}).close()")
    with serving("--config", str(config.file)) as server:
        config.set("digits", weight="9")
        config.set("digits@2", target=newer, weight="1")
        config.set("slow", target=f"'{slow}'", own_routes="false")
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: server.metric("uncork_workers", service="digits@2", state="idle") == 1)
        assert {says(server) for _ in range(20)} == {"first"}
        gate.write_text("")
        eventually(lambda: "settings changed: " in server.output)
        eventually(lambda: says(server) == "second")
