"""Learns which measure of a batch its time depends on: the total length of its rows, or rows x longest row.

Many models pad a batch to its longest row, others do not. The dispatcher estimates the batch time by each
measure, and uses the estimate that predicts best. The length of a row is its cost; without costs, its bytes
in the body. Without costs, the number of rows is a third measure, in use if no length predicts better.

Once lengths differ, padding is assumed until batches have shown whether the model pads. Batches of mixed
lengths show most but may take long, so after each of them, the next batch keeps lengths apart.

While the lengths of rows hardly differ, the measures are proportional to each other, and only one estimator
learns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Literal, NamedTuple

from uncork_dispatcher.learning.estimator import BatchTimeEstimator, Estimate
from uncork_dispatcher.learning.length_limit import LengthLimit

# Errors are averaged over this many telling batches, and compared after the first few.
_COMPARED = 40
# One hiccup must not decide, nor the difference between two predictions that are as good as exact.
_LARGEST_ERROR = 1.0
_NEGLIGIBLE_ERROR = 0.01**2
# The logarithm of the likelihood ratio above which another measure takes over.
_EVIDENCE = 5.0
# The evidence to drop padding that batches have confirmed, and to confirm it. The first batches, of mixed
# lengths, show most. Later batches, of similar lengths, show little, and if padding is dropped by mistake,
# several mixed batches follow.
_STRONG_EVIDENCE = 15.0
_CONFIRMING_EVIDENCE = 3.5
# The ratio of padded cost to cost is averaged over about 20 batches.
_FRESH_RATIO = 0.05

Measure = Literal["sum", "longest", "bytes", "longest_bytes"]
"""What predicts batch times. ``sum``: total cost. ``longest``: rows x largest cost. ``bytes``: total bytes
of bodies. ``longest_bytes``: rows x most bytes per row."""


class Padding(NamedTuple):
    """How the lengths of rows affect batch times.

    Attributes:
        measure: the measure that predicts batch times best.
        share: the share of the work of recent batches that was padding; 0 if the measure is a total.
        length_limit: the length beyond which rows take no more time, such as the limit at which a model
            truncates its input; infinity if none has been found.
    """

    measure: Measure
    share: float
    length_limit: float = math.inf


class BatchSize(NamedTuple):
    """The size of a batch by each measure.

    Attributes:
        rows: the number of rows, or their total cost.
        padded: the number of rows times the length of the longest row.
        size_bytes: total bytes of bodies.
    """

    rows: float
    padded: float
    size_bytes: float = 0.0

    def part(self, rows: float) -> BatchSize:
        """Return the size of a part of the batch with ``rows`` rows, assuming the same lengths."""
        share = rows / self.rows
        return BatchSize(rows, self.padded * share, self.size_bytes * share)


class Rows(NamedTuple):
    """The number of rows of a batch, and the length of the longest."""

    number: float
    longest: float


# Places in a batch size.
_ROWS, _PADDED, _BYTES = range(3)


class Measures:
    """The batch time of one API, estimated from the measure that predicts best.

    Attributes:
        has_costs: True if requests have costs, which are the lengths of their rows.
        in_force: the place of the current measure in :class:`BatchSize`.
        pads: True if the current measure is rows x longest row.
        separates: True if very different lengths should go into separate batches.
        probes: True if the next batch should mix lengths, to show whether the model pads.
        estimate: the batch time by size, in the current measure.
        of_cost: the batch time by rows, or by cost, with the average padding of the last batches.
        ratio: the size of the last batches over their rows or cost.
        limit_ratio: ``ratio`` if requests have costs, because their limit includes padding; else 1.
        length_limit: the length beyond which rows take no more time; infinity if there is none.
        compares: True once lengths have differed: only then do batches show which measure predicts best.
    """

    def __init__(self) -> None:
        self.has_costs = self.compares = False
        self.pads = self.separates = self._is_shown = False
        self.probes = True
        self.estimate = self.of_cost = Estimate()
        self.ratio = self.limit_ratio = 1.0
        self.length_limit = math.inf
        self.in_force = _ROWS
        self._by = [BatchTimeEstimator()]
        """The estimators by place in :class:`BatchSize`; only the first until lengths differ."""
        self._ratios = [1.0]
        self._errors = [0.0]
        self._compared = 0
        self._confirmed = False
        """True once batches have shown that the model pads; before, padding is an assumption."""
        self._batches = 0
        self._bytes_per_row = 0.0
        self._limit = LengthLimit()

    @property
    def known_rows(self) -> tuple[float, float] | None:
        """Rows or costs of the smallest and of the largest batch seen; None before the first."""
        return self._by[_ROWS].known_rows

    @property
    def slope_error_s(self) -> float:
        """The likely error of the slope, in seconds per row; infinite if the slope is unknown."""
        return self._by[_ROWS].slope_error_s

    @property
    def padding(self) -> Padding | None:
        """How lengths affect batch times; None if lengths have not differed, or do not matter."""
        is_known = self.has_costs or (self._confirmed if self.pads else self.in_force != _ROWS)
        if not self.compares or not is_known:
            return None
        if not self.pads:
            return Padding("sum" if self.has_costs else "bytes", 0.0)
        total = 1.0 if self.has_costs else self._ratios[_BYTES]
        share = max(0.0, 1 - total / self.ratio)
        return Padding("longest" if self.has_costs else "longest_bytes", share, self.length_limit)

    def expect_costs(self, has_costs: bool) -> None:
        """Set whether requests have costs, and forget the estimates by length."""
        self.has_costs, self.compares = has_costs, False
        self._by, self._ratios = self._by[:1], [1.0]
        self._use(_PADDED if has_costs else _ROWS)
        self.separates, self._is_shown, self._confirmed = has_costs, False, False
        self.probes = True
        self._limit, self.length_limit = LengthLimit(), math.inf
        self._update()

    def observe(self, size: BatchSize, seconds: float, rows: Rows | None = None) -> None:
        """Learn that a batch took ``seconds``; from its ``rows``, if given, learn the limit of lengths.

        Raises:
            ValueError: as for :meth:`BatchTimeEstimator.observe`.
        """
        self._batches += 1
        total = size.rows if self.has_costs else size.size_bytes
        # Batches with less padding do not tell the measures apart.
        is_padded = abs(size.padded - total) > total * 0.05
        if not self.compares and self._lengths_differ(size):
            self._tell_apart(size)
        # Without costs, empty bodies have no length to learn from.
        if self.compares and min(size[: len(self._by)]) > 0 and self._learns_lengths():
            if is_padded or not self.has_costs:
                self._compare(size, seconds)
            for place in range(1, len(self._by)):
                self._by[place].observe(size[place], seconds)
                self._ratios[place] += _FRESH_RATIO * (size[place] / size.rows - self._ratios[place])
            if rows and self._limit.observe(*rows, seconds):
                self._limit_changed()
        self._by[_ROWS].observe(size.rows, seconds)
        self._update()

    def ran(self, *, mixed: bool) -> None:
        """Note that a batch ran: after one that mixed lengths, the next one keeps them apart."""
        self.probes = not (self._is_shown or (self.probes and mixed))

    def observe_profile(self, chunks: Sequence[tuple[float, float]]) -> None:
        """Learn from (rows or cost, seconds) of batches without padding that were run as a measurement.

        Raises:
            ValueError: as for :meth:`observe`.
        """
        self._by[_ROWS].observe_profile(chunks)
        if self.has_costs and self.compares:
            self._by[_PADDED].observe_profile(chunks)
        self._update()

    def learned(self) -> list[tuple[float, float]]:
        """Return (rows or cost, seconds) of batches without padding, for :meth:`recall`."""
        is_padded = self.has_costs and self.pads and self.compares
        return self._by[_PADDED if is_padded else _ROWS].learned()

    def recall(self, learned: Sequence[tuple[float, float]]) -> None:
        self._by[_ROWS].recall(learned)

    def _lengths_differ(self, size: BatchSize) -> bool:
        """Return True if the lengths in a batch differ enough to distinguish the measures."""
        if self.has_costs:
            return size.padded != size.rows
        if not size.size_bytes:
            return False
        per_row = size.size_bytes / size.rows
        usual = self._bytes_per_row or per_row
        self._bytes_per_row = usual + _FRESH_RATIO * (per_row - usual)
        most = max(size.padded / size.size_bytes, per_row / usual, usual / per_row)
        return most > 1.25

    def _learns_lengths(self) -> bool:
        """Return True if this batch should update the estimates by length."""
        # Two more estimators triple the cost of learning, so after 100 comparisons one batch in 8 is enough.
        sampled = self._compared < 100 or self._batches % 8 == 0
        return self.has_costs or self.in_force != _ROWS or sampled

    def _tell_apart(self, size: BatchSize) -> None:
        self.compares = True
        if self.has_costs:
            self._by.append(deepcopy(self._by[_ROWS]))
            self._ratios.append(1.0)
        else:
            learned = self._by[_ROWS].learned()
            for ratio in (size.padded / size.rows, size.size_bytes / size.rows):
                self._ratios.append(ratio)
                self._by.append(BatchTimeEstimator())
                self._by[-1].recall([(rows * ratio, seconds) for rows, seconds in learned])
            self._use(_PADDED)
            self.separates = True
        self._errors = [0.0] * len(self._by)

    def _compare(self, size: BatchSize, seconds: float) -> None:
        """Compare the predictions with the time of a batch; switch to a measure that predicts better."""
        estimates = [by.estimate for by in self._by]
        predicted = [each.seconds(size[place]) for place, each in enumerate(estimates)]
        if seconds <= 0 or min(predicted) <= 0 or not all(each.earned_rows for each in estimates):
            return
        self._compared += 1
        share = 1 / min(self._compared, _COMPARED)
        missed = [min(math.log(seconds / each) ** 2, _LARGEST_ERROR) for each in predicted]
        for place, error in enumerate(missed):
            self._errors[place] += share * (error - self._errors[place])
        if self._compared < 5:
            # After padding was dropped, the first batches mix all lengths. If the model does pad, they take
            # far longer than predicted.
            if self.has_costs and not self.pads and missed[_ROWS] == _LARGEST_ERROR > missed[_PADDED]:
                self._use(_PADDED)
                self.separates = self._confirmed = True
            return
        errors = [_NEGLIGIBLE_ERROR + error for error in self._errors]
        best = errors.index(min(errors))
        needed = _STRONG_EVIDENCE if self._confirmed else _EVIDENCE
        if self._evidence(errors[self.in_force], errors[best]) > needed:
            self._use(best)
            self._confirmed = self.pads
        elif self.pads and not self._confirmed:
            others = errors[:_PADDED] + errors[_PADDED + 1 :]
            self._confirmed = self._evidence(min(others), errors[_PADDED]) > _CONFIRMING_EVIDENCE
            if not (self._confirmed or self.has_costs) and self._compared >= _COMPARED:
                self._use(_ROWS)
        self.separates, self._is_shown = self.pads, True

    def _evidence(self, error: float, smaller: float) -> float:
        """Return the logarithm of the likelihood ratio for the measure with the smaller error."""
        return min(self._compared, _COMPARED) / 2 * math.log(error / smaller)

    def _use(self, place: int) -> None:
        self.in_force, self.pads = place, place == _PADDED
        self._errors, self._compared = [0.0] * len(self._by), 0

    def _limit_changed(self) -> None:
        """Apply the new limit of lengths, and learn the padded estimate again from the last batches."""
        self.length_limit = self._limit.length
        self._by[_PADDED] = BatchTimeEstimator()
        self._by[_PADDED].observe_profile(self._limit.batches())

    def _update(self) -> None:
        place = self.in_force if self.compares else _ROWS
        self.ratio = self._ratios[place] if place else 1.0
        self.limit_ratio = self.ratio if self.has_costs else 1.0
        self.estimate = self._by[place].estimate
        self.of_cost = self.estimate if self.ratio == 1.0 else self.estimate.in_units_of(self.ratio)
