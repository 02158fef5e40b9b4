"""The declared matrix of models whose rows differ in length, and which may pad batches to the longest row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from typing import Any, TypeVar

from uncork_dispatcher.simulator.cells import Cell

T = TypeVar("T")

FIXED = (8, 200, 1000, 4000)
"""The fixed cost of a batch, in units of length."""
UNLIKE = ("lognormal:64:0.5", "lognormal:64:1", "lognormal:64:2", "bimodal:16:512:0.1")
EQUAL = "constant:64"
WORKERS = (1, 2, 4)
LOADS = (0.2, 0.5, 0.8)
BURST_LOADS = (0.5,)
CLIENTS = (16, 64, 128)
_SLOPE_MS = 0.02
_NOISE_CV = 0.1
_LIMIT = 16_384
# Nothing is shed: latency is that of all requests.
_NO_GOAL_MS = 1e6


def padded_cells(
    *,
    padding: float = 1.0,
    lengths: Iterable[str] = UNLIKE,
    fixed: Iterable[int] = FIXED,
    workers: Iterable[int] = WORKERS,
    loads: Iterable[float] = LOADS,
    burst_loads: Iterable[float] = BURST_LOADS,
    clients: Iterable[int] = CLIENTS,
) -> list[Cell]:
    """Return cells with 0.02 ms per unit of length, noise 0.1, batches of up to 16,384 units, and no goal.

    ``padding`` is the share of the padding that takes time. Traffic is Poisson, on/off, or clients.
    """
    traffic: list[dict[str, Any]] = [
        *({"load": load} for load in loads),
        *({"load": load, "arrivals": "onoff"} for load in burst_loads),
        *({"clients": count} for count in clients),
    ]
    return [
        Cell(
            intercept_ms=units * _SLOPE_MS,
            slope_ms=_SLOPE_MS,
            noise_cv=_NOISE_CV,
            workers=count,
            limit_rows=_LIMIT,
            goal_ms=_NO_GOAL_MS,
            lengths=spread,
            padding=padding,
            **each,
        )
        for spread, units, count, each in product(lengths, fixed, workers, traffic)
    ]


def all_padded_cells() -> list[Cell]:
    """Return all cells with padding, some where half or none of it takes time, some of equal lengths."""
    some = UNLIKE[1::2]
    return [
        *padded_cells(),
        *padded_cells(padding=0.5, lengths=some, workers=(1, 4)),
        *padded_cells(padding=0.0, lengths=some, workers=(1, 4)),
        *padded_cells(lengths=(EQUAL,), workers=(1, 4), loads=(0.5,), burst_loads=(), clients=(64,)),
    ]


def in_processes(
    run: Callable[[Cell], T], cells: Sequence[Cell], *, processes: int, tell: Callable[[int, int], None]
) -> list[T]:
    """Run all cells; ``tell`` gets the number of finished cells and of all cells."""
    # Spawned, because a fork would copy the locks of the progress bar's thread.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        pending = [pool.submit(run, cell) for cell in cells]
        for done, _ in enumerate(as_completed(pending), 1):
            tell(done, len(cells))
    return [one.result() for one in pending]
