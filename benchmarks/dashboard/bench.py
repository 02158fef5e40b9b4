"""Measure the costs of the dashboard and print docs/results/dashboard.md, or take its pictures.

Exits with 1 if an answer is lost or wrong.

    python -m benchmarks.dashboard.bench --rounds 10
    python -m benchmarks.dashboard.bench --pictures docs/pictures
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from benchmarks.bench import digit_bodies
from benchmarks.dashboard.history import share_of_processor
from benchmarks.dashboard.page import Look, chromium, open_cold_and_warm, take_picture, watching
from benchmarks.fault_costs.findings import faults_of
from benchmarks.harness.cli import exit_with, reporting_failures
from benchmarks.harness.commands import uncork_serve
from benchmarks.harness.marks import ratio_interval
from benchmarks.harness.paths import EXAMPLES
from benchmarks.harness.report import ResultPage
from benchmarks.harness.rounds import interleave, run_plan
from benchmarks.harness.sheets import Sheet, interval_text, median_known, text
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.samples import SHED
from uncork_loadtests.intervals import Interval
from uncork_loadtests.servers import BenchError, Server, serve
from uncork_loadtests.traffic.plan import Payload, Plan

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_SERVICE = f"{EXAMPLES / 'digits' / 'service.py'}:Digits"
_WORKERS = 2
# On a busy machine some requests cannot be answered in time.
_ALLOWED = frozenset({200, SHED})
# Long enough to fill the charts, and the time that the pictures take.
_PICTURE_S = 150.0
_POSING_S = 30
_PICTURES = {
    "dashboard": (1440, "light"),
    "dashboard-dark": (1440, "dark"),
    "dashboard-1024": (1024, "light"),
    "dashboard-390": (390, "dark"),
}
PAGE = ResultPage(
    title="The cost of the dashboard",
    introduction="""
        The processor time that an open [dashboard](../guides/dashboard.md) costs the gateway, and the time
        and bytes that the page takes to load.
    """,
    script="scripts/bench dashboard",
    packages=["plotly"],
)


_APIS = (1, 32)

OPEN, CLOSED = "open", "closed"


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One load, with the dashboard open or closed."""

    outcome: Outcome
    cpu_ms: float
    """Processor milliseconds of the gateway process per 1000 requests."""


def main(
    rounds: Annotated[int, typer.Option(min=2, help="Loads with the dashboard open, and without.")] = 10,
    seconds: Annotated[float, typer.Option(min=2, help="Seconds of each, after 1 s of warm-up.")] = 5.0,
    rate: Annotated[float, typer.Option(min=1, help="Requests per second, Poisson arrivals.")] = 100.0,
    looks: Annotated[int, typer.Option(min=1, help="How often to open the page.")] = 5,
    pictures: Annotated[
        Path | None,
        typer.Option(
            help="Instead of measuring, write pictures of the page to this folder: idle, and under load in "
            "light and dark, at widths of 1440, 1024 and 390 pixels."
        ),
    ] = None,
) -> None:
    """Measure the costs of the dashboard of examples/digits under load, or take its pictures."""
    progress = Console(stderr=True)
    faults: list[str] = []
    # Without the browser, whose driver occupies the event loop.
    history = [_history_sheet()] if pictures is None else []
    with (
        reporting_failures("dashboard", progress=progress),
        progress.status("starting") as status,
        serve("uncork", command=uncork_serve(_SERVICE, {"--workers": _WORKERS})) as server,
        chromium() as browser,
    ):
        if pictures is not None:
            _photograph(server, browser, folder=pictures, rate=rate)
        else:
            plan = _plan(server, rate, seconds)
            run_plan(plan)
            seen = [open_cold_and_warm(browser, server.url("/dashboard")) for _ in range(looks)]
            turns = interleave(
                (OPEN, CLOSED),
                rounds=rounds,
                measure=lambda name, _: _turn(server, browser, plan, is_open=name == OPEN),
                tell=status.update,
            )
            outcomes = [turn.outcome for each in turns.values() for turn in each]
            faults = [fault for one in outcomes for fault in faults_of("dashboard", one, allowed=_ALLOWED)]
            typer.echo(text_of(turns, history, seen), nl=False)
    exit_with(faults, progress=progress)


