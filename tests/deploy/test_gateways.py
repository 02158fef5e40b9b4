"""The gateways of deploy/helm/ and of ray.yaml: their ports, pods and times to stop."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.manifests import ROOT, chart, container, documents, options, text_of

GATEWAYS = {"ray": "digits-gateway", "grpc=false": "digits", "remoteWorkers=true": "digits"}
"""Names of Deployments: of ray.yaml, and of the chart with some values."""
WORKERS = {"ray": {"ray.io/cluster": "digits-ray"}, "remoteWorkers=true": {"app": "digits-worker"}}
each = pytest.mark.parametrize("name", GATEWAYS)


def gateway(name: str) -> tuple[dict[tuple[str, str], Any], Any]:
    """All documents, and the Deployment of the gateway."""
    found = documents(text_of("ray.yaml")) if name == "ray" else chart(name)
    return found, found["Deployment", GATEWAYS[name]]["spec"]


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
    policy = found["NetworkPolicy", GATEWAYS[name]]["spec"]
    *to_all, to_workers = policy["ingress"]

    assert policy["podSelector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    assert {one["port"] for rule in to_all for one in rule["ports"]} == {"http", "admin"}
    assert not any("from" in rule for rule in to_all)
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
    explained = text_of("ray.yaml") if name == "ray" else (ROOT / "docs/guides/kubernetes.md").read_text()
    assert "subjectAltName=DNS:digits-workers" in explained
