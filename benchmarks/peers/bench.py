"""Compare Uncork with servers of other projects that serve the same models, in one run.

Each peer runs in its own virtual environment, made from PyPI when first needed, with one worker, batches of
at most 64 rows, and each of its settings. Exits with 1 if an answer is wrong, not if a mark is missed. Ratios
within one run compare; figures of different runs do not.

    scripts/bench peers --peers mosec,static --model-points 1,0.02 --rounds 3
    scripts/bench peers --loop open --rates 30,90 --markdown table.md
    scripts/bench peers --embeddings --connections 1,8,64 --rounds 3
"""

import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from benchmarks.harness.cli import MarkdownFile, choose, exit_with, parse_counts, reporting_failures
from benchmarks.harness.environments import Environment
from benchmarks.harness.paths import CACHE
from benchmarks.harness.report import Origin, markdown_page, origin, origin_lines
from benchmarks.harness.sheets import Sheet, output, show
from benchmarks.harness.wrk import choose_generator
from benchmarks.peers.catalogue import EMBEDDERS, PEERS, ModelPoint, Peer
from benchmarks.peers.contest import Contest, Settings, compete
from benchmarks.peers.entrants import Work, digits_work, embeddings_works, sleep_work
from benchmarks.peers.tables import beside_sheet, marks_sheet, point_sheet

_CHOSEN = ",".join(name for name, peer in PEERS.items() if peer.chosen)


def main(
    model_points: Annotated[
        str,
        typer.Option(help="Sleeping models, INTERCEPT,SLOPE in ms and ms per row, separated by semicolons."),
    ] = "1,0.02;5,0.1;40,1",
    digits: Annotated[
        bool, typer.Option("--digits", help="Also the forest of the digits example, in a closed loop.")
    ] = False,
    embeddings: Annotated[
        bool,
        typer.Option(
            "--embeddings",
            help=f"Only a text encoder, for one text or many; --peers are of {', '.join(EMBEDDERS)}.",
        ),
    ] = False,
    loop: Annotated[
        Literal["closed", "open", "both"],
        typer.Option(help="Clients that wait for their answers, or Poisson arrivals."),
    ] = "closed",
    connections: Annotated[str, typer.Option(help="Closed loop: numbers of clients.")] = "1,16,64,256",
    rates: Annotated[
        str,
        typer.Option(help="Open loop: percentages of the model's capacity, or of 4000/s if that is less."),
    ] = "10,30,60,90",
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each server at each point.")] = 10,
    seconds: Annotated[
        float,
        typer.Option(min=1, help="Seconds of each measurement; an open loop takes at least 600 requests."),
    ] = 4.0,
    apart: Annotated[
        bool,
        typer.Option(
            "--apart",
            help="Run one peer at a time with Uncork, so that the others take no CPU time.",
        ),
    ] = False,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compiled", help="Measure Uncork with the compiled core too; scripts/bench peers compiles it."
        ),
    ] = False,
    peers: Annotated[
        str, typer.Option(help=f"Peers to measure, of {', '.join(PEERS)}.", show_default=_CHOSEN)
    ] = "",
    load: Annotated[
        Literal["auto", "python", "wrk"],
        typer.Option(help="Generator of the closed loop; auto is wrk if it is installed."),
    ] = "auto",
    markdown_file: MarkdownFile = None,
) -> None:
    """Compare Uncork with its peers, print tables, and judge the marks."""
    known = EMBEDDERS if embeddings else PEERS
    default = ",".join(name for name, peer in known.items() if peer.chosen)
    chosen = [known[name] for name in choose(peers or default, list(known), what="peer")]
    points = parse_points(model_points)
    clients, percentages = parse_counts(connections), parse_rates(rates)
    if loop == "open" and not points:
        raise typer.BadParameter("an open loop needs --model-points: the capacity of digits is unknown")
    progress = Console(stderr=True)
    with reporting_failures("bench", progress=progress), tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            connections=clients if loop != "open" else [],
            rates=percentages if loop != "closed" else [],
            rounds=rounds,
            seconds=seconds,
            generator="python" if embeddings else choose_generator(load),
            apart=apart,
            compiled=str(Environment(folder=CACHE / "compiled").python) if compiled else "",
        )
        works = (
            embeddings_works(Path(folder))
            if embeddings
            else [
                *map(sleep_work, points),
                *([digits_work()] if digits else []),
            ]
        )
        results = _measure(works, peers=chosen, settings=settings, progress=progress)
        sheets, notes, of = _summary(results, apart=apart), _notes_on(chosen, settings), _origin_of(chosen)
        for sheet in sheets:
            lines = () if sheet is not sheets[-1] else (*notes, *origin_lines(of))
            show(sheet, console=output(), lines=lines)
        if markdown_file is not None:
            markdown_file.write_text(_page(sheets, results, notes=notes, of=of))
    exit_with([fault for result in results for fault in result.wrong], progress=progress)


