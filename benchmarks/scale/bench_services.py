"""Measure what several services in one gateway cost each other.

``scripts/bench services`` runs it, and prints docs/results/services.md with ``--page``. Gateways with 1, 8
and 64 services run at the same time, and are measured in turns, with requests to one of their services. Then
one gateway with two services is measured with and without the death of all workers of the other service.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import httpx
import psutil
import typer
from rich.console import Console

from benchmarks.harness.cli import reporting_failures
from benchmarks.harness.commands import uncork_serve
from benchmarks.harness.marks import ratio_interval
from benchmarks.harness.paths import SERVICES
from benchmarks.harness.report import ResultPage
from benchmarks.harness.rounds import Round, Target, ask_alone, interleave, measure, target
from benchmarks.harness.sheets import Sheet, interval_text, median_known, output, show, text
from uncork_loadtests.servers import Server, serve

_ECHO = f"{SERVICES / 'echo.py'}:Echo"
_COUNTS = (1, 8, 64)
_ONE = "1 service"
_ASKED = "s0"
_BODY = json.dumps("x" * 1000).encode()
_UNDISTURBED, _KILLED = "undisturbed", "the other's workers are killed"
_BETWEEN_KILLS_S = 1.0
_IDLE_S = 5.0
PAGE = ResultPage(
    title="Several services in one gateway",
    introduction="What services in one gateway cost each other. For how to run them, see "
    "[several services](../guides/several-services.md).",
    script="scripts/bench services",
)
_METHOD = (
    "All services return their input, and have one worker each; requests of 1 kB go to one of them. "
    "*Gateway* is the processor time of the gateway's process per request; *idle* is its processor time "
    "while nobody asks, and *memory* its resident memory. Ratios are medians of the rounds, with their 95 % "
    "intervals. In the last table, two services have two workers each; every second, all workers of the one "
    "that is not asked are ended by SIGKILL."
)


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each cell.")] = 7,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of each measurement.")] = 2.0,
    clients: Annotated[int, typer.Option(min=1, help="Clients of the service that is asked.")] = 16,
    rate: Annotated[float, typer.Option(help="Requests per second beside the service that dies.")] = 500.0,
    page: Annotated[bool, typer.Option("--page", help="Print the page of docs/results.")] = False,
) -> None:
    """Measure gateways with 1, 8 and 64 services, and a service beside one whose workers die."""
    progress = Console(stderr=True)
    with reporting_failures("bench-services", progress=progress):
        sheets = [
            _costs(rounds, seconds, clients, progress),
            _isolation(rounds, seconds, rate, progress),
        ]
    if page:
        print(PAGE.text(paragraphs=[_METHOD], sheets=sheets), end="")
        return
    for sheet in sheets:
        show(sheet, console=output())


def configuration(services: int, *, workers: int = 1) -> str:
    """Return a configuration file with so many services."""
    tables = [
        f'[services.s{number}]\ntarget = "{_ECHO}"\nworkers = {workers}\nown-routes = false\n'
        for number in range(services)
    ]
    return "\n".join(tables)


@contextmanager
def gateway(name: str, text_: str) -> Iterator[Server]:
    """Run a gateway with a configuration file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "uncork.toml"
        file.write_text(text_)
        options = {"--config": file, "--mb-max-latency": 60_000}
        with serve(name, command=uncork_serve(None, options)) as server:
            yield server


def _target(server: Server, path: str, clients: int, seconds: float) -> Target:
    each = target(server, path=path, bodies=[_BODY], expected=ask_alone(server, path=path, bodies=[_BODY]))
    return replace(each, plan=replace(each.plan, clients=clients, seconds=seconds, warmup_s=0.2))


def _costs(rounds: int, seconds: float, clients: int, progress: Console) -> Sheet:
    with ExitStack() as stack:
        servers = {
            _named(count): stack.enter_context(gateway(_named(count), configuration(count)))
            for count in _COUNTS
        }
        idle_s = _idle(servers)
        targets = {
            name: _target(server, f"/{_ASKED}/echo", clients, seconds) for name, server in servers.items()
        }
        found = interleave(
            targets, rounds=rounds, measure=lambda name, _: measure(targets[name]), tell=progress.print
        )
        memory = {name: psutil.Process(server.pid).memory_info().rss for name, server in servers.items()}
    return Sheet(
        title=f"One busy service among idle ones, {clients} clients",
        columns=[
            "gateway with",
            "requests/s",
            "p99 ms",
            "p99 / 1",
            "gateway µs",
            "gateway / 1",
            "idle ms per s",
            "memory MB",
        ],
        rows=[
            _row(name, each, found[_ONE], idle_s=idle_s[name], memory_bytes=memory[name])
            for name, each in found.items()
        ],
        notes=[
            f"One more idle service takes {_per_service(memory, _COUNTS) / 1e6:.2f} MB of the gateway's "
            f"memory, and {_per_service(idle_s, _COUNTS) * 1e6:.0f} µs of its processor time per second."
        ],
    )


