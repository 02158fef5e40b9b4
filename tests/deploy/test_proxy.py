"""The manifests in deploy/: that they load, fit together, and say what `uncork proxy` understands."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.manifests import DEPLOY, ROOT, documents, read_options, text_of

# Of Knative's own proxy, and of KServe's agent.
RESERVED_PORTS = {8008, 8012, 8013, 8022, 9081, 9090, 9091}


DEPLOYMENT, SERVICE = documents(text_of("deployment.yaml")).values()
[KSERVE] = documents(text_of("kserve-inferenceservice.yaml")).values()
POD = DEPLOYMENT["spec"]["template"]["spec"]
PREDICTOR = KSERVE["spec"]["predictor"]


def server_and_proxy(pod: Any) -> tuple[Any, Any]:
    """The two containers."""
    server, proxy = pod["containers"]
    return server, proxy


PODS = pytest.mark.parametrize("pod", [POD, PREDICTOR], ids=["deployment", "kserve"])


def option(container: Any, name: str) -> str:
    """The value of one of its arguments."""
    [value] = [text.partition("=")[2] for text in container["args"] if text.startswith(f"{name}=")]
    return str(value)


def stop_delay_s(container: Any) -> int:
    """Seconds before SIGTERM."""
    program, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    return int(seconds)


@PODS
def test_the_proxy_listens_where_the_pod_says(pod: Any) -> None:
    """On all addresses, on its only port, which the probes ask."""
    _, proxy = server_and_proxy(pod)
    [port] = proxy["ports"]
    options = read_options("proxy", proxy["args"])

    assert proxy["securityContext"]["runAsNonRoot"] is True
    assert (options["host"], options["port"]) == ("0.0.0.0", port["containerPort"])
    for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/livez")):
        asked = proxy[probe]["httpGet"]
        assert asked["path"] == path
        assert asked["port"] in (port["name"], port["containerPort"])


def test_the_proxy_calls_the_server_beside_it() -> None:
    server, proxy = server_and_proxy(POD)
    [port] = server["ports"]
    asked = [server[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe")]

    assert proxy["args"][1] == f"http://127.0.0.1:{port['containerPort']}"
    assert asked == [port["name"]] * 2


def test_clients_of_the_deployment_reach_the_proxy() -> None:
    """By the name of its port, which no other container has; metrics are read there too."""
    server, proxy = server_and_proxy(POD)
    template, [port] = DEPLOYMENT["spec"]["template"], SERVICE["spec"]["ports"]

    assert port["targetPort"] == proxy["ports"][0]["name"] != server["ports"][0]["name"]
    assert SERVICE["spec"]["selector"] == template["metadata"]["labels"]
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(
        proxy["ports"][0]["containerPort"]
    )


def test_the_server_outlives_the_proxy() -> None:
    """What the proxy holds is still answered when a pod of the deployment ends."""
    server, proxy = server_and_proxy(POD)
    drained_s = stop_delay_s(proxy) + read_options("proxy", proxy["args"])["drain_timeout"]

    assert drained_s < stop_delay_s(server) < POD["terminationGracePeriodSeconds"]


def test_kserve_sends_requests_to_the_proxy() -> None:
    """The server is first and has no port; names and ports are those that KServe and Knative ask for."""
    server, proxy = server_and_proxy(PREDICTOR)
    [port] = proxy["ports"]

    assert (server["name"], proxy["name"]) == ("kserve-container", "transformer-container")
    assert "ports" not in server
    assert port["name"] == "http1"
    assert port["containerPort"] not in RESERVED_PORTS
    assert proxy["args"][1] == f"http://127.0.0.1:{option(server, '--http_port')}"
    # Of a container without ports and probes KServe asks whether it takes connections here.
    assert option(server, "--http_port") == "8080"
    assert option(proxy, "--health-path") == f"/v1/models/{option(server, '--model_name')}"


def test_kserve_leaves_batching_to_the_proxy() -> None:
    """No batcher of its own, no limit that keeps requests apart; nothing that Knative refuses."""
    assert "batcher" not in PREDICTOR
    assert PREDICTOR["containerConcurrency"] == 0
    assert option(server_and_proxy(PREDICTOR)[1], "--timeout") == str(PREDICTOR["timeout"])
    for container in PREDICTOR["containers"]:
        assert "lifecycle" not in container


def test_the_image_has_all_of_uncork_and_runs_it_as_a_user() -> None:
    lines = [line.split() for line in (DEPLOY / "Containerfile").read_text().splitlines()]
    copies = [line[1:-1] for line in lines if line[:1] == ["COPY"]]
    here = {source for sources in copies if not sources[0].startswith("--") for source in sources}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {
        Path(package).parts[0]
        for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    }

    assert packages | {"pyproject.toml", project["project"]["readme"]} <= here
    assert all((ROOT / source).exists() for source in here)
    assert ["ENTRYPOINT", '["uncork"]'] in lines
    assert ["USER", "10001"] in lines
