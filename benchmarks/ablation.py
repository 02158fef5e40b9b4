"""Measure what each mechanism of the policy `cork` is worth: compare the policy with itself without it.

A variant is a small subclass of the policy. The simulator runs policy and variant in the same cells with the
same seeds, and so with the same arrivals. Each cell has one figure: mean latency in an open loop, time per
answer in a closed loop. The tables show its ratio, variant to policy: above 1, the mechanism is worth
something.

    scripts/bench ablation --processes 2 --markdown ablation.md
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from itertools import product
from statistics import geometric_mean
from typing import Annotated, NamedTuple
from unittest.mock import patch

import typer
from rich.console import Console
from rich.progress import track

from benchmarks import matrices as matrix
from benchmarks.ablation_variants import FULL, MECHANISMS, variant_of
from benchmarks.harness.cli import MarkdownFile, choose, publish
from benchmarks.harness.sheets import Sheet
from uncork_dispatcher.scheduling.ahead import AheadPlanner
from uncork_dispatcher.simulator.cells import Cell, requests_to_measure
from uncork_dispatcher.simulator.compare import ratio
from uncork_dispatcher.simulator.measure import Measured, measure
from uncork_dispatcher.simulator.service import ServiceTime

_FIRST_SEED = 101
_NO_GOAL_MS = 1e6
_UNLIKE_SPEEDS = ((1.0, 3.0), (1.0, 1.0, 1.0, 3.0), (1.0, 1.0, 2.0, 2.0))


@dataclass(frozen=True, kw_only=True)
class UnlikeCell(Cell):
    """A cell whose workers differ: ``speeds`` has a factor on the time of each."""

    speeds: tuple[float, ...]

    @property
    def service(self) -> ServiceTime:
        return replace(super().service, speeds=self.speeds)

    def __str__(self) -> str:
        return f"{super().__str__()} speeds {'/'.join(f'{speed:g}' for speed in self.speeds)}"


def unlike_cells() -> list[Cell]:
    """Return cells in which one worker or half of them is two or three times as slow as the others."""
    cells: list[Cell] = []
    for (intercept, slope), speeds in product(matrix.MODELS, _UNLIKE_SPEEDS):
        cell = UnlikeCell(
            intercept_ms=intercept,
            slope_ms=slope,
            noise_cv=0.1,
            workers=len(speeds),
            speeds=speeds,
            load=0.2,
        )
        cells += [replace(cell, load=load) for load in (0.2, 0.5, 0.8)]
        cells += [replace(cell, load=None, clients=clients, goal_ms=_NO_GOAL_MS) for clients in (16, 64)]
    return cells


def pool_cells() -> list[Cell]:
    """Return cells with independent arrivals that share a pool of connections: they look like returns."""
    cells = matrix.open_cells(arrivals=("poisson",), workers=(1, 2, 4), loads=(0.2, 0.5, 0.8), noises=(0.1,))
    return [replace(cell, sources="pool") for cell in cells]


def transport_cells() -> list[Cell]:
    """Return cells whose workers are 0.5 or 5 ms away, there and back; some with more clients than fit."""
    cells: list[Cell] = []
    for (intercept, slope), workers, noise in product(matrix.MODELS, (1, 4), (0.1, 0.3)):
        near = Cell(
            intercept_ms=intercept,
            slope_ms=slope,
            noise_cv=noise,
            workers=workers,
            load=0.5,
            transport_ms=0.5,
        )
        cells += [near, replace(near, load=0.8)]
        for transport, clients in product((0.5, 5.0), (64, 256)):
            closed = replace(near, load=None, clients=clients * workers, goal_ms=_NO_GOAL_MS)
            cells.append(replace(closed, transport_ms=transport))
    return cells


def turns_cells() -> list[Cell]:
    """Return closed loops in which each request takes the gateway and its client 10 or 25 us."""
    return [
        Cell(
            intercept_ms=intercept,
            slope_ms=slope,
            noise_cv=noise,
            workers=workers,
            clients=clients * workers,
            goal_ms=_NO_GOAL_MS,
            limit_rows=256,
            round_trip_ms=round_trip,
            request_ms=request,
            transport_ms=0.5,
        )
        for (intercept, slope), noise, workers, clients, round_trip, request in product(
            ((0.3, 0.01), (1.0, 0.02), (5.0, 0.1)),
            (0.1, 0.3),
            (1, 2, 4),
            (16, 64, 256),
            (0.3, 3.0),
            (0.01, 0.025),
        )
    ]


MATRICES: dict[str, Callable[[], list[Cell]]] = {
    "count": matrix.count_cells,
    "clients": lambda: matrix.closed_cells(workers=(1, 2, 8), clients=(4, 16, 64)),
    "unlike": unlike_cells,
    "pool": pool_cells,
    "transport": transport_cells,
    "turns": turns_cells,
}


class Task(NamedTuple):
    """One run of a policy in a cell of a matrix."""

    matrix: str
    cell: Cell
    policy: str
    seed: int
    batches: int


Seen = dict[Cell, dict[str, list[Measured]]]
"""Measurements of one matrix by cell and policy, in the order of seeds."""


def tasks_of(
    matrices: Sequence[str], mechanisms: Sequence[str], *, seeds: int, batches: int
) -> Iterator[Task]:
    """Yield the runs: the policy, and each variant where it can differ from the policy."""
    for name in matrices:
        for cell, seed in product(MATRICES[name](), range(_FIRST_SEED, _FIRST_SEED + seeds)):
            yield Task(name, cell, FULL, seed, batches)
            for mechanism in mechanisms:
                if MECHANISMS[mechanism](cell):
                    yield Task(name, cell, variant_of(mechanism), seed, batches)


def run(task: Task) -> Measured:
    """Measure one policy in one cell with one seed."""
    cell = task.cell
    # As many requests as with workers that are alike: the formula covers no others.
    alike = Cell(**{each.name: getattr(cell, each.name) for each in fields(Cell)})
    requests = requests_to_measure(alike, batches=task.batches)
    # No subclass of the policy can do this: the core itself sends batches ahead.
    never_ahead = patch.object(AheadPlanner, "next_at", lambda *_: (math.inf, None))
    with never_ahead if task.policy == variant_of("ahead") else nullcontext():
        return measure(cell, task.policy, task.seed, requests=requests)


def losses(seen: Seen, mechanism: str) -> list[tuple[float, str]]:
    """Return how much worse each cell is without the mechanism, as means over the seeds."""
    found = []
    for cell, by_policy in seen.items():
        full, variant = by_policy[FULL], by_policy.get(variant_of(mechanism), by_policy[FULL])
        loss = ratio([cost(cell, each) for each in variant], [cost(cell, each) for each in full])
        found.append((loss.value, str(cell)))
    return found


def cost(cell: Cell, measured: Measured) -> float:
    """Return the figure of a cell: a time, the shorter the better."""
    return measured.mean_ms if cell.clients is None else 1 / measured.rows_per_s


def sheet_of(name: str, seen: Seen, mechanisms: Iterable[str]) -> Sheet:
    """Return the table of one matrix."""
    rows = []
    for mechanism in mechanisms:
        found = losses(seen, mechanism)
        (worst, cell), mean = max(found), geometric_mean(loss for loss, _ in found)
        rows.append([mechanism, f"{mean:.3f}", f"{worst:.3f}", cell if worst > 1 else ""])
    return Sheet(
        title=f"{name}: {len(seen)} cells, without the mechanism / with it",
        columns=["without", "mean", "worst cell", ""],
        rows=rows,
    )


def main(
    matrices: Annotated[
        str, typer.Option(help=f"Sets of cells, separated by commas: {', '.join(MATRICES)}.")
    ] = ",".join(MATRICES),
    variants: Annotated[
        str, typer.Option(help=f"Mechanisms to leave out, separated by commas: {', '.join(MECHANISMS)}.")
    ] = ",".join(MECHANISMS),
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each cell, with different seeds.")] = 3,
    batches: Annotated[int, typer.Option(min=1, help="Batches per worker to measure, about.")] = 100,
    processes: Annotated[int, typer.Option(min=1, help="Processes that share the runs.")] = 1,
    markdown_file: MarkdownFile = None,
) -> None:
    """Compare the policy cork with itself without each of its mechanisms."""
    chosen = choose(variants, list(MECHANISMS), what="mechanism")
    names = choose(matrices, list(MATRICES), what="matrix")
    tasks = list(tasks_of(names, chosen, seeds=seeds, batches=batches))
    seen: dict[str, Seen] = {name: {} for name in names}
    with ProcessPoolExecutor(processes) as pool:
        found = track(
            pool.map(run, tasks), total=len(tasks), console=Console(stderr=True), description="runs"
        )
        for task, measured in zip(tasks, found, strict=True):
            seen[task.matrix].setdefault(task.cell, {}).setdefault(task.policy, []).append(measured)
    publish([sheet_of(name, seen[name], chosen) for name in names], markdown_file=markdown_file)
