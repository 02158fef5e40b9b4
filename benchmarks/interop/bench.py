"""Real model servers of other projects behind `uncork proxy`, with the proxy and without it, in one run.

Each server runs in a virtual environment of its own, made from PyPI when it is first needed. First clients
that each ask about rows of their own check every answer, then the rates are measured in turns. A report,
never a test; but wrong answers are failures. Ratios within one run compare; numbers of different runs do not.

    python -m benchmarks.interop.bench --only kserve --rounds 3 --markdown table.md
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.harness.environments import Environment
from benchmarks.harness.paths import CACHE
from benchmarks.harness.sheets import Sheet, markdown, median_known, output, show, text
from benchmarks.interop.catalogue import POINT, REQUIREMENTS, TARGETS, Target
from benchmarks.interop.trials import PROXY, Finding, Settings, Way, measure
from benchmarks.pairs.pairs import choose_generator
from benchmarks.peers.report import markdown_page, origin, origin_lines
from benchmarks.peers.tables import interval_text
from uncork_loadtests.endings import MarkdownFile, exit_with, telling_failures

_MOST_FAULTS = 5
_NOTES = (
    f"The model sleeps {POINT.intercept_ms:g} + {POINT.slope_ms:g} n ms for n rows, and blocks its server "
    "meanwhile; scikit-learn is the forest of the digits example.",
    "wrong, lost: answers that were not right, and requests without an answer, of clients that ask all at "
    "once, each about 1 to 3 rows of its own. All else is of wrk, one row a request; faults: rounds in which "
    "requests were refused or connections lost.",
    "Medians over the rounds; cpu in processor seconds per 1000 requests, of what was asked: the server, or "
    "the proxy alone.",
    "The ratio is of requests per second, round by round, with the 95 % interval of its median.",
)


def main(
    only: Annotated[str, typer.Option(help="Projects whose servers are asked.")] = ",".join(REQUIREMENTS),
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each way to each server.")] = 7,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of each measurement.")] = 3.0,
    clients: Annotated[int, typer.Option(min=1, help="Clients that each ask again when answered.")] = 64,
    cache: Annotated[Path, typer.Option(help="Where the servers' environments are kept.")] = CACHE,
    markdown_file: MarkdownFile = None,
) -> None:
    """Ask servers of other projects with the proxy and without it; check all answers, print a table."""
    targets = parse_only(only)
    progress = Console(stderr=True)
    with telling_failures("interop", progress=progress):
        choose_generator("wrk")
        settings = Settings(rounds=rounds, seconds=seconds, clients=clients)
        findings = _measure(targets, cache=cache, settings=settings, progress=progress)
        _keep(findings, targets=targets, cache=cache, clients=clients, markdown_file=markdown_file)
    exit_with([fault for finding in findings for fault in faults(finding)], progress=progress)


def parse_only(given: str) -> list[Target]:
    """Read projects parted by commas; typer.BadParameter names one that is not known."""
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in REQUIREMENTS:
            raise typer.BadParameter(f"no project {name!r}; there are {', '.join(REQUIREMENTS)}")
    if not names:
        raise typer.BadParameter(f"no project is given; there are {', '.join(REQUIREMENTS)}")
    return [target for target in TARGETS if target.project in names]


def _measure(
    targets: Sequence[Target], *, cache: Path, settings: Settings, progress: Console
) -> list[Finding]:
    findings = []
    with progress.status("") as status:
        for target in targets:
            findings.append(measure(target, cache=cache, settings=settings, tell=status.update))
            ratio = interval_text(findings[-1].ratio)
            progress.print(f"{target.name}: {ratio}", markup=False, highlight=False)
    return findings


def _keep(
    findings: Sequence[Finding],
    *,
    targets: Sequence[Target],
    cache: Path,
    clients: int,
    markdown_file: Path | None,
) -> None:
    versions: dict[str, str] = {}
    for project in dict.fromkeys(target.project for target in targets):
        versions |= Environment(folder=cache / project).versions(REQUIREMENTS[project])
    found = origin("benchmarks.interop.bench", versions=versions)
    table, console = sheet(findings, clients=clients), output()
    show(table, console=console)
    for line in [*_NOTES, *origin_lines(found)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if markdown_file is not None:
        markdown_file.write_text(markdown_page(sheets=[markdown(table)], notes=_NOTES, of=found))


def sheet(findings: Sequence[Finding], *, clients: int) -> Sheet:
    """All findings as a table: two lines for each server."""
    figures = ["req/s", "p50 ms", "p99 ms", "rows/call", "cpu", "wrong", "lost", "faults"]
    return Sheet(
        title=f"Servers of other projects, {clients} clients in a closed loop",
        columns=["server", "way", *figures, "proxy / direct"],
        rows=[
            [finding.target, *_cells(way), interval_text(finding.ratio) if way is finding.ways[-1] else ""]
            for finding in findings
            for way in finding.ways
        ],
    )


def _cells(way: Way) -> list[str]:
    return [
        way.name,
        text(median(each.requests_per_second for each in way.rounds), digits=0),
        text(median_known(each.p50 for each in way.rounds), digits=1, scale=1000),
        text(median_known(each.p99 for each in way.rounds), digits=1, scale=1000),
        text(median_known(way.rows_per_call), digits=1),
        text(median_known(each.all_cpu for each in way.rounds), digits=3),
        f"{len(way.checked.wrong)} of {way.checked.requests}",
        str(len(way.checked.lost)),
        str(sum(bool(each.fault or each.refused) for each in way.rounds)),
    ]


def faults(finding: Finding) -> list[str]:
    """Wrong answers, and what else went wrong through the proxy; the first few of each."""
    found = []
    for way in finding.ways:
        kinds = [way.checked.wrong, *([way.checked.lost, way.faults] if way.name == PROXY else [])]
        found += [f"{finding.target}, {way.name}: {fault}" for kind in kinds for fault in kind[:_MOST_FAULTS]]
    return found


if __name__ == "__main__":
    typer.run(main)
