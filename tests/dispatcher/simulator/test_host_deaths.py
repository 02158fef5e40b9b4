"""A host dies under load: no request fails, and those that ran on it are answered within the goal.

With ``-s`` the tests print what they count.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from uncork_dispatcher.simulator.run import simulate
from uncork_dispatcher.simulator.scenario import Loss, LostBatch, Run, Scenario
from uncork_dispatcher.simulator.service import ServiceTime
from uncork_dispatcher.simulator.traffic import open_loop

HOSTS = 2
NOISE = 0.1
# A batch hardly ever takes longer than this times its prediction: twice the spread, as in the core.
SURELY = 1 + 2 * NOISE


class Case(NamedTuple):
    """Workers on two hosts, requests per second, seconds of a batch (``intercept + slope * rows``), goal."""

    workers: int
    rate: float
    intercept_s: float
    slope_s: float = 0.001
    goal_s: float = 0.3


@dataclass
class Count:
    """Requests that ran on the dead host when its workers were lost, over many deaths."""

    failed_deaths: int = 0
    ran: int = 0
    ran_in_goal: int = 0
    allowed: int = 0
    allowed_in_goal: int = 0

    def __str__(self) -> str:
        return (
            f"deaths with a 502: {self.failed_deaths}; {self.ran} requests ran on the dead host, "
            f"{self.ran_in_goal / self.ran:.1%} of them answered within the goal; the estimate allows it for "
            f"{self.allowed}, {self.allowed_in_goal / self.allowed:.1%} of them answered within the goal"
        )


def death(case: Case, seed: int) -> tuple[Scenario, int]:
    """A run of which one host dies for good once estimates are earned; and that host."""
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
    scenario = Scenario(
        service=ServiceTime(intercept_s=case.intercept_s, slope_s=case.slope_s, noise_cv=NOISE),
        arrivals=arrivals,
        workers=case.workers,
        hosts=HOSTS,
        goal_s=case.goal_s,
        losses=tuple(losses),
        seed=seed,
    )
    return scenario, host


def enter(count: Count, scenario: Scenario, host: int) -> None:
    """Add one death to the count.

    The estimate allows a request to be answered within the goal if this holds when its batch is lost: the
    batches that were lost and have not started again go, oldest first, to the workers of the other host, each
    when it is free; and the batch then ends before the request's deadline, even if every one of these batches
    takes as much longer than predicted as is ever likely (``SURELY``).
    """
    run = simulate(scenario)
    latency = {one.arrival: one.finish - one.arrival for one in run.answered}
    again = started_again(run)
    seen: set[float] = set()
    count.failed_deaths += run.lost > 0
    for lost in run.lost_batches:
        before = [other for other in run.lost_batches if other.at <= lost.at < again[other]]
        waiting = [lost, *(other for other in before if other is not lost)]
        finish = expected_finish(lost, waiting, free_at(run, scenario, host, lost.at))
        for arrival in set(lost.arrivals) - seen:
            in_goal = latency.get(arrival, math.inf) <= scenario.goal_s
            allowed = finish - arrival <= scenario.goal_s
            count.ran += 1
            count.ran_in_goal += in_goal
            count.allowed += allowed
            count.allowed_in_goal += allowed and in_goal
        seen |= set(lost.arrivals)


def started_again(run: Run) -> dict[LostBatch, float]:
    """When each lost batch started again, on a worker that may have been lost too; infinity for never."""
    answered = iter(run.answered)
    starts = {next(answered).arrival: one.started for one in run.batches for _ in range(one.requests)}
    again = {}
    for lost in run.lost_batches:
        others = [one for one in run.lost_batches if one.started >= lost.at and one.arrivals == lost.arrivals]
        times = [one.started for one in others] + [starts.get(arrival, math.inf) for arrival in lost.arrivals]
        again[lost] = min(times)
    return again


def free_at(run: Run, scenario: Scenario, host: int, now: float) -> list[float]:
    """When the workers of the other host should be free."""
    free = {worker: now for worker in range(scenario.workers) if worker % HOSTS != host}
    for batch in run.batches:
        if batch.worker in free and batch.started < now < batch.started + batch.seconds:
            free[batch.worker] = max(now, batch.started + SURELY * batch.predicted_s)
    return list(free.values())


def expected_finish(lost: LostBatch, waiting: list[LostBatch], free: list[float]) -> float:
    """When a lost batch should end, if it and the older ones that wait go to the workers as they get free."""
    heapq.heapify(free)
    finish = math.inf
    for other in sorted(waiting, key=lambda one: one.arrivals):
        finish = heapq.heappop(free) + SURELY * other.predicted_s
        heapq.heappush(free, finish)
        if other is lost:
            break
    return finish


# The first two are those of the issue: few workers, and many.
FEW = Case(4, 120.0, 0.030)
MANY = Case(16, 500.0, 0.050)
# Batches that take up to 40 % of the goal.
LONGER = [Case(4, 300.0, 0.100), Case(4, 120.0, 0.120)]
LONG = [
    (MANY, 200),
    (Case(16, 1500.0, 0.050), 200),
    (Case(16, 1500.0, 0.110), 50),
    (Case(16, 4500.0, 0.050, slope_s=0.002), 20),
    *((case, 200) for case in LONGER),
]


def check(case: Case, deaths: int) -> None:
    count = Count()
    for seed in range(deaths):
        enter(count, *death(case, seed))
    print(f"\n{case}, {deaths} deaths: {count}")

    assert count.failed_deaths == 0
    assert count.ran > deaths
    assert count.allowed_in_goal >= 0.95 * count.allowed > 0


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
    """Of 4 workers 0 and 2 are on the host that dies; the batch that was lost is recorded."""
    service = ServiceTime(intercept_s=0.01, slope_s=0.0)
    losses = (Loss(0, 0.005, math.inf), Loss(2, 0.007, math.inf))
    run = simulate(Scenario(service=service, arrivals=[0.0], workers=4, hosts=2, losses=losses))

    assert [(one.worker, one.started) for one in run.batches] == [(1, 0.005)]
    assert run.lost_batches == [LostBatch(0, 0.0, 0.005, (0.0,), 0.0)]
