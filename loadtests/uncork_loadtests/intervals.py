"""How far the median of a few rounds can be trusted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_RESAMPLES = 9999


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A median and its 95 % interval."""

    median: float
    low: float
    high: float


def median_interval(values: Sequence[float] | NDArray[np.float64], *, seed: int = 0) -> Interval:
    """Median of one value per round, with its 95 % interval by bootstrap over the rounds.

    With one value there is nothing to resample: the interval has no width.

    Raises:
        ValueError: if there are no values.
    """
    if not len(values):
        raise ValueError("there is no median of no values")
    seen = np.asarray(values, dtype=float)
    median = float(np.median(seen))
    if len(seen) < 2:
        return Interval(median=median, low=median, high=median)
    # Here, because loading it takes the better part of a second, and a server has it not.
    from scipy.stats import bootstrap  # type: ignore[import-untyped]

    found = bootstrap(
        (seen,), np.median, n_resamples=_RESAMPLES, method="percentile", rng=np.random.default_rng(seed)
    ).confidence_interval
    # Interpolation between equal values may be off by the last digit.
    return Interval(median=median, low=min(float(found.low), median), high=max(float(found.high), median))
