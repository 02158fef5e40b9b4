"""A run of the autoscaler as a picture: rate and goodput, workers, p99, over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.pictures import STYLE, headline
from benchmarks.scale.autoscaling import GOAL_MS, LEAST, MOST, Run, Window
from uncork_loadtests.reports.page import BLUE, DARK_GREY, GREEN, GREY, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHES = (0, (4, 3))


def draw(run: Run, path: Path) -> None:
    """Draw the run into an SVG file; raise OSError if it cannot be written."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Without salt and date, each drawing of the same figures would give another file.
    with rc_context({**STYLE, "svg.hashsalt": path.name}):
        picture = Figure(figsize=(8.4, 7.2), layout="constrained")
        rate, workers, latency = picture.subplots(3, 1, sharex=True)
        _draw_rate(rate, run)
        _draw_workers(workers, run)
        _draw_latency(latency, run.windows())
        latency.set_xlabel("minutes")
        end_s = sum(step.seconds for step in run.steps)
        latency.set_xlim(0, end_s / 60)
        latency.set_xticks(np.arange(0, end_s / 60 + 1e-9))
        headline(picture, f"uncork serve --workers {LEAST}-{MOST} while the rate doubles and halves")
        picture.savefig(path, metadata={"Date": None})


def _draw_rate(axes: Axes, run: Run) -> None:
    found = run.windows()
    borders = np.cumsum([0.0, *(step.seconds for step in run.steps)]) / 60
    rates = [step.rate for step in run.steps]
    axes.stairs(rates, borders, baseline=None, color=DARK_GREY, linewidth=1.4, label="rate")
    goodput = [window.in_goal / window.seconds for window in found]
    axes.plot(_middles(found), goodput, color=GREEN, linewidth=1.8, label="answered within the goal")
    axes.set_title("rows/s")
    _finish(axes)


def _draw_workers(axes: Axes, run: Run) -> None:
    minutes = [one.at_s / 60 for one in run.sightings]
    look: dict[str, Any] = {"drawstyle": "steps-post"}
    axes.plot(minutes, [one.ready for one in run.sightings], color=BLUE, linewidth=2.2, label="ready", **look)
    axes.plot(
        minutes,
        [one.wanted for one in run.sightings],
        color=VERMILION,
        linewidth=1.2,
        linestyle=_DASHES,
        label="wanted now",
        **look,
    )
    axes.set_title("workers")
    axes.set_yticks(range(max(MOST, *(one.wanted for one in run.sightings)) + 1))
    _finish(axes)


def _draw_latency(axes: Axes, found: list[Window]) -> None:
    p99_ms = [np.nan if window.p99_ms is None else window.p99_ms for window in found]
    axes.plot(_middles(found), p99_ms, color=BLUE, linewidth=1.8, label="p99 of answers, by 10 s")
    axes.axhline(GOAL_MS, color=GREY, linewidth=1.2, linestyle=_DASHES, label="goal")
    axes.set_title("ms")
    _finish(axes)


def _middles(found: list[Window]) -> list[float]:
    return [(window.from_s + window.to_s) / 120 for window in found]


def _finish(axes: Axes) -> None:
    axes.set_ylim(bottom=0)
    # Above the panel, to hide no data.
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.97), ncols=3, fontsize=8.5)
