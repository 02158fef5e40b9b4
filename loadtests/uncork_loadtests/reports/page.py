"""Results of load tests, comparisons and simulations as self-contained HTML pages, drawn with plotly."""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Values = Sequence[float] | NDArray[np.float64]

# Okabe and Ito's palette, distinguishable for the colour-blind.
VERMILION, BLUE, SKY_BLUE, GREEN = "#d55e00", "#0072b2", "#56b4e9", "#009e73"
ORANGE, PURPLE, DARK_GREY, GREY = "#e69f00", "#cc79a7", "#4d4d4d", "#888888"
_COLOURS = (VERMILION, DARK_GREY, BLUE, SKY_BLUE, GREEN, PURPLE, ORANGE)
# They help in black-and-white print. One more than colours, so that combinations repeat late.
_SYMBOLS = ("circle", "square", "triangle-up", "triangle-down", "diamond", "cross", "x", "star")

# A goal this many times above the highest latency would squash the panel.
_FAR = 10.0
_HEIGHT = 400
_LINES: dict[str, dict[str, str]] = {"line": {}, "dashes": {"dash": "dash"}, "steps": {"shape": "hvh"}}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; color: #222; background: #fff; margin: 2rem auto;
  max-width: 1280px; padding: 0 1.5rem; }}
h1 {{ font-size: 1.35rem; margin-bottom: .25rem; overflow-wrap: anywhere; }}
.void {{ background: #fdecea; border-left: 4px solid #b3261e; padding: .6rem 1rem; }}
pre {{ font: 13px/1.45 ui-monospace, monospace; background: #f6f6f6; padding: 1rem; overflow-x: auto; }}
.pictures {{ display: grid; grid-template-columns: repeat({columns}, minmax(0, 1fr)); gap: 1rem; }}
@media (max-width: 900px) {{ .pictures {{ grid-template-columns: minmax(0, 1fr); }} }}
</style>
</head>
<body>
<h1>{title}</h1>
{above}
<div class="pictures">
{pictures}
</div>
</body>
</html>
"""


@dataclass(frozen=True)
class Series:
    """Marks of one colour; bars are stacked."""

    kind: Literal["line", "dashes", "steps", "points", "bars"]
    x: Values
    y: Values
    colour: str
    name: str = ""
    """In the legend; empty: none."""
    size: float = 8.0
    """The diameter of points in pixels, or the width of bars on the axis."""
    symbol: str = ""
    """Plotly's name of the marker of points, and on lines; empty: a disc, and none."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One diagram: what is drawn, and its axes."""

    title: str
    across: str = ""
    up: str = ""
    series: Sequence[Series]
    missing: str = ""
    """The text of a panel without series."""
    log_up: bool = False
    """Whether the vertical axis is logarithmic; a linear one starts at 0."""
    rows: Sequence[str] = ()
    """Names of 0, 1 and so on along the vertical axis, downwards; empty: the axis has numbers."""
    ticks: Mapping[float, str] | None = None
    """Ticks of a logarithmic horizontal axis; None: a linear one."""
    from_zero: bool = True
    """Whether a linear horizontal axis starts at 0."""


def looks(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return a colour and a symbol for each name."""
    return dict(zip(names, zip(cycle(_COLOURS), cycle(_SYMBOLS), strict=False), strict=False))


def goal_line(goal_ms: float | None, across: Values, latency_ms: Values) -> list[Series]:
    """Return the goal as a line over the range of `across`, unless it is far above the latencies."""
    values = np.asarray(latency_ms)
    if goal_ms is None or goal_ms >= _FAR * np.max(values, initial=0, where=np.isfinite(values)):
        return []
    return [Series("dashes", [np.min(across), np.max(across)], [goal_ms] * 2, GREY, f"goal {goal_ms:g} ms")]


def write_page(path: Path, *, title: str, panels: Sequence[Panel], text: str = "", void: str = "") -> None:
    """Write the page, with `text` and why a run is void above the panels; raise OSError if that fails."""
    above = [f'<p class="void">Void: {html.escape(void)}</p>'] if void else []
    above += [f"<pre>{html.escape(text)}</pre>"] if text else []
    page = _PAGE.format(
        title=html.escape(title),
        above="\n".join(above),
        columns=min(2, len(panels)),
        # The script comes once, with the first.
        pictures="\n".join(_picture(panel, script=not number) for number, panel in enumerate(panels)),
    )
    path.write_text(page, encoding="utf-8")


def _picture(panel: Panel, *, script: bool) -> str:
    import plotly.graph_objects as go  # type: ignore[import-untyped]

    figure = go.Figure([_trace(one) for one in panel.series])
    figure.update_layout(
        title={"text": panel.title, "x": 0.02, "font": {"size": 16}},
        template="plotly_white",
        height=_HEIGHT,
        margin={"l": 70, "r": 20, "t": 50, "b": 60},
        legend={"orientation": "h", "y": -0.2, "traceorder": "normal"},
        showlegend=any(one.name for one in panel.series),
        barmode="stack",
        xaxis={"title": panel.across, **_x_axis(panel)},
        yaxis={"title": panel.up, **_y_axis(panel)},
    )
    if not panel.series:
        figure.add_annotation(text=panel.missing, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)
    config = {"displayModeBar": False, "responsive": True}
    document: str = figure.to_html(full_html=False, include_plotlyjs=script, config=config)
    return document


def _x_axis(panel: Panel) -> dict[str, Any]:
    if panel.series and panel.ticks is not None:
        return {"type": "log", "tickvals": list(panel.ticks), "ticktext": list(panel.ticks.values())}
    return {"rangemode": "tozero"} if panel.from_zero else {}


def _y_axis(panel: Panel) -> dict[str, Any]:
    if panel.rows:
        last = len(panel.rows) - 0.5
        ticks = {"tickvals": [*range(len(panel.rows))], "ticktext": panel.rows}
        return {**ticks, "range": [last, -0.5], "zeroline": False}
    if panel.series and panel.log_up:
        span = _log_range(panel)
        # Plotly's own ticks omit the power of ten. An axis of less than a decade needs more of them.
        factors = (1, 2, 3, 5, 7) if span and span[1] - span[0] < 1 else (1, 2, 5)
        places = [factor * 10**power for power in range(-2, 6) for factor in factors]
        texts = [f"{place:g}" for place in places]
        return {"type": "log", "range": span, "tickvals": places, "ticktext": texts}
    return {"rangemode": "tozero"}


def _log_range(panel: Panel) -> list[float] | None:
    """Return the range of the values as powers of ten, wide enough to have ticks where all are alike."""
    known = np.concatenate([np.asarray(one.y, float) for one in panel.series])
    known = np.log10(known[np.isfinite(known) & (known > 0)])
    if not len(known):
        return None
    low, high = float(known.min()), float(known.max())
    half = max(1.1 * (high - low), math.log10(4)) / 2
    return [(low + high) / 2 - half, (low + high) / 2 + half]


def _trace(series: Series) -> dict[str, Any]:
    trace = {"x": series.x, "y": series.y, "name": series.name}
    marker = {"color": series.colour, "size": series.size, "symbol": series.symbol or None}
    match series.kind:
        case "bars":
            return {**trace, "type": "bar", "width": series.size, "marker": {"color": series.colour}}
        case "points":
            return {**trace, "type": "scatter", "mode": "markers", "marker": marker}
        case kind:
            line = {"color": series.colour, "width": 2.2} | _LINES[kind]
            mode = "lines+markers" if series.symbol else "lines"
            return {**trace, "type": "scatter", "mode": mode, "line": line, "marker": marker}
