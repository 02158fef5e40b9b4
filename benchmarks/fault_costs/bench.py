"""Measure what overload, poisoned rows and the replacement of workers cost, in one run.

Prints a section of docs/reliability.md. A report, never a test: a mark that is missed is no failure,
an answer that is lost or wrong is.

    python -m benchmarks.fault_costs.bench --seconds 60 --only overload,rolling
"""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.fault_costs.findings import Finding, Tell
from benchmarks.fault_costs.overload import measure_overload
from benchmarks.fault_costs.poison import measure_poison
from benchmarks.fault_costs.rolling import measure_rolling
from benchmarks.harness.section import section
from uncork_loadtests.endings import exit_with, telling_failures

PARTS = ("overload", "poison", "rolling")
_NAMES = ", ".join(PARTS)


def main(
    seconds: Annotated[
        float, typer.Option(min=30, help="Seconds of each overload; each replacement takes a third of it.")
    ] = 60.0,
    only: Annotated[str, typer.Option(help=f"Of {_NAMES}, with commas between.")] = ",".join(PARTS),
) -> None:
    """Measure what faults cost, print a section of docs/reliability.md; exit with 1 if answers are wrong."""
    chosen = parse_parts(only)
    progress = Console(stderr=True)
    with telling_failures("faults", progress=progress), progress.status("starting") as status:
        findings = [_measure(part, seconds=seconds, tell=status.update) for part in chosen]
    typer.echo(text_of(findings), nl=False)
    exit_with([fault for one in findings for fault in one.faults], progress=progress)


def parse_parts(only: str) -> list[str]:
    """Read names of parts; typer.BadParameter if there is none of a name."""
    names = [name.strip() for name in only.split(",")]
    for name in names:
        if name not in PARTS:
            raise typer.BadParameter(f"there is no part {name!r}; there are {_NAMES}", param_hint="--only")
    return [part for part in PARTS if part in names]


def _measure(part: str, *, seconds: float, tell: Tell) -> Finding:
    if part == "overload":
        return measure_overload(seconds, tell=tell)
    if part == "poison":
        return measure_poison(tell=tell)
    return measure_rolling(seconds / 3, tell=tell)


def text_of(findings: Sequence[Finding]) -> str:
    """The section."""
    return section(
        "What it costs",
        script="scripts/bench-faults",
        paragraphs=[one.paragraph for one in findings],
        sheets=[sheet for one in findings for sheet in one.sheets],
    )


if __name__ == "__main__":
    typer.run(main)
