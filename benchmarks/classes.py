"""Bulk beside requests with a goal, simulated: what each class gets.

    scripts/bench classes --seeds 3
    scripts/bench classes --bulk-rows 256
    scripts/bench classes --busy-gateway

Requests of the first class arrive at random, bulk is a closed loop with 512 rows outstanding, or at least two
requests for each worker. Large requests are divided, as in the gateway. The bound of bulk is what workers
that start in turn could do within the goal, less the rows of the first class.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import groupby, product
from statistics import fmean, geometric_mean
from typing import Annotated, NamedTuple

import typer

from benchmarks.harness.sheets import Sheet, output, show
from benchmarks.matrices import staggered_per_s
from uncork_dispatcher.simulator import Cell, Clients, Scenario, open_loop, simulate

_OUTSTANDING = 512
_FULL = 64
"""The load is the rate divided by the capacity with batches of so many rows."""
_WARM_UP_S, _MEASURED_S = 2.0, 4.0
# What two busy cores take for a batch, and for the response of a row.
_TRANSPORT_MS, _REQUEST_MS = 1.2, 0.025


class Shares(NamedTuple):
    """What the classes get in one cell; averages over the seeds."""

    p50_ms: float
    p99_ms: float
    in_goal: float
    """The share of the first class's requests that were answered within the goal."""
    bulk_per_s: float
    to_bound: float


def main(
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each cell, with different seeds.")] = 1,
    processes: Annotated[int, typer.Option(min=1, help="Processes that share the cells.")] = 1,
    bulk_rows: Annotated[
        float | None,
        typer.Option(min=1, help="Rows of a bulk request; default: 1, or 4 if the fixed part is larger."),
    ] = None,
    busy: Annotated[
        bool, typer.Option("--busy-gateway", help="With transport, and time for responses.")
    ] = False,
) -> None:
    """Print what each class gets in the declared cells."""
    cells = [busy_gateway(cell) if busy else cell for cell in class_cells()]
    with ProcessPoolExecutor(processes) as pool:
        found = list(pool.map(partial(shares, seeds=range(1, seeds + 1), bulk_rows=bulk_rows), cells))
    show(sheet_of(zip(cells, found, strict=True)), console=output(), lines=summary(cells, found))


def class_cells() -> Iterator[Cell]:
    """Yield the declared cells; those whose goal is below three times the fixed part have no room."""
    models = ((20.0, 0.2), (5.0, 0.5), (1.0, 1.0))
    for (intercept, slope), workers, load, goal in product(
        models, (1, 2, 4), (0.2, 0.5, 0.7), (50.0, 100.0, 500.0)
    ):
        cell = Cell(
            intercept_ms=intercept,
            slope_ms=slope,
            noise_cv=0.1,
            workers=workers,
            limit_rows=_FULL,
            goal_ms=goal,
            load=load,
        )
        if goal > 3 * intercept:
            yield cell


def busy_gateway(cell: Cell) -> Cell:
    """Return a cell with about the overhead of a real gateway."""
    return replace(cell, transport_ms=_TRANSPORT_MS, request_ms=_REQUEST_MS)


def shares(
    cell: Cell,
    *,
    seeds: Iterable[int],
    bulk_rows: float | None = None,
    outstanding: float = _OUTSTANDING,
) -> Shares:
    """Measure both classes of one cell.

    A bulk request has ``bulk_rows`` rows, by default one, or four if the fixed part is larger.
    """
    rows = bulk_rows or (1.0 if cell.slope_ms >= cell.intercept_ms else 4.0)
    clients = max(2 * cell.workers, round(outstanding / rows))
    runs = [_run(cell, seed, rows, clients) for seed in seeds]
    return Shares(*map(fmean, zip(*runs, strict=True)))


def _run(cell: Cell, seed: int, bulk_rows: float, clients: int) -> Shares:
    count = round(cell.rate * (_WARM_UP_S + _MEASURED_S))
    times = open_loop("poisson", rate=cell.rate, count=count, random_=random.Random(seed))
    scenario = Scenario(
        service=cell.service,
        arrivals=times,
        workers=cell.workers,
        limit_rows=4 * _FULL,
        goal_s=cell.goal_ms / 1000,
        transport_s=cell.transport_ms / 1000,
        response_s=cell.request_ms / 1000,
        bulk=Clients(count=clients),
        bulk_rows=bulk_rows,
        seed=seed,
    )
    answered = simulate(scenario).answered
    measured_s = times[-1] - _WARM_UP_S
    latencies = sorted(
        [1000 * (one.finish - one.arrival) for one in answered if one.arrival >= _WARM_UP_S and not one.bulk]
    )
    bulk = [one.length for one in answered if one.bulk and _WARM_UP_S <= one.finish <= times[-1]]
    sent = sum(1 for time in times if time >= _WARM_UP_S)
    full = replace(cell, limit_rows=4 * _FULL)
    return Shares(
        latencies[len(latencies) // 2],
        latencies[99 * len(latencies) // 100],
        sum(1 for latency in latencies if latency <= cell.goal_ms) / sent,
        sum(bulk) / measured_s,
        sum(bulk) / measured_s / (staggered_per_s(full) - cell.rate),
    )


def sheet_of(found: Iterable[tuple[Cell, Shares]]) -> Sheet:
    """Return a table with a row for each cell."""
    rows = [
        [
            *(
                f"{cell.intercept_ms:g}+{cell.slope_ms:g}n W={cell.workers}",
                f"{cell.load:g}",
                f"{cell.goal_ms:g}",
            ),
            *(f"{got.p50_ms:.0f}", f"{got.p99_ms:.0f}", f"{got.in_goal:.3f}", f"{got.bulk_per_s:.0f}"),
            f"{got.to_bound:.2f}",
        ]
        for cell, got in found
    ]
    columns = ["model", "load", "goal ms", "p50 ms", "p99 ms", "in goal", "bulk rows/s", "of its bound"]
    return Sheet(title=f"Two classes: {len(rows)} cells", columns=columns, rows=rows)


def summary(cells: Iterable[Cell], found: Iterable[Shares]) -> list[str]:
    """Return the figures over all cells, and the mean share of the bound by the number of workers."""
    pairs = sorted(zip(cells, found, strict=True), key=lambda pair: pair[0].workers)
    got = [one for _, one in pairs]
    by_workers = [
        f"{workers}: {geometric_mean(one.to_bound for _, one in some):.2f}"
        for workers, some in groupby(pairs, key=lambda pair: pair[0].workers)
    ]
    return [
        f"p99 within the goal in {sum(one.p99_ms <= cell.goal_ms for cell, one in pairs)} of {len(got)}",
        f"in goal: at least 0.99 in {sum(one.in_goal >= 0.99 for one in got)}, lowest "
        f"{min(one.in_goal for one in got):.3f}",
        f"bulk, of its bound: {geometric_mean(one.to_bound for one in got):.3f}, lowest "
        f"{min(one.to_bound for one in got):.3f}; by workers {', '.join(by_workers)}",
    ]
