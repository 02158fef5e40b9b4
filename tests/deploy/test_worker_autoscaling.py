"""deploy/helm/ with remoteWorkers and autoscaling: pods that follow the metric of the gateway."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.deploy.manifests import ROOT, chart, container
from uncork_dispatcher.capacity.arrival_history import HISTORY_S

SCALING = "remoteWorkers=true,podMonitor=true,autoscaling.enabled=true"
KEDA, HPA = chart(f"{SCALING},autoscaling.keda=true"), chart(SCALING)
GATEWAY = HPA["Deployment", "digits"]["spec"]
GATEWAY_POD = GATEWAY["template"]
SCALED = KEDA["ScaledObject", "digits-worker"]
AUTOSCALER = HPA["HorizontalPodAutoscaler", "digits-worker"]
[TRIGGER] = SCALED["spec"]["triggers"]
[METRIC] = AUTOSCALER["spec"]["metrics"]
BEHAVIORS = pytest.mark.parametrize(
    "behavior",
    [
        SCALED["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
        AUTOSCALER["spec"]["behavior"],
    ],
    ids=["keda", "hpa"],
)


def test_prometheus_reads_the_gateway() -> None:
    """Its pod, at the port with the metrics, which the network policy lets Prometheus reach."""
    monitor = KEDA["PodMonitor", "digits"]
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    open_to_all = HPA["NetworkPolicy", "digits"]["spec"]["ingress"][0]

    assert monitor == HPA["PodMonitor", "digits"]
    assert monitor["spec"]["selector"]["matchLabels"] == GATEWAY_POD["metadata"]["labels"]
    assert endpoint["port"] in [port["name"] for port in container(GATEWAY)["ports"]]
    assert endpoint["port"] in [one["port"] for one in open_to_all["ports"]]
    assert endpoint["path"] == GATEWAY_POD["metadata"]["annotations"]["prometheus.io/path"]


def test_the_metric_is_that_of_this_gateway() -> None:
    """Under a label that Prometheus gets from the pod."""
    [found] = re.findall(
        r'max\((\w+)\{(\w+)="([\w-]+)",namespace="default"\}\)', TRIGGER["metadata"]["query"]
    )
    name, label, value = found
    selector = METRIC["external"]["metric"]["selector"]["matchLabels"]

    assert f"`{name}`" in (ROOT / "docs/reference/observability.md").read_text()
    assert METRIC["external"]["metric"]["name"] == name
    assert {label: value} == selector == GATEWAY_POD["metadata"]["labels"]
    assert label in KEDA["PodMonitor", "digits"]["spec"]["podTargetLabels"]
    assert f"seriesQuery: {name}{{" in (ROOT / "docs/guides/kubernetes.md").read_text()


def test_the_pods_are_the_workers_and_as_many_as_wanted() -> None:
    keda, hpa = SCALED["spec"], AUTOSCALER["spec"]
    worker = HPA["Deployment", "digits-worker"]

    # The kind is a Deployment by default.
    assert keda["scaleTargetRef"] == {"name": worker["metadata"]["name"]}
    assert hpa["scaleTargetRef"] == {
        "apiVersion": worker["apiVersion"],
        "kind": worker["kind"],
        "name": worker["metadata"]["name"],
    }
    assert TRIGGER["type"] == "prometheus"
    assert METRIC["type"] == "External"
    target = METRIC["external"]["target"]
    assert TRIGGER["metricType"] == target["type"] == "AverageValue"
    assert TRIGGER["metadata"]["threshold"] == target["averageValue"] == "1"
    least, most = keda["minReplicaCount"], keda["maxReplicaCount"]
    assert (least, most) == (hpa["minReplicas"], hpa["maxReplicas"])
    assert 1 <= least <= most
    assert "replicas" not in worker["spec"]


def test_keda_keeps_the_pods_while_the_metric_is_missing() -> None:
    """KEDA accepts only strings in the metadata of a trigger; a missing series would count as 0."""
    assert {type(value) for value in TRIGGER["metadata"].values()} == {str}
    assert TRIGGER["metadata"]["ignoreNullValues"] == "false"
    assert "fallback" not in SCALED["spec"]


@BEHAVIORS
def test_up_at_once_and_down_slowly(behavior: dict[str, Any]) -> None:
    """Kubernetes remembers the peak as long as the autoscaler of local workers does."""
    [up], [down] = behavior["scaleUp"]["policies"], behavior["scaleDown"]["policies"]

    assert behavior["scaleUp"]["stabilizationWindowSeconds"] == 0
    assert up["value"] >= SCALED["spec"]["maxReplicaCount"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == HISTORY_S
    assert down == {"type": "Pods", "value": 1, "periodSeconds": 30}
