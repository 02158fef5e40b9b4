"""The cost of a request in the core of the dispatcher, by the number of workers, and for a lone client.

``scripts/bench core`` runs it. A simulated run is recorded as the calls that it makes to the core; a fresh
core then gets the same calls, so that only the core is timed. The second half of the requests is
timed: until then, the core has learned the batch time, and all workers are in use.

A lone client's request takes time mostly because each function that it touches has left the CPU caches. So
the Python calls are counted that gateway and worker make for it, which do not depend on the machine.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any
from unittest.mock import patch

import psutil
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness.cli import parse_counts, reporting_failures
from benchmarks.harness.paths import SERVICES
from uncork_dispatcher import CORE_IS_COMPILED
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.simulator import Clients, Scenario, ServiceTime, open_loop, simulate
from uncork_loadtests.servers import HOST, BenchError
from uncork_loadtests.targets import our_service

_SERVICE = ServiceTime(intercept_s=0.020, slope_s=0.0002)
_LIMIT_ROWS = 32
_LOAD = 0.6
_CLIENTS_PER_WORKER = 16
_WORKERS = "1,4,8,64,512,2000"
_LEAST_REQUESTS = 20_000
_REQUESTS_PER_WORKER = 80  # five batches or so; the last half of them is timed
_LONGEST_S = 1e6
_LONE_REQUESTS = 500
_LONE_REQUEST = (
    b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 17\r\n\r\n"
    b"[5.1,3.5,1.4,0.2]"
)

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A call to the core: the name of the method and its arguments."""


def main(
    workers: Annotated[str, typer.Option(help="Numbers of workers.")] = _WORKERS,
    rounds: Annotated[int, typer.Option(min=1, help="Replays of each.")] = 3,
) -> None:
    """Print the Python calls for a lone client's request, and microseconds of the core per request."""
    console = Console(width=100)
    with reporting_failures("core", progress=console):
        gateway, worker = lone_calls(_LONE_REQUESTS)
        console.print(
            f"Python calls per request of a lone client: gateway {gateway:.0f}, worker {worker:.0f}"
        )
    core = "compiled" if CORE_IS_COMPILED else "in pure Python"
    table = Table(title=f"Microseconds of CPU time per request, medians of {rounds} replays, core {core}")
    for column in ("workers", "open loop", "returning clients"):
        table.add_column(column, justify="right")
    for count in parse_counts(workers):
        costs = [replay_us(record(count, closed=closed), rounds) for closed in (False, True)]
        table.add_row(str(count), *(f"{cost:.1f}" for cost in costs))
    console.print(table)


def lone_calls(requests: int) -> tuple[float, float]:
    """Return the Python calls of the gateway and of its worker per request of a lone client.

    Compiled functions do not count, nor functions that are called for fewer than half of the requests, which
    belong to timers.

    Raises:
        BenchError: if the service does not start, or a response is not 200.
    """
    found: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        counting = str(Path(__file__).parent / "counting")
        with (
            patch.dict(os.environ, {"PYTHONPATH": counting, "CALLS": folder}),
            our_service(f"{SERVICES / 'lone.py'}:Lone", options=("--workers", "1")) as server,
            socket.create_connection((HOST, server.port)) as client,
        ):
            _ask(client, requests)
            for pid in (server.pid, *[child.pid for child in psutil.Process(server.pid).children()]):
                os.kill(pid, signal.SIGUSR1)
                _ask(client, requests)
                os.kill(pid, signal.SIGUSR2)
                _ask(client, 1)
                calls = json.loads(Path(folder, str(pid)).read_text())
                found.append(sum([count for count in calls if 2 * count > requests]) / requests)
    gateway, worker = found
    return gateway, worker


def _ask(client: socket.socket, requests: int) -> None:
    for _ in range(requests):
        client.sendall(_LONE_REQUEST)
        response = client.recv(4096)
        if not response.startswith(b"HTTP/1.1 200"):
            raise BenchError(f"a lone request got {response!r}")


def record(workers: int, *, closed: bool, requests: int | None = None) -> list[Call]:
    """Return the calls to the core of one simulated run."""
    if requests is None:
        requests = max(_LEAST_REQUESTS, _REQUESTS_PER_WORKER * workers)
    arrivals: Clients | list[float] = Clients(count=_CLIENTS_PER_WORKER * workers, round_trip_s=0.0005)
    if not closed:
        rate = _LOAD * _SERVICE.capacity(workers=workers, limit_rows=_LIMIT_ROWS)
        arrivals = open_loop("poisson", rate=rate, count=requests, random_=random.Random(1))
    scenario = Scenario(
        service=_SERVICE,
        arrivals=arrivals,
        workers=workers,
        limit_rows=_LIMIT_ROWS,
        goal_s=_LONGEST_S,
        requests=requests,
    )
    calls: list[Call] = []
    with patch("uncork_dispatcher.simulator.run.Dispatcher", lambda: _Recorder(calls)):
        simulate(scenario)
    return calls


def replay_us(calls: Sequence[Call], rounds: int) -> float:
    """Return the median CPU time of a request of the second half, in microseconds."""
    submits = [place for place, (name, _, _) in enumerate(calls) if name == "submit"]
    timed = submits[len(submits) // 2 :]
    return median(_replay_s(calls, timed[0]) for _ in range(rounds)) / len(timed) * 1e6


def _replay_s(calls: Sequence[Call], first: int) -> float:
    """Return the CPU time of the calls from the ``first`` on, in seconds."""
    core = Dispatcher()
    bound: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]
    bound = [(getattr(core, name), args, kwargs) for name, args, kwargs in calls]
    for call, args, kwargs in bound[:first]:
        call(*args, **kwargs)
    timed = bound[first:]
    gc.collect()
    gc.freeze()  # the recorded calls are no part of a gateway's memory
    began = time.process_time()
    for call, args, kwargs in timed:
        call(*args, **kwargs)
    seconds = time.process_time() - began
    gc.unfreeze()
    return seconds


class _Recorder:
    """A core that notes the calls that it gets."""

    def __init__(self, calls: list[Call]) -> None:
        self._core = Dispatcher()
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._core, name)
        if name not in ("set_api", "worker_ready", "submit", "batch_done", "poll"):
            return method

        def recorded(*args: Any, **kwargs: Any) -> Any:
            self._calls.append((name, args, kwargs))
            return method(*args, **kwargs)

        return recorded
