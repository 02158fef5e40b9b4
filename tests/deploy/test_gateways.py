"""The gateways of deploy/kubernetes/: their ports, pods and times to stop, with workers inside or outside."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.manifests import container, documents, options, text_of

FILES = {
    "serve": ("serve.yaml", "digits"),
    "ray": ("ray.yaml", "digits-gateway"),
    "remote-workers": ("remote-workers.yaml", "digits-gateway"),
}
WORKERS = {"ray": {"ray.io/cluster": "digits-ray"}, "remote-workers": {"app": "digits-worker"}}
each = pytest.mark.parametrize("name", FILES)


def gateway(name: str) -> tuple[dict[tuple[str, str], Any], Any]:
    """The documents of a file, and its Deployment of a gateway."""
    file, deployment = FILES[name]
    found = documents(text_of(file))
    return found, found["Deployment", deployment]["spec"]


@each
def test_it_listens_where_the_pod_says(name: str) -> None:
    _, deployment = gateway(name)
    serve, pod = options(deployment, "serve"), container(deployment)
    ports = {"http": "port", "admin": "admin_port", **({"workers": "worker_port"} if name in WORKERS else {})}

    assert {port["name"]: port["containerPort"] for port in pod["ports"]} == {
        port: serve[option] for port, option in ports.items()
    }
    assert {serve["host"], serve["admin_host"]} == {"0.0.0.0"}
    assert name not in WORKERS or serve["worker_host"] == "0.0.0.0"
    assert pod["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "admin"}
    assert pod["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "admin"}
    annotations = deployment["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(serve["admin_port"])
    assert pod["securityContext"]["runAsNonRoot"] is True


@each
def test_it_has_the_time_to_stop(name: str) -> None:
    _, deployment = gateway(name)
    serve = options(deployment, "serve")
    grace_s = deployment["template"]["spec"]["terminationGracePeriodSeconds"]

    assert serve["drain_delay"] + serve["drain_timeout"] < grace_s
    # Two gateways at a time would take each other's workers.
    assert name not in WORKERS or deployment["strategy"] == {"type": "Recreate"}


@each
def test_its_services_choose_its_pods(name: str) -> None:
    found, deployment = gateway(name)
    labels = deployment["template"]["metadata"]["labels"]
    services = [one["spec"]["selector"] for (kind, _), one in found.items() if kind == "Service"]

    assert deployment["selector"]["matchLabels"] == labels
    assert services == [labels] * (1 + (name in WORKERS))
    [for_clients] = found["Service", "digits"]["spec"]["ports"]
    assert for_clients["targetPort"] == "http"


@pytest.mark.parametrize("name", WORKERS)
def test_only_workers_reach_the_port_of_workers(name: str) -> None:
    found, deployment = gateway(name)
    policy = found["NetworkPolicy", "digits-gateway"]["spec"]
    to_all, to_workers = policy["ingress"]

    assert policy["podSelector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    assert [one["port"] for one in to_all["ports"]] == ["http", "admin"]
    assert [one["port"] for one in to_workers["ports"]] == ["workers"]
    assert to_workers["from"] == [{"podSelector": {"matchLabels": WORKERS[name]}}]


@pytest.mark.parametrize("name", WORKERS)
def test_workers_find_their_port_while_the_gateway_is_not_ready(name: str) -> None:
    """It needs one for that. They verify its certificate, which has the name of the service."""
    found, _ = gateway(name)
    [port] = found["Service", "digits-workers"]["spec"]["ports"]

    assert port["targetPort"] == "workers"
    assert found["Service", "digits-workers"]["spec"]["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in found["Service", "digits"]["spec"]
    assert "subjectAltName=DNS:digits-workers" in text_of(FILES[name][0])
