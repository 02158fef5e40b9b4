"""Compare policies in declared sets of simulated cells.

    scripts/bench policies --sets count --policies cork,fixed:0,cork-classic --first-seed 101

All policies get the same arrivals. Latencies are relative to release when free (below 1 is better), rates of
closed loops to the best of the other policies in each cell (above 1 is better), as geometric means over seeds
and cells. Goodput is relative to the capacity of workers that start in turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, geometric_mean
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.harness.cli import MarkdownFile, choose, publish
from benchmarks.harness.sheets import Sheet
from benchmarks.matrices import SETS, staggered_per_s
from uncork_dispatcher.simulator import ALL_POLICIES, RELEASE_WHEN_FREE, Cell, Comparison, Result, run_cells
from uncork_dispatcher.simulator.cells import BATCHES


def main(
    sets: Annotated[
        str, typer.Option(help=f"Sets of cells, separated by commas: {', '.join(SETS)}.")
    ] = "count",
    policies: Annotated[str, typer.Option(help="Policies, separated by commas.")] = ",".join(ALL_POLICIES),
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each cell, with different seeds.")] = 3,
    first_seed: Annotated[int, typer.Option(min=0, help="Seed of the first run.")] = 1,
    batches: Annotated[int, typer.Option(min=1, help="Batches per worker to measure, about.")] = BATCHES,
    processes: Annotated[int, typer.Option(min=1, help="Processes that share the runs.")] = 1,
    markdown_file: MarkdownFile = None,
) -> None:
    """Compare policies in declared sets of simulated cells."""
    chosen = choose(sets, list(SETS), what="set")
    names = [name.strip() for name in policies.split(",")]
    runs = range(first_seed, first_seed + seeds)
    sheets = []
    for name in chosen:
        base = RELEASE_WHEN_FREE if RELEASE_WHEN_FREE in names else names[0]
        with Console(stderr=True).status(name):
            found = run_cells(SETS[name](), names, runs, base=base, batches=batches, processes=processes)
        sheets.append(sheet_of(name, found))
    publish(sheets, markdown_file=markdown_file)


def sheet_of(name: str, comparisons: Sequence[Comparison]) -> Sheet:
    """Return the table of one set: goodput, rates of closed loops, or latencies."""
    if name == "goal":
        return _goodput(name, comparisons)
    if comparisons[0].cell.clients is not None:
        return _ratios(name, comparisons, {"rows/s, relative to the best other": _rate_to_best}, worst=min)
    latencies: dict[str, Callable[[Comparison, Result], float]] = {
        f"mean, relative to {comparisons[0].base}": lambda _, result: result.mean.value,
        f"p99, relative to {comparisons[0].base}": lambda _, result: result.p99.value,
    }
    return _ratios(name, comparisons, latencies, worst=max)


def _ratios(
    name: str,
    comparisons: Sequence[Comparison],
    kinds: dict[str, Callable[[Comparison, Result], float]],
    *,
    worst: Callable[[Iterable[tuple[float, str]]], tuple[float, str]],
) -> Sheet:
    """Tabulate the geometric mean over the cells, and the worst of them, by policy."""
    rows = []
    for policy in (result.policy for result in comparisons[0].results):
        row = [policy]
        for ratio in kinds.values():
            values = [(ratio(one, one.of(policy)), str(one.cell)) for one in comparisons]
            known = [value for value in values if not math.isnan(value[0])]
            found, cell = worst(known) if known else (math.nan, "")
            mean = geometric_mean(value for value, _ in known) if known else math.nan
            row += [f"{mean:.3f}", f"{found:.3f}", cell]
        rows.append(row)
    columns = [column for kind in kinds for column in (kind, "worst", "in cell")]
    return Sheet(title=f"{name}: {len(comparisons)} cells", columns=["policy", *columns], rows=rows)


def _rate_to_best(comparison: Comparison, result: Result) -> float:
    """Return the rate relative to the best of the other policies in the cell, chosen in hindsight."""
    others = [one.throughput.value for one in comparison.results if one is not result]
    return result.throughput.value / max((each for each in others if each > 0), default=math.nan)


def _goodput(name: str, comparisons: Sequence[Comparison]) -> Sheet:
    """Tabulate goodput and the share of requests within the goal, by load in staggered capacities."""
    loads: dict[str, list[Comparison]] = {}
    for one in comparisons:
        load = _staggered_share(one.cell, one.cell.rate)
        loads.setdefault("below 1" if load < 1 - 1e-9 else f"{load:.3g}", []).append(one)
    rows = []
    for policy in (result.policy for result in comparisons[0].results):
        row = [policy]
        for some in loads.values():
            goodput = [_staggered_share(one.cell, one.of(policy).average.goodput_per_s) for one in some]
            inside = fmean(seed.in_goal for one in some for seed in one.of(policy).by_seed)
            row += [f"{fmean(goodput):.2f}", f"{min(goodput):.2f}", f"{inside:.3f}"]
        rows.append(row)
    columns = [column for load in loads for column in (f"load {load}: goodput", "lowest", "in goal")]
    return Sheet(title=f"{name}: {len(comparisons)} cells", columns=["policy", *columns], rows=rows)


def _staggered_share(cell: Cell, per_s: float) -> float:
    return per_s / staggered_per_s(cell)
