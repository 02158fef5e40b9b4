"""Measure the costs of overload, poisoned rows and the replacement of workers, in one run.

Prints docs/results/faults.md. A report, not a test: a missed mark is no failure, a lost or wrong
answer is.

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
from benchmarks.harness.report import result_page
from benchmarks.harness.rounds import Tell

PARTS = ("overload", "poison", "rolling")
_NAMES = ", ".join(PARTS)


def main(
    seconds: Annotated[
        float, typer.Option(min=30, help="Seconds of each overload; each replacement takes a third.")
    ] = 60.0,
    only: Annotated[str, typer.Option(help=f"Of {_NAMES}, separated by commas.")] = ",".join(PARTS),
) -> None:
    """Measure the costs of faults, print docs/results/faults.md; exit with 1 on wrong answers."""
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
    return result_page(
        "What it costs",
        script="scripts/bench-faults",
        paragraphs=[one.paragraph for one in findings],
        sheets=[sheet for one in findings for sheet in one.sheets],
    )


if __name__ == "__main__":
    typer.run(main)
