"""Smooths the estimate of batch times for people: the dispatcher's own follows every batch."""

from __future__ import annotations

import math

from uncork_dispatcher import Estimate

# The largest batch that an estimate rests on must grow by this for what was before to count no more.
_GROWTH = 1.5


class SmoothEstimate:
    """The mean of an estimate over about the last ``2 * span_s`` seconds; recent values count more.

    The first values count alike, so that a wrong one at the start does not stay. An estimate that rests on
    much larger batches than those before it replaces them: they guessed such sizes.
    """

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._values = 0
        self._added = 0.0
        self.value: Estimate | None = None
        """None before the first value."""

    def add(self, estimate: Estimate, *, now: float) -> None:
        """Take in the estimate of time ``now``, in seconds."""
        if self.value is not None and estimate.earned_rows > _GROWTH * self.value.earned_rows:
            self._values = 0
        self._values += 1
        share = max(1 / self._values, 1 - math.exp((self._added - now) / self._span_s))
        self._added = now
        before = self.value or estimate
        self.value = Estimate(
            before.intercept_s + share * (estimate.intercept_s - before.intercept_s),
            before.slope_s + share * (estimate.slope_s - before.slope_s),
            before.spread + share * (estimate.spread - before.spread),
            estimate.earned_rows,
        )


def calibrated(estimate: Estimate, *, batches: int, rows: float, seconds: float) -> Estimate:
    """Return the estimate scaled to what ``batches`` of together ``rows`` rows took, in all ``seconds``.

    The dispatcher's estimate gives outliers little weight. Next to mean times it would look like a mistake.
    """
    predicted_s = batches * estimate.intercept_s + rows * estimate.slope_s
    scale = seconds / predicted_s if predicted_s > 0 else 1.0
    return estimate._replace(intercept_s=scale * estimate.intercept_s, slope_s=scale * estimate.slope_s)
