"""Padded batches: ratios, marks and tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

import pytest

from benchmarks.padding.cells import EQUAL, padded_cells
from benchmarks.padding.cold import SECONDS, ColdStart, cold_marks, cold_start
from benchmarks.padding.findings import Finding, find
from benchmarks.padding.overload import GOAL_MS, Overload, overload, overload_cells
from benchmarks.padding.rivals import RIVALS, find_rivals, rival_sheets
from benchmarks.padding.tables import Mark, marks
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


def overloaded() -> Overload:
    rule = replace(SOME, goodput_per_s=95.0, inside_goal=0.99)
    return Overload(CLOSED, 100.0, 2.0, replace(SOME, goodput_per_s=50.0), rule)


def found_out() -> list[Finding]:
    """One finding for each case of lengths that the dispatcher finds out."""
    return [finding(case.cells(quick=True)[0], rows_per_s=1.6) for case in CASES]


def missed(found: Iterable[Mark]) -> list[str]:
    return [mark.name for mark in found if not mark.is_met]


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


def cold(padding: float = 1.0, *, last: float = 100.0, sums: float = 100.0) -> ColdStart:
    """A cold start that is slow in its first second, with this many answers in the last."""
    cork = [10.0, *[100.0] * (SECONDS - 2), last]
    return ColdStart(replace(CLOSED, padding=padding), cork, [100.0] * SECONDS, [sums] * SECONDS)


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


def test_one_by_one_answers_steadily() -> None:
    found = cold_start(replace(CLOSED, intercept_ms=80.0), [1])
    assert all(9 <= answers <= 13 for answers in found.one_by_one)
    assert min(found.cork[1:]) > 5 * max(found.one_by_one)


def test_only_the_rule_knows_lengths() -> None:
    told: list[tuple[int, int]] = []
    (found,) = find([CLOSED], [1], processes=1, tell=lambda done, of: told.append((done, of)))

    assert told == [(1, 3), (2, 3), (3, 3)]
    assert found.rule[0].padding_share < 0.3 < 0.5 < found.before[0].padding_share
    assert found.ratio("rows_per_s", "before") > 1.5
    assert found.ratio("rows_per_s", "free") > 1.5


def test_other_rules_have_the_place_of_cork_before() -> None:
    found = find_rivals([CLOSED], [1], processes=1, tell=lambda done, of: None)

    assert {name: one.rule for name, [one] in found.items()} == dict.fromkeys(
        RIVALS, found["Razor's Edge"][0].rule
    )
    assert len({one.before[0].rows_per_s for [one] in found.values()}) > 3
    (closed, p99, *_) = rival_sheets(found)
    assert closed.columns[2:] == [*RIVALS]
    assert closed.rows[0][:2] == ["padded", "1"]
    assert p99.title == "Closed loops: p99 of cork / other rule"


def test_overload_is_several_times_what_a_closed_loop_carries() -> None:
    (cell,) = overload_cells(fixed=(200,), workers=(1,))[:1]
    (found,) = overload(cell, times=(3,), requests=500)

    assert 0.4 < found.rule.shed_share < 0.8
    assert found.rule.p99_ms < 1.1 * GOAL_MS
