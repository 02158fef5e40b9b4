"""The result of one part: tables with marks, and lost or wrong answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness.marks import Bound
from benchmarks.harness.sheets import Sheet, text
from uncork_dispatcher.wording import plural
from uncork_loadtests.generator.fleet import Outcome


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one part."""

    paragraph: str
    """Describes the measurement."""
    sheets: Sequence[Sheet]
    faults: Sequence[str]
    """Wrong or lost answers, and refusals without Retry-After."""


def mark_line(
    what: str, value: float | None, *, bound: Bound, unit: str = "", digits: int = 2, void: str = ""
) -> str:
    """Write in one line whether a figure keeps its bound; None: nothing was measured."""
    seen = f"{what}: {text(value, digits=digits)}{f' {unit}' if unit else ''}"
    if void:
        return f"{seen}; mark: {bound}, void: {void}"
    if value is None:
        return f"{seen}; mark: {bound}, not measured"
    keeps = value <= bound.value if bound.upper else value >= bound.value
    return f"{seen}; mark: {bound}, {'met' if keeps else 'missed'}"


def faults_of(what: str, outcome: Outcome, *, allowed: frozenset[int]) -> list[str]:
    """Return the faults of a whole run: wrong or lost answers, and statuses that are not allowed."""
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
