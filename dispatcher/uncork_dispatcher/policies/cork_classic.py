"""The rule of BentoML 0.13's CORK dispatcher, for comparison.

Hold while ``n * (wn + dt + a) <= 0.95 * W``, where

* ``n`` requests are queued, the newest of which arrived ``wn`` seconds ago;
* ``dt`` is the tick of 1 ms;
* ``a`` is the slope of the batch time over the number of *requests*, by least squares over the last 50
  batches that worked, fitted at most every 5 s; at least 1 us; if all batches had one size, the slope of
  the line of smallest norm;
* ``W`` is the mean time that the oldest request of a batch was queued, over the same batches.

The queued requests pay ``n`` times the time until the next arrival (estimated by the age of the newest) plus
its execution. The gain is one request that does not wait as long as usual.

Source: ``bentoml/marshal/dispatcher.py`` at v0.13.1, described in our words. Deviations: no polling (the
moment at which the inequality turns is computed); first in, first out; a full batch is never held (BentoML
fixed that in 1.0.16); the core sheds; the first fit comes with the first batch, and until then the policy
does not hold.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import fmean, linear_regression

from uncork_dispatcher.policies.base import Hold, Policy, Release, View, register


class CorkClassicPolicy(Policy):
    """BentoML's inequality, as described above."""

    rank = 1
    warm_up_s = 6.0  # it fits only every 5 s

    def __init__(self, *, limit_rows: int) -> None:
        super().__init__(limit_rows=limit_rows)
        self._batches: deque[tuple[int, float, float]] = deque(maxlen=50)
        """For each batch: its requests, the seconds its oldest was queued, and the seconds it ran."""
        self._fitted_at = -math.inf
        self._slope_s = 0.0
        self._queued_s = 0.0

    def decide(self, view: View) -> Release | Hold:
        if view.full:
            return Release(self.limit_rows, "full")
        patience_s = 0.95 * self._queued_s / view.requests - 0.001 - self._slope_s
        until = view.newest + patience_s
        if until <= view.now:
            return Release(self.limit_rows, "not_worth_waiting")
        return Hold(until, "next")

    def observe(self, *, now: float, rows: float, requests: int, queued_s: float, seconds: float) -> None:
        """Remember the batch; fit again if the last fit is at least 5 s old."""
        self._batches.append((requests, queued_s, seconds))
        if now - self._fitted_at < 5.0:
            return
        self._fitted_at = now
        counts, queued, times = zip(*self._batches, strict=True)
        self._slope_s = max(1e-6, _slope(counts, times))
        self._queued_s = fmean(queued)


def _slope(requests: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the slope of the least-squares line of smallest norm through (requests, seconds)."""
    if len(set(requests)) > 1:
        return linear_regression(requests, seconds).slope
    # All of one size, k: of all lines through (k, mean) the one of smallest norm, k * mean / (k * k + 1).
    return requests[0] * fmean(seconds) / (requests[0] ** 2 + 1)


register("cork-classic", CorkClassicPolicy)
