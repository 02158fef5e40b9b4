"""deploy/helm/ with remoteWorkers: a gateway, and workers that dial it."""

from __future__ import annotations

from pathlib import Path

from tests.deploy.manifests import chart, container, mounted, options
from uncork_workers.wire.dialing import read_addresses
from uncork_workers.wire.schema import ApiSettings

DOCUMENTS = chart("remoteWorkers=true")
GATEWAY = DOCUMENTS["Deployment", "digits"]["spec"]
WORKER = DOCUMENTS["Deployment", "digits-worker"]["spec"]


def test_the_workers_dial_the_gateway() -> None:
    [address] = read_addresses(options(WORKER, "worker")["gateway"])
    [port] = DOCUMENTS["Service", "digits-workers"]["spec"]["ports"]

    assert options(GATEWAY, "serve")["workers"] == "0"
    assert (address.host, address.port) == ("digits-workers", port["port"])


def test_workers_are_those_that_are_chosen_and_have_the_time_to_stop() -> None:
    template = WORKER["template"]
    budget = DOCUMENTS["PodDisruptionBudget", "digits-worker"]["spec"]["selector"]

    assert WORKER["selector"]["matchLabels"] == budget["matchLabels"] == template["metadata"]["labels"]
    assert ApiSettings().timeout < template["spec"]["terminationGracePeriodSeconds"]


def test_both_sides_have_the_same_secrets() -> None:
    """The workers get the certificate of the gateway, but not its key."""
    serve, worker = options(GATEWAY, "serve"), options(WORKER, "worker")

    assert mounted(GATEWAY, serve["worker_token_file"]) == mounted(WORKER, worker["token_file"])
    (secret, certificate), (_, key) = (
        mounted(GATEWAY, serve[f"worker_tls_{part}"]) for part in ("cert", "key")
    )
    assert (secret, certificate, key) == ("digits-worker-tls", "tls.crt", "tls.key")
    assert mounted(WORKER, worker["ca"]) == (secret, "ca.crt")


def test_an_update_starts_all_new_workers_before_it_stops_old_ones() -> None:
    assert WORKER["strategy"]["rollingUpdate"] == {"maxSurge": "100%", "maxUnavailable": 0}
    assert WORKER["minReadySeconds"] > 0


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
    assert container(WORKER)["securityContext"]["runAsNonRoot"] is True
