"""deploy/kubernetes/remote-workers.yaml: a gateway, and workers that dial it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
import yaml

from uncork.cli.app import app
from uncork_workers.wire.dialing import read_addresses
from uncork_workers.wire.schema import ApiSettings

FILE = Path(__file__).parent.parent / "deploy/kubernetes/remote-workers.yaml"
DOCUMENTS = {
    (document["kind"], document["metadata"]["name"]): document
    for document in yaml.safe_load_all(FILE.read_text())
}
CLIENTS_SERVICE = DOCUMENTS["Service", "digits"]["spec"]
WORKERS_SERVICE = DOCUMENTS["Service", "digits-workers"]["spec"]
GATEWAY = DOCUMENTS["Deployment", "digits-gateway"]["spec"]
WORKER = DOCUMENTS["Deployment", "digits-worker"]["spec"]


def container(deployment: dict[str, Any]) -> Any:
    [only] = deployment["template"]["spec"]["containers"]
    return only


def options(deployment: dict[str, Any], command: str) -> dict[str, Any]:
    """What a command makes of the arguments; fails if it does not know one of them."""
    program, *rest = container(deployment)["args"]
    assert program == command
    group: Any = typer.main.get_command(app)
    parsed: dict[str, Any] = group.commands[command].make_context(command, rest).params
    return parsed


def mounted(deployment: dict[str, Any], path: Path) -> tuple[str, str]:
    """Return the secret and its key that a path shows."""
    [name] = [
        one["name"] for one in container(deployment)["volumeMounts"] if one["mountPath"] == str(path.parent)
    ]
    [volume] = [one for one in deployment["template"]["spec"]["volumes"] if one["name"] == name]
    items = volume["secret"].get("items")
    assert items is None or path.name in [item["path"] for item in items]
    return volume["secret"]["secretName"], path.name


def test_the_gateway_listens_where_the_pod_says() -> None:
    serve, ports = options(GATEWAY, "serve"), container(GATEWAY)["ports"]

    assert {port["name"]: port["containerPort"] for port in ports} == {
        "http": serve["port"],
        "admin": serve["admin_port"],
        "workers": serve["worker_port"],
    }
    assert {serve["host"], serve["admin_host"], serve["worker_host"]} == {"0.0.0.0"}
    assert serve["workers"] == "0"
    assert container(GATEWAY)["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "admin"}
    annotations = GATEWAY["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(serve["admin_port"])


def test_the_workers_dial_the_gateway() -> None:
    """Also while it is not ready: it needs a worker for that."""
    [address] = read_addresses(options(WORKER, "worker")["gateway"])
    [port] = WORKERS_SERVICE["ports"]
    [for_clients] = CLIENTS_SERVICE["ports"]

    assert (address.host, address.port) == ("digits-workers", port["port"])
    assert (port["targetPort"], for_clients["targetPort"]) == ("workers", "http")
    assert WORKERS_SERVICE["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in CLIENTS_SERVICE
    assert f"subjectAltName=DNS:{address.host}" in FILE.read_text()


def test_both_sides_have_the_same_secrets() -> None:
    """The workers get the certificate of the gateway, but not its key."""
    serve, worker = options(GATEWAY, "serve"), options(WORKER, "worker")

    assert mounted(GATEWAY, serve["worker_token_file"]) == mounted(WORKER, worker["token_file"])
    (secret, certificate), (_, key) = (
        mounted(GATEWAY, serve[f"worker_tls_{part}"]) for part in ("cert", "key")
    )
    assert (secret, certificate, key) == ("digits-worker-tls", "tls.crt", "tls.key")
    assert mounted(WORKER, worker["ca"]) == (secret, "ca.crt")


def test_the_pods_are_those_that_are_chosen() -> None:
    gateway, worker = (one["template"]["metadata"]["labels"] for one in (GATEWAY, WORKER))
    policy = DOCUMENTS["NetworkPolicy", "digits-gateway"]["spec"]
    to_all, to_workers = policy["ingress"]

    assert GATEWAY["selector"]["matchLabels"] == policy["podSelector"]["matchLabels"] == gateway
    assert CLIENTS_SERVICE["selector"] == WORKERS_SERVICE["selector"] == gateway
    budget = DOCUMENTS["PodDisruptionBudget", "digits-worker"]["spec"]["selector"]
    assert WORKER["selector"]["matchLabels"] == budget["matchLabels"] == worker
    assert [one["port"] for one in to_all["ports"]] == ["http", "admin"]
    assert [one["port"] for one in to_workers["ports"]] == ["workers"]
    assert to_workers["from"] == [{"podSelector": {"matchLabels": worker}}]


def test_pods_have_the_time_to_stop() -> None:
    serve = options(GATEWAY, "serve")
    of_gateway, of_worker = (
        one["template"]["spec"]["terminationGracePeriodSeconds"] for one in (GATEWAY, WORKER)
    )

    assert serve["drain_delay"] + serve["drain_timeout"] < of_gateway
    assert ApiSettings().timeout < of_worker


def test_an_update_starts_all_new_workers_before_it_stops_old_ones() -> None:
    assert WORKER["strategy"]["rollingUpdate"] == {"maxSurge": "100%", "maxUnavailable": 0}
    assert WORKER["minReadySeconds"] > 0
    # Two gateways at a time would wait for each other's workers.
    assert GATEWAY["strategy"] == {"type": "Recreate"}


def test_a_worker_is_ready_when_its_file_exists() -> None:
    """In a folder that can be written, although the root is read-only."""
    arguments = container(WORKER)["args"]
    [file] = [one.removeprefix("--ready-file=") for one in arguments if one.startswith("--ready-file=")]

    assert container(WORKER)["readinessProbe"]["exec"]["command"] == ["test", "-e", file]
    mounts = {one["mountPath"]: one for one in container(WORKER)["volumeMounts"]}
    assert "readOnly" not in mounts[str(Path(file).parent)]


def test_workers_name_their_node() -> None:
    environment = {one["name"]: one for one in container(WORKER)["env"]}

    assert environment["UNCORK_NODE"]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    for deployment in (GATEWAY, WORKER):
        assert container(deployment)["securityContext"]["runAsNonRoot"] is True
