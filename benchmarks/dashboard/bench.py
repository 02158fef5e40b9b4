"""Measure what the dashboard costs, in one run; prints a section of docs/benchmarks.md. Or take its pictures.

A report, never a test; answers that are lost or wrong are faults.

    python -m benchmarks.dashboard.bench --rounds 10
    python -m benchmarks.dashboard.bench --screenshot docs/pictures/dashboard.png
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from benchmarks.dashboard.page import Look, chromium, open_cold_and_warm, take_pictures, watching
from benchmarks.fault_costs.findings import Tell, faults_of, put_through
from benchmarks.harness.paths import EXAMPLES
from benchmarks.harness.section import section
from benchmarks.harness.sheets import Sheet, median_known, text
from benchmarks.pairs.pairs import digit_bodies
from benchmarks.peers.tables import interval_text
from uncork_loadtests.endings import exit_with, telling_failures
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.samples import SHED
from uncork_loadtests.intervals import Interval, median_interval
from uncork_loadtests.servers import HOST, BenchError, Server, serve
from uncork_loadtests.traffic.plan import Payload, Plan

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_SERVICE = f"{EXAMPLES / 'digits' / 'service.py'}:Digits"
_WORKERS = 2
# On a busy machine batches take so long that some requests cannot be answered in time.
_ALLOWED = frozenset({200, SHED})
# Long enough for the charts to have something to show on their whole width.
_PICTURE_S = 70.0


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One load, with the dashboard open or not."""

    watched: bool
    outcome: Outcome
    cpu_ms: float
    """Processor milliseconds of the gateway process for 1000 requests."""


def main(
    rounds: Annotated[int, typer.Option(min=2, help="Loads with the dashboard open, and without.")] = 10,
    seconds: Annotated[float, typer.Option(min=2, help="Seconds of each, after 1 s of warm-up.")] = 5.0,
    rate: Annotated[float, typer.Option(min=1, help="Requests per second, Poisson arrivals.")] = 100.0,
    looks: Annotated[int, typer.Option(min=1, help="Times that the page is opened.")] = 5,
    screenshot: Annotated[
        Path | None,
        typer.Option(
            help="Measure nothing: write pictures of the page under load, as NAME.png, NAME-dark.png."
        ),
    ] = None,
) -> None:
    """Measure what the dashboard of examples/digits costs under load, or take its pictures."""
    progress = Console(stderr=True)
    faults: list[str] = []
    with (
        telling_failures("dashboard", progress=progress),
        progress.status("starting") as status,
        _gateway() as server,
        chromium() as browser,
    ):
        if screenshot is not None:
            _photograph(server, browser, path=screenshot, rate=rate)
        else:
            put_through(_plan(server, rate, seconds), tell=lambda progress: None)
            seen = [open_cold_and_warm(browser, server.url("/dashboard")) for _ in range(looks)]
            turns = _measure(server, browser, _plan(server, rate, seconds), rounds=rounds, tell=status.update)
            faults = [
                fault for turn in turns for fault in faults_of("dashboard", turn.outcome, allowed=_ALLOWED)
            ]
            typer.echo(text_of(turns, seen), nl=False)
    exit_with(faults, progress=progress)


@contextlib.contextmanager
def _gateway() -> Iterator[Server]:
    command = [sys.executable, "-m", "uncork", "serve", _SERVICE, "--workers", str(_WORKERS), "--host", HOST]
    with serve("uncork", command=command) as server:
        yield server


def _plan(server: Server, rate: float, seconds: float) -> Plan:
    payload = Payload(bodies=tuple(digit_bodies()))
    return Plan(url=server.url("/predict"), payload=payload, rate=rate, seconds=seconds)


def _photograph(server: Server, browser: Browser, *, path: Path, rate: float) -> None:
    with watching(browser, server.url("/dashboard")) as page:
        plan = _plan(server, rate, _PICTURE_S)
        seconds = itertools.count(1)

        def tell(progress: object) -> None:
            # Near the end, but while there is load.
            if next(seconds) == round(_PICTURE_S) - 3:
                take_pictures(page, path)

        put_through(plan, tell=tell)


