"""Measure Uncork beside servers of other projects that serve the same models, in one run.

Each peer runs in a virtual environment of its own, made from PyPI when it is first needed, with one
worker, batches of at most 64 rows, and each of its settings. A report, never a test: a disappointing ratio
is no failure, wrong answers are. Ratios within one run compare; numbers of different runs do not.

    python -m uncork_loadtests.peers.bench --peers mosec,static --model-points 1,0.02 --rounds 3
"""

import importlib.metadata
import os
import platform
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal, NoReturn

import msgspec
import typer
from rich.console import Console

from uncork_loadtests.pairs import choose_generator
from uncork_loadtests.peers.catalogue import PEERS, Peer
from uncork_loadtests.peers.contest import Outcome, Settings, compete
from uncork_loadtests.peers.entrants import OURS, Work, digits_work, sleep_work
from uncork_loadtests.peers.environments import Environment
from uncork_loadtests.peers.judge import ModelPoint
from uncork_loadtests.peers.tables import show
from uncork_loadtests.servers import BenchError

_CACHE = Path(__file__).parents[3] / ".peers"
_PIPED_WIDTH = 110  # room for the table; a pipe has no width to ask for
_CHOSEN = ",".join(name for name, peer in PEERS.items() if peer.chosen)


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything a run was and found, as written with --json."""

    command: str
    versions: Mapping[str, str]
    processors: int | None
    settings: Settings
    outcomes: Sequence[Outcome]


def main(
    model_points: Annotated[
        str, typer.Option(help="Sleeping models, INTERCEPT,SLOPE in ms and ms per row, parted by semicolons.")
    ] = "1,0.02;5,0.1;40,1",
    digits: Annotated[bool, typer.Option("--digits", help="Also the forest of the digits example.")] = False,
    connections: Annotated[str, typer.Option(help="Numbers of closed-loop clients.")] = "1,16,64,256",
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each server at each point.")] = 10,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of each measurement.")] = 4.0,
    peers: Annotated[str, typer.Option(help=f"Peers to measure, of {', '.join(PEERS)}.")] = _CHOSEN,
    load: Annotated[
        Literal["auto", "python", "wrk"],
        typer.Option(help="Generator; auto is wrk where it is installed."),
    ] = "auto",
    cache: Annotated[Path, typer.Option(help="Where the peers' environments are kept.")] = _CACHE,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything measured to this file.")
    ] = None,
) -> None:
    """Measure Uncork beside its peers and print tables with the ratio to the best of them."""
    # So that servers are ended also when the bench is told to stop.
    signal.signal(signal.SIGTERM, _stop)
    console, progress = Console(), Console(stderr=True)
    if not console.is_terminal:
        console = Console(width=_PIPED_WIDTH)
    chosen = parse_peers(peers)
    points = parse_points(model_points)
    clients = parse_connections(connections)
    try:
        settings = Settings(
            connections=clients, rounds=rounds, seconds=seconds, generator=choose_generator(load)
        )
        works = [*map(sleep_work, points), *([digits_work()] if digits else [])]
        outcomes = []
        for work in works:
            outcomes.append(
                _outcome(work, peers=chosen, cache=cache, settings=settings, consoles=(console, progress))
            )
            report = _report(outcomes, peers=chosen, cache=cache, settings=settings)
            # After each model, so that a failure of the next does not lose what is known.
            if json_file is not None:
                json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    except BenchError as error:
        progress.print(f"bench: {error}", style="red", markup=False)
        raise typer.Exit(1) from error
    _show_origin(report, peers=chosen, console=console)
    wrong = [fault for outcome in outcomes for fault in outcome.wrong]
    for fault in wrong:
        progress.print(f"wrong: {fault}", style="red", markup=False)
    raise typer.Exit(1 if wrong else 0)


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
        raise typer.BadParameter(f"numbers of clients must be at least 1, not {min(found)}")
    return found


def _outcome(
    work: Work, *, peers: Sequence[Peer], cache: Path, settings: Settings, consoles: tuple[Console, Console]
) -> Outcome:
    console, progress = consoles
    with progress.status(work.name) as status:
        outcome = compete(work, peers=peers, cache=cache, settings=settings, tell=status.update)
    for point in outcome.points:
        show(point, console=console)
    for command in outcome.commands.values():
        console.print(f"$ {command}", style="dim", markup=False, soft_wrap=True)
    for fault in outcome.left_out:
        console.print(f"left out: {fault}", markup=False, soft_wrap=True)
    console.print()
    return outcome


def _report(outcomes: Sequence[Outcome], *, peers: Sequence[Peer], cache: Path, settings: Settings) -> Report:
    versions = {
        platform.python_implementation(): platform.python_version(),
        OURS: importlib.metadata.version(OURS),
    }
    for peer in peers:
        found = Environment(folder=cache / peer.name)
        versions |= {f"{peer.name}: {name}": v for name, v in found.versions(peer.requirements).items()}
    return Report(
        command=shlex.join(["python", "-m", "uncork_loadtests.peers.bench", *sys.argv[1:]]),
        versions=versions,
        processors=os.cpu_count(),
        settings=settings,
        outcomes=outcomes,
    )


def _show_origin(report: Report, *, peers: Sequence[Peer], console: Console) -> None:
    for peer in PEERS.values():
        if peer.note and (peer in peers or not peer.chosen):
            console.print(f"{peer.name}: {peer.note}", markup=False, soft_wrap=True)
    console.print(f"Generator: {report.settings.generator}. The limit is that of the model alone.")
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    console.print(f"{versions}; {report.processors} processors", style="dim", markup=False, soft_wrap=True)
    console.print(f"$ {report.command}", style="dim", markup=False, soft_wrap=True)


def _stop(signal_number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + signal_number)


if __name__ == "__main__":
    typer.run(main)
