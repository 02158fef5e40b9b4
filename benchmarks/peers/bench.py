"""Measure Uncork beside servers of other projects that serve the same models, in one run.

Each peer runs in a virtual environment of its own, made from PyPI when it is first needed, with one
worker, batches of at most 64 rows, and each of its settings. A report, never a test: a mark that is missed
is no failure, wrong answers are. Ratios within one run compare; numbers of different runs do not.

    python -m benchmarks.peers.bench --peers mosec,static --model-points 1,0.02 --rounds 3
    python -m benchmarks.peers.bench --loop open --rates 30,90 --markdown table.md --plot pictures
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from benchmarks.harness.paths import CACHE
from benchmarks.harness.sheets import output, show
from benchmarks.pairs.pairs import choose_generator
from benchmarks.peers.catalogue import PEERS, Peer
from benchmarks.peers.contest import Outcome, Settings, compete
from benchmarks.peers.entrants import Work, digits_work, sleep_work
from benchmarks.peers.model_point import ModelPoint
from benchmarks.peers.pictures import draw
from benchmarks.peers.report import Report, make_report, origin_lines, page
from benchmarks.peers.tables import marks_sheet, point_sheet
from uncork_loadtests.endings import JsonFile, MarkdownFile, exit_with, telling_failures, write_json
from uncork_loadtests.extras import require

_CHOSEN = ",".join(name for name, peer in PEERS.items() if peer.chosen)


def main(
    model_points: Annotated[
        str, typer.Option(help="Sleeping models, INTERCEPT,SLOPE in ms and ms per row, parted by semicolons.")
    ] = "1,0.02;5,0.1;40,1",
    digits: Annotated[
        bool, typer.Option("--digits", help="Also the forest of the digits example, in a closed loop.")
    ] = False,
    loop: Annotated[
        Literal["closed", "open", "both"],
        typer.Option(help="Clients that wait for their answer, or requests that come at their times."),
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
    peers: Annotated[str, typer.Option(help=f"Peers to measure, of {', '.join(PEERS)}.")] = _CHOSEN,
    load: Annotated[
        Literal["auto", "python", "wrk"],
        typer.Option(help="Generator of the closed loop; auto is wrk where it is installed."),
    ] = "auto",
    cache: Annotated[Path, typer.Option(help="Where the peers' environments are kept.")] = CACHE,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
    plot: Annotated[Path | None, typer.Option(help="Write pictures (SVG) into this folder.")] = None,
) -> None:
    """Measure Uncork beside its peers, print tables, and judge what has a mark."""
    chosen, points = parse_peers(peers), parse_points(model_points)
    clients, percentages = parse_connections(connections), parse_rates(rates)
    if loop == "open" and not points:
        raise typer.BadParameter("an open loop needs --model-points: the capacity of digits is not known")
    progress = Console(stderr=True)
    with telling_failures("bench", progress=progress):
        if plot is not None:
            require("matplotlib.figure", wanted_by="--plot")
        settings = Settings(
            connections=clients if loop != "open" else [],
            rates=percentages if loop != "closed" else [],
            rounds=rounds,
            seconds=seconds,
            generator=choose_generator(load),
        )
        works = [*map(sleep_work, points), *([digits_work()] if digits else [])]
        report = _measure(
            works, peers=chosen, cache=cache, settings=settings, json_file=json_file, progress=progress
        )
        if markdown_file is not None:
            markdown_file.write_text(page(report))
        if plot is not None:
            draw(report.outcomes, folder=plot)
    exit_with([fault for outcome in report.outcomes for fault in outcome.wrong], progress=progress)


def parse_peers(text: str) -> list[Peer]:
    """Read names parted by commas; typer.BadParameter names one that is not known."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in PEERS:
            raise typer.BadParameter(f"no peer {name!r}; there are {', '.join(PEERS)}")
    return [PEERS[name] for name in names]


def parse_points(text: str) -> list[ModelPoint]:
    """Read INTERCEPT,SLOPE;...; typer.BadParameter if a pair is not two numbers that make a time."""
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


def parse_connections(text: str) -> list[int]:
    """Read whole numbers parted by commas; typer.BadParameter unless there is one and all are at least 1."""
    try:
        found = [int(each) for each in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a list of whole numbers, such as 1,64") from error
    if min(found) < 1:
        raise typer.BadParameter(f"each of {text!r} must be at least 1, not {min(found)}")
    return found


def parse_rates(text: str) -> list[float]:
    """Read percentages parted by commas, lowest first; typer.BadParameter unless all are above 0, to 100."""
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
    cache: Path,
    settings: Settings,
    json_file: Path | None,
    progress: Console,
) -> Report:
    console = output()
    outcomes: list[Outcome] = []
    report = make_report(outcomes, peers=peers, cache=cache, settings=settings)
    for work in works:
        with progress.status(work.name) as status:
            outcomes.append(compete(work, peers=peers, cache=cache, settings=settings, tell=status.update))
        _show(outcomes[-1], console=console)
        # After each model, so that a failure of the next does not lose what is known.
        report = make_report(outcomes, peers=peers, cache=cache, settings=settings)
        if json_file is not None:
            write_json(report, json_file)
    show(marks_sheet(outcomes), console=console)
    for line in [*report.notes, *origin_lines(report.origin)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return report


def _show(outcome: Outcome, *, console: Console) -> None:
    for point in outcome.points:
        show(point_sheet(point), console=console)
    lines = [f"$ {command}" for command in outcome.commands.values()]
    lines += [f"left out: {fault}" for fault in outcome.left_out]
    for name, words in outcome.last_words.items():
        lines.append(f"{name} wrote last:\n{words or '(nothing)'}")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print()


if __name__ == "__main__":
    typer.run(main)
