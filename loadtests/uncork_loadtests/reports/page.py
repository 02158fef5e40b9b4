"""The report of a load test as a self-contained HTML page, drawn with plotly."""

import html
from pathlib import Path
from typing import Any

from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.reports.panels import Panel, Series, panels
from uncork_loadtests.targets import Estimate

_HEIGHT = 400
# Ticks of logarithmic axes, in milliseconds: plotly's own omit the power of ten.
_TICKS = [factor * 10**power for power in range(-2, 6) for factor in (1, 2, 5)]
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
h1 {{ font-size: 1.35rem; margin-bottom: .25rem; }}
.void {{ background: #fdecea; border-left: 4px solid #b3261e; padding: .6rem 1rem; }}
pre {{ font: 13px/1.45 ui-monospace, monospace; background: #f6f6f6; padding: 1rem; overflow-x: auto; }}
.pictures {{ display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1rem; }}
@media (max-width: 900px) {{ .pictures {{ grid-template-columns: minmax(0, 1fr); }} }}
</style>
</head>
<body>
<h1>{title}</h1>
{void}
<pre>{text}</pre>
<div class="pictures">
{pictures}
</div>
</body>
</html>
"""


def write_html(outcome: Outcome, path: Path, *, estimate: Estimate | None, title: str, text: str) -> None:
    """Write the page with `text` above the pictures; raise OSError if that fails."""
    page = _PAGE.format(
        title=html.escape(title),
        void=f'<p class="void">Void: {html.escape(outcome.void)}</p>' if outcome.void else "",
        text=html.escape(text),
        # The script comes once, with the first.
        pictures="\n".join(
            _picture(panel, script=not number) for number, panel in enumerate(panels(outcome, estimate))
        ),
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
        legend={"orientation": "h", "y": 1.08, "x": 1, "xanchor": "right", "traceorder": "normal"},
        showlegend=any(one.name for one in panel.series),
        barmode="stack",
        xaxis_title=panel.across,
        yaxis_title=panel.up,
    )
    if not panel.series:
        figure.add_annotation(text=panel.missing, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)
    elif panel.log_up:
        figure.update_yaxes(type="log", tickvals=_TICKS, ticktext=[f"{tick:g}" for tick in _TICKS])
    else:
        figure.update_yaxes(rangemode="tozero")
    if panel.series and panel.ticks is not None:
        figure.update_xaxes(type="log", tickvals=list(panel.ticks), ticktext=list(panel.ticks.values()))
    elif panel.from_zero:
        figure.update_xaxes(rangemode="tozero")
    config = {"displayModeBar": False, "responsive": True}
    document: str = figure.to_html(full_html=False, include_plotlyjs=script, config=config)
    return document


def _trace(series: Series) -> dict[str, Any]:
    trace = {"x": series.x, "y": series.y, "name": series.name}
    colour, size = series.colour, series.size
    match series.kind:
        case "bars":
            return {**trace, "type": "bar", "width": size, "marker": {"color": colour}}
        case "points":
            return {**trace, "type": "scatter", "mode": "markers", "marker": {"color": colour, "size": size}}
        case kind:
            line = {"color": colour, "width": 2.2} | _LINES[kind]
            return {**trace, "type": "scatter", "mode": "lines", "line": line}
