"""Interactive requests beside bulk on a real gateway: with classes, in one queue, and as two APIs.

    scripts/bench classes-live --rounds 5

Interactive requests arrive at random with half of the worker's capacity, and have a goal of 100 ms; bulk is a
closed loop of 256 clients. Then requests of 8 and of 64 groups arrive, with cork and released when the worker
is free.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from benchmarks.harness.cli import MarkdownFile, exit_with, reporting_failures
from benchmarks.harness.paths import SERVICES
from benchmarks.harness.sheets import Sheet, markdown, output, show
from benchmarks.services.classes import GOAL_MS
from uncork_dispatcher.simulator import ServiceTime
from uncork_loadtests.generator.fleet import Outcome, run
from uncork_loadtests.servers import Server
from uncork_loadtests.targets import CLASS_HEADER, our_service
from uncork_loadtests.traffic.plan import Payload, Plan

_SERVICE = f"{SERVICES / 'classes.py'}:Classes"
_MODEL = ServiceTime(intercept_s=0.005, slope_s=0.0005)
_CAPACITY = _MODEL.capacity(workers=1, limit_rows=64)
_LOAD, _GROUPS_LOAD = 0.5, 0.05
_BULK_CLIENTS = 256
_WARMUP_S = 3.0
_ROW = b"[5.1,3.5,1.4,0.2]"


class Way(NamedTuple):
    """A way to serve both kinds of requests: the APIs of each, and the class that bulk names."""

    interactive: str
    bulk: str
    bulk_class: str = ""


WAYS = {
    "classes": Way("classes", "classes", "bulk"),
    "one queue": Way("queue", "queue"),
    "two APIs": Way("interactive", "bulk"),
}


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each way, in turns.")] = 3,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of each, after a warm-up.")] = 10.0,
    markdown_file: MarkdownFile = None,
) -> None:
    """Measure what interactive requests, bulk and groups get on a real gateway."""
    progress = Console(stderr=True)
    both: dict[str, list[list[float]]] = {name: [] for name in WAYS}
    grouped: dict[str, list[list[float]]] = {}
    faults: list[str] = []
    os.environ["PEER_INTERCEPT_MS"] = str(1000 * _MODEL.intercept_s)
    os.environ["PEER_SLOPE_MS"] = str(1000 * _MODEL.slope_s)
    with reporting_failures("classes-live", progress=progress), our_service(_SERVICE) as server:
        for number in range(1, rounds + 1):
            for name, way in WAYS.items():
                progress.print(f"round {number}: {name}")
                interactive, bulk = beside_bulk(server, way, seconds)
                faults += _faults(f"round {number}: {name}", interactive, bulk)
                both[name].append([*_latencies(interactive), bulk.summary().answered_per_s])
            for groups in (8, 64):
                for api in ("groups", "groups-free"):
                    progress.print(f"round {number}: {groups} {api}")
                    found = run(_groups_plan(server, api, groups, seconds))
                    faults += _faults(f"round {number}: {groups} {api}", found)
                    grouped.setdefault(f"{groups} {api}", []).append(_latencies(found))
    columns = ["p50 ms", "p99 ms", "in goal %"]
    sheets = [
        _sheet("Interactive requests beside bulk", ["way", *columns, "bulk rows/s"], both),
        _sheet("Requests in groups", ["groups", *columns], grouped),
    ]
    for sheet in sheets:
        show(sheet, console=output())
    if markdown_file is not None:
        markdown_file.write_text("\n".join(map(markdown, sheets)))
    exit_with(faults, progress=progress)


def beside_bulk(server: Server, way: Way, seconds: float) -> tuple[Outcome, Outcome]:
    """Load both APIs of a way at a time; return the outcomes, interactive requests first."""
    payload = Payload(bodies=(_ROW,))
    headers = ((CLASS_HEADER, way.bulk_class),) if way.bulk_class else ()
    bulk = Plan(
        url=server.url(f"/{way.bulk}"),
        payload=payload,
        headers=headers,
        clients=_BULK_CLIENTS,
        seconds=seconds,
        warmup_s=_WARMUP_S,
    )
    interactive = Plan(
        url=server.url(f"/{way.interactive}"),
        payload=payload,
        rate=_LOAD * _CAPACITY,
        seconds=seconds,
        warmup_s=_WARMUP_S,
        goal_s=GOAL_MS / 1000,
    )
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, (interactive, bulk))
    return first, second


def _groups_plan(server: Server, api: str, groups: int, seconds: float) -> Plan:
    return Plan(
        url=server.url(f"/{api}"),
        payload=Payload(bodies=tuple([b'{"g":%d,"x":%b}' % (group, _ROW) for group in range(groups)])),
        rate=_GROUPS_LOAD * _CAPACITY,
        seconds=seconds,
        warmup_s=_WARMUP_S,
        goal_s=1.0,
    )


def _latencies(outcome: Outcome) -> list[float]:
    """Return p50 and p99 in ms, and the share of requests in goal in percent."""
    summary = outcome.summary()
    percentiles = {} if summary.latency is None else summary.latency.percentiles_ms
    p50, p99 = (percentiles.get(name) or float("nan") for name in ("50", "99"))
    return [p50, p99, 100 * (summary.in_goal or 0.0)]


def _faults(what: str, *outcomes: Outcome) -> list[str]:
    """Return why outcomes say nothing. Refusals of bulk are part of what is measured."""
    return [f"{what}: {outcome.void}" for outcome in outcomes if outcome.void]


def _sheet(title: str, columns: list[str], found: dict[str, list[list[float]]]) -> Sheet:
    """Return a table with the medians over the rounds."""
    rows = [
        [name, *[f"{median(values):.1f}" for values in zip(*rounds, strict=True)]]
        for name, rounds in found.items()
    ]
    return Sheet(title=title, columns=columns, rows=rows)


if __name__ == "__main__":
    typer.run(main)
