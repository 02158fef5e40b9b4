"""``uncork simulate``: policies side by side in virtual time, as a table, as JSON or as a picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from uncork.cli.errors import complain
from uncork.cli.loadtest import traffic_options as options
from uncork.cli.simulate.plots import draw
from uncork.cli.simulate.scenarios import (
    LOADS,
    closed_cells,
    matrix_cells,
    open_cells,
    policy_names,
    whole_traces,
)
from uncork.cli.simulate.tables import as_json, tables
from uncork.cli.terminal import INTERRUPTED, show, write_json
from uncork.cli.usage import PICTURES, WrongUsage, given, refusals, require_picture, require_writable
from uncork_dispatcher.simulator import (
    ALL_POLICIES,
    ARRIVALS,
    MATRICES,
    RELEASE_WHEN_FREE,
    Cell,
    Comparison,
    run_cells,
)
from uncork_loadtests.traffic.plan import REPLAY

# What describes one cell, and therefore goes neither with a matrix nor with the other kind of traffic.
_OF_OPEN = {"load": "--load", "arrivals": "--arrivals"}
_OF_CLOSED = {"clients": "--clients", "round_trip_ms": "--round-trip-ms", "think_ms": "--think-ms"}
_OF_A_CELL = {
    "intercept_ms": "--intercept-ms",
    "slope_ms": "--slope-ms",
    "noise": "--noise",
    "workers": "--workers",
    "goal_ms": "--goal-ms",
    "max_batch_size": "--max-batch-size",
    **_OF_OPEN,
    **_OF_CLOSED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What is to be simulated, checked."""

    cells: list[Cell]
    policies: list[str]
    seeds: range
    requests: int | None
    processes: int
    matrix: str | None
    json: str | None
    plot: Path | None

    @property
    def base(self) -> str:
        """The policy that the others are related to."""
        return RELEASE_WHEN_FREE if RELEASE_WHEN_FREE in self.policies else self.policies[0]


def simulate(
    context: typer.Context,
    intercept_ms: Annotated[
        float, typer.Option(help="What a batch costs whatever its size, in milliseconds.")
    ] = 5.0,
    slope_ms: Annotated[float, typer.Option(help="What each row adds, in milliseconds.")] = 0.1,
    noise: Annotated[float, typer.Option(help="Coefficient of variation of batch times.")] = 0.1,
    workers: Annotated[int, typer.Option(min=1, help="Workers.")] = 1,
    max_batch_size: Annotated[int, typer.Option(min=1, help="Most rows in a batch.")] = 64,
    goal_ms: Annotated[float, typer.Option(help="Latency goal in milliseconds.")] = 1000.0,
    load: Annotated[
        str | None,
        typer.Option(
            metavar="SHARES",
            help="Open loop: average rate as a share of what full batches carry; several with commas.",
            show_default=f"{LOADS}; the recorded rate with {REPLAY}",
        ),
    ] = None,
    arrivals: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help=f"Open loop: {', '.join(ARRIVALS)}. A recorded file has seconds, one a line; with --load it "
            "is stretched to that rate.",
        ),
    ] = "poisson",
    clients: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help="Closed loop instead: clients that each wait for their answer; several with commas.",
            show_default="open loop",
        ),
    ] = None,
    round_trip_ms: Annotated[
        float, typer.Option(help="Closed loop: from an answer to the next request, in milliseconds.")
    ] = 0.5,
    think_ms: Annotated[
        float, typer.Option(help="Closed loop: what a client takes in between, in milliseconds.")
    ] = 0.0,
    matrix: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"A declared set of cells instead: {', '.join(MATRICES)}.",
            show_default="one model",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Policies, as for serve; several with commas, or the option again. fixed:0 is release when "
            f"free, to which the others are related. all: {', '.join(ALL_POLICIES)}.",
            show_default="all",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs with different seeds; intervals need 2.")] = 3,
    first_seed: Annotated[int, typer.Option(min=0, help="Seed of the first; the others follow.")] = 1,
    requests: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Requests measured in each run, after a warm-up.",
            show_default="about 300 batches per worker",
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes to run on.", show_default="one per core")
    ] = None,
    json: options.Json = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw latency against load, throughput against clients or the panels of a matrix; the name "
            f"ends in {', '.join(PICTURES)}.",
        ),
    ] = None,
) -> None:
    """Compare policies in a simulation: one model at several loads, or a whole matrix of cells.

    Batches of n rows take intercept + slope * n. The core and the policies are those of the gateway; time
    is virtual.
    """
    model = {
        "intercept_ms": intercept_ms,
        "slope_ms": slope_ms,
        "noise_cv": noise,
        "workers": workers,
        "limit_rows": max_batch_size,
        "goal_ms": goal_ms,
    }
    with refusals("simulate"):
        _refuse_contradictions(given(context))
        if matrix is not None:
            cells = matrix_cells(matrix)
        elif clients is not None:
            cells = closed_cells(model, clients, round_trip_ms=round_trip_ms, think_ms=think_ms)
        else:
            cells = open_cells(model, load, arrivals)
        job = _Job(
            cells=cells,
            policies=policy_names(policy or ["all"], limit_rows=max_batch_size),
            seeds=range(first_seed, first_seed + seeds),
            requests=requests if requests is not None else whole_traces(cells),
            processes=processes or os.cpu_count() or 1,
            matrix=matrix,
            json=json,
            plot=plot,
        )
        require_picture(plot)
        require_writable({"--plot": plot, "--json": json})
    raise typer.Exit(_run(job))


def _refuse_contradictions(given: set[str]) -> None:
    def named(options: dict[str, str]) -> str:
        return ", ".join(option for name, option in options.items() if name in given)

    if "matrix" in given and named(_OF_A_CELL):
        raise WrongUsage(f"--matrix says what its cells are: leave out {named(_OF_A_CELL)}, or --matrix")
    if "clients" in given and named(_OF_OPEN):
        raise WrongUsage(f"--clients makes a closed loop: leave out {named(_OF_OPEN)}, or --clients")
    if "clients" not in given and named(_OF_CLOSED):
        raise WrongUsage(f"{named(_OF_CLOSED)} only goes with --clients, which makes a closed loop")


def _run(job: _Job) -> int:
    """Simulate, show and write; returns the exit code."""
    try:
        comparisons = _simulate(job)
        code = _write(job, comparisons)
        if job.json != "-":
            show(tables(comparisons, seeds=job.seeds, matrix=job.matrix))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenProcessPool:
        typer.echo("uncork simulate: one of the processes was killed, perhaps for its memory", err=True)
        return 1
    return code


def _simulate(job: _Job) -> list[Comparison]:
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


def _write(job: _Job, comparisons: Sequence[Comparison]) -> int:
    """Files come before the table, which may go to a reader that leaves early; returns the exit code."""
    try:
        if job.plot is not None:
            draw(comparisons, job.plot, matrix=job.matrix)
        if job.json is not None:
            text = as_json(comparisons, seeds=job.seeds, requests=job.requests, matrix=job.matrix)
            write_json(job.json, text.encode())
    except OSError as error:
        complain("simulate", error)
        return 1
    return 0
