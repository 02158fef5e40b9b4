"""``uncork simulate``."""

from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from uncork.cli.command import takes_plain_options
from uncork.cli.simulate.options import Job, SimulateOptions
from uncork.cli.simulate.plots import draw
from uncork.cli.simulate.tables import as_json, tables
from uncork.cli.terminal import INTERRUPTED, print_error, show, write_files
from uncork.cli.usage import refusals
from uncork_dispatcher.simulator import Comparison, run_cells


@takes_plain_options
def simulate(options: SimulateOptions) -> None:
    """Compare policies in a simulation of one model at several loads.

    A batch of n rows takes intercept + slope * n; with --lengths, n is the total length of its rows, or
    rows * longest row. The dispatcher and its policies are those of the gateway; time is virtual.
    """
    with refusals("simulate"):
        job = options.job()
    try:
        comparisons = _simulate(job)
        code = _write(options, job, comparisons)
        if options.json != "-":
            show(tables(comparisons, seeds=job.seeds))
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenProcessPool:
        print_error(
            "simulate", "a simulation process was killed, perhaps for lack of memory; try fewer --processes"
        )
        code = 1
    raise typer.Exit(code)


def _write(options: SimulateOptions, job: Job, comparisons: Sequence[Comparison]) -> int:
    figures = partial(as_json, comparisons, seeds=job.seeds, requests=job.requests)
    pictures = []
    if options.plot is not None:
        pictures.append(partial(draw, comparisons, options.plot))
    return write_files("simulate", options.json, figures, *pictures)


def _simulate(job: Job) -> list[Comparison]:
    console = Console(stderr=True)
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=None)
        return run_cells(
            job.cells,
            job.policies,
            job.seeds,
            base=job.base,
            requests=job.requests,
            processes=job.processes,
            progress=lambda done, of: progress.update(bar, completed=done, total=of),
        )
