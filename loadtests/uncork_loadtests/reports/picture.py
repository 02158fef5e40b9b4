"""The report of a load test as a PNG, drawn with matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.reports.panels import Panel, panels
from uncork_loadtests.reports.style import DPI, STYLE, TEXT_GREY, headline, log_upwards
from uncork_loadtests.targets import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOOKS: dict[str, dict[str, Any]] = {
    "points": {"linestyle": "", "marker": ".", "zorder": 2},
    "dashes": {"linestyle": (0, (4, 3)), "linewidth": 1.2, "zorder": 3},
    "steps": {"drawstyle": "steps-mid", "linewidth": 1.5},
    "line": {"linewidth": 1.8, "zorder": 4},
}


def write_png(outcome: Outcome, path: Path, *, estimate: Estimate | None, title: str) -> None:
    """Draw all panels into one file; raise OSError if that fails."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(11, 10.5), layout="constrained")
        drawn = panels(outcome, estimate)
        for axes, panel in zip(figure.subplots(3, 2).flatten().tolist(), drawn, strict=True):
            _draw(axes, panel)
        headline(figure, f"VOID: {title}" if outcome.void else title)
        figure.savefig(path, dpi=DPI, format="png")


def _draw(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title)
    axes.set_xlabel(panel.across)
    axes.set_ylabel(panel.up)
    if not panel.series:
        axes.text(0.5, 0.5, panel.missing, transform=axes.transAxes, ha="center", color=TEXT_GREY)
        return
    bottom: Any = 0.0
    for series in panel.series:
        look: dict[str, Any] = {"color": series.colour, "label": series.name or None}
        if series.kind == "bars":
            axes.bar(series.x, series.y, width=series.size, bottom=bottom, **look)
            bottom = bottom + series.y
        else:
            axes.plot(series.x, series.y, markersize=0.8 * series.size, **_LOOKS[series.kind], **look)
    if panel.log_up:
        log_upwards(axes)
    else:
        axes.set_ylim(bottom=0)
    if panel.ticks is not None:
        axes.set_xscale("log")
        axes.xaxis.set_ticks(list(panel.ticks), labels=list(panel.ticks.values()))
        axes.xaxis.set_ticks([], minor=True)
    elif panel.from_zero:
        axes.set_xlim(left=0)
    if any(series.name for series in panel.series):
        # Above the panel, to hide no data.
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=4, fontsize=8)
