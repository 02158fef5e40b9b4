"""Watch `uncork serve --workers 1-6` follow a rate that doubles and halves.

``scripts/bench autoscaling`` runs it; it prints docs/results/autoscaling.md and draws
docs/pictures/autoscaling.svg.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.harness.cli import exit_with, reporting_failures
from benchmarks.harness.paths import ROOT
from benchmarks.harness.report import ResultPage
from benchmarks.harness.rounds import round_of
from benchmarks.harness.sheets import Sheet, text
from benchmarks.scale.autoscaling import (
    GOAL_MS,
    INTERCEPT_MS,
    LEAST,
    LIMIT_ROWS,
    MOST,
    SLOPE_MS,
    STEPS,
    Run,
    Window,
    lag_p99_ms,
    measure,
)
from benchmarks.scale.autoscaling_picture import draw
from uncork_loadtests.servers import BenchError

PAGE = ResultPage(
    title="Workers that follow the traffic",
    introduction=f"""
        How `uncork serve --workers {LEAST}-{MOST}` follows a rate that doubles and halves. For the picture
        and the rules, see [scaling](../explanation/scaling.md#one-run).
    """,
    script="scripts/bench autoscaling",
)
PICTURE = ROOT / "docs" / "pictures" / "autoscaling.svg"


def main(
    pace: Annotated[
        float, typer.Option(min=0.05, max=1, help="Shorten all steps to this share, for a trial.")
    ] = 1.0,
    picture: Annotated[Path, typer.Option(help="Draw into this file.")] = PICTURE,
    output: Annotated[Path | None, typer.Option(help="Write the page to this file.")] = None,
) -> None:
    """Change the rate in steps; print the page and draw the picture. Takes ten minutes."""
    progress = Console(stderr=True)
    steps = [step._replace(seconds=step.seconds * pace) for step in STEPS]
    with reporting_failures("autoscaling", progress=progress), progress.status("starting") as status:
        run = measure(steps, tell=status.update)
        if run.outcome.void:
            raise BenchError(f"void: {run.outcome.void}")
        draw(run, picture)
        page = PAGE.text(paragraphs=paragraphs(run), sheets=sheets(run))
        if output is None:
            typer.echo(page, nl=False)
        else:
            output.write_text(page)
    fault = round_of(run.outcome).fault
    exit_with([fault] if fault else [], progress=progress)


def paragraphs(run: Run) -> list[str]:
    """Say what was done, and on how busy a machine."""
    before, after = run.load_averages
    return [
        f"""
        The model sleeps {INTERCEPT_MS} + {SLOPE_MS} n ms for a batch of n rows, at most {LIMIT_ROWS}, so that
        few processors carry several workers. The goal is {GOAL_MS} ms. Arrivals are Poisson, of single rows.
        Latency counts from the scheduled time of a request. `/status` was read once a second.
        """,
        f"""
        The load average of the machine was {before:.1f} before the run and {after:.1f} at its end. The p99 of
        the generator's lag was {lag_p99_ms(run.outcome):.1f} ms; the run would be void above a tenth of the
        p99 of all latencies.
        """,
    ]


def sheets(run: Run) -> list[Sheet]:
    """Tabulate the steps, the changes of the number of workers, and the course of the run."""
    return [_steps_sheet(run), _changes_sheet(run), _course_sheet(run)]


def _steps_sheet(run: Run) -> Sheet:
    return Sheet(
        title="By rate",
        columns=["rate, rows/s", "seconds", *_FIGURES, "wanted at the end", "ready at the end"],
        rows=[
            [
                f"{step.rate:g}",
                f"{step.seconds:g}",
                *_figures(window),
                str(last.wanted) if last else "-",
                str(last.ready) if last else "-",
            ]
            for step, window, last in run.by_step()
        ],
    )


def _changes_sheet(run: Run) -> Sheet:
    return Sheet(
        title="Changes of the number of workers",
        columns=["after", "from", "to", "wanted"],
        rows=[
            [f"{seen.at_s:.0f} s", str(before), str(seen.target), str(seen.wanted)]
            for before, seen in run.changes()
        ],
    )


def _course_sheet(run: Run) -> Sheet:
    rows = []
    for window in run.windows():
        within = [one for one in run.sightings if window.from_s <= one.at_s < window.to_s]
        workers = [_range([one.wanted for one in within]), _range([one.ready for one in within])]
        rows.append([f"{window.from_s:.0f} s", *_figures(window), *workers])
    return Sheet(title="Course", columns=["from", *_FIGURES, "wanted", "ready"], rows=rows)


_FIGURES = ("requests/s", "in goal/s", "in goal", "503", "p99 ms")


def _figures(window: Window) -> list[str]:
    return [
        text(window.requests / window.seconds, digits=1),
        text(window.in_goal / window.seconds, digits=1),
        f"{window.in_goal / window.requests:.1%}" if window.requests else "-",
        str(window.shed),
        text(window.p99_ms, digits=0),
    ]


def _range(values: Sequence[int]) -> str:
    if not values:
        return "-"
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"


if __name__ == "__main__":
    typer.run(main)
