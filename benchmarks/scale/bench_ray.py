"""Measure the memory and processor time of workers on a Ray cluster, and of what holds them there.

``scripts/bench ray`` runs it. The cluster has a head and two nodes, all on this machine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated

import httpx
import psutil
import typer
from rich.console import Console

from benchmarks.harness.cli import reporting_failures
from benchmarks.harness.commands import uncork_serve
from benchmarks.harness.paths import SERVICES
from benchmarks.harness.rounds import ask_alone, measure, target
from benchmarks.harness.sheets import Sheet, output, show
from tests.e2e.ray_cluster import ray_cluster
from uncork_loadtests.servers import BenchError, Server, serve

_ECHO = f"{SERVICES / 'echo.py'}:Echo"
_PATH = "/echo"
_BODY = b'"' + b"x" * 998 + b'"'
GATEWAY, HELPER, ACTOR, WORKER = "gateway", "helper process", "actor", "worker"
_MB = 1e6
_START_S = 90.0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one process costs, or the mean of several: memory in bytes, and processor seconds so far."""

    resident: float
    proportional: float
    unique: float
    cpu_s: float


def main(
    workers: Annotated[int, typer.Option(min=1, max=8, help="Number of workers.")] = 4,
    seconds: Annotated[float, typer.Option(min=1.0, help="Seconds without load, and with load.")] = 20.0,
    clients: Annotated[int, typer.Option(min=2, help="Clients of the load.")] = 16,
) -> None:
    """Measure an echo service whose workers run on a Ray cluster."""
    progress = Console(stderr=True)
    with (
        reporting_failures("bench-ray", progress=progress),
        tempfile.TemporaryDirectory() as folder,
        ray_cluster(Path(folder) / "ray.log") as cluster,
    ):
        options = {"--workers": workers, "--on": cluster.client, "--mb-max-latency": 60_000}
        with serve("uncork", command=uncork_serve(_ECHO, options)) as server:
            _wait_for(server, workers)
            started = costs(server)
            idle = _after(server, lambda: time.sleep(seconds))
            loaded = _after(server, lambda: _load(server, clients=clients, seconds=seconds))
    show(_sheet(started, idle, loaded, workers=workers, clients=clients), console=output())


def costs(server: Server) -> dict[str, Cost]:
    """Return what each kind of process costs, the mean where there are several."""
    gateway = psutil.Process(server.pid)
    workers = [psutil.Process(pid) for pid in _ready(server)]
    actors = [parent for one in workers if (parent := one.parent()) is not None]
    kinds = {GATEWAY: [gateway], HELPER: gateway.children(), ACTOR: actors, WORKER: workers}
    return {kind: _mean([_cost(one) for one in processes]) for kind, processes in kinds.items()}


def _ready(server: Server) -> list[int]:
    """Return the workers that take batches; their nodes are on this machine."""
    workers = httpx.get(server.url("/status?format=json"), trust_env=False).json()["workers"]
    return [one["pid"] for one in workers if one["state"] in ("idle", "busy")]


def _cost(process: psutil.Process) -> Cost:
    memory, times = process.memory_full_info(), process.cpu_times()
    return Cost(
        resident=memory.rss, proportional=memory.pss, unique=memory.uss, cpu_s=times.user + times.system
    )


def _mean(found: Sequence[Cost]) -> Cost:
    return Cost(
        resident=fmean(one.resident for one in found),
        proportional=fmean(one.proportional for one in found),
        unique=fmean(one.unique for one in found),
        cpu_s=fmean(one.cpu_s for one in found),
    )


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Costs at the end of a phase, and the shares of a core during it."""

    costs: Mapping[str, Cost]
    shares: Mapping[str, float]


def _after(server: Server, happens: Callable[[], object]) -> Phase:
    before, began = costs(server), time.monotonic()
    happens()
    after, seconds = costs(server), time.monotonic() - began
    shares = {kind: (after[kind].cpu_s - before[kind].cpu_s) / seconds for kind in after}
    return Phase(costs=after, shares=shares)


def _load(server: Server, *, clients: int, seconds: float) -> None:
    expected = ask_alone(server, path=_PATH, bodies=[_BODY])
    each = target(server, path=_PATH, bodies=[_BODY], expected=expected)
    measure(replace(each, plan=replace(each.plan, clients=clients, seconds=seconds, warmup_s=0.2)))


def _wait_for(server: Server, workers: int) -> None:
    gives_up_at = time.monotonic() + _START_S
    while len(_ready(server)) < workers:
        if time.monotonic() > gives_up_at:
            raise BenchError(f"not all workers were ready after {_START_S:g} s:\n{server.last_words()}")
        time.sleep(0.2)


def _sheet(started: Mapping[str, Cost], idle: Phase, loaded: Phase, *, workers: int, clients: int) -> Sheet:
    return Sheet(
        title=f"{workers} workers on Ray; load of {clients} clients",
        columns=["process", "RSS MB", "PSS MB", "USS MB", "CPU s at start", "CPU idle", "CPU under load"],
        rows=[
            [
                kind,
                *(f"{size / _MB:.0f}" for size in (cost.resident, cost.proportional, cost.unique)),
                f"{started[kind].cpu_s:.1f}",
                f"{idle.shares[kind]:.1%}",
                f"{loaded.shares[kind]:.1%}",
            ]
            for kind, cost in loaded.costs.items()
        ],
        notes=[
            "Memory is that after the load. Processor time is a share of one core, for each process.",
        ],
    )


if __name__ == "__main__":
    typer.run(main)