def parse_points(text: str) -> list[ModelPoint]:
    """Parse INTERCEPT,SLOPE;...; raise typer.BadParameter if a pair is not two numbers that make a time."""
    found = []
    for pair in filter(None, text.split(";")):
        try:
            intercept_ms, slope_ms = map(float, pair.split(","))
        except ValueError as error:
            raise typer.BadParameter(f"{pair!r} is not INTERCEPT,SLOPE, such as 5,0.1") from error
        if not (0 <= intercept_ms < 10_000 and 0 <= slope_ms < 100 and intercept_ms + slope_ms > 0):
            raise typer.BadParameter(
                f"{pair!r}: the intercept must be 0 to 10000 ms, the slope 0 to 100 ms, and not both 0"
            )
        found.append(ModelPoint(intercept_ms=intercept_ms, slope_ms=slope_ms))
    return found


def parse_rates(text: str) -> list[float]:
    """Parse percentages above 0 and up to 100, lowest first; raise typer.BadParameter for others."""
    try:
        found = sorted(float(each) for each in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a list of percentages, such as 30,90") from error
    if not all(0 < each <= 100 for each in found):
        raise typer.BadParameter(f"percentages must be above 0 and at most 100, not {text!r}")
    return found


def _measure(
    works: Sequence[Work],
    *,
    peers: Sequence[Peer],
    settings: Settings,
    progress: Console,
) -> list[Contest]:
    console = output()
    results: list[Contest] = []
    groups = [[peer] for peer in peers] if settings.apart else [peers]
    for work, group in product(works, groups):
        with progress.status(work.name) as status:
            results.append(compete(work, peers=group, settings=settings, tell=status.update))
        _show(results[-1], console=console)
    return results


def _show(result: Contest, *, console: Console) -> None:
    for point in result.points:
        show(point_sheet(point), console=console)
    lines = [f"$ {command}" for command in result.commands.values()]
    lines += [f"left out: {fault}" for fault in result.left_out]
    for name, words in result.last_words.items():
        lines.append(f"last output of {name}:\n{words or '(none)'}")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print()


def _origin_of(peers: Sequence[Peer]) -> Origin:
    """Describe this run, with the versions of the peers."""
    versions: dict[str, str] = {}
    for peer in peers:
        found = Environment(folder=CACHE / peer.name)
        versions |= {f"{peer.name}: {name}": v for name, v in found.versions(peer.requirements).items()}
    return origin("scripts/bench peers", versions=versions)


def _notes_on(peers: Sequence[Peer], settings: Settings) -> list[str]:
    """Return notes on the peers, including those that were not measured, and on the load."""
    others = [] if peers[0].name in EMBEDDERS else [peer for peer in PEERS.values() if not peer.chosen]
    notes = [f"{peer.name}: {peer.note}" for peer in dict.fromkeys([*peers, *others]) if peer.note]
    if settings.connections:
        notes.append(f"Generator of the closed loop: {settings.generator}.")
    return [*notes, "The limit is the rate of one worker in full batches, if only the model took time."]


def _summary(results: Sequence[Contest], *, apart: bool) -> list[Sheet]:
    """Tabulate the results of all models and loads."""
    judged = any(each.mark.bound for result in results for point in result.points for each in point.verdicts)
    if apart or not judged:
        return [beside_sheet(results, figure=figure) for figure in ("requests_per_second", "p99")]
    return [marks_sheet(results)]


def _page(sheets: Sequence[Sheet], results: Sequence[Contest], *, notes: Sequence[str], of: Origin) -> str:
    """Write all tables in Markdown, the summary first."""
    points = [point_sheet(point) for result in results for point in result.points]
    left_out = [fault for result in results for fault in result.left_out]
    lines = [*notes, *(f"Left out: {' '.join(fault.split())}" for fault in left_out)]
    return markdown_page([*sheets, *points], notes=lines, of=of)
