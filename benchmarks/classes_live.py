"""Interactive requests with bulk on a real gateway: with classes, in one queue, and as two APIs.

    scripts/bench classes-live --rounds 3

Interactive requests arrive at random with half of the worker's capacity and have a goal of 100 ms; bulk is a
closed loop of 256 clients. The first way is also simulated. Then requests of 8 and of 64 groups arrive, with
`cork` and released when the worker is free.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.classes import busy_gateway, shares
from benchmarks.harness.cli import MarkdownFile, exit_with, publish, reporting_failures
from benchmarks.harness.paths import SERVICES
from benchmarks.harness.sheets import Sheet, median_known, text
from benchmarks.services.classes import GOAL_MS
from uncork_dispatcher.simulator import Cell
from uncork_loadtests.generator.fleet import Outcome, run
from uncork_loadtests.targets import CLASS_HEADER, our_service
from uncork_loadtests.traffic.plan import Payload, Plan

_CELL = busy_gateway(Cell(intercept_ms=5, slope_ms=0.5, goal_ms=GOAL_MS, load=0.5))
_GROUPS_LOAD = 0.05
_BULK_CLIENTS = 256
_WARMUP_S = 3.0
_ROW = b"[5.1,3.5,1.4,0.2]"
WAYS = {
    "classes": ("classes", "classes", ((CLASS_HEADER, "bulk"),)),
    "one queue": ("queue", "queue", ()),
    "two APIs": ("interactive", "bulk", ()),
}
"""The APIs of interactive requests and of bulk, and the headers of bulk."""
GROUPS = {f"{count} groups, {api}": (api, count) for count in (8, 64) for api in ("groups", "groups_free")}


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each way, in turns.")] = 3,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of each, after a warm-up of 3.")] = 7.0,
    markdown_file: MarkdownFile = None,
) -> None:
    """Measure what interactive requests, bulk and groups get on a real gateway."""
    progress = Console(stderr=True)
    found: dict[str, list[list[float | None]]] = {}
    faults: list[str] = []
    os.environ["PEER_INTERCEPT_MS"] = str(_CELL.intercept_ms)
    os.environ["PEER_SLOPE_MS"] = str(_CELL.slope_ms)
    service = f"{SERVICES / 'classes.py'}:Classes"
    with reporting_failures("classes-live", progress=progress), our_service(service) as server:
        for number in range(1, rounds + 1):
            for name in (*WAYS, *GROUPS):
                progress.print(f"round {number}: {name}")
                with ThreadPoolExecutor() as pool:
                    outcomes = list(pool.map(run, plans(name, server.url(""), seconds)))
                faults += [f"round {number}, {name}: {one.void}" for one in outcomes if one.void]
                found.setdefault(name, []).append(_figures(*outcomes))
    simulated = shares(_CELL, seeds=range(1, rounds + 1), bulk_rows=1.0, outstanding=_BULK_CLIENTS)
    figures = [simulated.p50_ms, simulated.p99_ms, 100 * simulated.in_goal, simulated.bulk_per_s]
    found["classes, simulated"] = [[*figures]]
    rows = [
        [name, *[text(median_known(each), digits=1) for each in zip(*of, strict=True)]]
        for name, of in found.items()
    ]
    columns = ["way", "p50 ms", "p99 ms", "in goal %", "bulk rows/s"]
    sheet = Sheet(title="Interactive requests with bulk, and in groups", columns=columns, rows=rows)
    publish([sheet], markdown_file=markdown_file)
    exit_with(faults, progress=progress)


def plans(name: str, url: str, seconds: float) -> list[Plan]:
    """Return the traffic of a way, interactive requests first, or of requests in groups."""
    if name in GROUPS:
        api, count = GROUPS[name]
        bodies = tuple([b'{"g":%d,"x":%b}' % (group, _ROW) for group in range(count)])
        rate = _GROUPS_LOAD * _CELL.capacity
        return [_plan(f"{url}/{api}", bodies, seconds, rate=rate, goal_s=1.0)]
    interactive, bulk, headers = WAYS[name]
    return [
        _plan(f"{url}/{interactive}", (_ROW,), seconds, rate=_CELL.rate, goal_s=GOAL_MS / 1000),
        _plan(f"{url}/{bulk}", (_ROW,), seconds, clients=_BULK_CLIENTS, headers=headers),
    ]


def _plan(url: str, bodies: tuple[bytes, ...], seconds: float, **more: object) -> Plan:
    payload = Payload(bodies=bodies)
    return Plan(url=url, payload=payload, seconds=seconds, warmup_s=_WARMUP_S, **more)  # type: ignore[arg-type]


def _figures(first: Outcome, *bulk: Outcome) -> list[float | None]:
    """Return p50 and p99 in ms, the share in goal in percent, and bulk per second. Refusals are no fault."""
    summary = first.summary()
    percentiles = {} if summary.latency is None else summary.latency.percentiles_ms
    bulk_per_s = bulk[0].summary().answered_per_s if bulk else None
    return [percentiles.get("50"), percentiles.get("99"), 100 * (summary.in_goal or 0.0), bulk_per_s]
