"""What the pictures of a load test show: plain arrays, for whatever draws them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uncork_loadtests.generator.samples import (
    BEYOND,
    LOST,
    SHED,
    UNANSWERED,
    Samples,
    is_good,
    latencies_s,
    measured,
)

Array = NDArray[np.float64]

# Single points are shown up to this number; of more, so many evenly chosen ones.
_MOST_POINTS = 4000
_BINS = 60
# Percentiles that are marked on the axis of the distribution.
_MARKED = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """All that is drawn. Times in seconds from the start of what is measured, latencies in milliseconds."""

    due_s: Array
    """Of single good answers: when they were scheduled."""
    latency_ms: Array
    bin_s: Array
    """The middle of each stretch of time that is summed up."""
    p50_ms: Array
    """Per stretch of time; NaN where nothing was answered."""
    p99_ms: Array
    offered_per_s: Array
    answered_per_s: Array
    """Good answers, when they came."""
    statuses: dict[str, Array]
    """Requests per second by what became of them, over the time for which they were scheduled."""
    slower: Array
    """Of the distribution: one in so many requests is slower than ..."""
    slower_ms: Array
    """... this."""
    batch_sizes: Array
    """Rows, each size once, rising."""
    batches: Array
    """So many batches had them, if every request carries one row."""
    batch_rows: Array
    """Of single batches."""
    batch_ms: Array


def figures(samples: Samples, *, seconds: float) -> Figures:
    """Make everything that is drawn from the samples of a run of which `seconds` were measured."""
    ours = measured(samples, seconds=seconds)
    good = ours[is_good(ours)]
    due_s, latency_ms = good["scheduled_s"], latencies_s(good) * 1000
    edges = _edges(seconds)
    slower, slower_ms = _distribution(latency_ms)
    in_time = samples[is_good(samples)]["done_s"]
    few = _thinned(len(good))
    sizes, batches = _batch_sizes(good["batch_rows"])
    batch_rows, batch_ms = _single_batches(good)
    return Figures(
        due_s=due_s[few],
        latency_ms=latency_ms[few],
        bin_s=(edges[:-1] + edges[1:]) / 2,
        p50_ms=_by_bin(due_s, latency_ms, edges=edges, share=0.5),
        p99_ms=_by_bin(due_s, latency_ms, edges=edges, share=0.99),
        offered_per_s=_rate(ours["scheduled_s"], edges),
        answered_per_s=_rate(in_time, edges),
        statuses={
            name: _rate(ours[chosen]["scheduled_s"], edges)
            for name, chosen in _kinds(ours["status"]).items()
            if chosen.any()
        },
        slower=slower,
        slower_ms=slower_ms,
        batch_sizes=sizes,
        batches=batches,
        batch_rows=batch_rows,
        batch_ms=batch_ms,
    )


def percentile_ticks(shown: Figures) -> dict[float, str]:
    """Where percentiles are on the axis of the distribution, and their names."""
    last = shown.slower[-1] if len(shown.slower) else 1.0
    marks = {100 / (100 - percent): f"{percent:g} %" for percent in _MARKED}
    return {place: name for place, name in marks.items() if place <= last * 1.01}


def _kinds(status: NDArray[np.int32]) -> dict[str, NDArray[np.bool_]]:
    lost = (status == LOST) | (status == UNANSWERED)
    good = status // 100 == 2
    return {
        "good (2xx)": good,
        "shed (503)": status == SHED,
        "other status": ~(good | lost | (status == SHED)),
        "no answer": lost,
    }


def _edges(seconds: float) -> Array:
    """About 60 stretches of a length that people count in."""
    step = 10 ** math.floor(math.log10(seconds / _BINS))
    width = next(step * factor for factor in (1, 2, 5, 10) if step * factor >= seconds / _BINS * (1 - 1e-9))
    # A last stretch that is not whole would look like a drop.
    edges: Array = np.arange(max(1, math.floor(seconds / width + 1e-9)) + 1) * width
    return edges


def _rate(times_s: Array, edges: Array) -> Array:
    counts, _ = np.histogram(times_s, bins=edges)
    rates: Array = counts / np.diff(edges)
    return rates


def _by_bin(times_s: Array, values: Array, *, edges: Array, share: float) -> Array:
    found = np.full(len(edges) - 1, np.nan)
    place = np.digitize(times_s, edges) - 1
    for number in range(len(found)):
        inside = values[place == number]
        if len(inside):
            found[number] = np.quantile(inside, share, method="inverted_cdf")
    return found


def _distribution(latency_ms: Array) -> tuple[Array, Array]:
    """Latency against how rare a slower one is, as far as enough are slower."""
    count = len(latency_ms)
    if count < BEYOND:
        return np.empty(0), np.empty(0)
    slower = np.geomspace(1.0, count / BEYOND, 400)
    return slower, np.quantile(latency_ms, 1 - 1 / slower, method="inverted_cdf")


def _batch_sizes(rows: NDArray[np.int32]) -> tuple[Array, Array]:
    sizes, seen = np.unique(rows[rows > 0], return_counts=True)
    return sizes.astype(float), seen / sizes


def _single_batches(good: Samples) -> tuple[Array, Array]:
    told = good[(good["batch_rows"] > 0) & ~np.isnan(good["batch_ms"])]
    # All answers of a batch tell the same of it.
    both = np.unique(np.column_stack([told["batch_rows"], told["batch_ms"]]).astype(float), axis=0)
    both = both[_thinned(len(both))]
    return both[:, 0], both[:, 1]


def _thinned(count: int) -> NDArray[np.int64]:
    return np.linspace(0, count - 1, min(count, _MOST_POINTS)).astype(np.int64)
