"""Ratios of policies, and how far they can be trusted."""

from __future__ import annotations

import dataclasses
import math
from statistics import fmean

import pytest

from uncork_dispatcher.simulator.cells import Cell
from uncork_dispatcher.simulator.compare import Ratio, compared, ratio, student_t_975
from uncork_dispatcher.simulator.many import run_cells
from uncork_dispatcher.simulator.measure import Measured, measure

CELL = Cell(intercept_ms=5, slope_ms=0.1, noise_cv=0.1, workers=4, load=0.5)
SEEN = Measured(
    mean_ms=10.0,
    p50_ms=9.0,
    p99_ms=30.0,
    long_p99_ms=40.0,
    rows_per_s=100.0,
    goodput_per_s=90.0,
    batch_rows=4.0,
    batches=250.0,
    answered=1000.0,
    shed=0.0,
    inside_goal=0.9,
    utilisation=0.5,
    padding_share=0.1,
)
UNKNOWN = math.nan


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [
        (1, 12.706),
        (2, 4.303),
        (3, 3.182),
        (4, 2.776),
        (5, 2.571),
        (6, 2.447),
        (7, 2.365),
        (8, 2.306),
        (9, 2.262),
        (10, 2.228),
        (19, 2.093),
        (20, 2.086),
        (120, 1.980),
        (10_000, 1.960),
    ],
)
def test_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    """To 0.001, as printed in any textbook."""
    assert student_t_975(freedom) == pytest.approx(quantile, abs=0.001)


def test_its_interval_is_that_of_student() -> None:
    """Logarithms 0.1 to 0.5: mean 0.3, standard deviation 0.15811, t = 2.776 with 4 degrees of freedom."""
    found = ratio([math.exp(log / 10) for log in (3, 1, 5, 2, 4)], [1.0] * 5)

    half = 2.776 * 0.158114 / math.sqrt(5)
    assert found == pytest.approx((math.exp(0.3), math.exp(0.3 - half), math.exp(0.3 + half)), rel=1e-5)
    assert found.margin == pytest.approx(math.exp(half) - 1, rel=1e-5)
    assert found.known


@pytest.mark.parametrize("missing", [math.nan, 0.0, -1.0, math.inf])
def test_a_missing_measurement_leaves_the_ratio_unknown(missing: float) -> None:
    """On either side. It is not left out: seeds under which nobody was answered are the worst ones."""
    for found in (ratio([1.0, missing, 1.0], [1.0] * 3), ratio([1.0] * 3, [1.0, missing, 1.0])):
        assert math.isnan(found.value)
        assert found[1:] == (0.0, math.inf)
        assert not found.known
        assert found.margin == math.inf


def test_one_pair_has_no_interval() -> None:
    """It says nothing about how much pairs differ."""
    found = ratio([3.0], [2.0])

    assert found == Ratio(1.5, 0.0, math.inf)
    assert (found.known, found.margin) == (False, math.inf)


def test_policies_are_compared_seed_by_seed() -> None:
    """Ratios of what each seed showed, and averages over the seeds, in the order of the policies."""
    policies, seeds = ("none", "fixed:0", "cork"), (3, 4, 5)
    [found] = run_cells([CELL], policies, seeds, requests=150)

    assert (found.cell, found.base) == (CELL, "fixed:0")
    assert tuple(result.policy for result in found.results) == policies
    base = found.of("fixed:0").by_seed
    for result in found.results:
        assert result.by_seed == tuple(measure(CELL, result.policy, seed, requests=150) for seed in seeds)
        assert result.average.mean_ms == pytest.approx(fmean(one.mean_ms for one in result.by_seed))
        for name, shown in (
            ("mean_ms", result.mean),
            ("p99_ms", result.p99),
            ("rows_per_s", result.throughput),
        ):
            values = [getattr(one, name) for one in result.by_seed]
            assert shown == ratio(values, [getattr(one, name) for one in base])


def test_every_figure_is_averaged() -> None:
    """Seed by seed; also the goodput, which is not the product of other averages."""
    other = Measured(
        **{name: value + place for place, (name, value) in enumerate(dataclasses.asdict(SEEN).items(), 1)}
    )
    average = compared(CELL, {"cork": [SEEN, other]}, base="cork").results[0].average

    for place, (name, value) in enumerate(dataclasses.asdict(SEEN).items(), 1):
        assert getattr(average, name) == pytest.approx(value + place / 2)


def test_nobody_answered_under_one_policy() -> None:
    """Latencies and their ratios are unknown for it, and for it alone; throughput and goodput are not."""
    nobody = dataclasses.replace(
        SEEN, mean_ms=UNKNOWN, p50_ms=UNKNOWN, p99_ms=UNKNOWN, inside_goal=UNKNOWN, answered=0.0, shed=1000.0
    )
    seen = {"fixed:0": [SEEN, SEEN], "cork": [SEEN, SEEN], "none": [SEEN, nobody]}
    found = compared(CELL, seen, base="fixed:0")

    assert found.of("cork").mean == (1.0, 1.0, 1.0)
    assert not found.of("none").mean.known
    assert math.isnan(found.of("none").average.mean_ms)
    assert found.of("none").throughput == (1.0, 1.0, 1.0)
    assert found.of("none").average.goodput_per_s == 90.0
    assert found.of("none").average.shed_share == 0.5


def test_a_policy_that_was_not_measured_has_no_result() -> None:
    with pytest.raises(KeyError, match="aimd"):
        compared(CELL, {"cork": [SEEN]}, base="cork").of("aimd")
