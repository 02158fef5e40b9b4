"""Compare batches whose members are chosen by length with batches in order of arrival, in simulations.

``scripts/bench padding`` runs it; it prints benchmarks/results/padding.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from benchmarks.harness.cli import exit_with, publish
from benchmarks.harness.report import ResultPage
from benchmarks.harness.sheets import output as standard_output
from benchmarks.harness.sheets import show
from benchmarks.padding.cold import cold_cells, cold_marks, cold_sheet, cold_starts
from benchmarks.padding.findings import cells, find
from benchmarks.padding.overload import overloads
from benchmarks.padding.rivals import find_rivals, rival_cells, rival_sheets
from benchmarks.padding.tables import marks, marks_sheet, overload_sheet, traffic_sheets, unstated_sheet
from benchmarks.padding.unstated import find_unstated
from uncork_workers.cores import usable_cores

PAGE = ResultPage(
    title="Padded batches",
    introduction="""
        What it is worth to choose the requests of a batch by their lengths, for models that pad a batch to
        its longest row, and what it costs where models do not. For the rule, see
        [the dispatcher](../../docs/explanation/dispatcher.md#padded-batches).
    """,
    script="scripts/bench padding",
)
_PARAGRAPHS = (
    """
    All figures are simulated: the dispatcher is the gateway's, time is virtual, and everything is learned in
    the run, of which the first fifth is not measured. A request is one row. In the cell
    `4+0.02n lognormal:64:1 padding 1`, batches take 4 ms and 0.02 ms per unit of length, with log-normal
    noise of 10 %. Lengths have a mean of 64 and a coefficient of variation of 1, and a batch has the length
    rows x longest row. With padding 0.5, half of the padding takes time. A batch has at most 16,384 units.
    """,
    """
    * *Before* is the policy `cork` that knows the cost of each request, but not that it is one row of that
      length: it adds costs up, and takes requests by deadline alone. *fixed:0* is release when free with the
      same knowledge. All other figures are of `cork` with the rule, divided by one of these.
    * Ratios are geometric means over the cells, with the worst cell in parentheses: the lowest throughput,
      the highest latency. All dispatchers get the same arrivals and lengths.
    * *Long p99* is the 99th percentile of the latency of the longest tenth of the requests.
    * *Load* is a share of the most that batches in order of arrival can carry, at their best size. Beyond a
      certain queue, padding makes larger batches carry less: the queue then grows without end, and ratios
      depend on the length of the run. *Where cork before keeps up* leaves these cells out: it has the cells
      in which at least 95 % of the offered requests are answered.
    * *Padding* is the mean share of the work that was padding.
    """,
    """
    Overload has a goal of 300 ms. The rate is a multiple of what a closed loop with the rule carries: the
    most with 4 to 64 clients per worker and a p99 within the goal. *Goodput* is the answers within the goal,
    divided by that. Short requests are easier to answer in time, so goodput can exceed 1.
    """,
    """
    The last table has what the dispatcher finds out by itself. *Body bytes over rows*: an API without a cost
    whose bodies have about as many bytes as the length (a coefficient of variation of 0.2), over the same API
    whose bodies say nothing. *Truncated*: rows longer than 48 take as long as those of 48.
    """,
)
_FIRST_SEED = 101


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Run a few cells only; a minute.")] = False,
    cold: Annotated[
        bool, typer.Option("--cold", help="Measure only the first seconds of a fresh gateway; no page.")
    ] = False,
    rivals: Annotated[
        bool, typer.Option("--rivals", help="Compare only with other rules for who shares a batch; no page.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each cell, with different seeds.")] = 1,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes that share the runs.", show_default="one per core")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the page or the tables to this file.")] = None,
) -> None:
    """Compare batches chosen by length with batches in order of arrival; exit with 1 at a missed mark."""
    progress = Console(stderr=True)
    processes = processes or usable_cores()
    chosen, first = cells(quick=quick), _FIRST_SEED
    if rivals:
        with _telling("other rules", progress) as tell:
            found_rivals = find_rivals(
                rival_cells(quick=quick), range(first, first + seeds), processes=processes, tell=tell
            )
        return publish(rival_sheets(found_rivals), markdown_file=output)
    if cold:
        with _telling("cold starts", progress) as tell:
            starts = cold_starts(
                cold_cells(quick=quick), range(first, first + seeds), processes=processes, tell=tell
            )
        cold_found = cold_marks(starts)
        for sheet in (marks_sheet(cold_found), cold_sheet(starts)):
            show(sheet, console=standard_output())
        exit_with([str(mark) for mark in cold_found if not mark.is_met], progress=progress)
    with _telling("runs", progress) as tell:
        findings = find(chosen, range(first, first + seeds), processes=processes, tell=tell)
    with _telling("overload", progress) as tell:
        under_overload = overloads(quick=quick, processes=processes, tell=tell)
    with _telling("lengths that the dispatcher finds out", progress) as tell:
        unstated = find_unstated(range(first, first + seeds), quick=quick, processes=processes, tell=tell)
    found = marks(findings, under_overload, unstated)
    page = PAGE.text(
        paragraphs=_PARAGRAPHS,
        sheets=[
            marks_sheet(found),
            *traffic_sheets(findings),
            overload_sheet(under_overload),
            unstated_sheet(unstated),
        ],
    )
    if output is None:
        print(page, end="")
    else:
        output.write_text(page)
    exit_with([str(mark) for mark in found if not mark.is_met], progress=progress)


@contextmanager
def _telling(what: str, console: Console) -> Iterator[Callable[[int, int], None]]:
    """Show progress on a terminal."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda done, of: progress.update(bar, completed=done, total=of)
