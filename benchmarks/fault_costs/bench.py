"""Measure the effect of overload, poisoned rows and the replacement of workers on other requests.

Prints docs/results/faults.md. Exits with 1 if an answer is lost or wrong, not if a mark is missed.

    python -m benchmarks.fault_costs.bench --seconds 60 --only overload,rolling
"""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.fault_costs.findings import Finding
from benchmarks.fault_costs.overload import measure_overload
from benchmarks.fault_costs.poison import measure_poison
from benchmarks.fault_costs.rolling import measure_rolling
from benchmarks.harness.cli import choose, exit_with, reporting_failures
from benchmarks.harness.report import ResultPage
from benchmarks.harness.rounds import Tell

PARTS = ("overload", "poison", "rolling")
_NAMES = ", ".join(PARTS)
PAGE = ResultPage(
    title="Overload, poisoned rows, replaced workers",
    introduction="""
        The effect on other requests of overload, of a request that makes its batch fail, and of replacing
        workers. For conclusions, see [reliability](../explanation/reliability.md#cost-of-failures).
    """,
    script="scripts/bench faults",
)


def main(
    seconds: Annotated[
        float, typer.Option(min=30, help="Seconds of each overload; each replacement takes a third.")
    ] = 60.0,
    only: Annotated[str, typer.Option(help=f"Of {_NAMES}, separated by commas.")] = ",".join(PARTS),
) -> None:
    """Measure the effect of faults, and print docs/results/faults.md; exit with 1 on wrong answers."""
    chosen = choose(only, PARTS, what="part")
    progress = Console(stderr=True)
    with reporting_failures("faults", progress=progress), progress.status("starting") as status:
        findings = [_measure(part, seconds=seconds, tell=status.update) for part in chosen]
    typer.echo(text_of(findings), nl=False)
    exit_with([fault for one in findings for fault in one.faults], progress=progress)


def _measure(part: str, *, seconds: float, tell: Tell) -> Finding:
    if part == "overload":
        return measure_overload(seconds, tell=tell)
    if part == "poison":
        return measure_poison(tell=tell)
    return measure_rolling(seconds / 3, tell=tell)


def text_of(findings: Sequence[Finding]) -> str:
    return PAGE.text(
        paragraphs=[one.paragraph for one in findings],
        sheets=[sheet for one in findings for sheet in one.sheets],
    )


if __name__ == "__main__":
    typer.run(main)
