"""Pictures of simulated comparisons, drawn with matplotlib of ``uncork[loadtest]``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uncork_dispatcher.simulator import Cell, Comparison, Result
from uncork_dispatcher.wording import plural
from uncork_loadtests.reports.style import (
    DPI,
    GREY,
    STYLE,
    TEXT_GREY,
    headline,
    line_look,
    log_upwards,
    log_with_ticks,
    policy_look,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class _Measure(NamedTuple):
    """A figure to draw, against load or clients."""

    title: str
    across: str
    x: Callable[[Cell], float]
    y: Callable[[Comparison, Result], float]
    up: str


def draw(comparisons: Sequence[Comparison], path: Path) -> None:
    """Draw latency against load, or throughput against clients, in the format of the file's ending."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        _figure(comparisons).savefig(path, dpi=DPI)


def _figure(comparisons: Sequence[Comparison]) -> Figure:
    from matplotlib.figure import Figure

    cell = comparisons[0].cell
    closed = cell.clients is not None
    measures = [_THROUGHPUT] if closed else [_MEAN, _P99]
    figure = Figure(figsize=(6.6 if closed else 9.5, 4.4), layout="constrained")
    panels = figure.subplots(1, len(measures), squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=True):
        axes.set_xlabel(measure.across)
        axes.set_ylabel(measure.up)
        _lines(axes, comparisons, measure)
        if closed:
            _clients_axis(axes, [one.cell for one in comparisons])
            axes.set_ylim(bottom=0)
        else:
            axes.set_title(measure.title)
            log_upwards(axes, least_ratio=4)
            _mark_goal(axes, cell.goal_ms)
            axes.set_xlim(left=0)
    traffic = _pauses(cell) if closed else _arrivals(cell)
    noise = f", noise {cell.noise_cv:g}" if cell.noise_cv else ""
    _finish(figure, panels[0], f"{_model(cell)}, {plural(cell.workers, 'worker')}, {traffic}{noise}")
    return figure


def _load(cell: Cell) -> float:
    return cell.load or 0.0


def _clients(cell: Cell) -> float:
    return cell.clients or 0


_MEAN = _Measure(
    title="mean latency",
    across="load, as a share of the capacity in full batches",
    x=_load,
    y=lambda _, result: result.average.mean_ms,
    up="milliseconds",
)
_P99 = _MEAN._replace(title="99th percentile", y=lambda _, result: result.average.p99_ms)
_THROUGHPUT = _Measure(
    title="",
    across="clients of a closed loop",
    x=_clients,
    y=lambda _, result: result.average.rows_per_s,
    up="rows per second",
)


def _lines(axes: Axes, comparisons: Sequence[Comparison], measure: _Measure) -> None:
    """Draw each policy: cork in front, fixed:0, to which the others are related, as a dashed line."""
    policies = [result.policy for result in comparisons[0].results]
    for policy in policies:
        points = sorted((measure.x(one.cell), measure.y(one, one.of(policy))) for one in comparisons)
        known = [point for point in points if math.isfinite(point[1])]
        colour, mark = policy_look(policy, policies)
        axes.plot(
            [x for x, _ in known],
            [y for _, y in known],
            label=policy,
            color=colour,
            marker=mark,
            linestyle=(0, (4, 2)) if policy == "fixed:0" else "-",
            **line_look(first=policy == "cork"),
        )


def _clients_axis(axes: Axes, cells: Iterable[Cell]) -> None:
    log_with_ticks(axes, "x", sorted({cell.clients or 1 for cell in cells}))


def _mark_goal(axes: Axes, goal_ms: float) -> None:
    """Mark the goal if it is within the axes; stretching them would squeeze the lines."""
    low, high = axes.get_ylim()
    if not low <= goal_ms <= high:
        return
    axes.axhline(goal_ms, color=GREY, linewidth=1.0, linestyle=(0, (1, 2)), zorder=1)
    axes.annotate(
        f"goal {goal_ms:g} ms",
        (0.0, goal_ms),
        xycoords=("axes fraction", "data"),
        xytext=(4, 3),
        textcoords="offset points",
        color=TEXT_GREY,
        fontsize=8,
    )


def _finish(figure: Figure, axes: Axes, title: str) -> None:
    """Add the title, and one legend for all panels."""
    handles, labels = axes.get_legend_handles_labels()
    headline(figure, title)
    lines = math.ceil(len(labels) / (8 if figure.get_figwidth() > 8 else 5))
    figure.legend(handles, labels, loc="outside lower center", ncols=math.ceil(len(labels) / lines))


def _model(cell: Cell) -> str:
    return f"{cell.intercept_ms:g} + {cell.slope_ms:g}n ms"


def _arrivals(cell: Cell) -> str:
    kind, _, detail = cell.arrivals.partition(":")
    return f"replay of {Path(detail).name}" if kind == "replay" else f"{cell.arrivals} arrivals"


def _pauses(cell: Cell) -> str:
    think = f", think {cell.think_ms:g} ms" if cell.think_ms else ""
    work = f", {cell.request_ms:g} ms of work on each request" if cell.request_ms else ""
    return f"round trip {cell.round_trip_ms:g} ms{think}{work}"
