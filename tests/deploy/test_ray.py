"""deploy/kubernetes/ray.yaml: a gateway, and workers on a Ray cluster of KubeRay.

KubeRay's schema is in no package, so these tests check what the parts say of each other.
"""

from __future__ import annotations

from tests.deploy.manifests import container, documents, mounted, options, text_of
from uncork.server.workers.worker_port import read_place, read_worker_address
from uncork_workers.ray.connection import CONNECT_S

TEXT = text_of("ray.yaml")
DOCUMENTS = documents(TEXT)
CLUSTER = DOCUMENTS["RayCluster", "digits-ray"]["spec"]
GATEWAY = DOCUMENTS["Deployment", "digits-gateway"]["spec"]
GROUPS = [CLUSTER["headGroupSpec"], *CLUSTER["workerGroupSpecs"]]


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
    """Only the gateway has the key of the certificate."""
    serve = options(GATEWAY, "serve")
    [port] = DOCUMENTS["Service", "digits-workers"]["spec"]["ports"]

    assert read_worker_address(serve["worker_address"]) == ("digits-workers", port["port"])
    for name in ("cert", "key"):
        secret, _ = mounted(GATEWAY, serve[f"worker_tls_{name}"])
        assert f"kubectl create secret tls {secret} " in TEXT


def test_all_pods_have_the_same_image() -> None:
    """Python and Ray must be the same everywhere."""
    images = {container(one)["image"] for one in (GATEWAY, *GROUPS)}

    assert len(images) == 1
    assert f"'ray[client,default]=={CLUSTER['rayVersion']}'" in TEXT


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


def test_the_gateway_has_the_time_to_start() -> None:
    probe = container(GATEWAY)["startupProbe"]

    assert probe["httpGet"]["port"] == "admin"
    assert probe["periodSeconds"] * probe["failureThreshold"] > CONNECT_S
