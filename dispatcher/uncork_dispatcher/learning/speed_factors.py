"""How much longer or shorter than the average each worker takes for the same batch.

Workers on unlike devices, or beside a noisy neighbour, differ for long. The batch time of an average worker
is learned in ``estimator.py``; here each worker's factor on it: a moving average of the logarithm of
measured over predicted time, less the mean of all workers. A factor is 1 until the difference stands
out of the noise: twice the standard deviation of such an average.
"""

from __future__ import annotations

import math

# A worker's factor is believed after this many of its batches; their average remembers about 1/_MEMORY.
_EARNED_BATCHES = 5
_MEMORY = 0.1
_LEAST_DIFFERENCE = 0.1
# A measurement counts as at most this far off the usual, in logarithms: a factor of 2, as for estimates.
_OUTLIER = math.log(2.0)


class WorkerPaces:
    """The factor on batch time of each worker of one api: 2.0 is a worker that takes twice as long."""

    def __init__(self) -> None:
        self._logs: dict[int, float] = {}
        self._seen: dict[int, int] = {}
        self._paces: dict[int, float] = {}

    def of(self, worker: int) -> float:
        """Factor on the batch time of an average worker; 1 while nothing else is known."""
        return self._paces.get(worker, 1.0)

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
        """A worker is gone; whoever gets its number may be another device."""
        self._seen.pop(worker, None)
        self._logs.pop(worker, None)
        self._paces.pop(worker, None)

    def _compare(self, noise: float) -> None:
        known = [worker for worker, seen in self._seen.items() if seen >= _EARNED_BATCHES]
        if not known:
            return
        mean = sum(self._logs[worker] for worker in known) / len(known)
        for worker in known:
            difference = self._logs[worker] - mean
            self._paces[worker] = math.exp(difference) if abs(difference) > noise else 1.0
