"""The tables of padded batches, and what each figure should reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from statistics import fmean
from typing import NamedTuple

from benchmarks.harness.marks import Bound, at_least, at_most
from benchmarks.harness.sheets import Sheet
from benchmarks.padding.findings import Dispatcher, Finding, Traffic, spread
from benchmarks.padding.overload import Overload
from benchmarks.padding.unstated import CASES

TRUTHS = {1.0: "padded", 0.5: "half of the padding takes time", 0.0: "no padding"}
TITLES: dict[Traffic, str] = {
    "closed": "Closed loops",
    "Poisson": "Poisson arrivals",
    "bursts": "Bursts",
}


class Mark(NamedTuple):
    """A figure, what it should reach, and the cell that decides it."""

    name: str
    figure: float
    bound: Bound
    cell: str = ""

    @property
    def is_met(self) -> bool:
        return self.bound.holds(self.figure)

    def __str__(self) -> str:
        cell = f" in {self.cell}" if self.cell else ""
        return f"{self.name} is {self.figure:.3f}{cell}; it should be {self.bound}"


def marks(
    findings: Sequence[Finding], overloads: Sequence[Overload], unstated: Sequence[Finding]
) -> list[Mark]:
    """Return all marks that the measured cells can show."""
    padded = [one for one in findings if one.cell.padding == 1 and not one.is_equal]
    closed = [one for one in padded if one.traffic == "closed"]
    unpadded = [one for one in findings if one.cell.padding == 0 and one.traffic == "closed"]
    found = [
        _mean("padded, closed: requests/s over cork before", closed, "rows_per_s", "before", at_least(2.0)),
        _worst("padded, closed: requests/s over fixed:0", closed, "rows_per_s", "free", at_least(1.0)),
    ]
    for traffic in ("Poisson", "bursts"):
        some = [one for one in padded if one.traffic == traffic]
        for name, figure, most in (("p99", "p99_ms", 0.70), ("long p99", "long_p99_ms", 0.75)):
            title = f"padded, {traffic}: {name} over cork before"
            found.append(_mean(title, some, figure, "before", at_most(most)))
            found.append(_worst(title, some, figure, "before", at_most(1.25)))
    found.append(
        _mean(
            "no padding, closed: requests/s over cork before",
            unpadded,
            "rows_per_s",
            "before",
            at_least(0.96),
        )
    )
    different = [str(one.cell) for one in findings if one.is_equal and one.rule != one.before]
    found.append(Mark("equal lengths: cells that differ", len(different), at_most(0), ", ".join(different)))
    return [*found, *_unstated_marks(unstated), *_overload_marks(overloads)]


def _unstated_marks(findings: Sequence[Finding]) -> Iterator[Mark]:
    """No truth may lose; a model that pads should gain, and one that truncates all the more."""
    for case in CASES:
        some = [one for one in findings if case.has(one.cell) and one.traffic == "closed"]
        if some:
            yield _mean(f"{case.name}, closed: requests/s", some, "rows_per_s", "before", case.bound)


def _mean(name: str, findings: Sequence[Finding], figure: str, over: Dispatcher, bound: Bound) -> Mark:
    return Mark(f"{name}, mean", spread(findings, figure, over).mean, bound)


def _worst(name: str, findings: Sequence[Finding], figure: str, over: Dispatcher, bound: Bound) -> Mark:
    found = spread(findings, figure, over)
    return Mark(f"{name}, worst cell", found.worst, bound, str(found.worst_cell))


def _overload_marks(overloads: Sequence[Overload]) -> Iterator[Mark]:
    for name, figure, bound in _OVERLOAD:
        worst = min(overloads, key=figure)
        yield Mark(f"overload: {name}, worst cell", figure(worst), bound, _name(worst))


_OVERLOAD: tuple[tuple[str, Callable[[Overload], float], Bound], ...] = (
    ("goodput over the closed loop's", lambda one: one.goodput, at_least(0.9)),
    ("answers within the goal", lambda one: one.rule.inside_goal, at_least(0.97)),
)


def marks_sheet(found: Iterable[Mark]) -> Sheet:
    return Sheet(
        title="Marks",
        columns=["figure", "found", "mark", "met", "cell"],
        rows=[
            [one.name, f"{one.figure:.3f}", str(one.bound), "yes" if one.is_met else "no", one.cell]
            for one in found
        ],
    )


def traffic_sheets(findings: Sequence[Finding]) -> list[Sheet]:
    """Tabulate each kind of traffic by truth, and padded models by their parameters."""
    unlike = [one for one in findings if not one.is_equal]
    return [_traffic_sheet(traffic, [one for one in unlike if one.traffic == traffic]) for traffic in TITLES]


def _traffic_sheet(traffic: Traffic, findings: Sequence[Finding]) -> Sheet:
    figure, name = ("rows_per_s", "requests/s") if traffic == "closed" else ("mean_ms", "mean")
    bases: dict[Dispatcher, str] = {"before": "before", "free": "fixed:0"}
    ratios = [
        (f"{heading} / {text}", each, over)
        for over, text in bases.items()
        for heading, each in ((name, figure), ("p99", "p99_ms"), ("long p99", "long_p99_ms"))
    ]
    rows = []
    for group, some in groups(traffic, findings):
        padding = [
            f"{fmean(one.padding_share for each in some for one in getattr(each, which)):.0%}"
            for which in ("before", "rule")
        ]
        cells = [str(spread(some, each, over)) for _, each, over in ratios]
        rows.append([group, f"{len(some)}", *cells, *padding])
    headings = [heading for heading, _, _ in ratios]
    return Sheet(
        title=TITLES[traffic],
        columns=["cells", "number", *headings, "padding before", "with the rule"],
        rows=rows,
    )


def groups(traffic: Traffic, findings: Sequence[Finding]) -> Iterator[tuple[str, Sequence[Finding]]]:
    """Yield the groups of cells that share a row of a table."""
    for padding, truth in TRUTHS.items():
        if some := [one for one in findings if one.cell.padding == padding]:
            yield truth, some
    padded = [one for one in findings if one.cell.padding == 1]
    if traffic != "closed" and (some := [one for one in padded if one.before_keeps_up]):
        yield "padded, where cork before keeps up", some
    parts: list[tuple[str, Callable[[Finding], float | str | None]]] = [
        ("{:g} ms per batch", lambda one: one.cell.intercept_ms),
        ("{}", lambda one: one.cell.lengths),
        ("workers: {}", lambda one: one.cell.workers),
        ("clients: {}", lambda one: one.cell.clients)
        if traffic == "closed"
        else ("load {}", lambda one: one.cell.load),
    ]
    for text, part in parts:
        for value in dict.fromkeys(map(part, padded)):
            yield f"padded, {text.format(value)}", [one for one in padded if part(one) == value]


def unstated_sheet(findings: Sequence[Finding]) -> Sheet:
    """Tabulate what is found out without being stated: body bytes as lengths, and truncation."""
    rows = []
    for case, traffic in product(CASES, TITLES):
        some = [one for one in findings if case.has(one.cell) and one.traffic == traffic]
        if some:
            figures = ("rows_per_s", "mean_ms", "p99_ms")
            ratios = [str(spread(some, figure, "before")) for figure in figures]
            rows.append([case.name, traffic, f"{len(some)}", *ratios])
    return Sheet(
        title="Lengths that the dispatcher finds out",
        columns=["case", "traffic", "cells", "requests/s", "mean", "p99"],
        rows=rows,
    )


def overload_sheet(overloads: Sequence[Overload]) -> Sheet:
    """Tabulate goodput and answers within the goal, by load."""
    return Sheet(
        title="Overload",
        columns=[
            "cell",
            "closed loop, requests/s",
            "goodput",
            "within the goal",
            "goodput before",
            "within the goal before",
        ],
        rows=[
            [
                _name(one),
                f"{one.carried:.0f}",
                f"{one.goodput:.2f}",
                f"{one.rule.inside_goal:.1%}",
                f"{one.goodput_before:.2f}",
                "-" if not one.before.answered else f"{one.before.inside_goal:.1%}",
            ]
            for one in overloads
        ],
    )


def _name(overload: Overload) -> str:
    cell = overload.cell
    return (
        f"{cell.intercept_ms:g}+{cell.slope_ms:g}n {cell.lengths} W={cell.workers} {overload.times:g} times"
    )
