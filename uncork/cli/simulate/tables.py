"""What was simulated, as tables for people and as JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from statistics import fmean
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from uncork.cli.terminal import plain_table
from uncork_dispatcher.plural import plural
from uncork_dispatcher.simulator import Cell, Comparison, Measured, Ratio, Result, staggered_per_s

MOST_IN_FULL = 12
"""Cells up to which each gets a table of its own; more share one, with a summary."""

_NOTHING = "-"
Column = tuple[str, Callable[[Comparison, Result], str]]


def tables(
    comparisons: Sequence[Comparison], *, seeds: Sequence[int], matrix: str | None
) -> Iterator[RenderableType]:
    """The parts to print, one below the other."""
    yield _heading(comparisons, seeds)
    if matrix == "goal":
        yield "load and goodput in capacities of workers that start in turn within the goal"
        yield ""
        yield _compact(comparisons, _GOAL)
        yield ""
        yield "over all models and workers: goodput (and the lowest), by load"
        yield _goal_summary(comparisons)
        return
    yield _explanation(comparisons, seeds)
    if len(comparisons) <= MOST_IN_FULL:
        for one in comparisons:
            yield ""
            yield str(one.cell)
            yield _full(one)
        return
    for some, columns in ((_open(comparisons), _OPEN), (_closed(comparisons), _CLOSED)):
        if some:
            yield ""
            yield _compact(some, columns)
    for table in _summaries(comparisons):
        yield ""
        yield table


def as_json(
    comparisons: Sequence[Comparison], *, seeds: Sequence[int], requests: int | None, matrix: str | None
) -> str:
    """All figures; what is not a number is null.

    ``requests`` are those asked for in each run, null for as many as a cell needs.
    """
    figures = {
        "uncork": version("uncork"),
        "matrix": matrix,
        "base": comparisons[0].base,
        "policies": [result.policy for result in comparisons[0].results],
        "seeds": list(seeds),
        "requests": requests,
        "cells": [_cell_figures(one, seeds) for one in comparisons],
        "summary": {
            result.policy: _summary_figures(comparisons, result.policy) for result in comparisons[0].results
        },
    }
    return json.dumps(_plain(figures), indent=2, allow_nan=False)


def geometric_mean(values: Iterable[float]) -> float:
    """Geometric mean of those that are known; NaN if none is."""
    known = [math.log(value) for value in values if 0 < value < math.inf]
    return math.exp(fmean(known)) if known else math.nan


def staggered_share(cell: Cell, per_s: float) -> float:
    """A rate as a share of what staggered workers carry within the goal; NaN where none is within it."""
    return per_s / _staggered_or_nan(cell)


def _staggered_or_nan(cell: Cell) -> float:
    try:
        return staggered_per_s(cell)
    except ValueError:
        return math.nan


def _shed_share(result: Result) -> float:
    return fmean(one.shed_share for one in result.by_seed)


def _open(comparisons: Iterable[Comparison]) -> list[Comparison]:
    return [one for one in comparisons if one.cell.clients is None]


def _closed(comparisons: Iterable[Comparison]) -> list[Comparison]:
    return [one for one in comparisons if one.cell.clients is not None]


def _heading(comparisons: Sequence[Comparison], seeds: Sequence[int]) -> str:
    cells = [one.cell for one in comparisons]
    limits = {cell.limit_rows for cell in cells}
    goals = {cell.goal_ms for cell in cells}
    goal = f", goal {goals.pop():g} ms" if len(goals) == 1 else ""
    return (
        f"{_counted(cells, 'cell')}, {_counted(seeds, 'seed')}, "
        f"at most {'/'.join(map(str, sorted(limits)))} rows a batch{goal}; times in ms"
    )


def _explanation(comparisons: Sequence[Comparison], seeds: Sequence[int]) -> str:
    kinds = []
    if _open(comparisons):
        kinds.append("of latency, where below 1 is better")
    if _closed(comparisons):
        kinds.append("of rows/s, where above 1 is better")
    interval = "; ± half of the 95 % interval" if len(seeds) > 1 else ""
    return f"ratios to {comparisons[0].base}: {', and '.join(kinds)}{interval}"


def _counted(things: Sequence[object], name: str) -> str:
    return plural(len(things), name)


def _full(comparison: Comparison) -> Table:
    """One cell."""
    columns = _CLOSED if comparison.cell.clients is not None else _OPEN
    table = _table(["policy"], columns)
    for result in comparison.results:
        table.add_row(result.policy, *(show(comparison, result) for _, show in columns))
    return table


def _compact(comparisons: Sequence[Comparison], columns: Sequence[Column]) -> Table:
    """Many cells, a row for each policy."""
    table = _table(["cell", "policy"], columns)
    for one in comparisons:
        for result in one.results:
            table.add_row(str(one.cell), result.policy, *(show(one, result) for _, show in columns))
    return table


def _summaries(comparisons: Sequence[Comparison]) -> Iterator[Table]:
    """Means over cells and worst cells, for each kind of traffic: against the base, and against the best."""
    base = comparisons[0].base
    policies = [result.policy for result in comparisons[0].results]
    kinds = (
        (_open(comparisons), "open-loop cells", {"mean": "mean", "p99": "p99"}),
        (_closed(comparisons), "closed-loop cells", {"throughput": "rows/s"}),
    )
    for some, kind, ratios in kinds:
        if some:
            yield _summary(f"over {len(some)} {kind}", some, ratios, [one for one in policies if one != base])
        if some and len(policies) > 2:
            title = "against the best of the others in each cell"
            yield _summary(title, some, {f"{name}_to_best": text for name, text in ratios.items()}, policies)


def _summary(
    title: str, comparisons: Sequence[Comparison], ratios: dict[str, str], policies: Sequence[str]
) -> Table:
    headings = [
        column for name in ratios.values() for column in (f"{name} ratio", f"worst {name}", "in cell")
    ]
    table = plain_table(title, *headings, words=["in cell"])
    for policy in policies:
        figures = (_over_cells(comparisons, policy, name) for name in ratios)
        table.add_row(
            policy,
            *(
                text
                for one in figures
                for text in (
                    _number(one["geometric_mean"], digits=3),
                    _number(one["worst"], digits=3),
                    one["worst_cell"],
                )
            ),
        )
    return table


def _goal_summary(comparisons: Sequence[Comparison]) -> Table:
    """Inside the goal below capacity, and goodput from there on."""
    loads: dict[str, list[Comparison]] = {}
    for one in comparisons:
        share = staggered_share(one.cell, one.cell.rate)
        loads.setdefault("below 1" if share < 1 - 1e-9 else f"{share:.3g}", []).append(one)
    table = plain_table(
        "policy",
        *(heading for load in loads for heading in (f"load {load}", "in goal %")),
    )
    for result in comparisons[0].results:
        figures = []
        for some in loads.values():
            of = [one.of(result.policy) for one in some]
            shares = [
                staggered_share(one.cell, it.average.goodput_per_s) for one, it in zip(some, of, strict=True)
            ]
            inside = [it.average.inside_goal for it in of if not math.isnan(it.average.inside_goal)]
            figures += [f"{fmean(shares):.2f} ({min(shares):.2f})", _percent(fmean(inside or [math.nan]))]
        table.add_row(result.policy, *figures)
    return table


def _over_cells(comparisons: Sequence[Comparison], policy: str, name: str) -> dict[str, Any]:
    """One ratio of one policy: its geometric mean, and the cell where it is worst.

    ``mean_to_best`` and its like relate it to the best of the other policies in each cell.
    """
    kind = name.removesuffix("_to_best")
    best = max if kind == "throughput" else min
    known = {}
    for one in comparisons:
        values = {result.policy: getattr(result, kind).value for result in one.results}
        value = values.pop(policy)
        others = [other for other in values.values() if not math.isnan(other)]
        if name != kind:
            value = value / best(others) if others else math.nan
        if not math.isnan(value):
            known[one.cell] = value
    if not known:
        return {"geometric_mean": math.nan, "worst": math.nan, "worst_cell": _NOTHING}
    worst = (min if kind == "throughput" else max)(known, key=lambda cell: known[cell])
    return {
        "geometric_mean": geometric_mean(known.values()),
        "worst": known[worst],
        "worst_cell": str(worst),
    }


def _table(names: Sequence[str], columns: Sequence[Column]) -> Table:
    return plain_table(*names, *(heading for heading, _ in columns), words=names)


def _cell_figures(comparison: Comparison, seeds: Sequence[int]) -> dict[str, Any]:
    cell = comparison.cell
    return {
        "name": str(cell),
        **asdict(cell),
        "rate_per_s": cell.rate,
        "capacity_per_s": cell.capacity,
        "staggered_per_s": _staggered_or_nan(cell),
        "policies": {
            result.policy: {
                "average": {
                    **asdict(result.average),
                    "shed_share": _shed_share(result),
                },
                "by_seed": [
                    {"seed": seed, **_figures(one)} for seed, one in zip(seeds, result.by_seed, strict=True)
                ],
                "ratios": {name: getattr(result, name)._asdict() for name in ("mean", "p99", "throughput")},
            }
            for result in comparison.results
        },
    }


def _figures(measured: Measured) -> dict[str, float]:
    return {
        **asdict(measured),
        "shed_share": measured.shed_share,
    }


def _summary_figures(comparisons: Sequence[Comparison], policy: str) -> dict[str, Any]:
    return {
        name: {"cells": len(some), **_over_cells(some, policy, name)}
        for some, names in ((_open(comparisons), ("mean", "p99")), (_closed(comparisons), ("throughput",)))
        for kind in names
        for name in (kind, f"{kind}_to_best")
        if some
    }


def _plain(figures: Any) -> Any:
    """JSON knows neither NaN nor infinity."""
    if isinstance(figures, dict):
        return {name: _plain(value) for name, value in figures.items()}
    if isinstance(figures, list | tuple):
        return [_plain(value) for value in figures]
    return None if isinstance(figures, float) and not math.isfinite(figures) else figures


def _number(value: float, *, digits: int) -> str:
    """With so many digits behind the point below 100, fewer above."""
    if not math.isfinite(value):
        return _NOTHING
    return f"{value:.{digits}f}" if value < 100 else f"{value:.{max(0, digits - 2)}f}"


def _times(value: float) -> str:
    return _number(value, digits=2)


def _percent(share: float) -> str:
    """Exactly 0 and 100 only where that is so: of 10 000 requests one counts."""
    if share in (0, 1):
        return f"{share:.0%}"[:-1]
    return _NOTHING if math.isnan(share) else f"{min(max(100 * share, 0.01), 99.99):.2f}"


def _ratio(name: str) -> Callable[[Comparison, Result], str]:
    def show(comparison: Comparison, result: Result) -> str:
        ratio: Ratio = getattr(result, name)
        if result.policy == comparison.base:
            return "base"
        margin = f" ±{_times(ratio.value * ratio.margin)}" if ratio.known else ""
        return f"{_times(ratio.value)}{margin}"

    return show


_FIGURES: tuple[Column, ...] = (
    ("mean", lambda _, result: _number(result.average.mean_ms, digits=2)),
    ("p50", lambda _, result: _number(result.average.p50_ms, digits=2)),
    ("p99", lambda _, result: _number(result.average.p99_ms, digits=2)),
    ("rows/s", lambda _, result: _number(result.average.rows_per_s, digits=1)),
    ("rows/batch", lambda _, result: _number(result.average.batch_rows, digits=1)),
    ("shed %", lambda _, result: _percent(_shed_share(result))),
    ("in goal %", lambda _, result: _percent(result.average.inside_goal)),
)
_OPEN: tuple[Column, ...] = (*_FIGURES, ("mean ratio", _ratio("mean")), ("p99 ratio", _ratio("p99")))
_CLOSED: tuple[Column, ...] = (*_FIGURES, ("rows/s ratio", _ratio("throughput")))
_GOAL: tuple[Column, ...] = (
    ("load", lambda one, _: _times(staggered_share(one.cell, one.cell.rate))),
    ("goodput", lambda one, result: _times(staggered_share(one.cell, result.average.goodput_per_s))),
    *(column for column in _FIGURES if column[0] in ("in goal %", "shed %", "p99", "rows/s", "rows/batch")),
)
