"""deploy/kubernetes/ray.yaml: a gateway, and workers on a Ray cluster of KubeRay.

KubeRay's schema is in no package, so these tests check what the parts say of each other.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.test_deploy_remote_workers import container, mounted, options
from uncork.server.workers.worker_port import read_place, read_worker_address
from uncork_workers.ray.connection import CONNECT_S

FILE = Path(__file__).parent.parent / "deploy/kubernetes/ray.yaml"
DOCUMENTS = {
    (document["kind"], document["metadata"]["name"]): document
    for document in yaml.safe_load_all(FILE.read_text())
}
CLUSTER = DOCUMENTS["RayCluster", "digits-ray"]["spec"]
GATEWAY = DOCUMENTS["Deployment", "digits-gateway"]["spec"]
SERVICES = {name: document["spec"] for (kind, name), document in DOCUMENTS.items() if kind == "Service"}
GROUPS = [CLUSTER["headGroupSpec"], *CLUSTER["workerGroupSpecs"]]


def test_the_gateway_listens_where_the_pod_says() -> None:
    serve, ports = options(GATEWAY, "serve"), container(GATEWAY)["ports"]

    assert {port["name"]: port["containerPort"] for port in ports} == {
        "http": serve["port"],
        "admin": serve["admin_port"],
        "workers": serve["worker_port"],
    }
    assert {serve["host"], serve["admin_host"], serve["worker_host"]} == {"0.0.0.0"}
    for probe in ("readinessProbe", "startupProbe", "livenessProbe"):
        assert container(GATEWAY)[probe]["httpGet"]["port"] == "admin"
    annotations = GATEWAY["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(serve["admin_port"])


def test_the_gateway_finds_the_head_and_has_its_token() -> None:
    """KubeRay names the Service of the head, and the secret with the token, after the cluster."""
    head = container(CLUSTER["headGroupSpec"])
    [client] = [port["containerPort"] for port in head["ports"] if port["name"] == "client"]
    environment = {one["name"]: one for one in container(GATEWAY)["env"]}

    assert read_place(options(GATEWAY, "serve")["on"]) == f"ray://digits-ray-head-svc:{client}"
    assert CLUSTER["authOptions"]["mode"] == environment["RAY_AUTH_MODE"]["value"] == "token"
    secret = environment["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert secret == {"name": "digits-ray", "key": "auth_token"}


def test_workers_reach_the_gateway() -> None:
    """Also while it is not ready. They verify the certificate, whose key only the gateway has."""
    serve = options(GATEWAY, "serve")
    host, port = read_worker_address(serve["worker_address"])
    [for_workers] = SERVICES[host]["ports"]
    [for_clients] = SERVICES["digits"]["ports"]

    assert port == for_workers["port"]
    assert (for_workers["targetPort"], for_clients["targetPort"]) == ("workers", "http")
    assert SERVICES[host]["publishNotReadyAddresses"] is True
    assert f"subjectAltName=DNS:{host}" in FILE.read_text()
    for name in ("cert", "key"):
        secret, _ = mounted(GATEWAY, serve[f"worker_tls_{name}"])
        assert f"kubectl create secret tls {secret} " in FILE.read_text()


def test_all_pods_have_the_same_image() -> None:
    """Python and Ray must be the same everywhere."""
    images = {container(one)["image"] for one in (GATEWAY, *GROUPS)}

    assert len(images) == 1
    assert f"'ray[client,default]=={CLUSTER['rayVersion']}'" in FILE.read_text()


def test_the_nodes_have_room_for_the_workers() -> None:
    serve, [group] = options(GATEWAY, "serve"), CLUSTER["workerGroupSpecs"]
    least, most = (int(number) for number in serve["workers"].split("-"))
    limits = container(group)["resources"]["limits"]
    for_each = int(limits["cpu"]) // serve["worker_cpus"]

    assert CLUSTER["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    # A reload starts as many workers again before the old ones stop.
    assert 2 * least <= group["minReplicas"] * for_each
    assert 2 * most <= group["maxReplicas"] * for_each


def test_the_pods_are_those_that_are_chosen() -> None:
    labels = GATEWAY["template"]["metadata"]["labels"]
    policy = DOCUMENTS["NetworkPolicy", "digits-gateway"]["spec"]
    to_all, to_workers = policy["ingress"]

    assert GATEWAY["selector"]["matchLabels"] == policy["podSelector"]["matchLabels"] == labels
    assert {str(one["selector"]) for one in SERVICES.values()} == {str(labels)}
    assert [one["port"] for one in to_all["ports"]] == ["http", "admin"]
    assert [one["port"] for one in to_workers["ports"]] == ["workers"]
    assert to_workers["from"] == [{"podSelector": {"matchLabels": {"ray.io/cluster": "digits-ray"}}}]


def test_the_gateway_has_the_time_to_start_and_to_stop() -> None:
    serve, probe = options(GATEWAY, "serve"), container(GATEWAY)["startupProbe"]

    assert probe["periodSeconds"] * probe["failureThreshold"] > CONNECT_S
    grace_s = GATEWAY["template"]["spec"]["terminationGracePeriodSeconds"]
    assert serve["drain_delay"] + serve["drain_timeout"] < grace_s
    # Two gateways at a time would take each other's workers.
    assert GATEWAY["strategy"] == {"type": "Recreate"}
    assert container(GATEWAY)["securityContext"]["runAsNonRoot"] is True
