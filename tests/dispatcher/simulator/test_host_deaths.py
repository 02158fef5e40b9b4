"""A host dies under load: no request fails, and those that ran on it are answered within the goal.

With ``-s`` the tests print what they count.
"""

from __future__ import annotations

import math
import random
from statistics import fmean
from typing import NamedTuple

import pytest

from uncork_dispatcher.simulator.run import simulate
from uncork_dispatcher.simulator.scenario import Loss, Scenario
from uncork_dispatcher.simulator.service import ServiceTime
from uncork_dispatcher.simulator.traffic import open_loop

HOSTS = 2
NOISE = 0.1


class Case(NamedTuple):
    """Workers on two hosts, requests per second, seconds of a batch (``intercept + slope * rows``), goal."""

    workers: int
    rate: float
    intercept_s: float
    slope_s: float = 0.001
    goal_s: float = 0.3
    in_goal: float = 0.99
    """At least this share of the requests that ran on the dead host is answered within the goal."""


def death(case: Case, seed: int) -> Scenario:
    """A run of which one host dies for good once estimates are earned."""
    random_ = random.Random(seed)
    at = random_.uniform(0.6, 1.0)
    host = random_.randrange(HOSTS)
    arrivals = open_loop("poisson", rate=case.rate, count=int((at + 1.0) * case.rate), random_=random_)
    workers = list(range(host, case.workers, HOSTS))
    random_.shuffle(workers)
    # The gateway hears of them one after another.
    losses = [Loss(workers[0], at, math.inf)]
    for worker in workers[1:]:
        losses.append(Loss(worker, losses[-1].at + random_.uniform(0.001, 0.020), math.inf))
    return Scenario(
        service=ServiceTime(intercept_s=case.intercept_s, slope_s=case.slope_s, noise_cv=NOISE),
        arrivals=arrivals,
        workers=case.workers,
        hosts=HOSTS,
        goal_s=case.goal_s,
        losses=tuple(losses),
        seed=seed,
    )


# The first two are those of the issue: few workers, and many.
FEW = Case(4, 120.0, 0.030)
MANY = Case(16, 500.0, 0.050)
# Batches that take up to 40 % of the goal.
LONGER = [Case(4, 300.0, 0.100, in_goal=0.9), Case(4, 120.0, 0.120, in_goal=0.7)]
LONG = [
    (MANY, 200),
    (Case(16, 1500.0, 0.050), 200),
    (Case(16, 1500.0, 0.110, in_goal=0.97), 50),
    (Case(16, 4500.0, 0.050, slope_s=0.002, in_goal=0.8), 20),
    *((case, 200) for case in LONGER),
]


def check(case: Case, deaths: int) -> None:
    failed, in_goal = 0, list[bool]()
    for seed in range(deaths):
        scenario = death(case, seed)
        run = simulate(scenario)
        failed += run.lost
        latency = {one.arrival: one.finish - one.arrival for one in run.answered}
        in_goal += [latency.get(arrival, math.inf) <= scenario.goal_s for arrival in {*run.cut_off}]
    print(f"\n{case}, {deaths} deaths: {fmean(in_goal):.1%} of {len(in_goal)} requests that ran in the goal")

    assert failed == 0
    assert len(in_goal) > deaths
    assert fmean(in_goal) >= case.in_goal


@pytest.mark.parametrize(("case", "deaths"), [(FEW, 8), (MANY, 2), *((case, 4) for case in LONGER)])
def test_a_host_dies_and_nothing_is_lost(case: Case, deaths: int) -> None:
    check(case, deaths)


@pytest.mark.slow
@pytest.mark.long_run
@pytest.mark.parametrize(("case", "deaths"), LONG)
def test_many_hosts_die_and_nothing_is_lost(case: Case, deaths: int) -> None:
    """Some with batches that take up to 40 % of the goal, or more traffic than the other host can carry."""
    check(case, deaths)


def test_a_lost_batch_starts_again_on_the_other_host() -> None:
    """Of 4 workers 0 and 2 are on the host that dies; the request that was cut off is recorded."""
    service = ServiceTime(intercept_s=0.01, slope_s=0.0)
    losses = (Loss(0, 0.005, math.inf), Loss(2, 0.007, math.inf))
    run = simulate(Scenario(service=service, arrivals=[0.0], workers=4, hosts=2, losses=losses))

    assert [(one.worker, one.started) for one in run.batches] == [(1, 0.005)]
    assert run.cut_off == [0.0]
