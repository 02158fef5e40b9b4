"""What the time of a batch depends on: the sum of its rows' costs, or rows x longest row.

Many models pad a batch to its longest row, others do not. The dispatcher estimates the batch time from both
sizes, and uses the estimate that predicts better. Until a batch has padding, the sizes are equal, and one
estimator serves for both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Literal, NamedTuple

from uncork_dispatcher.learning.estimator import BatchTimeEstimator, Estimate

# Batches with less padding than this share do not tell the measures apart.
_TELLING = 0.05
# Errors are averaged over this many telling batches, and compared after the first few.
_COMPARED = 40
_FIRST_COMPARED = 5
# One hiccup must not decide, nor the difference between two predictions that are as good as exact.
_LARGEST_ERROR = 1.0
_NEGLIGIBLE_ERROR = 0.01**2
# The logarithm of the likelihood ratio above which the other measure takes over.
_EVIDENCE = 5.0
# The ratio of padded cost to cost is averaged over about 20 batches.
_FRESH_RATIO = 0.05

Measure = Literal["sum", "longest", "bytes", "longest_bytes"]
"""What batch times depend on: the sum of the costs, or rows x largest cost; the same of body bytes."""


class Padding(NamedTuple):
    """How the lengths of rows affect batch times.

    Attributes:
        measure: the measure that predicts batch times best.
        share: the share of the work of recent batches that was padding; 0 if the measure is a sum.
        length_limit: the length beyond which rows take no more time, such as the limit at which a model
            truncates its input; infinity if none has been found.
    """

    measure: Measure
    share: float
    length_limit: float = math.inf


class Measures:
    """The batch time of one API, estimated from the measure that predicts better.

    Attributes:
        pads: whether the size of a batch is rows x longest row; otherwise it is the sum of the costs.
        separates: whether to keep lengths that pad each other much in separate batches. False until some
            batches have mixed them: only such batches show whether the model pads.
        estimate: the batch time by size.
        of_cost: the batch time by cost, with the average padding of the last batches.
        ratio: the size of these batches over their cost.
    """

    def __init__(self) -> None:
        self.pads = True
        self.separates = False
        self.estimate = self.of_cost = Estimate()
        self.ratio = 1.0
        self._padding_ratio = 1.0
        self._by_cost = self._by_padded = BatchTimeEstimator()
        self._errors = [0.0, 0.0]
        """Of the sum, and of rows x longest."""
        self._compared = 0

    @property
    def known_rows(self) -> tuple[float, float] | None:
        """Costs of the smallest and the largest batch seen; None before the first."""
        return self._by_cost.known_rows

    @property
    def padding(self) -> Padding | None:
        """How lengths affect batch times; None if no batch has had padding."""
        if not self._has_padding:
            return None
        return Padding("longest" if self.pads else "sum", 1 - 1 / self.ratio)

    @property
    def _has_padding(self) -> bool:
        """Whether a batch has had padding."""
        return self._by_padded is not self._by_cost

    def size(self, rows: float, padded: float) -> float:
        """Return the size of a batch, given its cost without and with padding."""
        return padded if self.pads else rows

    def observe(self, rows: float, padded: float, seconds: float) -> None:
        """Learn that a batch took ``seconds``; its size as for :meth:`size`.

        Raises:
            ValueError: as for :meth:`BatchTimeEstimator.observe`.
        """
        if padded != rows and not self._has_padding:
            self._by_padded = deepcopy(self._by_cost)
        if self._has_padding:
            if padded > rows * (1 + _TELLING):
                self._compare(rows, padded, seconds)
            self._by_padded.observe(padded, seconds)
            self._padding_ratio += _FRESH_RATIO * (padded / rows - self._padding_ratio)
        self._by_cost.observe(rows, seconds)
        self._update()

    def observe_profile(self, chunks: Sequence[tuple[float, float]]) -> None:
        """Learn from (cost, seconds) of batches without padding that measured the model.

        Raises:
            ValueError: as for :meth:`observe`.
        """
        self._by_cost.observe_profile(chunks)
        if self._has_padding:
            self._by_padded.observe_profile(chunks)
        self._update()

    def _compare(self, rows: float, padded: float, seconds: float) -> None:
        """Compare both predictions with the time of a batch; switch to the measure that predicts better."""
        predicted = self._by_cost.estimate.seconds(rows), self._by_padded.estimate.seconds(padded)
        if seconds <= 0 or min(predicted) <= 0 or not self._by_cost.estimate.earned_rows:
            return
        self._compared += 1
        share = 1 / min(self._compared, _COMPARED)
        for place, predicted_s in enumerate(predicted):
            error = min(math.log(seconds / predicted_s) ** 2, _LARGEST_ERROR)
            self._errors[place] += share * (error - self._errors[place])
        if self._compared < _FIRST_COMPARED:
            return
        now, other = (_NEGLIGIBLE_ERROR + self._errors[pads] for pads in (self.pads, not self.pads))
        if min(self._compared, _COMPARED) / 2 * math.log(now / other) > _EVIDENCE:
            self.pads = not self.pads
            self._errors, self._compared = [0.0, 0.0], 0
        self.separates = self.pads

    def _update(self) -> None:
        self.ratio = self._padding_ratio if self.pads else 1.0
        self.estimate = (self._by_padded if self.pads else self._by_cost).estimate
        self.of_cost = self.estimate.in_units_of(self.ratio)
