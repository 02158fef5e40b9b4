"""Predicts how long a batch takes from past batches.

Model: ``s(n) = intercept + slope * n`` seconds for a batch of ``n`` rows, both non-negative.

The estimator keeps one mean per batch size (similar sizes share a mean), and draws a line through the means.
So the line survives a flood of batches of one size: plain least squares over the last 50 batches, as in
BentoML, forgets the slope as soon as all of them have the same size, and then predicts 0.8 s for a batch that
takes 65 ms.

Forgetting: every observation weakens the other sizes, down to a floor. At the floor, a size no longer
outweighs fresh sizes, but still separates slope from intercept if no other size does. If several batches in a
row are all slower or all faster than predicted, the model itself has changed, and the means of all sizes are
scaled.

Fit: weighted least squares of the relative error, restricted to non-negative values. With two unknowns,
the restricted optimum is either the free optimum or on one of two edges, so it is written out here.

A line that an earlier run has learned changes nothing until one of the first batches confirms it. If none
does, it is dropped: a wrong line costs no more than none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# A worker's speed factor is used, and predictions may shed requests, only after this many batches ...
EARNED_BATCHES = 5
# ... and predictions only up to this multiple of the largest batch seen: the line is not trusted far outside.
EARNED_REACH = 2.0
_WEIGHT_FLOOR = 0.01
MEMORY = 0.1
"""The share of the latest batch in a moving average."""
# A measurement beyond this multiple of the prediction counts as this multiple: one hiccup of 60 times
# the usual then moves its size by a tenth. If the model really became slower, the next ones show it too.
_OUTLIER = 2.0
# This many batches in a row that miss to one side by this much, and by more than the spread, are a change;
# with each further one all sizes move by this part of the way (of the logarithm).
_CHANGE_BATCHES = 3
_CHANGE = 1.25
_FOLLOW = 0.5
_FIRST_SPREAD = 0.3


class Estimate(NamedTuple):
    """The predicted batch execution time.

    ``spread`` is the relative standard deviation of a batch's time around the prediction.
    ``earned_rows`` is the largest batch whose prediction may shed a request: 0 until enough batches have been
    seen.
    """

    intercept_s: float = 0.0
    slope_s: float = 0.0
    spread: float = _FIRST_SPREAD
    earned_rows: float = 0.0

    def seconds(self, rows: float) -> float:
        """Return the mean execution time of a batch of ``rows`` rows; 0 when nothing is known."""
        return self.intercept_s + self.slope_s * rows

    def upper(self, rows: float) -> float:
        """Return a time that a batch of ``rows`` rows rarely exceeds: mean plus two deviations."""
        return (self.intercept_s + self.slope_s * rows) * (1.0 + 2.0 * self.spread)

    def rows_within(self, seconds: float, z: float = 2.0) -> float:
        """Return the rows, not rounded, of the largest batch whose mean plus ``z`` deviations fits a time.

        Negative if an empty batch takes longer; infinity if rows take no time.
        """
        spare_s = seconds / (1.0 + z * self.spread) - self.intercept_s
        if self.slope_s > 0:
            return spare_s / self.slope_s
        return math.inf if spare_s >= 0 else -math.inf

    def keep_up_rows(self, rate: float, *, workers: int) -> float:
        """Return ``n*``, the mean rows of a batch with which workers just keep up with ``rate`` rows/s.

        ``n* = rate * a / (W - rate * b)``, because ``rate / n`` batches per second keep ``W`` workers busy if
        ``rate / n * s(n) = W``. The result may be below 1; it is infinity if no batch size suffices.
        """
        idle = workers - rate * self.slope_s
        return rate * self.intercept_s / idle if idle > 0 else math.inf

    def slowed(self, factor: float) -> Estimate:
        """Return the estimate for a worker that takes ``factor`` times as long."""
        if factor == 1.0:
            return self
        return self._replace(intercept_s=self.intercept_s * factor, slope_s=self.slope_s * factor)

    def in_units_of(self, rows: float) -> Estimate:
        """Return the same estimate with batch sizes in units of ``rows`` rows."""
        return self._replace(slope_s=self.slope_s * rows, earned_rows=self.earned_rows / rows)


@dataclass(slots=True)
class _Size:
    """The mean of batches of about one size."""

    rows: float
    seconds: float
    weight: float
    seen: int
    proven: int = 0
    """Batches of this size that count as evidence, at most 10; the first of a size does not count."""


class BatchTimeEstimator:
    """Learns the batch time of one API; the first batch already gives an estimate."""

    def __init__(self) -> None:
        self._sizes: dict[int, _Size] = {}
        self._largest = 0.0
        self._batches = 0
        self._variance = _FIRST_SPREAD**2
        self._run = 0
        self._recalled: BatchTimeEstimator | None = None
        """An estimator with the line of an earlier run, which no batch has confirmed yet."""
        self.estimate = Estimate()

    @property
    def known_rows(self) -> tuple[float, float] | None:
        """Rows of the smallest and of the largest batch seen; None before the first."""
        sizes = [size.rows for size in self._sizes.values()]
        return (min(sizes), max(sizes)) if sizes else None

    @property
    def slope_error_s(self) -> float:
        """The likely error of the slope, in seconds per row; infinite until two sizes have run repeatedly.

        It is the standard error of the slope of a line through the sizes that have run repeatedly, plus the
        distance of that slope from the estimate's, which also rests on single batches.
        """
        sizes = self._sizes.values()
        weights = [size.proven / max(size.seconds, 1e-9) ** 2 for size in sizes]
        weight, x, y, _, xy, spread_of_sizes = _sums(sizes, weights)
        if spread_of_sizes == 0:
            return math.inf
        slope = (weight * xy - x * y) / spread_of_sizes
        error = math.sqrt(self._variance * weight / spread_of_sizes)
        return abs(slope - self.estimate.slope_s) + error

    def observe(self, rows: float, seconds: float) -> None:
        """Learn that a batch of ``rows`` rows (or of that cost) took ``seconds`` seconds.

        Raises:
            ValueError: if ``rows`` is not positive, ``seconds`` is negative, or either is not finite.
        """
        _check(rows, seconds)
        if self._recalled is not None:
            self._confirm(self._recalled, rows, seconds)
        predicted, place = self.estimate.seconds(rows), _size_class(rows)
        if predicted > 0:
            seconds = self._judge(place, seconds, predicted)
        self._remember(place, rows, seconds)
        self._estimate_anew()

    def observe_profile(self, chunks: Sequence[tuple[float, float]]) -> None:
        """Learn from (rows, seconds) of batches of many sizes that were run as a measurement.

        Every batch counts fully, however far from the prediction: none is an outlier or a change.

        Raises:
            ValueError: as for :meth:`observe`; nothing is learned then.
        """
        for rows, seconds in chunks:
            _check(rows, seconds)
        if chunks and self._recalled is not None:
            self._confirm(self._recalled, *max(chunks))
            self._recalled = None
        for rows, seconds in chunks:
            self._remember(_size_class(rows), rows, seconds, is_profile=True)
        if chunks:
            self._estimate_anew()

    def learned(self) -> list[tuple[float, float]]:
        """Return (rows, seconds) of the smallest and the largest batch by the estimate, for :meth:`recall`.

        Empty until enough batches have been seen.
        """
        if self._batches < EARNED_BATCHES:
            return [] if self._recalled is None else self._recalled.learned()
        smallest, largest = min(self._sizes), max(self._sizes)
        sizes = [self._sizes[each].rows for each in dict.fromkeys((smallest, largest))]
        return [(rows, self.estimate.seconds(rows)) for rows in sizes]

    def recall(self, learned: Sequence[tuple[float, float]]) -> None:
        """Use the line that an earlier run has :meth:`learned`, once one of the first batches confirms it.

        Raises:
            ValueError: as for :meth:`observe`.
        """
        for rows, seconds in learned:
            _check(rows, seconds)
        if not learned or self._batches:
            return
        recalled = self._recalled = BatchTimeEstimator()
        # The first batch of a size replaces its time, and counts for more than the other sizes.
        recalled._sizes = {_size_class(rows): _Size(rows, s, _WEIGHT_FLOOR, 0) for rows, s in learned}
        recalled._largest, recalled._batches = max(learned)[0], EARNED_BATCHES
        recalled._estimate_anew()

    def _confirm(self, recalled: BatchTimeEstimator, rows: float, seconds: float) -> None:
        """Believe the recalled line if it predicts this measurement; drop it after the first batches."""
        predicted = recalled.estimate.seconds(rows)
        if predicted / _CHANGE <= seconds <= predicted * _CHANGE:
            self._sizes = recalled._sizes | self._sizes
            self._largest = max(self._largest, recalled._largest)
            self._batches += recalled._batches
            self._recalled = None
            self._estimate_anew()
        elif self._batches + 1 >= EARNED_BATCHES:
            self._recalled = None

    def _estimate_anew(self) -> None:
        intercept, slope = self._fit()
        self.estimate = Estimate(
            intercept_s=intercept,
            slope_s=slope,
            spread=math.sqrt(self._variance),
            earned_rows=self._largest * EARNED_REACH if self._batches >= EARNED_BATCHES else 0.0,
        )

    def _judge(self, place: int, seconds: float, predicted: float) -> float:
        """Update the spread, and follow a change of the model; return ``seconds``, limited if an outlier."""
        changed = self._follow_change(seconds / predicted)
        # A size not seen before says more about the prediction than about the spread.
        if not changed and place in self._sizes:
            miss = min(seconds / predicted, _OUTLIER) - 1.0
            self._variance += MEMORY * (miss * miss - self._variance)
        trusted = changed or self._batches < EARNED_BATCHES
        return seconds if trusted else min(seconds, _OUTLIER * predicted)

    def _follow_change(self, ratio: float) -> bool:
        """Scale all sizes if several batches in a row were far slower or far faster; return True if so."""
        side = 1 if ratio > 1 else -1
        far = abs(math.log(max(ratio, 1e-9))) > max(math.log(_CHANGE), 1.5 * math.sqrt(self._variance))
        if not far:
            self._run = 0
            return False
        self._run = self._run + side if self._run * side > 0 else side
        if abs(self._run) < _CHANGE_BATCHES or self._batches < EARNED_BATCHES:
            return False
        factor = max(ratio, 1e-9) ** _FOLLOW
        for size in self._sizes.values():
            size.seconds *= factor
        return True

    def _remember(self, place: int, rows: float, seconds: float, *, is_profile: bool = False) -> None:
        self._batches += 1
        for other in self._sizes.values():
            other.weight = max(_WEIGHT_FLOOR, other.weight * 0.95)
        size = self._sizes.get(place)
        if size is None:
            size = self._sizes[place] = _Size(rows, seconds, 0.0, 0)
        # The first batch of a size may be slow: many models compile or allocate for each size.
        if is_profile or size.seen:
            size.proven = min(size.proven + 1, round(1 / MEMORY))
        size.seen += 1
        share = max(1.0 / size.seen, MEMORY)
        size.rows += share * (rows - size.rows)
        size.seconds += share * (seconds - size.seconds)
        size.weight = min(1.0, size.weight + 0.2)
        self._largest = max(self._largest, size.rows)

    def _fit(self) -> tuple[float, float]:
        # Weighted by the expected time, not by the measured one: otherwise a size that became slower would
        # count for less than sizes that were not measured since.
        sizes, intercept, slope = self._sizes.values(), self.estimate.intercept_s, self.estimate.slope_s
        weights = [
            size.weight / max(intercept + slope * size.rows or size.seconds, 1e-9) ** 2 for size in sizes
        ]
        weight, x, y, xx, xy, spread_of_sizes = _sums(sizes, weights)
        if spread_of_sizes == 0:
            return self._rescaled(rows=x / weight, seconds=y / weight)
        slope = (weight * xy - x * y) / spread_of_sizes
        intercept = (y - slope * x) / weight
        if slope < 0:
            return y / weight, 0.0
        if intercept < 0:
            return 0.0, xy / xx
        return intercept, slope

    def _rescaled(self, rows: float, seconds: float) -> tuple[float, float]:
        """Return intercept and slope of the current line, scaled to pass through the only known size."""
        intercept, slope, *_ = self.estimate
        if intercept + slope <= 0:
            # Until two sizes have been seen, nothing separates slope from intercept.
            intercept, slope = 1.0, 0.1
        scale = seconds / (intercept + slope * rows)
        return intercept * scale, slope * scale


def _sums(
    sizes: Iterable[_Size], weights: Sequence[float]
) -> tuple[float, float, float, float, float, float]:
    """Return the weighted sums from which a line is fitted by least squares, with x for sizes, y for times.

    These are the sums of 1, x, y, xx and xy, and the squared weight times the variance of the sizes, which is
    0 if they hardly differ.
    """
    x = y = xx = xy = 0.0
    for size, weight in zip(sizes, weights, strict=True):
        rows, seconds, weighted = size.rows, size.seconds, weight * size.rows
        x += weighted
        y += weight * seconds
        xx += weighted * rows
        xy += weighted * seconds
    total = sum(weights)
    spread = total * xx - x * x
    return total, x, y, xx, xy, spread if spread > 1e-9 * total * xx else 0.0


def _check(rows: float, seconds: float) -> None:
    if not 0 < rows < math.inf or not 0 <= seconds < math.inf:
        raise ValueError(f"a batch must have more than 0 rows and a finite time, got {rows}, {seconds}")


def _size_class(rows: float) -> int:
    """Return the class of a size: one per row up to 8 rows, then eight for each doubling (9 % apart)."""
    return round(rows) if 0.5 <= rows <= 8 else 8 + round(8 * math.log2(rows / 8))
