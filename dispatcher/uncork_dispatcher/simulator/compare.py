"""Compares policies in one cell, with 95 % confidence intervals of the ratios.

The policy ``fixed:0`` is *release-when-free*: it takes the whole queue whenever a worker is idle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from statistics import fmean, stdev
from typing import NamedTuple

from uncork_dispatcher.simulator.cells import Cell
from uncork_dispatcher.simulator.measure import Measured

RELEASE_WHEN_FREE = "fixed:0"

# 97.5th percentile of Student's t distribution with 1, 2, ... 10 degrees of freedom.
_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


class Ratio(NamedTuple):
    """A ratio and its 95 % confidence interval, which is 0 to infinity if unknown."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """True if several valid measurements give an interval."""
        return self.high < math.inf

    @property
    def margin(self) -> float:
        """Half the interval relative to the ratio: 0.02 means ±2 %; infinity if unknown."""
        return math.sqrt(self.high / self.low) - 1 if self.known else math.inf


class Result(NamedTuple):
    """The result of one policy in one cell: averages over the seeds, and ratios to the base policy."""

    policy: str
    average: Measured
    by_seed: tuple[Measured, ...]
    mean: Ratio
    p99: Ratio
    throughput: Ratio


class Comparison(NamedTuple):
    """The results of all policies in one cell; ratios are to the policy ``base``."""

    cell: Cell
    base: str
    results: tuple[Result, ...]

    def of(self, policy: str) -> Result:
        """Return the result of one policy.

        Raises:
            KeyError: if it was not measured.
        """
        return {result.policy: result for result in self.results}[policy]


def compared(cell: Cell, seen: Mapping[str, Sequence[Measured]], *, base: str) -> Comparison:
    """Compare each policy with the policy ``base``, seed by seed."""
    results = []
    for policy, by_seed in seen.items():
        mean, p99, throughput = (
            ratio([getattr(one, name) for one in by_seed], [getattr(one, name) for one in seen[base]])
            for name in ("mean_ms", "p99_ms", "rows_per_s")
        )
        results.append(Result(policy, _average(by_seed), tuple(by_seed), mean, p99, throughput))
    return Comparison(cell, base, tuple(results))


def ratio(measured: Sequence[float], base: Sequence[float]) -> Ratio:
    """Return the geometric mean of the ratios of paired measurements, with its t interval.

    Pairs share a seed, and so the arrivals: much of the scatter cancels out. The interval of a single pair
    is unknown. The ratio is NaN if a measurement is NaN or not positive.
    """
    if not all(0 < value < math.inf for value in (*measured, *base)):
        return Ratio(math.nan, 0.0, math.inf)
    logs = [math.log(one / other) for one, other in zip(measured, base, strict=True)]
    middle = fmean(logs)
    if len(logs) < 2:
        return Ratio(math.exp(middle), 0.0, math.inf)
    half = student_t_975(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def student_t_975(freedom: int) -> float:
    """Return the 97.5th percentile of Student's t with ``freedom`` degrees of freedom, ±0.001."""
    if freedom <= len(_T_975):
        return _T_975[freedom - 1]
    z = 1.959964
    # Cornish and Fisher's expansion around the normal distribution.
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _average(by_seed: Sequence[Measured]) -> Measured:
    """Average each field over the seeds."""
    return Measured(
        **{one.name: fmean(getattr(seen, one.name) for seen in by_seed) for one in fields(Measured)}
    )
