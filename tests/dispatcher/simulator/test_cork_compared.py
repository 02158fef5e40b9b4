"""The default policy against release when free, on the same arrivals in virtual time.

Every run is deterministic. The bounds leave some room for another rule as good;
benchmarks/results/dispatcher.md has the measurements of the whole matrix.
"""

from __future__ import annotations

import random
from statistics import fmean
from typing import Any

import pytest

from uncork_dispatcher.simulator.run import simulate
from uncork_dispatcher.simulator.scenario import Run, Scenario
from uncork_dispatcher.simulator.service import ServiceTime
from uncork_dispatcher.simulator.traffic import Clients, open_loop

pytestmark = pytest.mark.long_run

FAR = 1e6
"""A goal so far off that it decides nothing."""
STEADY = ServiceTime(intercept_s=0.005, slope_s=0.0001, noise_cv=0.1)
SLOW = ServiceTime(intercept_s=0.04, slope_s=0.001, noise_cv=0.1)
WARM_UP = 1000


def against_free(
    service: ServiceTime, *, workers: int, load: float, kind: str = "poisson", **others: Any
) -> tuple[float, float]:
    rate = load * service.capacity(workers=workers, limit_rows=64)
    arrivals = open_loop(kind, rate=rate, count=10_000, random_=random.Random(5))
    seen = [
        simulate(
            Scenario(service=service, arrivals=arrivals, workers=workers, policy=policy, goal_s=FAR, **others)
        )
        for policy in ("cork", "fixed:0")
    ]
    (mean, p99), (mean_free, p99_free) = map(latency, seen)
    return mean / mean_free, p99 / p99_free


def latency(run: Run) -> tuple[float, float]:
    """Mean and 99th percentile after the first requests."""
    latencies = sorted(one.finish - one.arrival for one in run.answered[WARM_UP:])
    return fmean(latencies), latencies[int(0.99 * len(latencies))]


def throughput_against_free(
    service: ServiceTime, *, workers: int, clients: int, requests: int = 6000, **others: Any
) -> float:
    rates = []
    for policy in ("cork", "fixed:0"):
        run = simulate(
            Scenario(
                service=service,
                arrivals=Clients(count=clients, round_trip_s=0.0005),
                workers=workers,
                policy=policy,
                goal_s=FAR,
                requests=requests,
                **others,
            )
        )
        rates.append(len(run.answered) / run.answered[-1].finish)
    return rates[0] / rates[1]


@pytest.mark.parametrize("load", [0.2, 0.5])
def test_several_workers_are_kept_out_of_step(load: float) -> None:
    """Latency falls by a tenth and more, its 99th percentile by a fifth and more."""
    mean, p99 = against_free(STEADY, workers=4, load=load)

    assert mean < 0.91
    assert p99 < 0.81


@pytest.mark.parametrize("load", [0.2, 0.8])
def test_one_worker_is_never_held_from_new_clients(load: float) -> None:
    """There is nothing to balance, and nobody is known to come back."""
    assert against_free(STEADY, workers=1, load=load) == (1.0, 1.0)


@pytest.mark.parametrize("service", [STEADY, SLOW])
def test_one_worker_is_not_held_from_independent_arrivals_of_a_pool(service: ServiceTime) -> None:
    """Reused connections look like clients that return; still it holds for hardly any batch."""
    arrivals = open_loop(
        "poisson",
        rate=0.2 * service.capacity(workers=1, limit_rows=64),
        count=10_000,
        random_=random.Random(5),
    )
    cork, free = [
        simulate(Scenario(service=service, arrivals=arrivals, policy=policy, goal_s=FAR, sources="pool"))
        for policy in ("cork", "fixed:0")
    ]

    assert len(cork.batches) > 0.99 * len(free.batches)


@pytest.mark.parametrize(
    ("workers", "clients", "gain"), [(1, 4, 1.6), (1, 16, 1.45), (1, 64, 1.25), (4, 16, 1.1), (4, 64, 1.25)]
)
@pytest.mark.parametrize("sources", ["clients", "pool"])
def test_clients_that_come_back_are_waited_for(workers: int, clients: int, gain: float, sources: str) -> None:
    assert throughput_against_free(STEADY, workers=workers, clients=clients, sources=sources) > gain


@pytest.mark.parametrize("clients", [1, 4])
def test_as_many_clients_as_workers_lose_nothing(clients: int) -> None:
    assert throughput_against_free(STEADY, workers=4, clients=clients) > 0.98
