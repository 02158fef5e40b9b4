"""The panels of a load test's report."""

import numpy as np

from uncork_loadtests.generator.fleet import Outcome
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
from uncork_loadtests.reports.plot_data import PlotData, percentile_ticks, plot_data
from uncork_loadtests.targets import Estimate

_LIGHT_BLUE = "#9ecae1"
_OF_STATUSES = {
    "successful (2xx)": BLUE,
    "shed (503)": ORANGE,
    "other status": PURPLE,
    "no response": VERMILION,
}


def panels(outcome: Outcome, estimate: Estimate | None) -> list[Panel]:
    """Return the panels in drawing order."""
    data = plot_data(outcome.samples, seconds=outcome.measured_s)
    goal_ms = None if outcome.plan.goal_s is None else outcome.plan.goal_s * 1000
    return [
        _latency(data, goal_ms),
        _distribution(data, goal_ms),
        _throughput(data),
        _statuses(data),
        _batch_sizes(data),
        _batch_times(data, estimate),
    ]


def _latency(data: PlotData, goal_ms: float | None) -> Panel:
    series = [
        Series("points", data.due_s, data.latency_ms, _LIGHT_BLUE, "responses", size=3),
        Series("line", data.bin_s, data.p99_ms, VERMILION, "p99"),
        Series("line", data.bin_s, data.p50_ms, BLUE, "p50"),
        *goal_line(goal_ms, data.bin_s, data.latency_ms),
    ]
    return Panel(
        title="Latency over time",
        across="scheduled time in seconds",
        up="latency in milliseconds",
        series=series if len(data.latency_ms) else [],
        missing="no response was successful",
        log_up=True,
    )


def _distribution(data: PlotData, goal_ms: float | None) -> Panel:
    lines = [Series("line", data.slower, data.slower_ms, VERMILION, "latency")]
    if len(data.long_slower):
        lines.append(Series("line", data.long_slower, data.long_slower_ms, PURPLE, "of long bodies"))
    return Panel(
        title="Latency by percentile",
        across="share of requests that are faster",
        up="latency in milliseconds",
        series=[*lines, *goal_line(goal_ms, data.slower, data.latency_ms)] if len(data.slower) else [],
        missing="too few responses were successful",
        log_up=True,
        ticks=percentile_ticks(data),
    )


def _throughput(data: PlotData) -> Panel:
    return Panel(
        title="Offered and answered",
        across="time in seconds",
        up="requests per second",
        series=[
            Series("steps", data.bin_s, data.offered_per_s, DARK_GREY, "offered"),
            Series("steps", data.bin_s, data.answered_per_s, BLUE, "answered"),
        ],
    )


def _statuses(data: PlotData) -> Panel:
    width = 2 * float(data.bin_s[0])
    return Panel(
        title="Results",
        across="scheduled time in seconds",
        up="requests per second",
        series=[
            Series("bars", data.bin_s, values, _OF_STATUSES[name], name, size=width)
            for name, values in data.statuses.items()
        ],
    )


def _batch_sizes(data: PlotData) -> Panel:
    bars = Series("bars", data.batch_sizes, data.batches, BLUE, size=0.9)
    return Panel(
        title="Batch sizes",
        across="rows in a batch",
        up="batches",
        series=[bars] if len(data.batch_sizes) else [],
        missing="responses do not report their batch size",
        from_zero=False,
    )


def _batch_times(data: PlotData, estimate: Estimate | None) -> Panel:
    series = []
    if len(data.batch_rows):
        series.append(Series("points", data.batch_rows, data.batch_ms, _LIGHT_BLUE, "batches", size=5))
    if series and estimate is not None and estimate.counts == "rows":
        rows = np.array([0.0, data.batch_rows.max()])
        times = estimate.intercept_ms + estimate.slope_ms * rows
        series.append(Series("line", rows, times, VERMILION, "final estimate"))
    return Panel(
        title="Batch times and their estimate",
        across="rows in a batch",
        up="batch time in milliseconds",
        series=series,
        missing="responses do not report their batch time",
    )
