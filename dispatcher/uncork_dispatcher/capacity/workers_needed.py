"""The least number of workers with which 99 % of the requests meet their goals.

Letters, for one API: a batch of ``n`` rows takes ``s(n) = a + b*n`` seconds with the relative deviation
``spread``; ``lambda`` rows arrive per second; a batch has ``B`` rows at most; ``L`` is the goal less the
transport, and ``W`` the number of workers. ``D`` is the dispersion of the arrivals: variance over mean of the
rows that arrive in a short time, 1 if single rows arrive at random.

Batches of ``n`` rows take ``lambda*s(n)/n`` seconds of the workers' time per second: the larger the batches,
the less. Let ``n`` be the largest size up to ``B`` with which 99 % of the rows meet the goal. Then the least
number of workers is ``W = lambda*s(n)/n``. (Solved for ``n``, this is the smallest mean batch ``n*`` with
which ``W`` workers keep up, see :meth:`Estimate.keep_up_rows`.) Full batches must have a capacity of
``lambda / 0.98``: batches that are full on average leave no room for busy moments.

Workers that start in turn release a batch every ``s(n)/W`` seconds. A row waits for one such gap, then for
its batch. So 99 % of the rows meet the goal if::

    s(n)/W  +  m  +  sqrt((m * (exp(z*sqrt(v) - v/2) - 1))^2  +  (3 * b * sqrt(n*D/f))^2)  <=  L

    m = s(n + 1.25*D/f)                   the batch of an average row: more rows are in large batches
    z = 2.33                              the 99th percentile of a normal distribution
    v = ln(1 + spread^2)                  batch times are log-normal
    f = 1 + max(0, W - lambda*s(1))       idle workers, if each request ran alone; they share a burst

The terms under the root are the excess times of slow and of large batches. The factors 3 (instead of ``z``)
and 1.25 (instead of 1) allow for bursts, which have a longer tail than a normal distribution. Without spread
and bursts, the time is one gap, then a batch of the 99th percentile of sizes: ``s(n)/W + s(n + z*sqrt(n))``;
the rest was derived for this project.

With a spread above 0.15, slow batches also delay the batches behind them, which the formula does not count:
in simulations, up to 9 % of the requests are then late. A margin makes up for it::

    s(n)/W + s(n + z*sqrt(n))  <=  0.6 * L

Goals that are nearly as short as a request alone are met if a request nearly always finds an idle worker.
Requests that run alone keep ``lambda*s(1)`` workers busy on average, and for 99 % of the time fewer than
``W``, if::

    W  >=  1 + lambda*s(1) + z*sqrt(D*lambda*s(1))

Several APIs share the workers. Their times add up, and each waits for a batch of the others before its own. A
batch that takes longer than the goal of another API occupies a worker at a random moment: for such batches,
``z * sqrt(their time)`` more workers keep one worker free.

The tests compare the result for one API with simulations.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from uncork_dispatcher.learning.estimator import Estimate

MOST_WORKERS = 4096
"""The largest result of :func:`workers_needed`."""

_Z99 = 2.33
# With more spread, only this share of the goal is planned for.
_SAFE_SHARE = 0.6

ScalingLimit = Literal["goal", "throughput", "goal_out_of_reach"]
"""The limit that decides the number of workers. ``goal``: the goal, which keeps batches small.
``throughput``: the arrivals, in full batches. ``goal_out_of_reach``: the arrivals, in small batches, because
no number of workers meets the goal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The demand of one API; see :class:`uncork_dispatcher.ApiDemand`.

    Attributes:
        rate_rows: arrivals in rows per second.
        smallest_rows: rows of the smallest request, above 0.
        dispersion: variance over mean of the rows that arrive in a short time. Single rows that arrive at
            random have 1; larger requests and bursts have more.
    """

    api: str
    rate_rows: float
    estimate: Estimate
    goal_s: float
    limit_rows: float
    transport_s: float = 0.0
    smallest_rows: float = 1.0
    dispersion: float = 1.0

    @property
    def is_known(self) -> bool:
        """True if enough batches were measured to trust the estimate."""
        return self.estimate.earned_rows > 0 and self.estimate.seconds(self.smallest_rows) > 0


class Need(NamedTuple):
    """The least number of workers, the API that takes most of their time, and the limit that decides it."""

    workers: int
    api: str | None
    """None if no API has arrivals."""
    limit: ScalingLimit


def workers_needed(loads: Iterable[Load]) -> Need:
    """Return the least number of workers with which 99 % of the requests meet their goals.

    The result is between 1 and :data:`MOST_WORKERS`. It does not fall when a rate rises, nor, while the goals
    can be met, when an intercept or a slope rises. An API without arrivals needs no worker; the estimates of
    the others must be known.

    A goal below 1.1 times the 99th percentile of the time of a request alone counts as that time, because a
    shorter goal needs very many workers or cannot be met. The result then suffices for the arrivals, in
    batches that take little longer than a request alone.
    """
    demands = [_Demand(load) for load in loads if load.rate_rows > 0]
    if not demands:
        return Need(1, None, "throughput")
    # One more worker never makes them too few.
    workers = 1 + bisect_left(range(1, MOST_WORKERS), True, key=lambda count: _carry(count, demands))
    largest = max(demands, key=lambda demand: demand.work(workers, demands))
    return Need(workers, largest.load.api, largest.limit(workers, demands))


def _carry(workers: int, demands: Sequence[_Demand]) -> bool:
    tightest_s = min(demand.goal_s for demand in demands)
    total = blocking = 0.0
    for demand in demands:
        work = demand.work(workers, demands)
        total += work
        if demand.alone_s > tightest_s:
            blocking += work
    return total + _Z99 * math.sqrt(blocking) <= workers


class _Demand:
    """The demand of one API. Work is seconds of the workers' time per second."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.alone_s = load.estimate.seconds(load.smallest_rows)
        """The time of the smallest request alone."""
        self.alone_work = load.rate_rows * self.alone_s / load.smallest_rows
        """The work if each request ran alone."""
        self.bursts = load.dispersion / load.smallest_rows
        variance = math.log1p(load.estimate.spread**2)
        self._slow_share = math.exp(_Z99 * math.sqrt(variance) - variance / 2) - 1
        """How much longer than on average the slowest percent of batches take, as a share of the average."""
        self._scatters = load.estimate.spread > 0.15
        self._most_rows = max(load.limit_rows, load.smallest_rows)
        # Full batches may take 98 % of the time of the workers.
        self._least_work = self._work_of(self._most_rows) / 0.98
        goal_s, reach_s = load.goal_s - load.transport_s, self._reach_s()
        self._in_reach = goal_s >= reach_s
        self.goal_s = max(goal_s, reach_s)
        """The goal to plan for, without transport."""

    def work(self, workers: int, demands: Sequence[_Demand]) -> float:
        """Return the work with the largest batches that meet the goal; infinity if no batches do."""
        rows = self._batch_rows(workers, demands)
        return max(self._work_of(rows), self._least_work) if rows else math.inf

    def limit(self, workers: int, demands: Sequence[_Demand]) -> ScalingLimit:
        """Return why this API needs workers: its goal, its arrivals, or a goal out of reach."""
        if not self._in_reach:
            return "goal_out_of_reach"
        return "goal" if self.work(workers, demands) > self._least_work else "throughput"

    def _work_of(self, rows: float) -> float:
        return self.load.rate_rows * self.load.estimate.seconds(rows) / rows

    def _batch_rows(self, workers: int, demands: Sequence[_Demand]) -> float:
        """Return the rows of the largest mean batch that meets the goal; 0 if no batch does."""
        idle = max(0.0, workers - sum(demand.alone_work for demand in demands))
        bursts = sum(demand.alone_work * demand.bursts for demand in demands)
        finds_idle = idle >= 1 + _Z99 * math.sqrt(bursts)
        dispersion = self.load.dispersion / (1 + idle)
        others_s = sum(other.alone_s * min(1.0, other.alone_work) for other in demands if other is not self)

        def is_within_goal(rows: float) -> bool:
            gap_s = (self.load.estimate.seconds(rows) + others_s) / workers
            return self._is_within_goal(rows, gap_s, dispersion)

        low, high = self.load.smallest_rows, self._most_rows
        if is_within_goal(high):
            return high
        if not is_within_goal(low):
            return low if finds_idle else 0.0
        while high - low > 1e-4 * low:
            rows = (low + high) / 2
            if is_within_goal(rows):
                low = rows
            else:
                high = rows
        return low

    def _is_within_goal(self, rows: float, gap_s: float, dispersion: float) -> bool:
        """Return True if 99 % of the rows meet the goal with batches of ``rows`` rows on average."""
        estimate = self.load.estimate
        # The batch of an average row has 1.25 times the dispersion more rows than an average batch.
        seen_s = estimate.seconds(min(self._most_rows, rows + 1.25 * dispersion))
        slow_s = seen_s * self._slow_share
        large_s = 3.0 * estimate.slope_s * math.sqrt(rows * dispersion)
        if gap_s + seen_s + math.hypot(slow_s, large_s) > self.goal_s:
            return False
        return not self._scatters or gap_s + self._planned_s(rows) <= _SAFE_SHARE * self.goal_s

    def _reach_s(self) -> float:
        """Return the shortest goal to plan for, in seconds."""
        slowest_s = self.alone_s * (1 + self._slow_share)
        if self._scatters:
            slowest_s = max(slowest_s, self._planned_s(self.load.smallest_rows) / _SAFE_SHARE)
        # With a goal closer to what a request takes alone, the number grows without bound.
        return 1.1 * slowest_s

    def _planned_s(self, rows: float) -> float:
        """Return the time of a large batch: the 99th percentile of sizes around a mean of ``rows``."""
        return self.load.estimate.seconds(rows + _Z99 * math.sqrt(rows))
