"""Cold starts: answers in each second since a fresh gateway got its first request, against one by one.

``scripts/bench padding --cold`` runs it, and ``docs/pictures/simulations.py`` draws some of the cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import NamedTuple

from benchmarks.harness.marks import at_least
from benchmarks.harness.sheets import Sheet
from benchmarks.padding.cells import FIXED, in_processes, padded_cells
from benchmarks.padding.tables import TRUTHS, Mark
from uncork_dispatcher.simulator import Cell, Clients, Scenario, simulate

SECONDS = 6
"""The seconds that are measured. In the first, everything may be learned."""
_LENGTHS = ("lognormal:64:1", "bimodal:16:512:0.1")
_CORK, _ONE_BY_ONE = "cork", "none"
# More requests than the seconds take.
_ENOUGH = 1.5


class ColdStart(NamedTuple):
    """The answers in each second of one cell, averages over the seeds.

    ``sums`` is ``cork`` that knows the costs of requests alone: it has nothing to find out where the sum of
    the costs counts.
    """

    cell: Cell
    cork: Sequence[float]
    one_by_one: Sequence[float]
    sums: Sequence[float]

    @property
    def worst(self) -> float:
        """The lowest ratio of ``cork`` to one by one in any second but the first."""
        return min(ours / theirs for ours, theirs in zip(self.cork[1:], self.one_by_one[1:], strict=True))

    @property
    def kept(self) -> float:
        """The answers of ``cork`` in all seconds, divided by the answers of ``sums``."""
        return sum(self.cork) / sum(self.sums)


def cold_cells(*, quick: bool) -> list[Cell]:
    """Return the declared cells, or a few of them."""
    return [
        cell
        for padding in TRUTHS
        for cell in padded_cells(
            padding=padding,
            lengths=_LENGTHS[:1] if quick else _LENGTHS,
            fixed=(200,) if quick else FIXED,
            workers=(1,) if quick else (1, 2),
            loads=(),
            burst_loads=(),
            clients=(64,) if quick else (16, 64),
        )
    ]


def cold_starts(
    cells: Sequence[Cell], seeds: Iterable[int], *, processes: int, tell: Callable[[int, int], None]
) -> list[ColdStart]:
    """Measure cells; ``tell`` gets the number of finished cells and of all cells."""
    return in_processes(partial(cold_start, seeds=list(seeds)), cells, processes=processes, tell=tell)


def cold_start(cell: Cell, seeds: Sequence[int]) -> ColdStart:
    """Measure one cell."""
    sums = answers(replace(cell, known="totals"), _CORK, seeds)
    return ColdStart(cell, answers(cell, _CORK, seeds), answers(cell, _ONE_BY_ONE, seeds), sums)


def answers(cell: Cell, policy: str, seeds: Iterable[int]) -> list[float]:
    """Return the answers in each second, averages over the seeds."""
    runs = [_answers(cell, policy, seed) for seed in seeds]
    return [fmean(second) for second in zip(*runs, strict=True)]


def _answers(cell: Cell, policy: str, seed: int) -> list[int]:
    """Return the answers in each second of a run."""
    assert cell.row_lengths is not None
    assert cell.clients is not None
    per_s = cell.rate
    if policy == _ONE_BY_ONE:
        per_s = min(per_s, cell.workers / cell.service.mean(cell.row_lengths.mean))
    run = simulate(
        Scenario(
            service=cell.service,
            arrivals=Clients(count=cell.clients, round_trip_s=cell.round_trip_ms / 1000),
            workers=cell.workers,
            limit_rows=cell.limit_rows,
            goal_s=cell.goal_ms / 1000,
            policy=policy,
            requests=cell.clients + math.ceil(_ENOUGH * per_s * SECONDS),
            lengths=cell.row_lengths.draw,
            known=cell.known,
            seed=seed,
        )
    )
    answers = [0] * SECONDS
    for one in run.answered:
        if one.finish < SECONDS:
            answers[int(one.finish)] += 1
    return answers


def cold_marks(found: Sequence[ColdStart]) -> list[Mark]:
    """Return one mark for the worst cell of each truth."""
    result = []
    for padding, truth in TRUTHS.items():
        some = [one for one in found if one.cell.padding == padding]
        worst = min(some, key=lambda one: one.worst)
        result.append(
            Mark(f"{truth}: answers in a second / one by one", worst.worst, at_least(0.95), str(worst.cell))
        )
    least = min([one for one in found if not one.cell.padding], key=lambda one: one.kept)
    name = f"no padding: answers in {SECONDS} s / cork that knows sums"
    return [*result, Mark(name, least.kept, at_least(0.99), str(least.cell))]


def cold_sheet(found: Iterable[ColdStart]) -> Sheet:
    """Tabulate the answers in each second."""
    return Sheet(
        title=f"Answers in each of the first {SECONDS} seconds: cork, one by one",
        columns=["cell", *[f"{second + 1}" for second in range(SECONDS)], "worst ratio"],
        rows=[
            [
                str(one.cell),
                *[f"{ours:.0f}, {theirs:.0f}" for ours, theirs in zip(one.cork, one.one_by_one, strict=True)],
                f"{one.worst:.2f}",
            ]
            for one in found
        ],
    )
