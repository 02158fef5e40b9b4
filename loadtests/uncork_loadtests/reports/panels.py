"""The panels of a load test's report. Times are in seconds since the start of the measured time."""

import math

import numpy as np
from numpy.typing import NDArray

from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.samples import (
    BEYOND,
    LOST,
    PENDING,
    SHED,
    UNANSWERED,
    Samples,
    has_long_body,
    is_good,
    latencies_s,
    measured,
)
from uncork_loadtests.reports.page import (
    BLUE,
    DARK_GREY,
    ORANGE,
    PURPLE,
    VERMILION,
    Panel,
    Series,
    goal_line,
)
from uncork_loadtests.targets import Estimate

Array = NDArray[np.float64]

_LIGHT_BLUE = "#9ecae1"
# More single points than this are thinned out evenly.
_MOST_POINTS = 4000
_BINS = 60
# Percentiles marked on the axis of the distribution.
_MARKED = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999)


def panels(outcome: Outcome, estimate: Estimate | None) -> list[Panel]:
    ours = measured(outcome.samples, seconds=outcome.measured_s)
    good, edges = ours[is_good(ours)], _edges(outcome.measured_s)
    goal_ms = None if outcome.plan.goal_s is None else outcome.plan.goal_s * 1000
    return [
        _latency(good, edges, goal_ms),
        _distribution(ours, goal_ms),
        _throughput(outcome.samples, ours, edges),
        _statuses(ours, edges),
        _batch_sizes(good),
        _batch_times(good, estimate),
    ]


def _latency(good: Samples, edges: Array, goal_ms: float | None) -> Panel:
    due_s, latency_ms = good["scheduled_s"], latencies_s(good) * 1000
    few, middles = _thinned(len(good)), _middles(edges)
    p50_ms, p99_ms = (_by_bin(due_s, latency_ms, edges=edges, share=share) for share in (0.5, 0.99))
    series = [
        Series("points", due_s[few], latency_ms[few], _LIGHT_BLUE, "responses", size=3),
        Series("line", middles, p99_ms, VERMILION, "p99"),
        Series("line", middles, p50_ms, BLUE, "p50"),
        *goal_line(goal_ms, middles, latency_ms),
    ]
    return Panel(
        title="Latency over time",
        across="scheduled time in seconds",
        up="latency in milliseconds",
        series=series if len(good) else [],
        missing="no response was successful",
        log_up=True,
    )


def _distribution(ours: Samples, goal_ms: float | None) -> Panel:
    """Draw latency by rarity: one in so many requests is slower."""
    is_ours, latency_ms = is_good(ours), latencies_s(ours) * 1000
    slower, slower_ms = _quantiles(latency_ms[is_ours])
    long_slower, long_ms = _quantiles(latency_ms[is_ours & has_long_body(ours)])
    lines = [Series("line", slower, slower_ms, VERMILION, "latency")]
    if len(long_slower):
        lines.append(Series("line", long_slower, long_ms, PURPLE, "of long bodies"))
    last = slower[-1] if len(slower) else 1.0
    marks = {100 / (100 - percent): f"{percent:g} %" for percent in _MARKED}
    return Panel(
        title="Latency by percentile",
        across="share of requests that are faster",
        up="latency in milliseconds",
        series=[*lines, *goal_line(goal_ms, slower, latency_ms[is_ours])] if len(slower) else [],
        missing="too few responses were successful",
        log_up=True,
        ticks={place: name for place, name in marks.items() if place <= last * 1.01},
    )


def _throughput(samples: Samples, ours: Samples, edges: Array) -> Panel:
    answered_s = samples[is_good(samples)]["done_s"]
    return Panel(
        title="Offered and answered",
        across="time in seconds",
        up="requests per second",
        series=[
            Series("steps", _middles(edges), _rate(ours["scheduled_s"], edges), DARK_GREY, "offered"),
            Series("steps", _middles(edges), _rate(answered_s, edges), BLUE, "answered"),
        ],
    )


