"""Measure how the gateway scales: two workers, large bodies and answers, many connections, many workers.

Exits with 1 on faults, not if a mark is missed. Thousands of connections need open files: the
limit is raised as far as the system allows (`ulimit -Hn`).

    python -m benchmarks.scale.bench --only connections --connections 1,16,256,4096 --rounds 3
"""

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from benchmarks.harness.cli import (
    JsonFile,
    MarkdownFile,
    exit_with,
    parse_counts,
    reporting_failures,
    write_json,
)
from benchmarks.harness.report import Origin, markdown_page, origin, origin_lines
from benchmarks.harness.sheets import Sheet, interval_text, median_known, output, show, text
from benchmarks.harness.wrk import choose_generator
from benchmarks.peers.pictures import draw_curve
from benchmarks.scale.scaling import KINDS, Finding, Settings, Step

_MB = 1e6


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything about a run."""

    origin: Origin
    settings: Settings
    findings: Sequence[Finding]


def main(
    only: Annotated[
        Literal["two-workers", "bodies", "answers", "connections", "workers"] | None,
        typer.Option(help="Measure only this."),
    ] = None,
    connections: Annotated[str, typer.Option(help="Numbers of connections, one worker.")] = (
        "1,4,16,64,256,1024,4096"
    ),
    workers: Annotated[str, typer.Option(help="Numbers of sleeping workers.")] = "1,2,4,8,16,32,64",
    body_bytes: Annotated[str, typer.Option(help="Sizes of bodies.")] = "100000,1000000",
    answer_bytes: Annotated[
        int, typer.Option(min=4, help="Size of the array in an answer; its JSON is five times as long.")
    ] = 1_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each step.")] = 5,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of each measurement.")] = 4.0,
    load: Annotated[
        Literal["auto", "python", "wrk"],
        typer.Option(help="Generator; auto is wrk if it is installed."),
    ] = "auto",
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write pictures (SVG) of curves into this folder.")
    ] = None,
) -> None:
    """Measure how the gateway scales, print tables, and judge the marks."""
    progress = Console(stderr=True)
    sizes = parse_counts(body_bytes)
    if min(sizes) < 2:
        raise typer.BadParameter("a body is a JSON string: it has 2 bytes at least")
    with reporting_failures("scale", progress=progress):
        settings = Settings(
            rounds=rounds,
            seconds=seconds,
            generator=choose_generator(load),
            connections=sorted(parse_counts(connections)),
            workers=sorted(parse_counts(workers)),
            body_bytes=sizes,
            answer_bytes=answer_bytes,
        )
        findings = _measure([only] if only else [*KINDS], settings=settings, progress=progress)
        report = Report(origin=origin("scripts/bench scale"), settings=settings, findings=findings)
        _keep(report, json_file=json_file, markdown_file=markdown_file, plot=plot)
    exit_with([fault for finding in findings for fault in _faults(finding)], progress=progress)


def _measure(kinds: Sequence[str], *, settings: Settings, progress: Console) -> list[Finding]:
    console, findings = output(), []
    for kind in kinds:
        with progress.status(kind) as status:
            found = KINDS[kind](settings, tell=lambda what, kind=kind: status.update(f"{kind}: {what}"))
        # Now, so that a failure of the next does not lose these figures.
        for finding in found:
            show(sheet(finding), console=console)
        findings += found
    return findings


def _keep(report: Report, *, json_file: Path | None, markdown_file: Path | None, plot: Path | None) -> None:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    notes = [
        f"Generator: {report.settings.generator}. Open files allowed: {files}.",
        "Medians over the rounds; cpu in processor seconds per 1000 requests, of the gateway (front) and of "
        "the processes below it together.",
    ]
    console = output()
    for line in [*notes, *origin_lines(report.origin)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if json_file is not None:
        write_json(report, json_file)
    if markdown_file is not None:
        sheets = [sheet(finding) for finding in report.findings]
        markdown_file.write_text(markdown_page(sheets, notes=notes, of=report.origin))
    for finding in report.findings:
        if plot is not None and finding.kind in ("connections", "workers"):
            costs = [(float(step.name), _cpu(step)) for step in finding.steps]
            draw_curve(
                [(x, cost) for x, cost in costs if cost is not None],
                path=plot / f"scale-{finding.kind}.svg",
                title=finding.title,
                labels=(finding.kind, "gateway, processor ms per request"),
            )


def sheet(finding: Finding) -> Sheet:
    large = finding.body_bytes
    rows = [
        [
            step.name,
            *([text(_rate(step), digits=0, scale=large / _MB)] if large else []),
            text(_rate(step), digits=0),
            text(median_known(one.p50 for one in step.rounds), digits=2, scale=1000),
            text(median_known(one.p99 for one in step.rounds), digits=2, scale=1000),
            text(_cpu(step), digits=3),
            text(median_known(one.below_cpu for one in step.rounds), digits=3),
            text(median_known(one.rows_per_batch for one in step.rounds), digits=1),
            str(sum(bool(one.fault or one.refused) for one in step.rounds)),
            interval_text(step.ratio),
            step.state if step.state != "no mark" else "",
        ]
        for step in finding.steps
    ]
    first = {"connections": "connections", "workers": "workers", "answers": "answer"}.get(
        finding.kind, "server"
    )
    columns = [first, *(["MB/s"] if large else []), "req/s", "p50 ms", "p99 ms", "front cpu", "below cpu"]
    columns += ["rows/batch", "faults", f"{finding.figure} / {finding.base}", f"mark: {finding.bound}"]
    return Sheet(title=finding.title, columns=columns, rows=rows)


def _rate(step: Step) -> float | None:
    return median_known(one.requests_per_second for one in step.rounds)


def _cpu(step: Step) -> float | None:
    return median_known(one.front_cpu for one in step.rounds)


def _faults(finding: Finding) -> list[str]:
    return [
        f"{finding.title}: {step.name}: {one.fault or f'{one.refused} requests refused'}"
        for step in finding.steps
        for one in step.rounds
        if one.fault or one.refused
    ]


if __name__ == "__main__":
    typer.run(main)
