"""Pictures of simulated comparisons, drawn with matplotlib of ``uncork[loadtest]``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from uncork.cli.simulate.figures import geometric_mean, staggered_share
from uncork_dispatcher.plural import plural
from uncork_dispatcher.simulator import Cell, Comparison, Result
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

# Lines leave a panel beyond these: without batching some ratios are in the thousands.
_RATIOS = (0.24, 4.2)
_GOAL_LOADS = (0.8, 4.4)
_MOST_ROWS, _MOST_COLUMNS = 8, 4


class _Measure(NamedTuple):
    """A figure that the panels of a matrix show."""

    title: str
    across: str
    x: Callable[[Cell], float]
    y: Callable[[Comparison, Result], float]
    over_cells: Callable[[Iterable[float]], float]
    goal: bool = False


def draw(comparisons: Sequence[Comparison], path: Path, *, matrix: str | None = None) -> None:
    """Draw one picture in the format of the file's ending.

    For a single model: latency against load, or throughput against clients. For a matrix: ratios to the base
    policy (goodput with the matrix of goals), in one panel for each model and number of workers.

    Raises:
        OSError: if the file cannot be written.
    """
    from matplotlib import rc_context

    with rc_context(STYLE):
        if matrix is not None:
            figure = _panels(comparisons, matrix)
        elif comparisons[0].cell.clients is None:
            figure = _latency(comparisons)
        else:
            figure = _throughput(comparisons)
        figure.savefig(path, dpi=DPI)


def _latency(comparisons: Sequence[Comparison]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    policies = _policies(comparisons)
    for axes, title, name in ((left, "mean latency", "mean_ms"), (right, "99th percentile", "p99_ms")):
        axes.set_title(title)
        axes.set_xlabel("load, as a share of what full batches carry")
        axes.set_ylabel("milliseconds")
        for policy in policies:
            points = [(one.cell.load or 0.0, getattr(one.of(policy).average, name)) for one in comparisons]
            _line(axes, policy, points, among=policies)
        log_upwards(axes, least_ratio=4)
        _mark_goal(axes, comparisons[0].cell.goal_ms)
        axes.set_xlim(left=0)
    cell = comparisons[0].cell
    _finish(figure, left, f"{_model(cell)}, {_workers(cell)}, {_arrivals(cell)}{_noise(cell)}")
    return figure


def _throughput(comparisons: Sequence[Comparison]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel("clients, each of which waits for its answer")
    axes.set_ylabel("rows per second")
    policies = _policies(comparisons)
    for policy in policies:
        points = [(one.cell.clients or 0, one.of(policy).average.rows_per_s) for one in comparisons]
        _line(axes, policy, points, among=policies)
    _clients_axis(axes, [one.cell for one in comparisons])
    axes.set_ylim(bottom=0)
    cell = comparisons[0].cell
    pause = f"round trip {cell.round_trip_ms:g} ms" + (
        f", think {cell.think_ms:g} ms" if cell.think_ms else ""
    )
    _finish(figure, axes, f"{_model(cell)}, {_workers(cell)}, {pause}{_noise(cell)}")
    return figure


def _panels(comparisons: Sequence[Comparison], matrix: str) -> Figure:
    """Draw a column for each number of workers, and a row for each model and kind of traffic."""
    from matplotlib.figure import Figure

    grid: dict[tuple[bool, str], dict[int, list[Comparison]]] = {}
    for one in comparisons:
        row = grid.setdefault((one.cell.clients is not None, _model(one.cell)), {})
        row.setdefault(one.cell.workers, []).append(one)
    rows = sorted(grid, key=lambda key: key[0])[:_MOST_ROWS]
    columns = sorted({count for row in grid.values() for count in row})[:_MOST_COLUMNS]
    size = (max(6.5, 2.9 * len(columns) + 0.6), 2.05 * len(rows) + 1.1)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(rows), len(columns), squeeze=False)
    for line, (closed, model) in zip(panels, rows, strict=True):
        measure = _GOODPUT if matrix == "goal" else _CLOSED if closed else _OPEN
        for axes, workers in zip(line, columns, strict=True):
            _panel(axes, grid[closed, model].get(workers, []), measure)
            axes.set_title(f"{model}, {plural(workers, 'worker')}")
            axes.set_xlabel(measure.across)
        line[0].set_ylabel(measure.title)
    if matrix == "goal":
        says = "answers within the goal, relative to staggered workers"
    else:
        says = f"ratios to {comparisons[0].base}, as far as between 1/4 and 4"
    title = f"matrix {matrix}, {plural(len(comparisons), 'cell')}: {says}"
    _finish(figure, panels[0, 0], title)
    return figure


def _panel(axes: Axes, comparisons: Sequence[Comparison], measure: _Measure) -> None:
    policies = _policies(comparisons)
    for policy in policies:
        by_x: dict[float, list[float]] = {}
        for one in comparisons:
            by_x.setdefault(measure.x(one.cell), []).append(measure.y(one, one.of(policy)))
        points = [(x, measure.over_cells(values)) for x, values in by_x.items()]
        _line(axes, policy, points, among=policies, small=True)
    if measure.goal:
        axes.set_ylim(0, 1.2)
        axes.axhline(1.0, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        log_with_ticks(axes, "x", (1, 2, 4), limits=_GOAL_LOADS)
        return
    log_with_ticks(axes, "y", (0.25, 0.5, 1, 2, 4), limits=_RATIOS)
    if comparisons and comparisons[0].cell.clients is not None:
        _clients_axis(axes, [one.cell for one in comparisons])
    else:
        axes.set_xlim(0, 1)


_OPEN = _Measure(
    title="p99 ratio",
    across="load",
    x=lambda cell: cell.load or 0.0,
    y=lambda _, result: result.p99.value,
    over_cells=geometric_mean,
)
_CLOSED = _Measure(
    title="throughput ratio",
    across="clients",
    x=lambda cell: cell.clients or 0,
    y=lambda _, result: result.throughput.value,
    over_cells=geometric_mean,
)
_GOODPUT = _Measure(
    title="goodput",
    across="load, in staggered capacities",
    x=lambda cell: round(staggered_share(cell, cell.rate), 3),
    y=lambda one, result: staggered_share(one.cell, result.average.goodput_per_s),
    # Not geometric: cells without goodput must count.
    over_cells=fmean,
    goal=True,
)


def _policies(comparisons: Sequence[Comparison]) -> list[str]:
    return [result.policy for result in comparisons[0].results] if comparisons else []


def _line(
    axes: Axes,
    policy: str,
    points: Iterable[tuple[float, float]],
    *,
    among: Sequence[str],
    small: bool = False,
) -> None:
    """Draw one policy: cork in front, fixed:0, to which the others are related, as a dashed line."""
    colour, mark = policy_look(policy, among)
    known = sorted(point for point in points if math.isfinite(point[1]))
    axes.plot(
        [x for x, _ in known],
        [y for _, y in known],
        label=policy,
        color=colour,
        marker=mark,
        linestyle=(0, (4, 2)) if policy == "fixed:0" else "-",
        **line_look(first=policy == "cork", small=small),
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


def _workers(cell: Cell) -> str:
    return plural(cell.workers, "worker")


def _arrivals(cell: Cell) -> str:
    kind, _, detail = cell.arrivals.partition(":")
    return f"replay of {Path(detail).name}" if kind == "replay" else f"{cell.arrivals} arrivals"


def _noise(cell: Cell) -> str:
    return f", noise {cell.noise_cv:g}" if cell.noise_cv else ""
