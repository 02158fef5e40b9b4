"""Colours, markers and axes of all pictures drawn with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, distinguishable for the colour-blind.
VERMILION = "#d55e00"
BLUE = "#0072b2"
SKY_BLUE = "#56b4e9"
GREEN = "#009e73"
ORANGE = "#e69f00"
PURPLE = "#cc79a7"
DARK_GREY = "#4d4d4d"
GREY = "#888888"
"""Axes and limits."""
TEXT_GREY = "#666666"
"""Notes inside a picture."""

DPI = 150
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

# Markers help in black-and-white print.
_POLICIES = {
    "cork": (VERMILION, "o"),
    "fixed:0": (DARK_GREY, "s"),
    "cork-classic": (BLUE, "^"),
    "fixed:5": (SKY_BLUE, "v"),
    "fixed:20": (GREEN, "D"),
    "aimd": (PURPLE, "P"),
    "none": (ORANGE, "X"),
}
_OTHER_COLOURS = (GREEN, PURPLE, BLUE, ORANGE, SKY_BLUE)
_OTHER_MARKS = "<>h*p"


def policy_look(policy: str, among: Sequence[str]) -> tuple[str, str]:
    """Return colour and marker: fixed for well-known policies, a free one for others."""
    if policy in _POLICIES:
        return _POLICIES[policy]
    taken = {_POLICIES[name][0] for name in among if name in _POLICIES}
    free = [colour for colour in _OTHER_COLOURS if colour not in taken] or list(_OTHER_COLOURS)
    place = [name for name in among if name not in _POLICIES].index(policy)
    return free[place % len(free)], _OTHER_MARKS[place % len(_OTHER_MARKS)]


def line_look(*, first: bool, small: bool = False) -> dict[str, Any]:
    """Return line properties; the first line is thicker and in front."""
    return {
        "linewidth": (2.6 if first else 1.3) * (0.8 if small else 1),
        "markersize": (6.5 if first else 5.5) * (0.75 if small else 1),
        "markeredgecolor": "white",
        "markeredgewidth": 0.4 if small else 0.6,
        "zorder": 5 if first else 3,
    }


def log_upwards(axes: Axes, *, least_ratio: float = 1.0) -> None:
    """Make the y axis logarithmic with plain numbers: 1, 2 and 5, or powers of ten on a long axis.

    An axis shorter than `least_ratio` is widened to it, so that it has ticks.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high / low < least_ratio:
        middle, half = math.sqrt(low * high), math.sqrt(least_ratio)
        low, high = middle / half, middle * half
        axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 1000 else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def log_with_ticks(
    axes: Axes,
    name: Literal["x", "y"],
    ticks: Sequence[float],
    *,
    limits: tuple[float, float] | None = None,
) -> None:
    """Make an axis logarithmic with exactly these ticks."""
    axes.set(**{f"{name}scale": "log"})
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)
    if limits is not None:
        axes.set(**{f"{name}lim": limits})


def headline(figure: Figure, title: str, *, size: float = 11) -> None:
    """Put a title above all panels."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=size, fontweight="bold")
