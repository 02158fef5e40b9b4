"""Simulated comparisons as tables and as JSON."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from uncork.cli.terminal import NOTHING, as_document, percent, plain_table
from uncork_dispatcher.simulator import Comparison, Ratio, Result
from uncork_dispatcher.wording import plural

Column = tuple[str, Callable[[Comparison, Result], str]]


def tables(comparisons: Sequence[Comparison], *, seeds: Sequence[int]) -> Iterator[RenderableType]:
    yield _heading(comparisons, seeds)
    yield _explanation(comparisons, seeds)
    for one in comparisons:
        yield ""
        yield str(one.cell)
        yield _table(one)


def _heading(comparisons: Sequence[Comparison], seeds: Sequence[int]) -> str:
    cell = comparisons[0].cell
    rows = "rows" if cell.lengths is None else "units of length"
    return (
        f"{plural(len(comparisons), 'cell')}, {plural(len(seeds), 'seed')}, "
        f"at most {cell.limit_rows} {rows} per batch, goal {cell.goal_ms:g} ms; times in ms"
    )


def _explanation(comparisons: Sequence[Comparison], seeds: Sequence[int]) -> str:
    closed = comparisons[0].cell.clients is not None
    kind = "rows/s (above 1 is better)" if closed else "latency (below 1 is better)"
    interval = "; ± is half the 95 % interval" if len(seeds) > 1 else ""
    return f"ratios to {comparisons[0].base}: {kind}{interval}"


def _table(comparison: Comparison) -> Table:
    columns = _CLOSED if comparison.cell.clients is not None else _OPEN
    if comparison.cell.lengths is None:
        columns = tuple(column for column in columns if column not in _OF_LENGTHS)
    if not comparison.cell.bulk_clients:
        columns = tuple(column for column in columns if column is not _BULK)
    table = plain_table("policy", *(heading for heading, _ in columns), words=["policy"])
    for result in comparison.results:
        table.add_row(result.policy, *(show(comparison, result) for _, show in columns))
    return table


def _number(value: float, digits: int = 2) -> str:
    """Format with so many decimals below 100, fewer above."""
    if not math.isfinite(value):
        return NOTHING
    return f"{value:.{digits}f}" if value < 100 else f"{value:.{max(0, digits - 2)}f}"


def _ratio(name: str) -> Callable[[Comparison, Result], str]:
    def show(comparison: Comparison, result: Result) -> str:
        ratio: Ratio = getattr(result, name)
        if result.policy == comparison.base:
            return "base"
        margin = f" ±{_number(ratio.value * ratio.margin)}" if ratio.known else ""
        return f"{_number(ratio.value)}{margin}"

    return show


_LONG_P99: Column = ("long p99", lambda _, result: _number(result.average.long_p99_ms))
_PADDING: Column = ("padding %", lambda _, result: percent(result.average.padding_share))
_BULK: Column = ("bulk rows/s", lambda _, result: _number(result.average.bulk_per_s, 1))
_OF_LENGTHS = (_LONG_P99, _PADDING)
_FIGURES: tuple[Column, ...] = (
    ("mean", lambda _, result: _number(result.average.mean_ms)),
    ("p50", lambda _, result: _number(result.average.p50_ms)),
    ("p99", lambda _, result: _number(result.average.p99_ms)),
    _LONG_P99,
    ("rows/s", lambda _, result: _number(result.average.rows_per_s, 1)),
    ("rows/batch", lambda _, result: _number(result.average.batch_rows, 1)),
    _PADDING,
    ("shed %", lambda _, result: percent(shed_share(result))),
    ("in goal %", lambda _, result: percent(in_goal(result))),
    _BULK,
)
_OPEN: tuple[Column, ...] = (*_FIGURES, ("mean ratio", _ratio("mean")), ("p99 ratio", _ratio("p99")))
_CLOSED: tuple[Column, ...] = (*_FIGURES, ("rows/s ratio", _ratio("throughput")))


def as_json(comparisons: Sequence[Comparison], *, seeds: Sequence[int], requests: int | None) -> bytes:
    """Encode all figures; unknown ones are null.

    ``requests`` is the number asked for in each run; null lets each cell choose.
    """
    policies = [result.policy for result in comparisons[0].results]
    return as_document(
        {
            "base": comparisons[0].base,
            "policies": policies,
            "seeds": list(seeds),
            "requests": requests,
            "cells": [_cell_figures(one, seeds) for one in comparisons],
        }
    )


def shed_share(result: Result) -> float:
    return fmean(one.shed_share for one in result.by_seed)


def in_goal(result: Result) -> float:
    """Return the share of all requests, shed ones included, that were answered within the goal."""
    return fmean(one.in_goal for one in result.by_seed)


def _cell_figures(comparison: Comparison, seeds: Sequence[int]) -> dict[str, Any]:
    cell = comparison.cell
    return {
        "name": str(cell),
        **asdict(cell),
        "rate_per_s": cell.rate,
        "capacity_per_s": cell.capacity,
        "policies": {
            result.policy: {
                "average": {
                    **asdict(result.average),
                    "shed_share": shed_share(result),
                    "in_goal": in_goal(result),
                },
                "by_seed": [
                    {"seed": seed, **asdict(one), "shed_share": one.shed_share, "in_goal": one.in_goal}
                    for seed, one in zip(seeds, result.by_seed, strict=True)
                ],
                "ratios": {name: getattr(result, name)._asdict() for name in ("mean", "p99", "throughput")},
            }
            for result in comparison.results
        },
    }
