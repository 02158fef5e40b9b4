"""What a part of the bench found: a table, the marks it is judged by, and answers that were lost or wrong."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.harness.sheets import Sheet, text
from benchmarks.peers.marks import Bound
from uncork_dispatcher.plural import plural
from uncork_loadtests.generator.fleet import LoadTestError, Outcome, run
from uncork_loadtests.generator.share import Progress
from uncork_loadtests.servers import BenchError
from uncork_loadtests.traffic.plan import Plan

Tell = Callable[[str], None]
"""Told what is being done."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one part found."""

    paragraph: str
    """What was measured, and how."""
    sheets: Sequence[Sheet]
    faults: Sequence[str]
    """Answers that were wrong or lost, and refusals that do not say when to come back."""


def mark_line(
    what: str, value: float | None, *, bound: Bound, unit: str = "", digits: int = 2, void: str = ""
) -> str:
    """Say in one line whether a figure keeps its bound; None: there was nothing to measure."""
    seen = f"{what}: {text(value, digits=digits)}{f' {unit}' if unit else ''}"
    if void:
        return f"{seen}; mark: {bound}, void: {void}"
    if value is None:
        return f"{seen}; mark: {bound}, nothing to judge"
    keeps = value <= bound.value if bound.upper else value >= bound.value
    return f"{seen}; mark: {bound}, {'met' if keeps else 'missed'}"


def put_through(plan: Plan, *, tell: Callable[[Progress], None]) -> Outcome:
    """Run a plan.

    Raises:
        BenchError: if the server cannot be reached, or a generator failed.
        KeyboardInterrupt: on Ctrl-C, also when there is something to give.
    """
    try:
        outcome = run(plan, tell=tell)
    except LoadTestError as error:
        raise BenchError(str(error)) from error
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome


def faults_of(what: str, outcome: Outcome, *, allowed: frozenset[int]) -> list[str]:
    """What must not be, over the whole run: wrong answers, none at all, or of another status than allowed."""
    samples = outcome.samples
    status = samples["status"]
    lost, wrong = int((status <= 0).sum()), int(samples["wrong"].sum())
    found = []
    if lost:
        found.append(f"{what}: {lost} requests without an answer")
    if wrong:
        found.append(f"{what}: {plural(wrong, 'wrong answer')}, the first: {outcome.first_wrong}")
    others = sorted({int(one) for one in status if one > 0} - allowed)
    if others:
        found.append(f"{what}: answers with {', '.join(map(str, others))}")
    if outcome.without_retry_after:
        found.append(f"{what}: {outcome.without_retry_after} answers with 503 without Retry-After")
    return found