def _statuses(ours: Samples, edges: Array) -> Panel:
    status, good = ours["status"], is_good(ours)
    shed, lost = status == SHED, np.isin(status, (LOST, UNANSWERED, PENDING))
    kinds = {
        "successful (2xx)": (good, BLUE),
        "shed (503)": (shed, ORANGE),
        "other status": (~(good | lost | shed), PURPLE),
        "no response": (lost, VERMILION),
    }
    width = float(edges[1])
    return Panel(
        title="Results",
        across="scheduled time in seconds",
        up="requests per second",
        series=[
            Series("bars", _middles(edges), _rate(ours[chosen]["scheduled_s"], edges), colour, name, width)
            for name, (chosen, colour) in kinds.items()
            if chosen.any()
        ],
    )


def _batch_sizes(good: Samples) -> Panel:
    """Draw the number of batches by size, if every request carries one row."""
    rows = good["batch_rows"]
    sizes, seen = np.unique(rows[rows > 0], return_counts=True)
    return Panel(
        title="Batch sizes",
        across="rows in a batch",
        up="batches",
        series=[Series("bars", sizes, seen / sizes, BLUE, size=0.9)] if len(sizes) else [],
        missing="responses do not report their batch size",
        from_zero=False,
    )


def _batch_times(good: Samples, estimate: Estimate | None) -> Panel:
    stated = good[(good["batch_rows"] > 0) & ~np.isnan(good["batch_ms"])]
    # All answers of a batch state the same.
    batches = np.unique(np.column_stack([stated["batch_rows"], stated["batch_ms"]]).astype(float), axis=0)
    rows, batch_ms = batches[_thinned(len(batches))].T
    series = [Series("points", rows, batch_ms, _LIGHT_BLUE, "batches", size=5)] if len(rows) else []
    if series and estimate is not None and estimate.counts == "rows":
        ends = np.array([0.0, rows.max()])
        times = estimate.intercept_ms + estimate.slope_ms * ends
        series.append(Series("line", ends, times, VERMILION, "final estimate"))
    return Panel(
        title="Batch times and their estimate",
        across="rows in a batch",
        up="batch time in milliseconds",
        series=series,
        missing="responses do not report their batch time",
    )


def _edges(seconds: float) -> Array:
    """Return the edges of about 60 bins of a round length."""
    step = 10 ** math.floor(math.log10(seconds / _BINS))
    width = next(step * factor for factor in (1, 2, 5, 10) if step * factor >= seconds / _BINS * (1 - 1e-9))
    # An incomplete last bin would look like a drop.
    edges: Array = np.arange(max(1, math.floor(seconds / width + 1e-9)) + 1) * width
    return edges


def _middles(edges: Array) -> Array:
    middles: Array = (edges[:-1] + edges[1:]) / 2
    return middles


def _rate(times_s: Array, edges: Array) -> Array:
    counts, _ = np.histogram(times_s, bins=edges)
    rates: Array = counts / np.diff(edges)
    return rates


def _by_bin(times_s: Array, values: Array, *, edges: Array, share: float) -> Array:
    """Return a quantile of the values in each bin; NaN without any."""
    found = np.full(len(edges) - 1, np.nan)
    place = np.digitize(times_s, edges) - 1
    for number in range(len(found)):
        inside = values[place == number]
        if len(inside):
            found[number] = np.quantile(inside, share, method="inverted_cdf")
    return found


def _quantiles(latency_ms: Array) -> tuple[Array, Array]:
    """Return latency by rarity, as far as BEYOND requests are slower."""
    count = len(latency_ms)
    if count < BEYOND:
        return np.empty(0), np.empty(0)
    slower = np.geomspace(1.0, count / BEYOND, 400)
    return slower, np.quantile(latency_ms, 1 - 1 / slower, method="inverted_cdf")


def _thinned(count: int) -> NDArray[np.int64]:
    return np.linspace(0, count - 1, min(count, _MOST_POINTS)).astype(np.int64)
