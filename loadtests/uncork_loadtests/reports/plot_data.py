"""The data of a load test's pictures, as plain arrays."""

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
    has_long_body,
    is_good,
    latencies_s,
    measured,
)

Array = NDArray[np.float64]

# More single points than this are thinned out evenly.
_MOST_POINTS = 4000
_BINS = 60
# Percentiles marked on the axis of the distribution.
_MARKED = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999)


@dataclass(frozen=True, kw_only=True)
class PlotData:
    """All that is drawn. Times are in seconds since the start of the measured time."""

    due_s: Array
    """Scheduled times of single good answers."""
    latency_ms: Array
    bin_s: Array
    """The middle of each time bin."""
    p50_ms: Array
    """Per bin; NaN without answers."""
    p99_ms: Array
    offered_per_s: Array
    answered_per_s: Array
    """Good answers by arrival."""
    statuses: dict[str, Array]
    """Requests per second by result and scheduled time."""
    slower: Array
    """Distribution: one in this many requests is slower than `slower_ms`."""
    slower_ms: Array
    long_slower: Array
    """The same of requests with long bodies; empty if bodies are about equal."""
    long_slower_ms: Array
    batch_sizes: Array
    """Distinct sizes in rows, rising."""
    batches: Array
    """Number of batches per size, if every request carries one row."""
    batch_rows: Array
    """Single batches."""
    batch_ms: Array


def plot_data(samples: Samples, *, seconds: float) -> PlotData:
    """Return the data of all pictures, from the samples of a run with `seconds` of measured time."""
    ours = measured(samples, seconds=seconds)
    good = ours[is_good(ours)]
    due_s, latency_ms = good["scheduled_s"], latencies_s(good) * 1000
    edges = _edges(seconds)
    slower, slower_ms = _distribution(latency_ms)
    long_slower, long_slower_ms = _distribution(latency_ms[has_long_body(ours)[is_good(ours)]])
    in_time = samples[is_good(samples)]["done_s"]
    few = _thinned(len(good))
    sizes, batches = _batch_sizes(good["batch_rows"])
    batch_rows, batch_ms = _single_batches(good)
    return PlotData(
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
        long_slower=long_slower,
        long_slower_ms=long_slower_ms,
        batch_sizes=sizes,
        batches=batches,
        batch_rows=batch_rows,
        batch_ms=batch_ms,
    )


def percentile_ticks(data: PlotData) -> dict[float, str]:
    """Return places and names of percentiles on the axis of the distribution."""
    last = data.slower[-1] if len(data.slower) else 1.0
    marks = {100 / (100 - percent): f"{percent:g} %" for percent in _MARKED}
    return {place: name for place, name in marks.items() if place <= last * 1.01}


def _kinds(status: NDArray[np.int32]) -> dict[str, NDArray[np.bool_]]:
    lost = (status == LOST) | (status == UNANSWERED)
    good = status // 100 == 2
    return {
        "successful (2xx)": good,
        "shed (503)": status == SHED,
        "other status": ~(good | lost | (status == SHED)),
        "no response": lost,
    }


def _edges(seconds: float) -> Array:
    """Return the edges of about 60 bins of a round length."""
    step = 10 ** math.floor(math.log10(seconds / _BINS))
    width = next(step * factor for factor in (1, 2, 5, 10) if step * factor >= seconds / _BINS * (1 - 1e-9))
    # An incomplete last bin would look like a drop.
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
    """Return latency by rarity, as far as BEYOND requests are slower."""
    count = len(latency_ms)
    if count < BEYOND:
        return np.empty(0), np.empty(0)
    slower = np.geomspace(1.0, count / BEYOND, 400)
    return slower, np.quantile(latency_ms, 1 - 1 / slower, method="inverted_cdf")


def _batch_sizes(rows: NDArray[np.int32]) -> tuple[Array, Array]:
    sizes, seen = np.unique(rows[rows > 0], return_counts=True)
    return sizes.astype(float), seen / sizes


def _single_batches(good: Samples) -> tuple[Array, Array]:
    stated = good[(good["batch_rows"] > 0) & ~np.isnan(good["batch_ms"])]
    # All answers of a batch state the same.
    both = np.unique(np.column_stack([stated["batch_rows"], stated["batch_ms"]]).astype(float), axis=0)
    both = both[_thinned(len(both))]
    return both[:, 0], both[:, 1]


def _thinned(count: int) -> NDArray[np.int64]:
    return np.linspace(0, count - 1, min(count, _MOST_POINTS)).astype(np.int64)
