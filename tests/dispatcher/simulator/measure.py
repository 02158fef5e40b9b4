"""Figures of a run for the tests of the simulator."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from uncork_dispatcher.simulator.run import simulate
from uncork_dispatcher.simulator.scenario import Run, Scenario
from uncork_dispatcher.simulator.service import ServiceTime
from uncork_dispatcher.simulator.traffic import open_loop

_BLOCKS = 20


class Measured(NamedTuple):
    """Mean latency in seconds, its standard error, and the rate at which requests really came."""

    mean_s: float
    error_s: float
    rate: float


def measure(run: Run) -> Measured:
    """Read a run, but for its first twentieth, in which the queue builds up.

    Latencies that follow one another resemble one another, so the error is taken from the means of blocks
    that are long enough to be independent (the method of batch means). Most of the error is that more or
    fewer requests came than their rate promised: formulas are better given the rate that was measured.
    """
    answered = sorted(run.answered)
    size = len(answered) // _BLOCKS
    blocks = [
        statistics.fmean(one.finish - one.arrival for one in answered[size * block : size * (block + 1)])
        for block in range(1, _BLOCKS)
    ]
    return Measured(
        mean_s=statistics.fmean(blocks),
        error_s=statistics.stdev(blocks) / math.sqrt(len(blocks)),
        rate=(len(answered) - 1 - size) / (answered[-1].arrival - answered[size].arrival),
    )


def poisson(
    service: ServiceTime,
    policy: str,
    *,
    rate: float,
    count: int,
    workers: int = 1,
    limit_rows: int = 10**6,
    seed: int = 1,
) -> Run:
    """A run with Poisson arrivals, and a goal so far off that it decides nothing."""
    arrivals = open_loop("poisson", rate=rate, count=count, random_=random.Random(seed))
    return simulate(
        Scenario(
            service=service,
            arrivals=arrivals,
            workers=workers,
            limit_rows=limit_rows,
            goal_s=1e6,
            policy=policy,
            seed=seed,
        )
    )


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """How many of these (begin, end) overlap at most; one that ends makes room at that instant."""
    steps = sorted(step for begin, end in spans for step in ((begin, 1), (end, -1)))
    now = most = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most