def _measure(server: Server, browser: Browser, plan: Plan, *, rounds: int, tell: Tell) -> list[Turn]:
    """In turns, and each pair in the other order: what else the machine does falls on both alike."""
    turns = []
    for number in range(rounds):
        for watched in (False, True) if number % 2 else (True, False):
            tell(f"round {number + 1} of {rounds}, {'open' if watched else 'closed'}")
            opened = watching(browser, server.url("/dashboard")) if watched else contextlib.nullcontext()
            with opened:
                turns.append(_turn(server, plan, watched=watched))
    return turns


def _turn(server: Server, plan: Plan, *, watched: bool) -> Turn:
    before = server.cpu()
    outcome = put_through(plan, tell=lambda progress: None)
    after = server.cpu()
    if before is None or after is None:
        raise BenchError(f"the processor time of the gateway is not known\n{server.last_words()}")
    cpu_ms = 1e6 * (after.server - before.server) / len(outcome.samples)
    return Turn(watched=watched, outcome=outcome, cpu_ms=cpu_ms)


def text_of(turns: Sequence[Turn], seen: Sequence[tuple[Look, Look]]) -> str:
    """The section."""
    plan = turns[0].outcome.plan
    return section(
        "The dashboard",
        script="scripts/bench-dashboard",
        paragraphs=[
            f"examples/digits, {_WORKERS} workers, {plan.rate:g} requests/s with Poisson arrivals. The "
            "dashboard is open in headless Chromium on the same machine, or closed; the order changes from "
            "round to round. Before, the page was opened without load, with an empty cache and again.",
        ],
        sheets=[_cpu_sheet(turns), _time_sheet(seen), _weight_sheet(seen[0])],
        packages=["plotly"],
    )


def cpu_ratio(turns: Sequence[Turn]) -> Interval:
    """Processor time with the dashboard open by that without, round by round."""
    opened, closed = ([turn.cpu_ms for turn in turns if turn.watched is watched] for watched in (True, False))
    return median_interval([one / other for one, other in zip(opened, closed, strict=True)])


def _cpu_sheet(turns: Sequence[Turn]) -> Sheet:
    rows = []
    for name, watched in (("closed", False), ("open", True)):
        of = [turn for turn in turns if turn.watched is watched]
        p50_ms = median_known(_p50_ms(turn.outcome) for turn in of)
        cpu_ms = median(turn.cpu_ms for turn in of)
        refused = sum(turn.outcome.summary().shed for turn in of)
        rows.append([name, text(cpu_ms, digits=0), text(p50_ms, digits=2), str(refused), str(len(of))])
    ratio = cpu_ratio(turns)
    return Sheet(
        title="Processor time of the gateway",
        columns=["dashboard", "ms for 1000 requests", "p50 ms", "refused", "rounds"],
        rows=rows,
        notes=[f"open / closed, processor time: {interval_text(ratio)}"],
    )


def _p50_ms(outcome: Outcome) -> float | None:
    latency = outcome.summary().latency
    return latency.percentiles_ms["50"] if latency else None


def _time_sheet(seen: Sequence[tuple[Look, Look]]) -> Sheet:
    kinds: Sequence[tuple[str, Callable[[tuple[Look, Look]], Look]]] = (
        ("empty", lambda pair: pair[0]),
        ("filled", lambda pair: pair[1]),
    )
    rows = []
    for name, of in kinds:
        times = [of(pair).first_chart_ms for pair in seen]
        cells = [text(value, digits=0) for value in (median(times), min(times), max(times))]
        rows.append([name, *cells, text(sum(of(seen[0]).bytes_of.values()), digits=1, scale=1e-3)])
    columns = ["cache", "first chart, median ms", "fastest", "slowest", "kB over the wire"]
    return Sheet(title="Time to the first chart", columns=columns, rows=rows)


def _weight_sheet(looks: tuple[Look, Look]) -> Sheet:
    cold, warm = (look.bytes_of for look in looks)
    rows = [
        [path, text(size, digits=1, scale=1e-3), text(warm.get(path, 0), digits=1, scale=1e-3)]
        for path, size in sorted(cold.items(), key=lambda item: -item[1])
    ]
    columns = ["file", "kB, empty cache", "kB, filled cache"]
    return Sheet(title="Weight of the page, over the wire", columns=columns, rows=rows)


if __name__ == "__main__":
    typer.run(main)