def _named(count: int) -> str:
    return f"{count} service{'s' if count > 1 else ''}"


def _per_service(values: Mapping[str, float], counts: Sequence[int]) -> float:
    """Return what one more service adds, from the smallest to the largest number of them."""
    least, most = min(counts), max(counts)
    return (values[_named(most)] - values[_named(least)]) / (most - least)


def _idle(servers: Mapping[str, Server]) -> dict[str, float]:
    """Return the processor time per second of each gateway's process while nobody asks."""
    time.sleep(1.0)
    before = {name: _process_s(server) for name, server in servers.items()}
    time.sleep(_IDLE_S)
    return {name: (_process_s(server) - before[name]) / _IDLE_S for name, server in servers.items()}


def _process_s(server: Server) -> float:
    used = psutil.Process(server.pid).cpu_times()
    return float(used.user + used.system)


def _row(
    name: str, rounds: Sequence[Round], one: Sequence[Round], *, idle_s: float, memory_bytes: float
) -> list[str]:
    p99, cpu = [each.p99 for each in rounds], [each.front_cpu for each in rounds]
    return [
        name,
        text(median_known(each.requests_per_second for each in rounds), digits=0),
        text(median_known(p99), digits=2, scale=1000),
        interval_text(ratio_interval(p99, by=[each.p99 for each in one])),
        text(median_known(cpu), digits=0, scale=1000),
        interval_text(ratio_interval(cpu, by=[each.front_cpu for each in one])),
        f"{idle_s * 1000:.1f}",
        f"{memory_bytes / 1e6:.0f}",
    ]


def _isolation(rounds: int, seconds: float, rate: float, progress: Console) -> Sheet:
    seconds = max(seconds, 2 * _BETWEEN_KILLS_S)
    with gateway("two services", configuration(2, workers=2)) as server:
        asked = _target(server, f"/{_ASKED}/echo", 1, seconds)
        asked = replace(asked, plan=replace(asked.plan, clients=None, rate=rate))
        kills = 0

        def once(name: str, _: int) -> Round:
            nonlocal kills
            if name == _UNDISTURBED:
                return measure(asked)
            with killing(server, "s1") as killed:
                found = measure(asked)
            kills += len(killed)
            return found

        found = interleave([_UNDISTURBED, _KILLED], rounds=rounds, measure=once, tell=progress.print)
    calm = found[_UNDISTURBED]
    return Sheet(
        title=f"One service while another dies, {rate:g} requests/s",
        columns=["", "p50 ms", "p50, ratio", "p99 ms", "p99, ratio", "not answered"],
        rows=[
            [
                name,
                text(median_known(each.p50 for each in some), digits=2, scale=1000),
                interval_text(ratio_interval([each.p50 for each in some], by=[each.p50 for each in calm])),
                text(median_known(each.p99 for each in some), digits=2, scale=1000),
                interval_text(ratio_interval([each.p99 for each in some], by=[each.p99 for each in calm])),
                str(sum(each.refused + each.wrong + each.unanswered for each in some)),
            ]
            for name, some in found.items()
        ],
        notes=[f"{kills} workers were killed. A worker that starts again takes a core for about 0.3 s."],
    )


@contextmanager
def killing(server: Server, service: str) -> Iterator[list[int]]:
    """End all workers of a service every second until the block ends; give their process ids."""
    stop, killed = threading.Event(), list[int]()

    def kill() -> None:
        while not stop.wait(_BETWEEN_KILLS_S):
            status = httpx.get(server.admin_url("/status"), trust_env=False, verify=False).json()
            for worker in status["workers"]:
                if worker["service"] == service and worker["pid"] is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(worker["pid"], signal.SIGKILL)
                        killed.append(worker["pid"])

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()


if __name__ == "__main__":
    typer.run(main)
