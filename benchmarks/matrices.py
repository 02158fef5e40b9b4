"""The declared matrices of cells in which policies are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product

from uncork_dispatcher.simulator.cells import Cell

MODELS = ((1.0, 0.02), (5.0, 0.1), (5.0, 1.0), (40.0, 1.0))
"""Intercept and slope in milliseconds."""
WORKERS = (1, 2, 4, 8)
LOADS = (0.05, 0.2, 0.5, 0.8, 0.95)
NOISES = (0.0, 0.1, 0.3)
ARRIVAL_KINDS = ("poisson", "gamma:2", "gamma:4", "onoff", "step")
CLIENTS = (1, 4, 16, 64, 256)
THINK_MS = (0.0, 5.0)

# In staggered capacities: the rate, by workers, at which 99 % should meet a binding goal; and overloads.
_GOAL_MARKS = {1: 0.85, 2: 0.87, 4: 0.90, 8: 0.93}
_OVERLOADS = (1.0, 1.2, 2.0, 4.0)
# A step of 5x whose average is half the capacity peaks at 0.83 of it; the next load would overflow.
_MOST_STEP_LOAD = 0.5
# So long that nothing is shed or released early: a closed loop measures throughput. With 1 s and 256 clients
# of a slow model, policies with small batches would shed nearly all requests.
_NO_GOAL_MS = 1e6


def open_cells(
    *,
    models: Iterable[tuple[float, float]] = MODELS,
    workers: Iterable[int] = WORKERS,
    loads: Iterable[float] = LOADS,
    arrivals: Iterable[str] = ARRIVAL_KINDS,
    noises: Iterable[float] = NOISES,
) -> list[Cell]:
    """Return the open-loop matrix, or the part of it with these values.

    Step arrivals are included only at loads of up to 0.5: the rate of their second half is 5/3 of the
    average, which exceeds the capacity at 0.8. Recorded arrivals are not part of the matrix.
    """
    return [
        Cell(intercept_ms=intercept, slope_ms=slope, noise_cv=noise, workers=count, load=load, arrivals=kind)
        for (intercept, slope), noise, count, kind, load in product(models, noises, workers, arrivals, loads)
        if kind != "step" or load <= _MOST_STEP_LOAD
    ]


def closed_cells(*, workers: Iterable[int] = WORKERS, clients: Iterable[int] = CLIENTS) -> list[Cell]:
    """Return the closed-loop matrix, or the part of it with these values.

    Noise is 0.1, a round trip takes 0.5 ms, and there is no goal.
    """
    return [
        Cell(
            intercept_ms=intercept,
            slope_ms=slope,
            noise_cv=0.1,
            workers=count,
            goal_ms=_NO_GOAL_MS,
            clients=many,
            think_ms=think,
        )
        for (intercept, slope), count, think, many in product(MODELS, workers, THINK_MS, clients)
    ]


def count_cells() -> list[Cell]:
    """Return the cells where holding matters most: several workers, medium load, a large intercept."""
    models = [model for model in MODELS if model != (5.0, 1.0)]
    return open_cells(
        models=models, workers=(4, 8), loads=(0.2, 0.5, 0.8), arrivals=("poisson",), noises=(0.0, 0.1)
    )


def goal_cells() -> list[Cell]:
    """Return cells with a goal that binds: 5 times the time of one row alone.

    Poisson arrivals at 0.85 / 0.87 / 0.90 / 0.93 (with 1, 2, 4, 8 workers), 1, 1.2, 2 and 4 times the
    capacity of staggered workers within the goal, without noise and with 0.1. See :func:`staggered_per_s`.
    """
    cells = []
    for (intercept, slope), noise, count in product(MODELS, (0.0, 0.1), WORKERS):
        cell = Cell(
            intercept_ms=intercept,
            slope_ms=slope,
            noise_cv=noise,
            workers=count,
            goal_ms=5 * (intercept + slope),
            load=1.0,
        )
        share = staggered_per_s(cell) / cell.capacity
        cells += [replace(cell, load=times * share) for times in (_GOAL_MARKS[count], *_OVERLOADS)]
    return cells


def group_cells() -> list[Cell]:
    """Return open-loop cells of requests in groups that may not share a batch."""
    models = ((20.0, 0.2), (5.0, 0.5))
    return [
        replace(cell, groups=groups)
        for cell in open_cells(
            models=models, workers=(1, 4), loads=(0.05, 0.2, 0.4), arrivals=("poisson",), noises=(0.1,)
        )
        for groups in (2, 8, 64)
    ]


SETS: dict[str, Callable[[], list[Cell]]] = {
    "count": count_cells,
    "open": open_cells,
    "clients": closed_cells,
    "goal": goal_cells,
    "groups": group_cells,
}
"""Declared sets of cells by name."""


def staggered_per_s(cell: Cell) -> float:
    """Return the rows per second that workers starting in turn carry within the goal, without noise.

    ``W * n / s(n)`` with ``n = min(B, (L / (1 + 1/W) - a) / b)``, at least 1: a request waits for the next
    start, ``s(n)/W`` at most, and then for its batch; a row alone does not wait. Source of the staggering:
    Symphony, arXiv 2308.07470.

    Raises:
        ValueError: if one row alone misses the goal.
    """
    service, goal_s, workers = cell.service, cell.goal_ms / 1000, cell.workers
    if service.mean(1) > goal_s:
        raise ValueError(f"one row alone takes {service.mean(1):g} s, more than the goal of {goal_s:g} s")
    turn_s = goal_s * workers / (workers + 1)
    rows = max(1.0, min(cell.limit_rows, service.estimate.rows_within(turn_s, z=0)))
    return workers * rows / service.mean(rows)
