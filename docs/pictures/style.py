"""Style, lines and axes of the pictures that are drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from uncork_loadtests.reports.page import GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
    "svg.fonttype": "none",
}
"""For ``matplotlib.rc_context``."""


def line_look(*, first: bool) -> dict[str, Any]:
    """Return line properties; the first line is thicker and in front."""
    return {
        "linewidth": 2.6 if first else 1.3,
        "markersize": 6.5 if first else 5.5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
        "zorder": 5 if first else 3,
    }


def log_upwards(axes: Axes) -> None:
    """Make the y axis logarithmic with plain numbers: 1, 2 and 5, or powers of ten on a long axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 1000 else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def log_across(axes: Axes, ticks: Sequence[float]) -> None:
    """Make the x axis logarithmic with exactly these ticks."""
    axes.set_xscale("log")
    axes.xaxis.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    axes.xaxis.set_ticks([], minor=True)


def headline(figure: Figure, title: str, *, size: float = 11) -> None:
    """Put a title above all panels."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=size, fontweight="bold")
