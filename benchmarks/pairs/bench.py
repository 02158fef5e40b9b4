"""Measure the gateway on this machine, side by side in one run, and print tables with ratios.

A report, never a test: a disappointing ratio is no failure, wrong answers are. Numbers of
different machines or runs do not compare; ratios within one run do.

    python -m benchmarks.pairs.bench --only echo --rounds 5
"""

import importlib.metadata
import os
import platform
import shlex
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness.generators import Trial
from benchmarks.pairs.pairs import Comparison, Settings, Spread, choose_generator, digits, echo, spread
from uncork_loadtests.endings import JsonFile, exit_with, telling_failures, write_json

_EXPERIMENTS = {"digits": digits, "echo": echo}
_PACKAGES = ("uncork", "uvicorn", "httptools", "uvloop", "msgspec", "numpy", "scikit-learn")


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything a run was and found, as written with --json."""

    command: str
    versions: Mapping[str, str]
    processors: int | None
    settings: Settings
    comparisons: Sequence[Comparison]


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each server.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of each measurement.")] = 4.0,
    connections: Annotated[int, typer.Option(min=1, help="Closed-loop clients.")] = 256,
    only: Annotated[Literal["digits", "echo"] | None, typer.Option(help="Measure only this pair.")] = None,
    load: Annotated[
        Literal["auto", "python", "wrk"],
        typer.Option(help="Generator for echo; auto is wrk where it is installed."),
    ] = "auto",
    json_file: JsonFile = None,
) -> None:
    """Measure digits (cork by none) and echo (uncork by a bare ASGI callable)."""
    console, progress = Console(), Console(stderr=True)
    with telling_failures("bench", progress=progress):
        settings = Settings(
            rounds=rounds,
            seconds=seconds,
            connections=connections,
            echo_generator=choose_generator(load),
        )
        report = _measure(settings, only=only, console=console, progress=progress)
        if json_file is not None:
            write_json(report, json_file)
    exit_with([fault for each in report.comparisons for fault in each.faults], progress=progress)


def _measure(settings: Settings, *, only: str | None, console: Console, progress: Console) -> Report:
    comparisons = []
    for name in [only] if only else _EXPERIMENTS:
        with progress.status(name) as status:
            found = _EXPERIMENTS[name](settings, tell=status.update)
        # At once, so that a failure of the next pair does not lose what is known of this one.
        for comparison in found:
            show(comparison, console=console)
        comparisons += found
    report = Report(
        command=shlex.join(["python", "-m", "benchmarks.pairs.bench", *sys.argv[1:]]),
        versions=_versions(),
        processors=os.cpu_count(),
        settings=settings,
        comparisons=comparisons,
    )
    _show_origin(report, console=console)
    return report


def show(comparison: Comparison, *, console: Console) -> None:
    """Print the medians over the rounds, the ratios with their spread, and the notes."""
    first, second = comparison.trials
    table = Table(title=comparison.title, title_justify="left")
    table.add_column("median over the rounds")
    for column in (first, second, f"{first} / {second} (min .. max)"):
        table.add_column(column, justify="right")
    for row in _ROWS:
        values = [[row.value(trial) for trial in comparison.trials[n]] for n in (first, second)]
        ratio = _ratio(spread(values[0], by=values[1]))
        # The ratio this comparison is about; the others explain it.
        style = "bold" if row.metric == comparison.metric else None
        table.add_row(row.label, *(_median(v, row=row) for v in values), ratio, style=style)
    console.print(table)
    about = comparison.metric.replace("_", " ")
    console.print(f"{about}, {first} / {second}: {_ratio(comparison.ratio)}", markup=False)
    for note in comparison.notes:
        console.print(note, markup=False)
    for command in comparison.commands.values():
        console.print(f"$ {command}", style="dim", markup=False, soft_wrap=True)
    console.print()


@dataclass(frozen=True, kw_only=True)
class _Row:
    label: str
    value: Callable[[Trial], float | None]
    digits: int
    metric: str = ""


_ROWS = (
    _Row(
        label="requests/s",
        value=lambda trial: trial.seen.requests_per_second,
        digits=0,
        metric="requests_per_second",
    ),
    _Row(label="p50 latency, s", value=lambda trial: trial.seen.p50, digits=5, metric="p50"),
    _Row(label="p99 latency, s", value=lambda trial: trial.seen.p99, digits=5),
    _Row(label="mean batch, rows", value=lambda trial: trial.seen.batch_size, digits=1),
    _Row(label="refused in a round", value=lambda trial: trial.seen.refused, digits=0),
    _Row(label="server, cpu s/1000 req", value=lambda trial: trial.server_cpu, digits=4),
    _Row(label="workers, cpu s/1000 req", value=lambda trial: trial.workers_cpu, digits=4),
    _Row(label="load, cpu s/1000 req", value=lambda trial: trial.seen.generator_cpu, digits=4),
)


def _median(values: Sequence[float | None], *, row: _Row) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):,.{row.digits}f}" if known else "-"


def _ratio(ratio: Spread | None) -> str:
    if ratio is None:
        return "-"
    digits = 2 if ratio.median >= 0.1 else 4
    median, low, high = (f"{x:.{digits}f}" for x in (ratio.median, ratio.low, ratio.high))
    return f"{median} ({low} .. {high})"


def _show_origin(report: Report, *, console: Console) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    console.print(f"{versions}; {report.processors} processors", style="dim", markup=False, soft_wrap=True)
    console.print(f"$ {report.command}", style="dim", markup=False, soft_wrap=True)


def _versions() -> dict[str, str]:
    found = {platform.python_implementation(): platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


if __name__ == "__main__":
    typer.run(main)
