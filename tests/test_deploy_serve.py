"""What deploy/ has for `uncork serve`: the unit of systemd, the Deployment and its monitoring, nginx."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tests.loops import HANG_S
from uncork.cli.app import app
from uncork.server.servers import KEEP_ALIVE_S

DEPLOY = Path(__file__).parent.parent / "deploy"
UNIT = DEPLOY / "systemd/uncork.service"


def unit() -> configparser.SectionProxy:
    """What the unit says of the service; of settings that may be there twice the last."""
    parser = configparser.RawConfigParser(
        strict=False, interpolation=None, delimiters="=", comment_prefixes="#"
    )
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # names of systemd have capitals
    parser.read(UNIT)
    return parser["Service"]


def read_options(arguments: list[str]) -> dict[str, Any]:
    """What `uncork serve` makes of arguments; fails if it knows one of them not."""
    program, *rest = arguments
    assert program == "serve"
    command: Any = typer.main.get_command(app)
    parsed: dict[str, Any] = command.commands["serve"].make_context("serve", rest).params
    return parsed


def manifest(name: str) -> dict[str, Any]:
    """The documents of a file by kind."""
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text())
    return {document["kind"]: document for document in documents}


SERVE, MONITORING = manifest("serve.yaml"), manifest("monitoring.yaml")
POD = SERVE["Deployment"]["spec"]["template"]
[CONTAINER] = POD["spec"]["containers"]


def with_grpc() -> dict[str, Any]:
    """The documents of the Deployment with the lines for gRPC, which are comments in the file."""
    text, found = re.subn(
        r"^ *# gRPC.*:\n((?: *# .*\n)+)",
        lambda block: re.sub(r"^( *)# ", r"\1", block[1], flags=re.MULTILINE),
        (DEPLOY / "kubernetes/serve.yaml").read_text(),
        flags=re.MULTILINE,
    )
    assert found == 3
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def test_the_deployment_can_have_a_port_for_grpc() -> None:
    documents = with_grpc()
    [container] = documents["Deployment"]["spec"]["template"]["spec"]["containers"]
    options = read_options(container["args"])
    [port] = [one for one in container["ports"] if one["name"] == "grpc"]
    [exposed] = [one for one in documents["Service"]["spec"]["ports"] if one["name"] == "grpc"]

    assert options["grpc_port"] == port["containerPort"] == 8001
    assert options["grpc_max_connection_age"] >= 60
    assert (exposed["targetPort"], exposed["appProtocol"]) == ("grpc", "kubernetes.io/h2c")
    probe = re.search(r"^ *# (grpc: .*)$", (DEPLOY / "kubernetes/serve.yaml").read_text(), re.MULTILINE)
    assert probe is not None
    assert yaml.safe_load(probe[1])["grpc"]["port"] == options["grpc_port"]


def test_the_unit_waits_longer_than_the_server_drains() -> None:
    """Its command line is one that `uncork serve` takes."""
    service = unit()
    _, *arguments = shlex.split(service["ExecStart"])
    options = read_options(arguments)

    assert options["drain_delay"] + options["drain_timeout"] < int(service["TimeoutStopSec"])
    assert service["KillSignal"] == "SIGTERM"
    assert service["ExecReload"].endswith("-HUP $MAINPID")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_knows_all_of_the_unit(tmp_path: Path) -> None:
    """With a command that is there; it complains of settings that it does not know."""
    program = Path(sys.executable).with_name("uncork")
    there = tmp_path / UNIT.name
    there.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={program}", UNIT.read_text()))
    found = subprocess.run(
        ["systemd-analyze", "verify", str(there)], capture_output=True, text=True, timeout=HANG_S, check=False
    )

    # It looks at other units of this machine as well.
    assert [line for line in found.stderr.splitlines() if UNIT.name in line] == []
    assert found.returncode == 0, found.stderr


def test_the_pod_says_where_it_listens() -> None:
    """Its arguments are those that `uncork serve` takes; ports, probes and annotations agree with them."""
    options = read_options(CONTAINER["args"])
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}

    assert ports == {"http": options["port"], "admin": options["admin_port"]}
    assert options["host"] == options["admin_host"] == "0.0.0.0"
    assert CONTAINER["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "admin"}
    assert CONTAINER["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "admin"}
    assert POD["metadata"]["annotations"]["prometheus.io/port"] == str(options["admin_port"])
    [port] = SERVE["Service"]["spec"]["ports"]
    assert port["targetPort"] == "http"


def test_the_pod_lives_longer_than_the_server_drains() -> None:
    options = read_options(CONTAINER["args"])

    assert options["drain_delay"] + options["drain_timeout"] < POD["spec"]["terminationGracePeriodSeconds"]
    resources = CONTAINER["resources"]
    assert int(resources["requests"]["cpu"]) == int(options["workers"]) + 1
    assert int(resources["requests"]["memory"].removesuffix("Gi")) == int(options["workers"]) + 1


def test_the_parts_on_kubernetes_mean_the_same_pods() -> None:
    labels = POD["metadata"]["labels"]
    chosen = [
        SERVE[kind]["spec"]["selector"]["matchLabels"] for kind in ("Deployment", "PodDisruptionBudget")
    ]
    monitor, scaler = MONITORING["PodMonitor"]["spec"], MONITORING["HorizontalPodAutoscaler"]["spec"]

    assert [*chosen, monitor["selector"]["matchLabels"], SERVE["Service"]["spec"]["selector"]] == [labels] * 4
    assert [one["port"] for one in monitor["podMetricsEndpoints"]] == ["admin"]
    assert scaler["scaleTargetRef"]["name"] == SERVE["Deployment"]["metadata"]["name"]
    [metric] = scaler["metrics"]
    assert metric["pods"]["metric"]["name"] == "uncork_workers_wanted"
    assert metric["pods"]["target"]["averageValue"] == read_options(CONTAINER["args"])["workers"]


def test_nginx_closes_its_connections_first() -> None:
    """It would send a request into one that the server is closing. It takes bodies as large as the server."""
    text = (DEPLOY / "nginx/uncork.conf").read_text()
    [kept_s] = re.findall(r"keepalive_timeout (\d+)s;", text)
    [most_mib] = re.findall(r"client_max_body_size (\d+)m;", text)
    [port] = re.findall(r"server 127.0.0.1:(\d+);", text)
    options = read_options(["serve", "service.py:Digits"])

    assert int(kept_s) < KEEP_ALIVE_S
    assert int(most_mib) * 2**20 == options["max_body_bytes"]
    assert int(port) == options["port"]
