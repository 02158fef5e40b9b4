"""Compare the number of workers that the autoscaler wants with the least that simulation finds to be enough.

``scripts/bench scaling`` runs it; it prints docs/results/scaling.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from benchmarks.harness.cli import JsonFile, write_json
from benchmarks.harness.report import ResultPage
from benchmarks.harness.sheets import Sheet
from benchmarks.scale.least_workers import MOST_WORKERS, Finding, draw_cells, find

PAGE = ResultPage(
    title="Workers wanted against workers needed",
    introduction="""
        Whether the number of workers that the autoscaler computes is the least that keeps 99 % of the
        requests within their goal. For the formula and the conclusions, see
        [scaling](../explanation/scaling.md).
    """,
    script="scripts/bench scaling",
)
_PARAGRAPHS = (
    """
    A cell has a model whose batches of n rows take a + b n ms with log-normal noise, a goal, a limit of rows
    in a batch, and a rate of requests of one row. Cells are drawn from declared values with a seed; the
    formula was found with cells and arrivals of other seeds. In each cell, one request alone fits into the
    goal, and 40 workers with the largest batches carry the rate.
    """,
    """
    * *Least* is found by bisection: the policy `cork` runs in the simulator, which learns everything inside
      the run. A quarter of the requests is warm-up; shed and late requests are misses.
    * *Wanted* is `workers_needed` for the true model and the average rate, with the dispersion of the
      arrivals as the autoscaler measures it. The autoscaler adds 20 % to the rate.
    * *In goal* is the share of the requests answered within the goal with the wanted number of workers.
    * *Busy* is the share of the workers' time that batches take, and *requests per worker* the mean number
      queued or running, both with the least number.
    """,
)
_DEFAULT_CELLS = 60
_DEFAULT_SEED = "proof"
_FIRST_SEED = 201


def main(
    cells: Annotated[int, typer.Option(min=1, help="Cells to draw.")] = _DEFAULT_CELLS,
    seed: Annotated[str, typer.Option(help="Seed of the cells.")] = _DEFAULT_SEED,
    runs: Annotated[int, typer.Option(min=1, help="Simulations of each cell and number of workers.")] = 2,
    processes: Annotated[int, typer.Option(min=1, help="Processes that share the cells.")] = 2,
    json_file: JsonFile = None,
    output: Annotated[Path | None, typer.Option(help="Write the page to this file.")] = None,
) -> None:
    """Compare the number of workers wanted with the least that is enough."""
    drawn = draw_cells(cells, seed=seed)
    with ProcessPoolExecutor(processes) as pool:
        found = pool.map(find, drawn, repeat(range(_FIRST_SEED, _FIRST_SEED + runs)))
        progress = Console(stderr=True)
        findings = [each for each in track(found, total=cells, console=progress, description="cells") if each]
    left_out = f"{cells - len(findings)} of {cells} cells left out: {MOST_WORKERS} workers are not enough"
    text = PAGE.text(
        paragraphs=_PARAGRAPHS, sheets=[summary_sheet(findings, note=left_out), *cells_sheets(findings)]
    )
    if output is None:
        print(text, end="")
    else:
        output.write_text(text)
    if json_file is not None:
        write_json([{**each._asdict(), "cell": str(each.cell)} for each in findings], json_file)


def summary_sheet(findings: Sequence[Finding], *, note: str) -> Sheet:
    """Summarise all cells, those with single arrivals at random, and those with bursts."""
    poisson = [each for each in findings if each.cell.arrivals == "poisson"]
    bursts = [each for each in findings if each.cell.arrivals != "poisson"]
    groups = {"all": findings, "Poisson": poisson, "bursts": bursts}
    several = [each for each in findings if each.least > 1]
    notes = [note]
    if several:
        busy = _range(100 * each.with_least.utilisation for each in several)
        requests = _range(each.with_least.outstanding / each.least for each in several)
        notes.append(
            f"with the least number of workers, where it is above 1: workers busy {busy} % of the time, "
            f"{requests} requests per worker"
        )
    return Sheet(
        title="Summary",
        columns=[
            "arrivals",
            "cells",
            "exact",
            "within one worker",
            "too few by more than one",
            "most too few",
            "most too many",
            "lowest in goal",
        ],
        rows=[_summary(name, group) for name, group in groups.items() if group],
        notes=notes,
    )


def _range(values: Iterable[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[0]:.3g} to {ordered[-1]:.3g}"


def _summary(name: str, findings: Sequence[Finding]) -> list[str]:
    excess = [each.excess for each in findings]
    count = len(findings)
    return [
        name,
        str(count),
        f"{sum(each == 0 for each in excess) / count:.0%}",
        f"{sum(abs(each) <= 1 for each in excess) / count:.0%}",
        str(sum(each < -1 for each in excess)),
        str(max(0, -min(excess))),
        str(max(0, *excess)),
        f"{min(each.with_wanted.in_goal for each in findings):.1%}",
    ]


def cells_sheets(findings: Sequence[Finding]) -> list[Sheet]:
    """Tabulate the cells that are off by more than one worker, and then the others."""
    ordered = sorted(findings, key=lambda each: (each.excess, each.least, str(each.cell)))
    off = [each for each in ordered if abs(each.excess) > 1]
    others = [each for each in ordered if abs(each.excess) <= 1]
    sheets = [_cells_sheet("Off by more than one worker", off)] if off else []
    return [*sheets, _cells_sheet("Within one worker", others)]


def _cells_sheet(title: str, findings: Sequence[Finding]) -> Sheet:
    return Sheet(
        title=title,
        columns=["cell", "least", "wanted", "in goal", "busy", "requests per worker"],
        rows=[
            [
                str(each.cell),
                str(each.least),
                str(each.wanted),
                f"{each.with_wanted.in_goal:.1%}",
                f"{each.with_least.utilisation:.0%}",
                f"{each.with_least.outstanding / each.least:.1f}",
            ]
            for each in findings
        ],
    )


if __name__ == "__main__":
    typer.run(main)
