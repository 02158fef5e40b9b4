"""deploy/helm/: that helm accepts it, Kubernetes its documents, and `uncork` what their containers run."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, ROOT, chart, container, options, run_helm

SCALED = "podMonitor=true,autoscaling.enabled=true"
EACH = [
    "grpc=false",
    "grpc=true,gpus=2",
    SCALED,
    "remoteWorkers=true,grpc=true,gpus=1",
    f"remoteWorkers=true,{SCALED}",
    "remoteWorkers=true,adminFrom[0].podSelector.matchLabels.app=prometheus",
    f"remoteWorkers=true,{SCALED},autoscaling.keda=true",
    "options={--max-body-bytes=1000},env=null,pod.nodeSelector.disk=ssd,"
    "volumes[0].name=keys,volumes[0].secret.secretName=keys,volumeMounts[0].name=keys,volumeMounts[0].mountPath=/keys",
]
# Of the Prometheus operator and of KEDA, which the package of schemas lacks.
NOT_OF_KUBERNETES = ("PodMonitor", "ScaledObject")


def deployment(values: str) -> Any:
    return chart(values)["Deployment", "digits"]["spec"]


@pytest.mark.parametrize("values", EACH)
def test_helm_finds_no_fault(values: str) -> None:
    done = run_helm("lint", "--strict", f"--set={values}")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("values", EACH)
def test_kubernetes_knows_every_field(values: str) -> None:
    schemas = pytest.importorskip("kubernetes_validate")
    ours = [one for (kind, _), one in chart(values).items() if kind not in NOT_OF_KUBERNETES]
    assert ours

    for one in ours:
        schemas.validate(one, "1.34", strict=True)


def test_operators_are_who_the_values_say() -> None:
    found = chart("remoteWorkers=true,adminFrom[0].podSelector.matchLabels.app=prometheus")
    [policy] = [one["spec"] for (kind, _), one in found.items() if kind == "NetworkPolicy"]
    [rule] = [one for one in policy["ingress"] if one["ports"] == [{"port": "admin"}]]

    assert rule["from"] == [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ("worker=3", "additional properties 'worker' not allowed"),
        ("workers=2-4", "got string, want integer"),
        ("workers=0", "minimum: got 0, want 1"),
        ("autoscaling.enabled=true", "at '/podMonitor': value must be true"),
        (f"{SCALED},autoscaling.keda=true", "at '/remoteWorkers': value must be true"),
        ("adminFrom[0].podSelector.matchLabels.app=prometheus", "at '/remoteWorkers': value must be true"),
        ("autoscaling.minReplicas=0", "minimum: got 0, want 1"),
    ],
)
def test_values_that_mean_nothing_are_refused(values: str, fault: str) -> None:
    done = run_helm("template", f"--set={values}")

    assert done.returncode != 0
    assert fault in done.stderr


def test_every_value_has_a_schema() -> None:
    """And a default."""
    values = yaml.safe_load((DEPLOY / "helm/values.yaml").read_text())
    schema = json.loads((DEPLOY / "helm/values.schema.json").read_text())["properties"]

    assert values.keys() == schema.keys() - {"global"}
    assert values["autoscaling"].keys() == schema["autoscaling"]["properties"].keys()


def test_the_chart_has_the_version_of_uncork() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert yaml.safe_load((DEPLOY / "helm/Chart.yaml").read_text())["appVersion"] == project["version"]


def test_values_become_options() -> None:
    serve = options(deployment("gpus=2,workers=4,options={--max-body-bytes=1000}"), "serve")

    assert serve["target"] == ["/srv/service.py:Digits"]
    assert (serve["workers"], serve["gpus"], serve["max_body_bytes"]) == ("4", "2", 1000)


@pytest.mark.parametrize("others", ["", "remoteWorkers=true,"])
def test_it_can_have_a_port_for_grpc(others: str) -> None:
    values = f"{others}grpc=true"
    serve = options(deployment(values), "serve")
    [port] = [one for one in container(deployment(values))["ports"] if one["name"] == "grpc"]
    [exposed] = [one for one in chart(values)["Service", "digits"]["spec"]["ports"] if one["name"] == "grpc"]

    assert serve["grpc_port"] == port["containerPort"] == 8001
    assert serve["grpc_max_connection_age"] >= 60
    assert (exposed["targetPort"], exposed["appProtocol"]) == ("grpc", "kubernetes.io/h2c")


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_pod_has_a_core_and_the_memory_for_each_process(workers: int) -> None:
    """And GPUs, if it wants some."""
    spec = deployment(f"workers={workers},workerMemoryGiB=3,gpus=1")
    resources = container(spec)["resources"]

    assert resources["requests"] == {"cpu": str(workers + 1), "memory": f"{3 * (workers + 1)}Gi"}
    assert resources["limits"] == {"memory": f"{3 * (workers + 2)}Gi", "nvidia.com/gpu": 1}
    assert options(spec, "serve")["max_worker_memory"] == "3GiB"


def test_the_time_to_stop_follows_the_drain() -> None:
    spec = deployment("drainDelaySeconds=7,drainTimeoutSeconds=100")
    serve = options(spec, "serve")

    assert (serve["drain_delay"], serve["drain_timeout"]) == (7, 100)
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > 107


def test_monitoring_and_scaling_mean_the_same_pods() -> None:
    found = chart(f"{SCALED},workers=3")
    spec = found["Deployment", "digits"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    monitor, scaler, budget = (
        found[kind, "digits"]["spec"]
        for kind in ("PodMonitor", "HorizontalPodAutoscaler", "PodDisruptionBudget")
    )

    assert budget["selector"]["matchLabels"] == monitor["selector"]["matchLabels"] == labels
    assert [one["port"] for one in monitor["podMetricsEndpoints"]] == ["admin"]
    assert scaler["scaleTargetRef"]["name"] == "digits"
    assert "replicas" not in spec
    [metric] = scaler["metrics"]
    assert metric["pods"]["metric"]["name"] == "uncork_workers_wanted"
    assert metric["pods"]["target"]["averageValue"] == options(spec, "serve")["workers"]
