"""The benchmark of several services: its parts work, and what it kills is what it says."""

from __future__ import annotations

import time
import tomllib

import httpx
import pytest

from benchmarks.scale import bench_services
from benchmarks.scale.bench_services import configuration, gateway, killing


def test_the_configuration_has_as_many_services() -> None:
    services = tomllib.loads(configuration(3, workers=2))["services"]
    assert list(services) == ["s0", "s1", "s2"]
    assert {one["workers"] for one in services.values()} == {2}


def test_one_more_service_costs_the_mean_of_all_more() -> None:
    values = {"1 service": 10.0, "8 services": 11.0, "64 services": 136.0}
    assert bench_services._per_service(values, (1, 8, 64)) == 2.0


@pytest.mark.slow
def test_only_workers_of_the_other_service_die() -> None:
    with gateway("two", configuration(2)) as server:
        before = workers(server.admin_url("/status"))
        with killing(server, "s1") as killed:
            while not killed:
                time.sleep(0.01)
        assert set(killed) & set(before.values()) == {before["s1"]}


def workers(url: str) -> dict[str, int]:
    """Return the process of each service."""
    status = httpx.get(url, trust_env=False, verify=False).json()
    return {worker["service"]: worker["pid"] for worker in status["workers"]}
