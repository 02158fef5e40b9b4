"""How long batches take in a simulation: the served model and its machine."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from uncork_dispatcher.learning.estimator import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTime:
    """Batch execution time ``(intercept + slope * rows) * noise * speed`` in seconds.

    Attributes:
        intercept_s: the fixed cost of a batch.
        slope_s: the cost of each row, or of each unit of length.
        prepare_s: the time of each row in a first stage, which overlaps with the batch before; 0: there is
            no such stage.
        padding: the share of a batch's padding that takes time: 1 for a model that pads all rows to the
            longest, 0 for one that does not pad.
        truncated_at: longer rows take as long as rows of this length; infinity for a model that does not
            truncate its input.
        noise_cv: coefficient of variation of a log-normal factor of mean 1, drawn for each batch.
        speeds: factor on the time of each worker in turn (2.0 is a worker half as fast). Empty: all equal.
    """

    intercept_s: float
    slope_s: float
    prepare_s: float = 0.0
    padding: float = 0.0
    truncated_at: float = math.inf
    noise_cv: float = 0.0
    speeds: tuple[float, ...] = ()

    def mean(self, rows: float) -> float:
        """Return the mean seconds of a batch on a worker of speed 1."""
        return self.intercept_s + self.slope_s * rows

    @property
    def estimate(self) -> Estimate:
        """The estimate that predicts the mean on a worker of speed 1."""
        return Estimate(self.intercept_s, self.slope_s)

    def draw(self, rows: float, padded: float, *, worker: int, random_: random.Random) -> float:
        """Draw the seconds of a batch on ``worker``.

        ``rows`` is the number of rows, or their total length. ``padded`` is the total length if every row
        were as long as the longest.
        """
        seconds = self.mean(rows + self.padding * (padded - rows))
        if self.speeds:
            seconds *= self.speeds[worker % len(self.speeds)]
        if self.noise_cv:
            variance = math.log1p(self.noise_cv**2)
            seconds *= random_.lognormvariate(-variance / 2, math.sqrt(variance))
        return seconds

    def capacity(self, *, workers: int, limit_rows: int) -> float:
        """Return the rows per second of ``workers`` workers that run only full batches."""
        speeds = [self.speeds[worker % len(self.speeds)] if self.speeds else 1.0 for worker in range(workers)]
        times = [max(self.mean(limit_rows) * speed, self.prepare_s * limit_rows) for speed in speeds]
        return sum(limit_rows / seconds for seconds in times)
