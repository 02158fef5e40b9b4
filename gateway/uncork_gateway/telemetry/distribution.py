"""Histograms with fixed buckets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client.core import Exemplar, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

FloatArray = npt.NDArray[np.float64]
CountArray = npt.NDArray[np.int64]

# Enough values at a time for numpy to pay off, and few enough to count in no time.
_MANY = 500


class Distribution:
    """Counts values by bucket, without a lock: only one event loop writes it.

    Values are collected and counted many at a time, at a third of the cost.
    """

    __slots__ = ("_bounds", "_counts", "_exemplars", "_new", "_sum")

    def __init__(self, bounds: FloatArray) -> None:
        self._bounds = bounds
        self._counts = np.zeros(len(bounds) + 1, np.int64)
        self._sum = 0.0
        self._new: list[float] = []
        self._exemplars: dict[int, Exemplar] = {}

    def observe(self, value: float) -> None:
        new = self._new
        new.append(value)
        if len(new) >= _MANY:
            self._count()

    def observe_all(self, values: Iterable[float]) -> None:
        new = self._new
        new.extend(values)
        if len(new) >= _MANY:
            self._count()

    def keep_example(self, value: float, labels: dict[str, str]) -> None:
        """Keep an observed value, with labels that name where it is from, as the example of its bucket."""
        bucket = int(self._bounds.searchsorted(value))
        self._exemplars[bucket] = Exemplar(labels, value, time.time())

    def _count(self) -> None:
        values = np.array(self._new)
        self._new.clear()
        self._counts += np.bincount(self._bounds.searchsorted(values), minlength=len(self._counts))
        self._sum += float(values.sum())

    def __sub__(self, earlier: Distribution) -> Distribution:
        """Return the values counted since ``earlier``, a snapshot of this distribution."""
        later = Distribution(self._bounds)
        later._sum, later._counts = self.sum - earlier.sum, self.counts - earlier.counts
        return later

    @property
    def counts(self) -> CountArray:
        """The counts by bucket: values up to and including each bound, and values above the last."""
        if self._new:
            self._count()
        return self._counts

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    @property
    def sum(self) -> float:
        if self._new:
            self._count()
        return self._sum

    @property
    def mean(self) -> float:
        """The mean of the values; 0 without values."""
        return self.sum / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Return the quantile for ``share``, from 0 to 1; 0 without values.

        Like Prometheus, it assumes that values are spread evenly within a bucket, and counts values above the
        last bound as that bound.
        """
        bounds, counts = self._bounds.tolist(), self.counts.tolist()
        wanted, below = share * sum(counts), 0
        for at, count in enumerate(counts[:-1]):
            if count and below + count >= wanted:
                low = bounds[at - 1] if at else 0.0
                return float(low + (bounds[at] - low) * max(0.0, wanted - below) / count)
            below += count
        return float(bounds[-1]) if below + counts[-1] else 0.0

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        cumulated = self.counts.cumsum().tolist()
        bounds = (*map(floatToGoString, self._bounds.tolist()), "+Inf")
        examples: Iterable[Any] = map(
            self._exemplars.get, range(len(bounds))
        )  # None for a bucket without one
        family.add_metric(labels, list(zip(bounds, cumulated, examples, strict=True)), self._sum)
