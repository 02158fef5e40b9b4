"""Padded batches: ratios, marks and tables."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields, replace

import pytest

from benchmarks.padding.cells import EQUAL, padded_cells
from benchmarks.padding.cold import SECONDS, ColdStart, cold_cells, cold_marks, cold_sheet, cold_start
from benchmarks.padding.findings import Finding, cells, find, spread
from benchmarks.padding.overload import GOAL_MS, Overload, overload, overload_cells
from benchmarks.padding.tables import (
    Mark,
    marks,
    overload_sheet,
)
from benchmarks.padding.unstated import CASES
from uncork_dispatcher.simulator import Measured

CLOSED, OTHER = padded_cells(
    lengths=("lognormal:64:1",), fixed=(200,), workers=(1, 2), loads=(), burst_loads=(), clients=(16,)
)
OPEN = replace(CLOSED, clients=None, load=0.5)
SOME = Measured(**{each.name: 1.0 for each in fields(Measured)})


def finding(cell: object = CLOSED, **figures: float) -> Finding:
    """A cell in which the rule has these figures, and the others have 1."""
    return Finding(cell, [SOME], [SOME], [replace(SOME, **figures)])  # type: ignore[arg-type]


def whole(**figures: float) -> list[Finding]:
    """One finding for every mark; the rule has these figures in all of them, except with equal lengths."""
    found = [
        finding(cell, **figures)
        for cell in (CLOSED, OPEN, replace(OPEN, arrivals="onoff"), replace(CLOSED, padding=0.0))
    ]
    return [*found, finding(replace(CLOSED, lengths=EQUAL))]


def overloaded(goodput_per_s: float = 95.0, inside_goal: float = 0.99) -> Overload:
    rule = replace(SOME, goodput_per_s=goodput_per_s, inside_goal=inside_goal)
    return Overload(CLOSED, 100.0, 2.0, replace(SOME, goodput_per_s=50.0), rule)


def found_out(rows_per_s: float = 1.6) -> list[Finding]:
    """One finding for each case of lengths that the dispatcher finds out."""
    return [finding(case.cells(quick=True)[0], rows_per_s=rows_per_s) for case in CASES]


def missed(found: Iterable[Mark]) -> list[str]:
    return [mark.name for mark in found if not mark.is_met]


# Ratios


def test_ratios_are_geometric_and_paired_by_seed() -> None:
    two = Finding(
        CLOSED,
        [SOME, replace(SOME, p99_ms=2.0)],
        [replace(SOME, p99_ms=4.0), replace(SOME, p99_ms=4.0)],
        [SOME, replace(SOME, p99_ms=8.0)],
    )

    assert two.ratio("p99_ms", "free") == pytest.approx(2.0)
    assert two.ratio("p99_ms", "before") == pytest.approx((1 / 4 * 8 / 4) ** 0.5)


def test_the_worst_cell_has_the_lowest_throughput_or_the_highest_latency() -> None:
    found = [finding(CLOSED, rows_per_s=4.0, p99_ms=4.0), finding(OTHER, rows_per_s=0.25, p99_ms=0.25)]

    throughput, p99 = spread(found, "rows_per_s", "free"), spread(found, "p99_ms", "free")

    assert throughput[:2] == pytest.approx((1.0, 0.25))
    assert p99[:2] == pytest.approx((1.0, 4.0))
    assert (throughput.worst_cell, p99.worst_cell) == (OTHER, CLOSED)
    assert str(spread(found, "p99_ms", "free")) == "1.00 (4.00)"


def test_a_cell_keeps_up_that_answers_as_many_as_arrive() -> None:
    rate = OPEN.rate

    for share, keeps_up in ((0.94, False), (0.96, True)):
        before = [replace(SOME, rows_per_s=share * rate)]
        assert Finding(OPEN, [SOME], before, [SOME]).before_keeps_up is keeps_up


# Marks


def test_each_case_of_lengths_that_nobody_states_has_its_mark() -> None:
    good = whole(rows_per_s=2.1, p99_ms=0.6, long_p99_ms=0.7)
    for rows_per_s in (1.4, 0.97, 0.95):
        names = missed(marks(good, [overloaded()], found_out(rows_per_s)))
        below = [case.name for case in CASES if not case.bound.holds(rows_per_s)]
        assert names == [f"{name}, closed: requests/s, mean" for name in below]


def test_cells_of_a_case_belong_to_it_alone() -> None:
    for case in CASES:
        for cell in case.cells(quick=False):
            assert [each for each in CASES if each.has(cell)] == [case]


def test_all_marks_are_met() -> None:
    found = marks(whole(rows_per_s=2.1, p99_ms=0.6, long_p99_ms=0.7), [overloaded()], found_out())

    assert missed(found) == []
    assert len(found) == 2 + 2 * 4 + 2 + len(CASES) + 2


@pytest.mark.parametrize(
    ("figures", "names"),
    [
        ({"rows_per_s": 1.9}, ["padded, closed: requests/s over cork before, mean"]),
        (
            {"rows_per_s": 0.95},
            [
                "padded, closed: requests/s over cork before, mean",
                "padded, closed: requests/s over fixed:0, worst cell",
                "no padding, closed: requests/s over cork before, mean",
            ],
        ),
        (
            {"p99_ms": 0.71},
            [f"padded, {traffic}: p99 over cork before, mean" for traffic in ("Poisson", "bursts")],
        ),
        (
            {"long_p99_ms": 1.3},
            [
                f"padded, {traffic}: long p99 over cork before, {what}"
                for traffic in ("Poisson", "bursts")
                for what in ("mean", "worst cell")
            ],
        ),
    ],
)
def test_marks_are_missed(figures: dict[str, float], names: list[str]) -> None:
    good = {"rows_per_s": 2.1, "p99_ms": 0.6, "long_p99_ms": 0.7}

    assert missed(marks(whole(**good | figures), [overloaded()], found_out())) == names


def test_equal_lengths_must_be_identical_in_every_figure() -> None:
    found = whole(rows_per_s=2.1, p99_ms=0.6, long_p99_ms=0.7)
    found[-1] = finding(replace(CLOSED, lengths=EQUAL), p50_ms=1.0 + 1e-12)

    assert missed(marks(found, [overloaded()], found_out())) == ["equal lengths: cells that differ"]


def test_the_worst_overload_decides() -> None:
    found = whole(rows_per_s=2.1, p99_ms=0.6, long_p99_ms=0.7)
    goodput, inside = (
        "overload: goodput over the closed loop's, worst cell",
        "overload: answers within the goal",
    )

    assert missed(marks(found, [overloaded(), overloaded(goodput_per_s=89)], found_out())) == [goodput]
    assert missed(marks(found, [overloaded(inside_goal=0.96)], found_out())) == [f"{inside}, worst cell"]
    assert missed(marks(found, [overloaded(inside_goal=math.nan)], found_out())) == [f"{inside}, worst cell"]


# Tables


def test_overload_is_related_to_the_closed_loop() -> None:
    (row,) = overload_sheet([overloaded()]).rows

    assert row == ["4+0.02n lognormal:64:1 W=1 2 times", "100", "0.95", "99.0%", "0.50", "100.0%"]


# Cold starts


def cold(padding: float = 1.0, *, last: float = 100.0, sums: float = 100.0) -> ColdStart:
    """A cold start that is slow in its first second, with this many answers in the last."""
    cork = [10.0, *[100.0] * (SECONDS - 2), last]
    return ColdStart(replace(CLOSED, padding=padding), cork, [100.0] * SECONDS, [sums] * SECONDS)


def test_every_second_but_the_first_counts() -> None:
    assert (cold().worst, cold(last=80).worst) == (1.0, 0.8)
    assert cold(last=90, sums=50).kept == pytest.approx(500 / 300)


@pytest.mark.parametrize(
    ("slow", "names"),
    [
        (cold(last=94), ["padded: answers in a second / one by one"]),
        (cold(0.5, last=94), ["half of the padding takes time: answers in a second / one by one"]),
        (cold(0.0, sums=90), ["no padding: answers in 6 s / cork that knows sums"]),
        (cold(1.0, sums=200), []),
    ],
)
def test_the_worst_cold_start_of_each_truth_decides(slow: ColdStart, names: list[str]) -> None:
    good = [cold(1.0), cold(0.5), cold(0.0, sums=80)]
    assert missed(cold_marks([*good, slow])) == names


def test_a_row_has_the_answers_of_both_in_each_second() -> None:
    (row,) = cold_sheet([cold(last=80)]).rows
    assert row[1:] == ["10, 100", *["100, 100"] * (SECONDS - 2), "80, 100", "0.80"]


def test_all_truths_start_cold() -> None:
    assert {cell.padding for cell in cold_cells(quick=True)} == {1.0, 0.5, 0.0}
    assert set(cold_cells(quick=True)) < set(cold_cells(quick=False))


def test_one_by_one_answers_steadily() -> None:
    found = cold_start(replace(CLOSED, intercept_ms=80.0), [1])
    assert all(9 <= answers <= 13 for answers in found.one_by_one)
    assert min(found.cork[1:]) > 5 * max(found.one_by_one)


# Runs


def test_the_quick_cells_show_every_mark() -> None:
    quick = cells(quick=True)

    assert {cell.padding for cell in quick} == {0.0, 1.0}
    assert {cell.arrivals for cell in quick} == {"poisson", "onoff"}
    assert any(cell.lengths == EQUAL for cell in quick)
    assert set(quick) < set(cells(quick=False))


def test_only_the_rule_knows_lengths() -> None:
    told: list[tuple[int, int]] = []
    (found,) = find([CLOSED], [1], processes=1, tell=lambda done, of: told.append((done, of)))

    assert told == [(1, 3), (2, 3), (3, 3)]
    assert found.rule[0].padding_share < 0.3 < 0.5 < found.before[0].padding_share
    assert found.ratio("rows_per_s", "before") > 1.5
    assert found.ratio("rows_per_s", "free") > 1.5


def test_overload_is_several_times_what_a_closed_loop_carries() -> None:
    (cell,) = overload_cells(fixed=(200,), workers=(1,))[:1]
    (found,) = overload(cell, times=(3,), requests=500)

    assert 0.4 < found.rule.shed_share < 0.8
    assert found.rule.p99_ms < 1.1 * GOAL_MS
