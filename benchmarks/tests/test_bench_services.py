"""The benchmark of several services: its parts work, and what it kills is what it says."""

from __future__ import annotations

import tomllib

from benchmarks.scale import bench_services
from benchmarks.scale.bench_services import configuration


def test_the_configuration_has_as_many_services() -> None:
    services = tomllib.loads(configuration(3, workers=2))["services"]
    assert list(services) == ["s0", "s1", "s2"]
    assert {one["workers"] for one in services.values()} == {2}


def test_one_more_service_costs_the_mean_of_all_more() -> None:
    values = {"1 service": 10.0, "8 services": 11.0, "64 services": 136.0}
    assert bench_services._per_service(values, (1, 8, 64)) == 2.0
