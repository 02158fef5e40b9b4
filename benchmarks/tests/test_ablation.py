"""Variants of the policy, their cells, and the tables of benchmarks/ablation.py."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from benchmarks.ablation import Task, UnlikeCell, run, sheet_of
from benchmarks.ablation_variants import MECHANISMS, variant_of
from uncork_dispatcher.simulator.cells import Cell
from uncork_dispatcher.simulator.measure import Measured

OPEN = Cell(intercept_ms=5, slope_ms=1, noise_cv=0.1, workers=4, load=0.5)
SCARCE = replace(OPEN, load=0.8)
UNLIKE = UnlikeCell(intercept_ms=5, slope_ms=0.1, workers=2, load=0.5, speeds=(1.0, 3.0))
CLOSED = replace(OPEN, load=None, clients=16, think_ms=5, goal_ms=1e6)
ALONE = Cell(intercept_ms=1, slope_ms=0.02, noise_cv=0.1, clients=8, goal_ms=1e6)
POOL = Cell(intercept_ms=5, slope_ms=1, noise_cv=0.1, load=0.5, sources="pool")
CELLS = (
    OPEN,
    SCARCE,
    UNLIKE,
    CLOSED,
    ALONE,
    POOL,
    replace(ALONE, clients=128, transport_ms=5),
    replace(ALONE, clients=64, request_ms=0.03),
    replace(POOL, workers=4),
    replace(OPEN, workers=1),
)


def measured(policy: str, cell: Cell) -> Measured:
    return run(Task("any", cell, policy, seed=1, batches=1))


@pytest.fixture(scope="module")
def full() -> dict[Cell, Measured]:
    return {cell: measured("cork", cell) for cell in CELLS}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_changes_some_cell(mechanism: str, full: dict[Cell, Measured]) -> None:
    variant = variant_of(mechanism)
    cells = [cell for cell in CELLS if MECHANISMS[mechanism](cell)]

    assert any(measured(variant, cell) != full[cell] for cell in cells)


@pytest.mark.long_run
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_cells_in_which_a_mechanism_has_no_effect_are_left_out(
    mechanism: str, full: dict[Cell, Measured]
) -> None:
    """The declaration is true: every decision is the same there."""
    for cell in CELLS:
        if not MECHANISMS[mechanism](cell):
            assert measured(variant_of(mechanism), cell) == full[cell]


SOME = Measured(**{each.name: 1.0 for each in fields(Measured)})


@pytest.mark.parametrize(("name", "cell", "loss"), [("open", OPEN, "1.500"), ("clients", CLOSED, "2.000")])
def test_the_figure_is_latency_or_time_per_answer(name: str, cell: Cell, loss: str) -> None:
    without = replace(SOME, mean_ms=1.5, rows_per_s=0.5)
    seen = {cell: {"cork": [SOME], variant_of("share"): [without]}}
    (row,) = sheet_of(name, seen, ["share"]).rows

    assert row == ["share", loss, loss, str(cell)]
