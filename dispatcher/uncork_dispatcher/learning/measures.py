"""What the time of a batch depends on: the sum of its rows' costs, or rows x longest row.

Many models pad a batch to its longest row; others do not, and it cannot be seen from outside which. So both
sizes of each batch are learned from, and the one that predicts better is used. While no batch
has had padding, they are the same, and only one is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy

from uncork_dispatcher.learning.estimator import BatchTimeEstimator, Estimate

# Batches with less padding than this share say nothing about which measure is right.
_TELLING = 0.05
# Errors are averaged over this many telling batches, and compared after the first few.
_COMPARED = 40
_FIRST_COMPARED = 5
# One hiccup must not decide, nor the difference between two predictions that are as good as exact.
_LARGEST_ERROR = 1.0
_NEGLIGIBLE_ERROR = 0.01**2
# The other measure is used once it is this much more likely, as the logarithm of a likelihood ratio.
_EVIDENCE = 5.0
# The ratio of padded cost to cost is averaged over about 20 batches.
_FRESH_RATIO = 0.05


class Measures:
    """Two estimates of the batch time of one API, and which of them counts.

    Attributes:
        pads: whether rows x longest is believed; the sum of costs otherwise.
        estimate: over the size that counts, see :meth:`size`.
        of_cost: the same over the cost of a batch, with the average padding of the last batches.
        ratio: size over cost of these batches; 1 if the sum counts.
    """

    def __init__(self) -> None:
        self.pads = True
        self.estimate = self.of_cost = Estimate()
        self.ratio = 1.0
        self._padding_ratio = 1.0
        self._by_cost = BatchTimeEstimator()
        self._by_padded: BatchTimeEstimator | None = None
        self._errors = [0.0, 0.0]
        """Of the sum, and of rows x longest."""
        self._compared = 0
        self._told = 0

    @property
    def separates(self) -> bool:
        """Whether batches should be kept from mixing lengths that pad each other much.

        Not before some have mixed them: batches that do not are no evidence for or against padding.
        """
        return self.pads and self._told >= _FIRST_COMPARED

    @property
    def known_rows(self) -> tuple[float, float] | None:
        """Costs of the smallest and the largest batch seen; None before the first."""
        return self._by_cost.known_rows

    @property
    def padding_share(self) -> float | None:
        """The share of the work that is padding; 0 if it is not believed, None if no batch has had any."""
        return None if self._by_padded is None else 1 - 1 / self.ratio

    def size(self, rows: float, padded: float) -> float:
        """Return the size that counts of a batch with this cost, and this cost with padding."""
        return padded if self.pads else rows

    def observe(self, rows: float, padded: float, seconds: float) -> None:
        """Learn that a batch took ``seconds``.

        Raises:
            ValueError: as for :meth:`BatchTimeEstimator.observe`.
        """
        if padded != rows and self._by_padded is None:
            self._by_padded = deepcopy(self._by_cost)
        if self._by_padded is not None:
            if padded > rows * (1 + _TELLING):
                self._compare(rows, padded, seconds)
            self._by_padded.observe(padded, seconds)
            self._padding_ratio += _FRESH_RATIO * (padded / rows - self._padding_ratio)
        self._by_cost.observe(rows, seconds)
        self._update()

    def observe_profile(self, chunks: Sequence[tuple[float, float]]) -> None:
        """Learn from (cost, seconds) of batches without padding that were run to be measured.

        Raises:
            ValueError: as for :meth:`observe`.
        """
        self._by_cost.observe_profile(chunks)
        if self._by_padded is not None:
            self._by_padded.observe_profile(chunks)
        self._update()

    def _compare(self, rows: float, padded: float, seconds: float) -> None:
        """Compare the predictions for a batch with its time; change over to the better ones."""
        assert self._by_padded is not None
        predicted = self._by_cost.estimate.seconds(rows), self._by_padded.estimate.seconds(padded)
        if seconds <= 0 or min(predicted) <= 0 or not self._by_cost.estimate.earned_rows:
            return
        self._compared += 1
        self._told += 1
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

    def _update(self) -> None:
        pads = self.pads and self._by_padded is not None
        self.ratio = self._padding_ratio if pads else 1.0
        estimator = self._by_padded if pads and self._by_padded is not None else self._by_cost
        self.estimate = estimator.estimate
        self.of_cost = self.estimate.per_part(self.ratio)
