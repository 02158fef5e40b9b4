"""The report of a load test as a self-contained HTML page, drawn with plotly."""

from __future__ import annotations

import html
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.reports.plot_data import Array, PlotData, percentile_ticks, plot_data
from uncork_loadtests.reports.texts import COLOURS, LABELS, NOTHING, TITLES, goal_in_sight_ms, goal_label
from uncork_loadtests.targets import Estimate

if TYPE_CHECKING:
    from plotly.graph_objects import Figure  # type: ignore[import-untyped]

_HEIGHT = 400
# Ticks of logarithmic axes, in milliseconds: plotly's own omit the power of ten.
_TICKS = [factor * 10**power for power in range(-2, 6) for factor in (1, 2, 5)]
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
    data = plot_data(outcome.samples, seconds=outcome.measured_s)
    goal_ms = goal_in_sight_ms(outcome, data)
    drawn = {
        "latency": _latency(data, goal_ms),
        "distribution": _distribution(data, goal_ms),
        "throughput": _throughput(data),
        "statuses": _statuses(data),
        "batch_sizes": _batch_sizes(data),
        "batch_times": _batch_times(data, estimate),
    }
    void = f'<p class="void">Void: {html.escape(outcome.void)}</p>' if outcome.void else ""
    page = _PAGE.format(
        title=html.escape(title),
        void=void,
        text=html.escape(text),
        pictures="\n".join(_pictures(drawn)),
    )
    path.write_text(page, encoding="utf-8")


def _pictures(drawn: dict[str, Figure]) -> Iterable[str]:
    for number, (name, figure) in enumerate(drawn.items()):
        across, up = LABELS[name]
        figure.update_layout(
            title={"text": TITLES[name], "x": 0.02, "font": {"size": 16}},
            template="plotly_white",
            height=_HEIGHT,
            margin={"l": 70, "r": 20, "t": 50, "b": 60},
            legend={"orientation": "h", "y": 1.08, "x": 1, "xanchor": "right"},
            xaxis_title=across,
            yaxis_title=up,
        )
        script = number == 0  # once for all pictures
        yield figure.to_html(
            full_html=False, include_plotlyjs=script, config={"displayModeBar": False, "responsive": True}
        )


def _figure(*traces: Any) -> Figure:
    import plotly.graph_objects as go  # type: ignore[import-untyped]

    return go.Figure(list(traces))


def _line(x: Any, y: Any, name: str, colour: str, **line: Any) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "name": name,
        "line": {"color": colour, "width": 2.2, **line},
    }


def _points(x: Any, y: Any, name: str, *, size: int) -> dict[str, Any]:
    marker = {"color": COLOURS["point"], "size": size}
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "name": name, "marker": marker}


def _latency(data: PlotData, goal_ms: float | None) -> Figure:
    if not len(data.latency_ms):
        return _nothing(NOTHING["latency"])
    figure = _figure(
        _points(data.due_s, data.latency_ms, "answers", size=3),
        _line(data.bin_s, data.p99_ms, "p99", COLOURS["p99"]),
        _line(data.bin_s, data.p50_ms, "p50", COLOURS["p50"]),
    )
    figure.update_xaxes(rangemode="tozero")
    return _with_goal(figure, goal_ms, across=data.bin_s)


def _distribution(data: PlotData, goal_ms: float | None) -> Figure:
    if not len(data.slower):
        return _nothing(NOTHING["distribution"])
    figure = _figure(_line(data.slower, data.slower_ms, "latency", COLOURS["p99"]))
    ticks = percentile_ticks(data)
    figure.update_xaxes(type="log", tickvals=list(ticks), ticktext=list(ticks.values()))
    return _with_goal(figure, goal_ms, across=data.slower)


def _with_goal(figure: Figure, goal_ms: float | None, *, across: Array) -> Figure:
    figure.update_yaxes(type="log", tickvals=_TICKS, ticktext=[f"{tick:g}" for tick in _TICKS])
    if goal_ms is not None:
        ends = [min(across), max(across)]
        line = _line(ends, [goal_ms, goal_ms], goal_label(goal_ms), COLOURS["goal"], dash="dash")
        figure.add_trace(line)
    return figure


def _throughput(data: PlotData) -> Figure:
    figure = _figure(
        _line(data.bin_s, data.offered_per_s, "offered", COLOURS["offered"], shape="hvh"),
        _line(data.bin_s, data.answered_per_s, "answered", COLOURS["good (2xx)"], shape="hvh"),
    )
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(rangemode="tozero")
    return figure


def _statuses(data: PlotData) -> Figure:
    bars = [
        {"type": "bar", "x": data.bin_s, "y": values, "name": name, "marker": {"color": COLOURS[name]}}
        for name, values in data.statuses.items()
    ]
    figure = _figure(*bars)
    figure.update_layout(barmode="stack", bargap=0, showlegend=True, legend_traceorder="normal")
    return figure


def _batch_sizes(data: PlotData) -> Figure:
    if not len(data.batch_sizes):
        return _nothing(NOTHING["batch_sizes"])
    marker = {"color": COLOURS["good (2xx)"]}
    return _figure({"type": "bar", "x": data.batch_sizes, "y": data.batches, "marker": marker})


def _batch_times(data: PlotData, estimate: Estimate | None) -> Figure:
    if not len(data.batch_rows):
        return _nothing(NOTHING["batch_times"])
    figure = _figure(_points(data.batch_rows, data.batch_ms, "batches", size=5))
    if estimate is not None:
        rows = [0.0, float(data.batch_rows.max())]
        times = [estimate.intercept_ms + estimate.slope_ms * count for count in rows]
        figure.add_trace(_line(rows, times, "estimate at the end", COLOURS["p99"]))
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    return figure


def _nothing(why: str) -> Figure:
    figure = _figure()
    figure.add_annotation(text=why, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)
    return figure
