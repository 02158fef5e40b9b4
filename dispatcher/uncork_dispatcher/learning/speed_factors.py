"""How much longer or shorter than the average each worker takes for the same batch.

Workers on different devices, or next to a noisy neighbour, differ for long. ``estimator.py`` learns the
batch time of an average worker. Here each worker has a factor on it: a moving average of the logarithm of
measured over predicted time, less the mean of all workers. A factor is 1 until the difference exceeds the
noise: twice the standard deviation of such an average.
"""

from __future__ import annotations

import math

# A worker's factor is believed after this many of its batches; their average remembers about 1/_MEMORY.
_EARNED_BATCHES = 5
_MEMORY = 0.1
_LEAST_DIFFERENCE = 0.1
# A measurement counts as at most this far off the usual, in logarithms: a factor of 2, as for estimates.
_OUTLIER = math.log(2.0)


class SpeedFactors:
    """The factor on batch time of each worker of one API: 2.0 is a worker that takes twice as long."""

    def __init__(self) -> None:
        self._logs: dict[int, float] = {}
        self._seen: dict[int, int] = {}
        self._slowdowns: dict[int, float] = {}

    def slowdown(self, worker: int) -> float:
        """Return the factor on the batch time of an average worker; 1 while nothing else is known."""
        return self._slowdowns.get(worker, 1.0)

    def observe(self, worker: int, *, seconds: float, average_s: float, spread: float) -> None:
        """Learn from a batch for which an average worker is predicted to take ``average_s`` seconds.

        ``spread`` is the relative standard deviation of batch times on one worker. Times of 0 teach nothing.
        """
        if seconds <= 0 or average_s <= 0:
            return
        known = self._logs.get(worker, 0.0)
        seen = self._seen[worker] = self._seen.get(worker, 0) + 1
        surprise = math.log(seconds / average_s) - known
        if seen > _EARNED_BATCHES:
            surprise = min(max(surprise, -_OUTLIER), _OUTLIER)
        self._logs[worker] = known + max(1.0 / seen, _MEMORY) * surprise
        self._compare(max(_LEAST_DIFFERENCE, 2.0 * spread * math.sqrt(_MEMORY / (2.0 - _MEMORY))))

    def forget(self, worker: int) -> None:
        """Drop the factor of a worker that is gone; its number may go to another device."""
        self._seen.pop(worker, None)
        self._logs.pop(worker, None)
        self._slowdowns.pop(worker, None)

    def _compare(self, noise: float) -> None:
        known = [worker for worker, seen in self._seen.items() if seen >= _EARNED_BATCHES]
        if not known:
            return
        mean = sum(self._logs[worker] for worker in known) / len(known)
        for worker in known:
            difference = self._logs[worker] - mean
            self._slowdowns[worker] = math.exp(difference) if abs(difference) > noise else 1.0
