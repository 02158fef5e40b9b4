"""How long batches take in a simulation: the served model and its machine."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from dataclasses import dataclass


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
        buckets: batch sizes to which the model pads, as compiled models do; batches above the largest are
            not padded. Empty: none are.
        speeds: factor on the time of each worker in turn (2.0 is a worker half as fast). Empty: all equal.
        changes: pairs (time, factor), in order of time: from ``time`` on, every batch takes ``factor`` times
            its previous time. The factors of several changes multiply.

    Raises:
        ValueError: if a time, the noise or a factor is out of range.
    """

    intercept_s: float
    slope_s: float
    prepare_s: float = 0.0
    padding: float = 0.0
    truncated_at: float = math.inf
    noise_cv: float = 0.0
    buckets: tuple[int, ...] = ()
    speeds: tuple[float, ...] = ()
    changes: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if not (
            self.intercept_s >= 0 and self.slope_s >= 0 and 0 < self.intercept_s + self.slope_s < math.inf
        ):
            raise ValueError(f"a batch must take some time, got {self.intercept_s} + {self.slope_s} * rows")
        if not 0 <= self.prepare_s < math.inf:
            raise ValueError(f"prepare_s must be finite and not negative, got {self.prepare_s}")
        if not 0 <= self.padding <= 1:
            raise ValueError(f"padding must be a share, got {self.padding}")
        if not self.truncated_at > 0:
            raise ValueError(f"truncated_at must be positive, got {self.truncated_at}")
        if not 0 <= self.noise_cv < math.inf:
            raise ValueError(f"noise_cv must not be negative, got {self.noise_cv}")
        factors = (*self.speeds, *(factor for _, factor in self.changes))
        if not all(0 < factor < math.inf for factor in factors):
            raise ValueError("speeds and changes are factors on a time: they must be positive")
        since = [time for time, _ in self.changes]
        if not all(0 <= time < math.inf for time in since) or since != sorted(since):
            raise ValueError(
                f"changes must be in order of time, starting at 0 s or later, got {self.changes}"
            )
        if list(self.buckets) != sorted(set(self.buckets)) or min(self.buckets, default=1) < 1:
            raise ValueError(f"buckets must be ascending sizes, got {self.buckets}")

    def mean(self, rows: float) -> float:
        """Return the mean seconds of a batch on a worker of speed 1, before any change."""
        if self.buckets:
            place = bisect_left(self.buckets, rows)
            rows = self.buckets[place] if place < len(self.buckets) else rows
        return self.intercept_s + self.slope_s * rows

    def draw(self, rows: float, padded: float, *, worker: int, now: float, random_: random.Random) -> float:
        """Draw the seconds of a batch that starts on ``worker`` at ``now``.

        ``rows`` is the number of rows, or their total length. ``padded`` is the total length if every row
        were as long as the longest.
        """
        seconds = self.mean(rows + self.padding * (padded - rows))
        if self.speeds:
            seconds *= self.speeds[worker % len(self.speeds)]
        for since, factor in self.changes:
            if now >= since:
                seconds *= factor
        if self.noise_cv:
            variance = math.log1p(self.noise_cv**2)
            seconds *= random_.lognormvariate(-variance / 2, math.sqrt(variance))
        return seconds

    def capacity(self, *, workers: int, limit_rows: int) -> float:
        """Return the rows per second of ``workers`` workers that run only full batches."""
        speeds = [self.speeds[worker % len(self.speeds)] if self.speeds else 1.0 for worker in range(workers)]
        times = [max(self.mean(limit_rows) * speed, self.prepare_s * limit_rows) for speed in speeds]
        return sum(limit_rows / seconds for seconds in times)
