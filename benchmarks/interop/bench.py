"""Measure model servers of other projects, called directly and through `uncork proxy`, in one run.

Each server runs in its own virtual environment, made from PyPI when first needed. First, clients with rows of
their own check every answer; then the rates over HTTP are measured in rounds. Exits with 1 if an answer is
wrong. Ratios within one run compare; figures of different runs do not.

    scripts/bench interop proxy --only kserve --rounds 3 --markdown table.md
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.harness.cli import MarkdownFile, choose, exit_with, reporting_failures
from benchmarks.harness.environments import Environment
from benchmarks.harness.paths import CACHE
from benchmarks.harness.report import markdown_page, origin, origin_lines
from benchmarks.harness.sheets import Sheet, interval_text, median_known, output, show, text
from benchmarks.harness.wrk import choose_generator
from benchmarks.interop.catalogue import POINT, REQUIREMENTS, SERVICES, Service
from benchmarks.interop.trials import PROXY, Finding, Way, try_service

_MOST_FAULTS = 5
_NOTES = (
    f"The model sleeps {POINT.intercept_ms:g} + {POINT.slope_ms:g} n ms for n rows, and blocks its server "
    "for that time; scikit-learn is the forest of the digits example.",
    "wrong, lost: wrong answers, and requests without an answer, of concurrent clients that each send 1 to 3 "
    "different rows. The other figures are from wrk, over HTTP only, one row per request; faults: rounds "
    "with refused requests or lost connections.",
    "Medians over the rounds; cpu in processor seconds per 1000 requests, of the server, or of the proxy "
    "alone.",
    "The ratio is of requests per second, round by round, with the 95 % interval of its median.",
)


def main(
    only: Annotated[str, typer.Option(help="Projects whose servers to measure.")] = ",".join(REQUIREMENTS),
    over: Annotated[str, typer.Option(help="Protocols to check; HTTP is also measured.")] = "http,grpc",
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each way to each server.")] = 7,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of each measurement.")] = 3.0,
    clients: Annotated[int, typer.Option(min=1, help="Closed-loop clients.")] = 64,
    markdown_file: MarkdownFile = None,
) -> None:
    """Measure servers of other projects, called directly and through the proxy; check all answers."""
    projects = choose(only, list(REQUIREMENTS), what="project")
    protocols = choose(over, ["http", "grpc"], what="protocol")
    services = [one for one in SERVICES if one.project in projects and one.over in protocols]
    progress = Console(stderr=True)
    with reporting_failures("interop", progress=progress):
        if "http" in protocols:
            choose_generator("wrk")
        findings = []
        with progress.status("") as status:
            for service in services:
                found = try_service(
                    service, rounds=rounds, seconds=seconds, clients=clients, tell=status.update
                )
                findings.append(found)
                progress.print(f"{service.name}: {interval_text(found.ratio)}", markup=False, highlight=False)
        _keep(findings, services=services, clients=clients, markdown_file=markdown_file)
    exit_with([fault for finding in findings for fault in faults(finding)], progress=progress)


def _keep(
    findings: Sequence[Finding],
    *,
    services: Sequence[Service],
    clients: int,
    markdown_file: Path | None,
) -> None:
    versions: dict[str, str] = {}
    for project in dict.fromkeys(service.project for service in services):
        versions |= Environment(folder=CACHE / project).versions(REQUIREMENTS[project])
    found = origin("scripts/bench interop proxy", versions=versions)
    table, console = sheet(findings, clients=clients), output()
    show(table, console=console, lines=[*_NOTES, *origin_lines(found)])
    if markdown_file is not None:
        markdown_file.write_text(markdown_page([table], notes=_NOTES, of=found))


def sheet(findings: Sequence[Finding], *, clients: int) -> Sheet:
    """Tabulate all findings: two rows per server."""
    figures = ["req/s", "p50 ms", "p99 ms", "rows/call", "cpu", "wrong", "lost", "faults"]
    return Sheet(
        title=f"Servers of other projects, {clients} clients in a closed loop",
        columns=["server", "way", *figures, "proxy / direct"],
        rows=[
            [finding.service, *_cells(way), interval_text(finding.ratio) if way is finding.ways[-1] else ""]
            for finding in findings
            for way in finding.ways
        ],
    )


def _cells(way: Way) -> list[str]:
    return [
        way.name,
        text(median_known(each.requests_per_second for each in way.rounds), digits=0),
        text(median_known(each.p50 for each in way.rounds), digits=1, scale=1000),
        text(median_known(each.p99 for each in way.rounds), digits=1, scale=1000),
        text(median_known(each.rows_per_batch for each in way.rounds), digits=1),
        text(median_known(each.all_cpu for each in way.rounds), digits=3),
        f"{len(way.checked.wrong)} of {way.checked.requests}",
        str(len(way.checked.lost)),
        str(sum(bool(each.fault or each.refused) for each in way.rounds)),
    ]


def faults(finding: Finding) -> list[str]:
    """Return the first wrong answers, and the first lost or failed requests through the proxy."""
    found = []
    for way in finding.ways:
        kinds = [way.checked.wrong, *([way.checked.lost, way.faults] if way.name == PROXY else [])]
        found += [
            f"{finding.service}, {way.name}: {fault}" for kind in kinds for fault in kind[:_MOST_FAULTS]
        ]
    return found
