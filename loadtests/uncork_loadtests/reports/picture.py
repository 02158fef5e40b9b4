"""The pictures of a load test as a PNG, drawn with matplotlib, which comes with ``uncork[loadtest]``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.reports.plot_data import Array, Figures, figures, percentile_ticks
from uncork_loadtests.reports.style import DPI, STYLE, TEXT_GREY, headline, log_upwards
from uncork_loadtests.reports.texts import COLOURS, LABELS, NOTHING, TITLES, goal_in_sight_ms, goal_label
from uncork_loadtests.targets import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def write_png(outcome: Outcome, path: Path, *, estimate: Estimate | None, title: str) -> None:
    """Draw all pictures into one file; OSError if it cannot be written."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    shown = figures(outcome.samples, seconds=outcome.measured_s)
    goal_ms = goal_in_sight_ms(outcome, shown)
    with rc_context(STYLE):
        figure = Figure(figsize=(11, 10.5), layout="constrained")
        panels = figure.subplots(3, 2).flatten().tolist()
        _latency(panels[0], shown, goal_ms)
        _distribution(panels[1], shown, goal_ms)
        _throughput(panels[2], shown)
        _statuses(panels[3], shown)
        _batch_sizes(panels[4], shown)
        _batch_times(panels[5], shown, estimate)
        for axes, name in zip(panels, TITLES, strict=True):
            axes.set_title(TITLES[name])
            axes.set_xlabel(LABELS[name][0])
            axes.set_ylabel(LABELS[name][1])
            if axes.get_legend_handles_labels()[0]:
                # Above the panel, where it hides nothing.
                axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=4, fontsize=8)
        headline(figure, f"VOID: {title}" if outcome.void else title)
        figure.savefig(path, dpi=DPI, format="png")


def _latency(axes: Axes, shown: Figures, goal_ms: float | None) -> None:
    if not len(shown.latency_ms):
        _nothing(axes, NOTHING["latency"])
        return
    axes.plot(shown.due_s, shown.latency_ms, ".", color=COLOURS["point"], markersize=2.5, zorder=2)
    axes.plot(shown.bin_s, shown.p99_ms, color=COLOURS["p99"], label="p99", linewidth=1.8, zorder=4)
    axes.plot(shown.bin_s, shown.p50_ms, color=COLOURS["p50"], label="p50", linewidth=1.8, zorder=4)
    log_upwards(axes)
    _goal(axes, goal_ms)
    axes.set_xlim(0, shown.bin_s[-1] + shown.bin_s[0])


def _distribution(axes: Axes, shown: Figures, goal_ms: float | None) -> None:
    if not len(shown.slower):
        _nothing(axes, NOTHING["distribution"])
        return
    axes.plot(shown.slower, shown.slower_ms, color=COLOURS["p99"], linewidth=1.8)
    axes.set_xscale("log")
    ticks = percentile_ticks(shown)
    axes.xaxis.set_ticks(list(ticks), labels=list(ticks.values()))
    axes.xaxis.set_ticks([], minor=True)
    log_upwards(axes)
    _goal(axes, goal_ms)


def _throughput(axes: Axes, shown: Figures) -> None:
    _steps(axes, shown, shown.offered_per_s, "offered", COLOURS["offered"])
    _steps(axes, shown, shown.answered_per_s, "answered", COLOURS["good (2xx)"])
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)


def _steps(axes: Axes, shown: Figures, values: Array, label: str, colour: str) -> None:
    axes.step(shown.bin_s, values, where="mid", label=label, color=colour, linewidth=1.5)


def _statuses(axes: Axes, shown: Figures) -> None:
    bottom = np.zeros(len(shown.bin_s))
    width = shown.bin_s[0] * 2
    for name, values in shown.statuses.items():
        axes.bar(shown.bin_s, values, width=width, bottom=bottom, label=name, color=COLOURS[name])
        bottom = bottom + values
    axes.set_xlim(left=0)


def _batch_sizes(axes: Axes, shown: Figures) -> None:
    if not len(shown.batch_sizes):
        _nothing(axes, NOTHING["batch_sizes"])
        return
    axes.bar(shown.batch_sizes, shown.batches, width=0.9, color=COLOURS["good (2xx)"])


def _batch_times(axes: Axes, shown: Figures, estimate: Estimate | None) -> None:
    if not len(shown.batch_rows):
        _nothing(axes, NOTHING["batch_times"])
        return
    point = COLOURS["point"]
    axes.plot(shown.batch_rows, shown.batch_ms, ".", color=point, markersize=4, label="batches")
    if estimate is not None:
        rows = np.array([0.0, shown.batch_rows.max()])
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
