"""What the figures of one point say: the limit of the model, the best entrant, the ratio to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import bootstrap  # type: ignore[import-untyped]

from uncork_loadtests.generators import Trial

BATCH_CAP = 64
# What a request costs besides the model, in seconds: the way to a server on the same machine and back.
_WAY_S = 0.0004
_RESAMPLES = 9999

Metric = Literal["requests_per_second", "p50"]


@dataclass(frozen=True, kw_only=True)
class ModelPoint:
    """A model that takes `intercept_ms + slope_ms * rows` for a batch."""

    intercept_ms: float
    slope_ms: float

    def seconds(self, rows: int) -> float:
        """How long a batch of `rows` takes."""
        return (self.intercept_ms + self.slope_ms * rows) / 1000

    def limit(self, connections: int) -> float:
        """Requests per second that no server can pass for so many closed-loop clients and one worker."""
        alone = connections / (self.seconds(connections) + _WAY_S)
        return min(alone, BATCH_CAP / self.seconds(BATCH_CAP))


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio taken in every round."""

    best: str
    """Whose figure it was divided by."""
    metric: Metric
    median: float
    low: float
    """Lower end of the 95 % interval of the median, by bootstrap over the rounds; so is `high`."""
    high: float


def metric_of(connections: int) -> Metric:
    """What is compared: a lone client waits for latency, many share the throughput."""
    return "p50" if connections == 1 else "requests_per_second"


def values(trials: Sequence[Trial], *, metric: Metric) -> list[float | None]:
    """The metric in every round."""
    return [getattr(trial.seen, metric) for trial in trials]


def ratio_to_best(
    trials: Mapping[str, Sequence[Trial]], *, ours: str, metric: Metric, seed: int = 0
) -> Ratio | None:
    """Divide the metric of `ours` by that of the best of the others, round by round.

    The best is the one with the best median of these very rounds, which can only favour it.
    None if `ours` or all others lack a value in some round.
    """
    by_name = {name: values(found, metric=metric) for name, found in trials.items()}
    whole = {name: np.array(found, dtype=float) for name, found in by_name.items() if found and all(found)}
    others = {name: float(np.median(found)) for name, found in whole.items() if name != ours}
    if ours not in whole or not others:
        return None
    pick = min if metric == "p50" else max
    best = pick(others, key=lambda name: others[name])
    ratios = whole[ours] / whole[best]
    low, high = _interval(ratios, seed=seed)
    return Ratio(best=best, metric=metric, median=float(np.median(ratios)), low=low, high=high)


def _interval(ratios: np.ndarray, *, seed: int) -> tuple[float, float]:
    if len(ratios) < 2:
        return float(ratios[0]), float(ratios[0])
    found = bootstrap(
        (ratios,), np.median, n_resamples=_RESAMPLES, method="percentile", rng=np.random.default_rng(seed)
    ).confidence_interval
    return float(found.low), float(found.high)