def _plan(server: Server, rate: float, seconds: float) -> Plan:
    payload = Payload(bodies=tuple(digit_bodies()))
    return Plan(url=server.url("/predict"), payload=payload, rate=rate, seconds=seconds)


def _photograph(server: Server, browser: Browser, *, folder: Path, rate: float) -> None:
    with watching(browser, server.url("/dashboard")) as page:
        take_picture(page, folder / "dashboard-idle.png")
        plan = _plan(server, rate, _PICTURE_S)
        seconds = itertools.count(1)

        def tell(progress: object) -> None:
            # Near the end, but still under load.
            if next(seconds) == round(_PICTURE_S) - _POSING_S:
                for name, (width, scheme) in _PICTURES.items():
                    take_picture(page, folder / f"{name}.png", width=width, scheme=scheme)

        run_plan(plan, tell=tell)


def _turn(server: Server, browser: Browser, plan: Plan, *, is_open: bool) -> Turn:
    with watching(browser, server.url("/dashboard")) if is_open else contextlib.nullcontext():
        before = server.cpu()
        outcome = run_plan(plan)
        after = server.cpu()
    if before is None or after is None:
        raise BenchError(f"the processor time of the gateway is unknown\n{server.last_words()}")
    return Turn(outcome=outcome, cpu_ms=1e6 * (after.server - before.server) / len(outcome.samples))


def text_of(
    turns: Mapping[str, Sequence[Turn]], history: Sequence[Sheet], seen: Sequence[tuple[Look, Look]]
) -> str:
    plan = turns[OPEN][0].outcome.plan
    return PAGE.text(
        paragraphs=[
            f"[`examples/digits`](../../examples/digits/README.md), {_WORKERS} workers, "
            f"{plan.rate:g} requests/s with Poisson arrivals. The dashboard is open in headless Chromium on "
            "the same machine, or closed; the order alternates. Load times are without requests, first with "
            "an empty cache, then with a filled one.",
        ],
        sheets=[_cpu_sheet(turns), *history, _time_sheet(seen), _weight_sheet(seen[0])],
    )


def cpu_ratio(turns: Mapping[str, Sequence[Turn]]) -> Interval | None:
    """Return the processor time with the dashboard open by that without, round by round."""
    opened, closed = ([turn.cpu_ms for turn in turns[name]] for name in (OPEN, CLOSED))
    return ratio_interval(opened, by=closed)


def _cpu_sheet(turns: Mapping[str, Sequence[Turn]]) -> Sheet:
    rows = []
    for name in (CLOSED, OPEN):
        of = turns[name]
        p50_ms = median_known(_p50_ms(turn.outcome) for turn in of)
        cpu_ms = median(turn.cpu_ms for turn in of)
        refused = sum(turn.outcome.summary().shed for turn in of)
        rows.append([name, text(cpu_ms, digits=0), text(p50_ms, digits=2), str(refused), str(len(of))])
    ratio = cpu_ratio(turns)
    return Sheet(
        title="Processor time of the gateway",
        columns=["dashboard", "ms per 1000 requests", "p50 ms", "refused", "rounds"],
        rows=rows,
        notes=[f"open / closed, processor time: {interval_text(ratio)}"],
    )


def _history_sheet() -> Sheet:
    rows = [[str(apis), text(100 * share_of_processor(apis), digits=3)] for apis in _APIS]
    return Sheet(
        title="Processor time of the history, without a viewer",
        columns=["APIs", "% of a processor"],
        rows=rows,
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
    columns = ["cache", "first chart, median ms", "fastest ms", "slowest ms", "kB transferred"]
    return Sheet(title="Time to the first chart", columns=columns, rows=rows)


def _weight_sheet(looks: tuple[Look, Look]) -> Sheet:
    cold, warm = (look.bytes_of for look in looks)
    rows = [
        [path, text(size, digits=1, scale=1e-3), text(warm.get(path, 0), digits=1, scale=1e-3)]
        for path, size in sorted(cold.items(), key=lambda item: -item[1])
    ]
    columns = ["file", "kB, empty cache", "kB, filled cache"]
    return Sheet(title="Bytes transferred, by file", columns=columns, rows=rows)


if __name__ == "__main__":
    typer.run(main)
