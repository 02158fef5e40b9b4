"""The tables of benchmarks/policies.py."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import groupby

import pytest

from benchmarks.matrices import goal_cells, staggered_per_s
from benchmarks.policies import sheet_of
from uncork_dispatcher.simulator import Cell, Comparison, Measured
from uncork_dispatcher.simulator.compare import compared

SOME = Measured(**{each.name: 1.0 for each in fields(Measured)})
OPEN = Cell(intercept_ms=5, slope_ms=0.1, load=0.5)


def comparison(cell: Cell, **measured: Measured) -> Comparison:
    return compared(cell, {policy: [found] for policy, found in measured.items()}, base="base")


def test_latencies_are_relative_to_the_base_and_the_worst_is_the_longest() -> None:
    slow = replace(OPEN, load=0.8)
    seen = [
        comparison(OPEN, base=SOME, cork=replace(SOME, mean_ms=0.5, p99_ms=0.25)),
        comparison(slow, base=SOME, cork=replace(SOME, mean_ms=2.0)),
    ]

    assert sheet_of("open", seen).rows[1] == [
        "cork",
        "1.000",
        "2.000",
        str(slow),
        "0.500",
        "1.000",
        str(slow),
    ]


def test_goals_bind_at_loads_around_the_capacity_of_staggered_workers() -> None:
    for _, group in groupby(goal_cells(), key=lambda cell: (cell.service, cell.workers)):
        same = list(group)
        mark = {1: 0.85, 2: 0.87, 4: 0.90, 8: 0.93}[same[0].workers]

        assert [cell.rate / staggered_per_s(cell) for cell in same] == pytest.approx([mark, 1, 1.2, 2, 4])


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_staggered_workers_wait_for_their_turn(noise: float) -> None:
    """205 ms, half of them waiting: 62.5 rows every 102.5 ms. With 2 workers, full batches of 64."""
    one = Cell(intercept_ms=40, slope_ms=1, noise_cv=noise, goal_ms=205, load=1.0)

    assert staggered_per_s(one) == pytest.approx(62.5 / 0.1025)
    assert staggered_per_s(replace(one, workers=2)) == pytest.approx(2 * 64 / 0.104)
    with pytest.raises(ValueError, match="more than the goal"):
        staggered_per_s(replace(one, goal_ms=40))
