"""The picture of a comparison of policies, drawn with matplotlib of ``uncork[loadtest]``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from uncork.cli.compare.tables import heading, interval_text
from uncork_loadtests.compare import Comparison
from uncork_loadtests.reports.style import DPI, STYLE, headline, policy_look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANELS = {
    "p50_ms": "median latency, ms",
    "p99_ms": "99th percentile, ms",
    "answered_per_s": "successful responses per second",
    "in_goal": "share within the goal",
}


def draw(comparison: Comparison, path: Path) -> None:
    """Draw every round as a line and the median as a mark, in the format of the file's ending.

    Each policy but the first is labelled with its ratio to the first and the 95 % interval.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(11, 1.7 + 0.9 * len(comparison.results)), layout="constrained")
        panels = figure.subplots(2, 2, sharey=True).flatten().tolist()
        for axes, (name, title) in zip(panels, _PANELS.items(), strict=True):
            axes.set_title(title)
            _panel(axes, comparison, name)
        headline(figure, heading(comparison))
        figure.savefig(path, dpi=DPI)


def _panel(axes: Axes, comparison: Comparison, name: str) -> None:
    policies = [result.policy for result in comparison.results]
    for place, result in enumerate(comparison.results):
        colour, mark = policy_look(result.policy, policies)
        rounds = [getattr(one[result.policy], name) for one in comparison.rounds.whole]
        known = [value for value in rounds if value is not None]
        axes.plot(known, [place] * len(known), "|", color=colour, markersize=9, alpha=0.6)
        median = result.medians[name]
        if median is None:
            axes.annotate("too few responses", (0.02, place), xycoords=("axes fraction", "data"), va="center")
            continue
        axes.plot(median, place, mark, color=colour, markersize=8, markeredgecolor="white", zorder=5)
        if place:
            axes.annotate(
                interval_text(result.ratios[name]),
                (median, place),
                xytext=(0, 8),
                textcoords="offset points",
                ha="center",
                color="#444444",
                fontsize=8,
            )
    axes.set_yticks(range(len(policies)), labels=policies)
    axes.set_ylim(len(policies) - 0.5, -0.6)
    axes.margins(x=0.18)
    axes.set_xlim(left=0)
