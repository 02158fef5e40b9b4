"""Runs in which the dispatcher has to find out lengths: from body bytes without a cost, and by truncation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.harness.marks import Bound, at_least
from benchmarks.padding.cells import UNLIKE, padded_cells
from benchmarks.padding.findings import Finding, find
from uncork_dispatcher.simulator import Cell
from uncork_dispatcher.simulator.lengths import Known

# Most rows of a mean length of 64 are longer than either.
_TRUNCATED_AT, _ALL_ALIKE_AT = 48.0, 4.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the dispatcher finds out, and without which knowledge it is compared."""

    name: str
    known: Known = "bytes"
    before_knows: Known = "nothing"
    padding: float = 1.0
    truncated_at: float = math.inf
    bound: Bound

    def has(self, cell: Cell) -> bool:
        """Whether a cell belongs to the case."""
        of = (cell.known, cell.padding, cell.truncated_at)
        return of == (self.known, self.padding, self.truncated_at)

    def cells(self, *, quick: bool) -> list[Cell]:
        """Return the cells of the case, as the dispatcher that finds it out knows them."""
        some = partial(padded_cells, fixed=(8, 1000), workers=(1,), loads=(), burst_loads=(), clients=(64,))
        all_ = partial(padded_cells, workers=(1, 4), loads=(0.5,), burst_loads=(), clients=(16, 64))
        cells = (some if quick else all_)(lengths=UNLIKE[1::2], padding=self.padding)
        return [replace(cell, known=self.known, truncated_at=self.truncated_at) for cell in cells]


CASES = (
    Case(name="body bytes over rows, padded", bound=at_least(1.5)),
    Case(name="body bytes over rows, no padding", padding=0.0, bound=at_least(0.96)),
    Case(
        name="body bytes over rows, lengths make no difference",
        truncated_at=_ALL_ALIKE_AT,
        bound=at_least(0.99),
    ),
    Case(
        name="costs over cork before, padded and truncated",
        known="costs",
        before_knows="totals",
        truncated_at=_TRUNCATED_AT,
        bound=at_least(1.0),
    ),
)


def find_unstated(
    seeds: Sequence[int], *, quick: bool, processes: int, tell: Callable[[int, int], None]
) -> list[Finding]:
    """Measure all cases."""
    found: list[Finding] = []
    for number, case in enumerate(CASES):

        def tell_of_all(done: int, of: int, cases_before: int = number) -> None:
            tell(cases_before * of + done, len(CASES) * of)

        found += find(
            case.cells(quick=quick),
            seeds,
            before_knows=case.before_knows,
            processes=processes,
            tell=tell_of_all,
        )
    return found
