"""The least number of workers that keeps 99 % of the requests within the goal, found by simulation.

The cells are drawn from declared values with a seed, so that the cells of one seed can be used to find a
formula and those of another to judge it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean
from typing import NamedTuple

from uncork_dispatcher.capacity.arrival_history import ArrivalHistory
from uncork_dispatcher.capacity.workers_needed import Load, workers_needed
from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.simulator import Run, Scenario, ServiceTime, open_loop, simulate

INTERCEPTS_MS = (5, 10, 20, 50, 100, 200)
SLOPES_MS = (0.1, 0.2, 0.5, 1, 2, 5)
SPREADS = (0.1, 0.2, 0.3, 0.5)
GOALS_MS = (100, 200, 300, 500, 1000)
RATES = (100, 200, 500, 1000, 2000, 4000)
LIMITS = (16, 64, 256, 1000)
ARRIVALS = ("poisson", "poisson", "poisson", "gamma:2", "gamma:4", "onoff")
MOST_WORKERS = 64
IN_GOAL = 0.99

# Fewer workers cannot carry the arrivals: only a part of the cells shall need one or two.
_LEAST_CARRYING = 40
_EASY_SHARE = 0.25
_WARM_UP = 0.25
_SECONDS, _LEAST_REQUESTS, _MOST_REQUESTS = 20, 8_000, 40_000
_HISTORY_S = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingCell:
    """A model, its goal and its traffic; requests have one row."""

    intercept_ms: float
    slope_ms: float
    spread: float
    goal_ms: float
    rate: float
    limit_rows: int
    arrivals: str

    def __str__(self) -> str:
        model = f"{self.intercept_ms:g} + {self.slope_ms:g} n ms ±{self.spread:.0%}, ≤ {self.limit_rows} rows"
        return f"{model}, {self.arrivals} {self.rate:g}/s, goal {self.goal_ms:g} ms"

    @property
    def service(self) -> ServiceTime:
        """The service time."""
        return ServiceTime(
            intercept_s=self.intercept_ms / 1000, slope_s=self.slope_ms / 1000, noise_cv=self.spread
        )

    @property
    def carrying(self) -> int:
        """The workers that carry the arrivals with the largest batches that end within the goal."""
        rows = min(self.limit_rows, max(1.0, (self.goal_ms - self.intercept_ms) / self.slope_ms))
        return max(1, math.ceil(self.rate * self.service.mean(rows) / rows))

    @property
    def load(self) -> Load:
        """What the formula gets: the true model and rate, and the dispersion that the autoscaler measures."""
        return Load(
            api="simulated",
            rate_rows=self.rate,
            estimate=Estimate(
                self.intercept_ms / 1000,
                self.slope_ms / 1000,
                spread=self.spread,
                earned_rows=self.limit_rows,
            ),
            goal_s=self.goal_ms / 1000,
            limit_rows=self.limit_rows,
            dispersion=dispersion(self.arrivals, self.rate),
        )


def draw_cells(count: int, *, seed: str) -> list[ScalingCell]:
    """Draw different cells in which a request alone ends within the goal and up to 40 workers carry the rate.

    A quarter may be such that one worker carries the rate.
    """
    draw, cells = random.Random(seed), list[ScalingCell]()
    while len(cells) < count:
        cell = ScalingCell(
            intercept_ms=draw.choice(INTERCEPTS_MS),
            slope_ms=draw.choice(SLOPES_MS),
            spread=draw.choice(SPREADS),
            goal_ms=draw.choice(GOALS_MS),
            rate=draw.choice(RATES),
            limit_rows=draw.choice(LIMITS),
            arrivals=draw.choice(ARRIVALS),
        )
        within_reach = cell.intercept_ms + cell.slope_ms <= cell.goal_ms
        wanted = cell.carrying > 1 or draw.random() < _EASY_SHARE
        if within_reach and wanted and cell.carrying <= _LEAST_CARRYING and cell not in cells:
            cells.append(cell)
    return cells


@cache
def dispersion(arrivals: str, rate: float) -> float:
    """Return the dispersion of such arrivals from counts of one second, as the autoscaler measures it."""
    history = ArrivalHistory()
    times = open_loop(
        arrivals, rate=rate, count=round(rate * _HISTORY_S), random_=random.Random(f"{arrivals} {rate}")
    )
    counted = 0
    for second in range(1, _HISTORY_S):
        while counted < len(times) and times[counted] <= second:
            counted += 1
        history.count(counted, now=second)
    return history.dispersion(_HISTORY_S)


class Trial(NamedTuple):
    """A cell with some number of workers, after the warm-up.

    Attributes:
        in_goal: share of the requests that were answered within the goal; shed ones were not.
        utilisation: share of the workers' time that batches took.
        outstanding: mean number of requests queued or running.
    """

    in_goal: float
    utilisation: float
    outstanding: float


@dataclass(slots=True)
class Search:
    """Finds the least number of workers of a cell; ``seeds`` are those of the simulations."""

    cell: ScalingCell
    seeds: Sequence[int]
    trials: dict[int, Trial] = field(default_factory=dict)

    def least(self) -> int | None:
        """Return the least number that is enough, by bisection; None if 64 are not."""
        low, high = self.cell.carrying - 1, self.cell.carrying
        while not self.is_enough(high):
            if high == MOST_WORKERS:
                return None
            low, high = high, min(MOST_WORKERS, 2 * high - self.cell.carrying + 2)
        while high - low > 1:
            middle = (low + high) // 2
            if self.is_enough(middle):
                high = middle
            else:
                low = middle
        return high

    def is_enough(self, workers: int) -> bool:
        """Whether so many workers keep 99 % within the goal."""
        return self.trial(workers).in_goal >= IN_GOAL

    def trial(self, workers: int) -> Trial:
        """Simulate so many workers, unless that was done before."""
        if workers not in self.trials:
            runs = [try_workers(self.cell, workers, seed) for seed in self.seeds]
            self.trials[workers] = Trial(*map(fmean, zip(*runs, strict=True)))
        return self.trials[workers]


def try_workers(cell: ScalingCell, workers: int, seed: int) -> Trial:
    """Simulate a cell once."""
    count = round(min(max(cell.rate * _SECONDS, _LEAST_REQUESTS), _MOST_REQUESTS))
    times = open_loop(
        cell.arrivals,
        rate=cell.rate,
        count=count,
        random_=random.Random(f"{cell.arrivals} {cell.rate} {seed}"),
    )
    run = simulate(
        Scenario(
            service=cell.service,
            arrivals=times,
            workers=workers,
            limit_rows=cell.limit_rows,
            goal_s=cell.goal_ms / 1000,
            seed=seed,
        )
    )
    begin = math.ceil(_WARM_UP * count)
    return _read(
        run, times[begin], times[-1], requests=count - begin, workers=workers, goal_s=cell.goal_ms / 1000
    )


def _read(run: Run, begin: float, end: float, *, requests: int, workers: int, goal_s: float) -> Trial:
    latencies = [one.finish - one.arrival for one in run.answered if one.arrival >= begin]
    busy_s = sum(
        max(0.0, min(batch.started + batch.seconds, end) - max(batch.started, begin)) for batch in run.batches
    )
    seconds = end - begin
    return Trial(
        in_goal=sum(latency <= goal_s + 1e-9 for latency in latencies) / requests,
        utilisation=busy_s / (workers * seconds),
        outstanding=sum(latencies) / seconds,
    )


class Finding(NamedTuple):
    """One cell: the least number of workers, the number wanted, and simulations of both."""

    cell: ScalingCell
    least: int
    wanted: int
    with_least: Trial
    with_wanted: Trial

    @property
    def excess(self) -> int:
        """How many more workers are wanted than needed."""
        return self.wanted - self.least


def find(cell: ScalingCell, seeds: Sequence[int]) -> Finding | None:
    """Compare the formula with the simulation; None if 64 workers are not enough."""
    search = Search(cell, seeds)
    least = search.least()
    if least is None:
        return None
    need = workers_needed([cell.load])
    assert need is not None
    return Finding(cell, least, need.workers, search.trial(least), search.trial(need.workers))
