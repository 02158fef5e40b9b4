"""Smooths the displayed estimate of batch times; the dispatcher's own estimate follows every batch."""

import math

from uncork_dispatcher import Estimate

# Earlier values are dropped when the largest batch behind the estimate has grown by this factor.
_GROWTH = 1.5


class SmoothEstimate:
    """The mean of an estimate over about the last ``2 * span_s`` seconds; recent values count more.

    The first values count equally, so that a wrong first value does not persist. An estimate from much larger
    batches replaces earlier estimates, which only extrapolated to such sizes.
    """

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._values = 0
        self._added = 0.0
        self.value: Estimate | None = None
        """None before the first value."""

    def add(self, estimate: Estimate, *, now: float) -> None:
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
    """Scale the estimate to predict ``seconds`` in total for ``batches`` with ``rows`` rows in total.

    The dispatcher's own estimate gives outliers little weight, so it would not match the displayed means.
    """
    predicted_s = batches * estimate.intercept_s + rows * estimate.slope_s
    scale = seconds / predicted_s if predicted_s > 0 else 1.0
    return estimate._replace(intercept_s=scale * estimate.intercept_s, slope_s=scale * estimate.slope_s)
