"""Runs of the padded matrix under three dispatchers, and ratios of their figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from statistics import geometric_mean
from typing import Literal, NamedTuple

from benchmarks.padding.cells import EQUAL, all_padded_cells, padded_cells
from uncork_dispatcher.simulator import Cell, Measured, run_cells
from uncork_dispatcher.simulator.compare import ratio
from uncork_dispatcher.simulator.lengths import Known

Dispatcher = Literal["free", "before", "rule"]
"""``free``: release when free that knows the costs of requests alone. ``before``: ``cork`` that does.
``rule``: ``cork`` that also knows their lengths."""
Traffic = Literal["closed", "Poisson", "bursts"]
_FREE, _CORK = "fixed:0", "cork"
# Batches per worker; at least 2,000 requests in any case.
BATCHES = 20
# Below this share of the offered load, answers fall behind and latency depends on the length of the run.
_KEEPS_UP = 0.95


class Finding(NamedTuple):
    """One cell: the measurements of each dispatcher, one for each seed."""

    cell: Cell
    free: Sequence[Measured]
    before: Sequence[Measured]
    rule: Sequence[Measured]

    @property
    def traffic(self) -> Traffic:
        if self.cell.clients is not None:
            return "closed"
        return "Poisson" if self.cell.arrivals == "poisson" else "bursts"

    @property
    def is_equal(self) -> bool:
        """Whether all rows have the same length."""
        return self.cell.lengths == EQUAL

    @property
    def before_keeps_up(self) -> bool:
        """Whether ``before`` answers as many requests as arrive, in an open loop."""
        return all(one.rows_per_s >= _KEEPS_UP * self.cell.rate for one in self.before)

    def ratio(self, figure: str, over: Dispatcher) -> float:
        """Return a figure of ``rule`` over that of another one, the geometric mean over the seeds."""
        ours, theirs = ([getattr(one, figure) for one in each] for each in (self.rule, getattr(self, over)))
        return ratio(ours, theirs).value


class Spread(NamedTuple):
    """A ratio over several cells."""

    mean: float
    """Geometric."""
    worst: float
    worst_cell: Cell

    def __str__(self) -> str:
        return f"{self.mean:.2f} ({self.worst:.2f})"


def spread(findings: Iterable[Finding], figure: str, over: Dispatcher) -> Spread:
    """Return the ratio of a figure over cells; the worst is the lowest throughput, or the highest latency."""
    ratios = {one.cell: one.ratio(figure, over) for one in findings}
    worst = (min if figure == "rows_per_s" else max)(ratios, key=lambda cell: ratios[cell])
    return Spread(geometric_mean(ratios.values()), ratios[worst], worst)


def cells(*, quick: bool) -> list[Cell]:
    """Return the declared matrix, or a few of its cells."""
    if not quick:
        return all_padded_cells()
    some = partial(padded_cells, fixed=(8, 1000), workers=(1,), loads=(0.5,), clients=(64,))
    mixed = ("lognormal:64:1", "bimodal:16:512:0.1")
    return [
        *some(lengths=mixed),
        *some(lengths=mixed, padding=0.0),
        *some(lengths=(EQUAL,), burst_loads=()),
    ]


def find(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    *,
    before_knows: Known = "totals",
    processes: int,
    tell: Callable[[int, int], None],
) -> list[Finding]:
    """Measure all dispatchers in every cell; ``tell`` gets the number of finished runs and of all runs.

    ``before_knows`` is what ``free`` and ``before`` know of lengths.
    """
    runs = 3 * len(cells) * len(seeds)
    before = run_cells(
        [replace(cell, known=before_knows) for cell in cells],
        (_FREE, _CORK),
        seeds,
        batches=BATCHES,
        processes=processes,
        progress=lambda done, _: tell(done, runs),
    )
    after = run_cells(
        cells,
        (_CORK,),
        seeds,
        base=_CORK,
        batches=BATCHES,
        processes=processes,
        progress=lambda done, _: tell(done + 2 * len(cells) * len(seeds), runs),
    )
    return [
        Finding(cell, old.of(_FREE).by_seed, old.of(_CORK).by_seed, new.of(_CORK).by_seed)
        for cell, old, new in zip(cells, before, after, strict=True)
    ]
