"""The report of a load test as a PNG, drawn with matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.reports.plot_data import Array, PlotData, percentile_ticks, plot_data
from uncork_loadtests.reports.style import DPI, STYLE, TEXT_GREY, headline, log_upwards
from uncork_loadtests.reports.texts import COLOURS, LABELS, NOTHING, TITLES, goal_in_sight_ms, goal_label
from uncork_loadtests.targets import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def write_png(outcome: Outcome, path: Path, *, estimate: Estimate | None, title: str) -> None:
    """Draw all pictures into one file; raise OSError if that fails."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    data = plot_data(outcome.samples, seconds=outcome.measured_s)
    goal_ms = goal_in_sight_ms(outcome, data)
    with rc_context(STYLE):
        figure = Figure(figsize=(11, 10.5), layout="constrained")
        panels = figure.subplots(3, 2).flatten().tolist()
        _latency(panels[0], data, goal_ms)
        _distribution(panels[1], data, goal_ms)
        _throughput(panels[2], data)
        _statuses(panels[3], data)
        _batch_sizes(panels[4], data)
        _batch_times(panels[5], data, estimate)
        for axes, name in zip(panels, TITLES, strict=True):
            axes.set_title(TITLES[name])
            axes.set_xlabel(LABELS[name][0])
            axes.set_ylabel(LABELS[name][1])
            if axes.get_legend_handles_labels()[0]:
                # Above the panel, to hide no data.
                axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=4, fontsize=8)
        headline(figure, f"VOID: {title}" if outcome.void else title)
        figure.savefig(path, dpi=DPI, format="png")


def _latency(axes: Axes, data: PlotData, goal_ms: float | None) -> None:
    if not len(data.latency_ms):
        _nothing(axes, NOTHING["latency"])
        return
    axes.plot(data.due_s, data.latency_ms, ".", color=COLOURS["point"], markersize=2.5, zorder=2)
    axes.plot(data.bin_s, data.p99_ms, color=COLOURS["p99"], label="p99", linewidth=1.8, zorder=4)
    axes.plot(data.bin_s, data.p50_ms, color=COLOURS["p50"], label="p50", linewidth=1.8, zorder=4)
    log_upwards(axes)
    _goal(axes, goal_ms)
    axes.set_xlim(0, data.bin_s[-1] + data.bin_s[0])


def _distribution(axes: Axes, data: PlotData, goal_ms: float | None) -> None:
    if not len(data.slower):
        _nothing(axes, NOTHING["distribution"])
        return
    axes.plot(data.slower, data.slower_ms, color=COLOURS["p99"], linewidth=1.8)
    axes.set_xscale("log")
    ticks = percentile_ticks(data)
    axes.xaxis.set_ticks(list(ticks), labels=list(ticks.values()))
    axes.xaxis.set_ticks([], minor=True)
    log_upwards(axes)
    _goal(axes, goal_ms)


def _throughput(axes: Axes, data: PlotData) -> None:
    _steps(axes, data, data.offered_per_s, "offered", COLOURS["offered"])
    _steps(axes, data, data.answered_per_s, "answered", COLOURS["good (2xx)"])
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)


def _steps(axes: Axes, data: PlotData, values: Array, label: str, colour: str) -> None:
    axes.step(data.bin_s, values, where="mid", label=label, color=colour, linewidth=1.5)


def _statuses(axes: Axes, data: PlotData) -> None:
    bottom = np.zeros(len(data.bin_s))
    width = data.bin_s[0] * 2
    for name, values in data.statuses.items():
        axes.bar(data.bin_s, values, width=width, bottom=bottom, label=name, color=COLOURS[name])
        bottom = bottom + values
    axes.set_xlim(left=0)


def _batch_sizes(axes: Axes, data: PlotData) -> None:
    if not len(data.batch_sizes):
        _nothing(axes, NOTHING["batch_sizes"])
        return
    axes.bar(data.batch_sizes, data.batches, width=0.9, color=COLOURS["good (2xx)"])


def _batch_times(axes: Axes, data: PlotData, estimate: Estimate | None) -> None:
    if not len(data.batch_rows):
        _nothing(axes, NOTHING["batch_times"])
        return
    point = COLOURS["point"]
    axes.plot(data.batch_rows, data.batch_ms, ".", color=point, markersize=4, label="batches")
    if estimate is not None:
        rows = np.array([0.0, data.batch_rows.max()])
        times = estimate.intercept_ms + estimate.slope_ms * rows
        axes.plot(rows, times, color=COLOURS["p99"], linewidth=1.8, label="estimate at the end")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)


def _nothing(axes: Axes, why: str) -> None:
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", color=TEXT_GREY)


def _goal(axes: Axes, goal_ms: float | None) -> None:
    if goal_ms is None:
        return
    label, colour = goal_label(goal_ms), COLOURS["goal"]
    axes.axhline(goal_ms, color=colour, linewidth=1.2, linestyle=(0, (4, 3)), zorder=3, label=label)
