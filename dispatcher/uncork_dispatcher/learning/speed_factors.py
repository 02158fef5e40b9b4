"""Learns how much slower or faster than average each worker is.

Workers on different devices, or next to a noisy neighbour, differ for a long time. ``estimator.py`` learns
the batch time of an average worker; here each worker gets a factor on that time. Its logarithm is a moving
average of the logarithm of measured over predicted time, less the mean of all workers. A factor is 1 until
the difference exceeds the noise: twice the standard deviation of such an average.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort

from uncork_dispatcher.learning.estimator import EARNED_BATCHES, MEMORY

# The limit of a measurement's distance from the average, as a logarithm: a factor of 2, as for estimates.
_OUTLIER = math.log(2.0)
# The noise of a factor over the spread of batch times, and the least noise.
_NOISE = 2.0 * math.sqrt(MEMORY / (2.0 - MEMORY))
_LEAST_NOISE = 0.1


class SpeedFactors:
    """The factor of each worker on the batch times of one API; a worker with 2.0 takes twice as long."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._logs: dict[int, float] = {}
        """The average logarithm of measured over predicted time, by worker."""
        self._earned: dict[int, float] = {}
        """The averages with enough batches; below, in ascending order, and their sum, mean and noise."""
        self._ordered: list[float] = []
        self._sum = 0.0
        self._mean = 0.0
        self._noise = math.inf
        self.differ = False
        """True if any worker has a factor other than 1."""

    def slowdown(self, worker: int) -> float:
        """Return the worker's factor on the average batch time; 1 while no other is known."""
        log = self._earned.get(worker) if self.differ else None
        if log is None:
            return 1.0
        difference = log - self._mean
        return math.exp(difference) if abs(difference) > self._noise else 1.0

    def observe(self, worker: int, *, seconds: float, average_s: float, spread: float) -> None:
        """Learn from a batch that took ``seconds``; an average worker is predicted to take ``average_s``.

        ``spread`` is the relative standard deviation of batch times on one worker. Times of 0 are ignored.
        """
        if seconds <= 0 or average_s <= 0:
            return
        known = self._logs.get(worker, 0.0)
        seen = self._seen[worker] = self._seen.get(worker, 0) + 1
        surprise = math.log(seconds / average_s) - known
        if seen > EARNED_BATCHES:
            surprise = min(max(surprise, -_OUTLIER), _OUTLIER)
        log = self._logs[worker] = known + max(1.0 / seen, MEMORY) * surprise
        if seen >= EARNED_BATCHES:
            if len(self._logs) == 1:  # nothing to compare it with
                self._earned[worker] = self._sum = self._mean = log
                self._ordered = [log]
                return
            self._drop(worker)
            self._earned[worker] = log
            self._sum += log
            insort(self._ordered, log)
        if self._earned:
            self._noise = max(_LEAST_NOISE, _NOISE * spread)
        self._compare()

    def forget(self, worker: int) -> None:
        self._seen.pop(worker, None)
        self._logs.pop(worker, None)
        self._drop(worker)
        self._compare()

    def _compare(self) -> None:
        self._mean = self._sum / len(self._earned) if self._earned else 0.0
        logs, mean, noise = self._ordered, self._mean, self._noise
        self.differ = bool(logs) and (mean - logs[0] > noise or logs[-1] - mean > noise)

    def _drop(self, worker: int) -> None:
        log = self._earned.pop(worker, None)
        if log is not None:
            self._sum -= log
            del self._ordered[bisect_left(self._ordered, log)]
