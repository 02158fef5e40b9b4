"""Overload with rows of different lengths: answers within the goal, against those of a closed loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from benchmarks.padding.cells import in_processes, padded_cells
from uncork_dispatcher.simulator import Cell, Measured, measure

GOAL_MS = 300.0
_TIMES = (1, 2, 4, 8)
# Measured after a quarter of that as warm-up, whichever is longer.
_SECONDS = 5.0
_REQUESTS = 3_000
_CLIENTS_PER_WORKER = (4, 8, 16, 32, 64)
_POLICY = "cork"
_SEED = 101


@dataclass(frozen=True, kw_only=True)
class OfferedCell(Cell):
    """A cell whose load is a rate: ``per_s`` rows per second."""

    per_s: float

    @property
    def rate(self) -> float:
        return self.per_s


class Overload(NamedTuple):
    """One cell under overload: ``times`` the ``carried`` rows per second of its closed loop."""

    cell: Cell
    carried: float
    times: float
    before: Measured
    rule: Measured

    @property
    def goodput(self) -> float:
        """Answers within the goal, by those that the closed loop carries."""
        return self.rule.goodput_per_s / self.carried

    @property
    def goodput_before(self) -> float:
        return self.before.goodput_per_s / self.carried


def overloads(*, quick: bool, processes: int, tell: Callable[[int, int], None]) -> list[Overload]:
    """Measure all cells, or a few of them; ``tell`` gets the number of finished cells and of all cells."""
    cells = overload_cells(fixed=(200,), workers=(1,)) if quick else overload_cells()
    return [*chain.from_iterable(in_processes(overload, cells, processes=processes, tell=tell))]


def overload_cells(
    *, fixed: Iterable[int] = (8, 200, 1000, 4000), workers: Iterable[int] = (1, 4)
) -> list[Cell]:
    """Return one closed-loop cell for each model, number of workers and distribution of lengths."""
    return padded_cells(
        lengths=("lognormal:64:1", "bimodal:16:512:0.1"),
        fixed=fixed,
        workers=workers,
        loads=(),
        burst_loads=(),
        clients=(1,),
    )


def overload(cell: Cell, times: Sequence[float] = _TIMES, requests: int = _REQUESTS) -> list[Overload]:
    """Measure a cell at several times what its closed loop carries."""
    carried = carries(cell)
    found = []
    for factor in times:
        offered = OfferedCell(
            intercept_ms=cell.intercept_ms,
            slope_ms=cell.slope_ms,
            noise_cv=cell.noise_cv,
            workers=cell.workers,
            limit_rows=cell.limit_rows,
            lengths=cell.lengths,
            goal_ms=GOAL_MS,
            load=1.0,
            per_s=factor * carried,
        )
        count = max(requests, round(offered.per_s * _SECONDS))
        before, rule = (
            measure(replace(offered, known=known), _POLICY, _SEED, requests=count)
            for known in ("totals", "costs")
        )
        found.append(Overload(cell, carried, factor, before, rule))
    return found


def carries(cell: Cell) -> float:
    """Return the most answers per second of a closed loop whose p99 is within the goal.

    The closed loops have 4 to 64 clients per worker and no goal, so that nothing is shed.
    """
    loops = (
        measure(replace(cell, clients=cell.workers * each), _POLICY, _SEED, batches=40)
        for each in _CLIENTS_PER_WORKER
    )
    return max(one.rows_per_s for one in loops if one.p99_ms <= GOAL_MS)
