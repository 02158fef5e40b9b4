"""The uncertainty of a median over a few rounds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_RESAMPLES = 9999


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A median and its 95 % confidence interval."""

    median: float
    low: float
    high: float


def median_interval(values: Sequence[float] | NDArray[np.float64], *, seed: int = 0) -> Interval:
    """Return the median of one value per round, with its 95 % interval by bootstrap over the rounds.

    A single value has an interval of width 0.

    Raises:
        ValueError: if there are no values.
    """
    if not len(values):
        raise ValueError("the median needs at least one value")
    seen = np.asarray(values, dtype=float)
    median = float(np.median(seen))
    if len(seen) < 2:
        return Interval(median=median, low=median, high=median)
    # Imported here: it takes most of a second, and scipy is an extra.
    from scipy.stats import bootstrap  # type: ignore[import-untyped]

    found = bootstrap(
        (seen,), np.median, n_resamples=_RESAMPLES, method="percentile", rng=np.random.default_rng(seed)
    ).confidence_interval
    # Interpolation between equal values may be off by the last digit.
    return Interval(median=median, low=min(float(found.low), median), high=max(float(found.high), median))
