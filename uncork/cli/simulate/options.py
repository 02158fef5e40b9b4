"""The options of ``uncork simulate``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from uncork.cli.loadtest.measuring import PICTURES, require_picture
from uncork.cli.loadtest.traffic_options import JsonFile
from uncork.cli.simulate.scenarios import (
    LOADS,
    closed_cells,
    matrix_cells,
    open_cells,
    policy_names,
    whole_traces,
)
from uncork.cli.usage import require_writable
from uncork.config.errors import WrongUsage
from uncork_dispatcher.simulator import ALL_POLICIES, ARRIVALS, MATRICES, RELEASE_WHEN_FREE, Cell
from uncork_loadtests.plan import REPLAY
from uncork_workers.supervision.cores import usable_cores

_OF_OPEN = {"load": "--load", "arrivals": "--arrivals"}
_OF_CLOSED = {"clients": "--clients", "round_trip_ms": "--round-trip-ms", "think_ms": "--think-ms"}
# These describe one cell; a matrix declares its own.
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
class Job:
    """A simulation whose options have been checked."""

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
        """The policy to which the others are related."""
        return RELEASE_WHEN_FREE if RELEASE_WHEN_FREE in self.policies else self.policies[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """The options of ``uncork simulate``; ``given`` names those that are on the command line."""

    intercept_ms: Annotated[
        float, typer.Option(help="What a batch costs whatever its size, in milliseconds.")
    ] = 5.0
    slope_ms: Annotated[float, typer.Option(help="What each row adds, in milliseconds.")] = 0.1
    noise: Annotated[float, typer.Option(help="Coefficient of variation of batch times.")] = 0.1
    workers: Annotated[int, typer.Option(min=1, help="Workers.")] = 1
    max_batch_size: Annotated[int, typer.Option(min=1, help="Most rows in a batch.")] = 64
    goal_ms: Annotated[float, typer.Option(help="Latency goal in milliseconds.")] = 1000.0
    load: Annotated[
        str | None,
        typer.Option(
            metavar="SHARES",
            help="Open loop: average rate as a share of what full batches carry; several with commas.",
            show_default=f"{LOADS}; the recorded rate with {REPLAY}",
        ),
    ] = None
    arrivals: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help=f"Open loop: {', '.join(ARRIVALS)}. A recorded file has seconds, one a line; with --load it "
            "is stretched to that rate.",
        ),
    ] = "poisson"
    clients: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help="Closed loop instead: clients that each wait for their answer; several with commas.",
            show_default="open loop",
        ),
    ] = None
    round_trip_ms: Annotated[
        float, typer.Option(help="Closed loop: from an answer to the next request, in milliseconds.")
    ] = 0.5
    think_ms: Annotated[
        float, typer.Option(help="Closed loop: what a client takes in between, in milliseconds.")
    ] = 0.0
    matrix: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"A declared set of cells instead: {', '.join(MATRICES)}.",
            show_default="one model",
        ),
    ] = None
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Policies, as for serve; several with commas, or the option again. fixed:0 is release when "
            f"free, to which the others are related. all: {', '.join(ALL_POLICIES)}.",
            show_default="all",
        ),
    ] = None
    seeds: Annotated[int, typer.Option(min=1, help="Runs with different seeds; intervals need 2.")] = 3
    first_seed: Annotated[int, typer.Option(min=0, help="Seed of the first; the others follow.")] = 1
    requests: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Requests measured in each run, after a warm-up.",
            show_default="about 300 batches per worker",
        ),
    ] = None
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes to run on.", show_default="one per core")
    ] = None
    json: JsonFile = None
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw latency against load, throughput against clients or the panels of a matrix; the name "
            f"ends in {', '.join(PICTURES)}.",
        ),
    ] = None
    given: frozenset[str] = frozenset()

    def job(self) -> Job:
        """Check the options and return what they describe.

        Raises:
            WrongUsage: if they contradict each other, or a value is wrong.
        """
        self._refuse_contradictions()
        cells = self._cells()
        job = Job(
            cells=cells,
            policies=policy_names(self.policy or ["all"], limit_rows=self.max_batch_size),
            seeds=range(self.first_seed, self.first_seed + self.seeds),
            requests=self.requests if self.requests is not None else whole_traces(cells),
            processes=self.processes or usable_cores(),
            matrix=self.matrix,
            json=self.json,
            plot=self.plot,
        )
        require_picture(self.plot)
        require_writable({"--plot": self.plot, "--json": self.json})
        return job

    def _cells(self) -> list[Cell]:
        if self.matrix is not None:
            return matrix_cells(self.matrix)
        model = {
            "intercept_ms": self.intercept_ms,
            "slope_ms": self.slope_ms,
            "noise_cv": self.noise,
            "workers": self.workers,
            "limit_rows": self.max_batch_size,
            "goal_ms": self.goal_ms,
        }
        if self.clients is None:
            return open_cells(model, self.load, self.arrivals)
        return closed_cells(model, self.clients, round_trip_ms=self.round_trip_ms, think_ms=self.think_ms)

    def _refuse_contradictions(self) -> None:
        def named(options: dict[str, str]) -> str:
            return ", ".join(option for name, option in options.items() if name in self.given)

        if "matrix" in self.given and (wrong := named(_OF_A_CELL)):
            raise WrongUsage(f"--matrix says what its cells are: leave out {wrong}, or --matrix")
        if "clients" in self.given and (wrong := named(_OF_OPEN)):
            raise WrongUsage(f"--clients makes a closed loop: leave out {wrong}, or --clients")
        if "clients" not in self.given and (wrong := named(_OF_CLOSED)):
            raise WrongUsage(f"{wrong} only goes with --clients, which makes a closed loop")
