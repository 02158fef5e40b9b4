"""Tables of simulated comparisons."""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from rich.console import RenderableType
from rich.table import Table

from uncork.cli.simulate.figures import (
    closed_loops,
    in_goal,
    open_loops,
    over_cells,
    shed_share,
    staggered_share,
)
from uncork.cli.terminal import NOTHING, percent, plain_table
from uncork_dispatcher.simulator import Comparison, Ratio, Result
from uncork_dispatcher.wording import plural

_MOST_IN_FULL = 12
"""Up to this number of cells each gets its own table; more share one, with a summary."""

Column = tuple[str, Callable[[Comparison, Result], str]]


def tables(
    comparisons: Sequence[Comparison], *, seeds: Sequence[int], matrix: str | None
) -> Iterator[RenderableType]:
    """Yield the parts to print, one below the other."""
    yield _heading(comparisons, seeds)
    if matrix == "goal":
        yield "load and goodput are relative to the capacity of staggered workers within the goal"
        yield ""
        yield _compact(comparisons, _GOAL)
        yield ""
        yield "mean goodput (lowest in parentheses) over all models and workers, by load"
        yield _goal_summary(comparisons)
        return
    yield _explanation(comparisons, seeds)
    if len(comparisons) <= _MOST_IN_FULL:
        for one in comparisons:
            yield ""
            yield str(one.cell)
            yield _full(one)
        return
    for some, columns in ((open_loops(comparisons), _OPEN), (closed_loops(comparisons), _CLOSED)):
        if some:
            yield ""
            yield _compact(some, _with_lengths(columns, some))
    for table in _summaries(comparisons):
        yield ""
        yield table


def _heading(comparisons: Sequence[Comparison], seeds: Sequence[int]) -> str:
    cells = [one.cell for one in comparisons]
    limits = {cell.limit_rows for cell in cells}
    goals = {cell.goal_ms for cell in cells}
    goal = f", goal {goals.pop():g} ms" if len(goals) == 1 else ""
    rows = "units of length" if _have_lengths(comparisons) else "rows"
    return (
        f"{plural(len(cells), 'cell')}, {plural(len(seeds), 'seed')}, "
        f"at most {'/'.join(map(str, sorted(limits)))} {rows} per batch{goal}; times in ms"
    )


def _explanation(comparisons: Sequence[Comparison], seeds: Sequence[int]) -> str:
    kinds = []
    if open_loops(comparisons):
        kinds.append("latency (below 1 is better)")
    if closed_loops(comparisons):
        kinds.append("rows/s (above 1 is better)")
    interval = "; ± is half the 95 % interval" if len(seeds) > 1 else ""
    return f"ratios to {comparisons[0].base}: {' and '.join(kinds)}{interval}"


def _full(comparison: Comparison) -> Table:
    columns = _with_lengths(_CLOSED if comparison.cell.clients is not None else _OPEN, [comparison])
    table = _table(["policy"], columns)
    for result in comparison.results:
        table.add_row(result.policy, *(show(comparison, result) for _, show in columns))
    return table


def _compact(comparisons: Sequence[Comparison], columns: Sequence[Column]) -> Table:
    table = _table(["cell", "policy"], columns)
    for one in comparisons:
        for result in one.results:
            table.add_row(str(one.cell), result.policy, *(show(one, result) for _, show in columns))
    return table


def _have_lengths(comparisons: Sequence[Comparison]) -> bool:
    return any(one.cell.lengths is not None for one in comparisons)


def _with_lengths(columns: Sequence[Column], comparisons: Sequence[Comparison]) -> Sequence[Column]:
    """Return the columns, with those about lengths if any cell has lengths."""
    if _have_lengths(comparisons):
        return columns
    return [column for column in columns if column not in _OF_LENGTHS]


def _table(names: Sequence[str], columns: Sequence[Column]) -> Table:
    return plain_table(*names, *(heading for heading, _ in columns), words=names)


def _summaries(comparisons: Sequence[Comparison]) -> Iterator[Table]:
    """Yield means over cells and worst cells for each kind of traffic: against the base, and the best."""
    base = comparisons[0].base
    policies = [result.policy for result in comparisons[0].results]
    kinds = (
        (open_loops(comparisons), "open-loop cells", {"mean": "mean", "p99": "p99"}),
        (closed_loops(comparisons), "closed-loop cells", {"throughput": "rows/s"}),
    )
    for some, kind, ratios in kinds:
        if some:
            yield _summary(f"over {len(some)} {kind}", some, ratios, [one for one in policies if one != base])
        if some and len(policies) > 2:
            title = "relative to the best other policy in each cell"
            yield _summary(title, some, {f"{name}_to_best": text for name, text in ratios.items()}, policies)


def _summary(
    title: str, comparisons: Sequence[Comparison], ratios: dict[str, str], policies: Sequence[str]
) -> Table:
    headings = [
        column for name in ratios.values() for column in (f"{name} ratio", f"worst {name}", "in cell")
    ]
    table = plain_table(title, *headings, words=["in cell"])
    for policy in policies:
        cells: list[str] = []
        for name in ratios:
            one = over_cells(comparisons, policy, name)
            cells += [_number(one["geometric_mean"], 3), _number(one["worst"], 3), one["worst_cell"]]
        table.add_row(policy, *cells)
    return table


def _goal_summary(comparisons: Sequence[Comparison]) -> Table:
    """Summarise the matrix of goals by load: goodput, and the share of requests within the goal."""
    loads: dict[str, list[Comparison]] = {}
    for one in comparisons:
        share = staggered_share(one.cell, one.cell.rate)
        loads.setdefault("below 1" if share < 1 - 1e-9 else f"{share:.3g}", []).append(one)
    headings = [heading for load in loads for heading in (f"load {load}", "in goal %")]
    table = plain_table("policy", *headings)
    for result in comparisons[0].results:
        cells: list[str] = []
        for some in loads.values():
            shares = []
            inside = []
            for one in some:
                found = one.of(result.policy)
                shares.append(staggered_share(one.cell, found.average.goodput_per_s))
                if not math.isnan(in_goal(found)):
                    inside.append(in_goal(found))
            cells += [f"{fmean(shares):.2f} ({min(shares):.2f})", percent(fmean(inside or [math.nan]))]
        table.add_row(result.policy, *cells)
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
)
_OPEN: tuple[Column, ...] = (*_FIGURES, ("mean ratio", _ratio("mean")), ("p99 ratio", _ratio("p99")))
_CLOSED: tuple[Column, ...] = (*_FIGURES, ("rows/s ratio", _ratio("throughput")))
_GOAL: tuple[Column, ...] = (
    ("load", lambda one, _: _number(staggered_share(one.cell, one.cell.rate))),
    ("goodput", lambda one, result: _number(staggered_share(one.cell, result.average.goodput_per_s))),
    *(column for column in _FIGURES if column[0] in ("in goal %", "shed %", "p99", "rows/s", "rows/batch")),
)
