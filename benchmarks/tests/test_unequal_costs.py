"""The figures and tables of benchmarks/unequal_costs.py."""

from __future__ import annotations

import random
from statistics import fmean, pstdev

import pytest

from benchmarks.unequal_costs import COSTS, CostCell, Task, cells_of, figures, ratios_of, run, sheets_of
from uncork_dispatcher.simulator.run import Answered

CELL = CostCell(200, "bimodal", 4, 0.4, 0.0)


@pytest.mark.parametrize(
    ("costs", "variation"),
    [("lognormal 0.5", 0.5), ("lognormal 1", 1.0), ("lognormal 2", 2.0), ("bimodal", 1.6)],
)
def test_costs_have_a_mean_of_100_and_the_stated_variation(costs: str, variation: float) -> None:
    random_ = random.Random(1)
    drawn = [COSTS[costs](random_) for _ in range(50_000)]

    assert fmean(drawn) == pytest.approx(100, rel=0.03)
    assert pstdev(drawn) / fmean(drawn) == pytest.approx(variation, rel=0.1)


def test_figures_count_from_the_end_of_the_warm_up() -> None:
    """100 requests take 1 s, the ten costliest 2 s; the request before takes 9 s, and costs most."""
    answered = [Answered(0.0, 9.0)] + [Answered(i, i + (2.0 if i > 90 else 1.0)) for i in range(1, 101)]
    costs = {0.0: 1e6} | {float(i): float(i) for i in range(1, 101)}

    assert figures(answered, costs, begin=1.0) == pytest.approx((1.1, 2.0, 2.0))


def test_ratios_are_to_release_when_free_of_the_same_seed() -> None:
    seen = {
        Task(CELL, policy, seed, 200): (mean, 1.0, 4.0)
        for policy, seed, mean in [
            ("fixed:0", 1, 1.0),
            ("fixed:0", 2, 2.0),
            ("cork", 1, 4.0),
            ("cork", 2, 2.0),
        ]
    }
    ratios = ratios_of(seen)
    summary, every = sheets_of(ratios, ["cork"])

    assert ratios[CELL]["cork"] == pytest.approx([2.0, 1.0, 1.0])
    assert list(summary.rows[0]) == ["cork", *["2.000"] * 3, *["1.000"] * 6]
    assert list(every.rows[0]) == ["200+n W=4 0.4 bimodal", "2.000", "1.000", "1.000"]


def test_the_load_is_a_share_of_the_capacity() -> None:
    """At 0.1 of it, one request in a batch, latency is about the time of a request: 300 units of 20 µs."""
    idle = CostCell(200, "lognormal 0.5", 8, 0.1, 0.0)
    busy = idle._replace(load=0.9)
    mean_idle, mean_busy = [run(Task(cell, "fixed:0", 1, 800))[0] for cell in (idle, busy)]

    assert mean_idle == pytest.approx(0.006, rel=0.1)
    assert mean_busy > 2 * mean_idle


def test_there_are_cells_for_2_4_and_8_workers() -> None:
    cells = cells_of(0.0)

    assert len(set(cells)) == 72
    assert {cell.workers for cell in cells} == {2, 4, 8}
