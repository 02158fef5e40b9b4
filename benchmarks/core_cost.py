"""The cost of a request in the core of the dispatcher, by the number of workers.

``scripts/bench core`` runs it. A simulated run is recorded as the calls that it makes to the core; a fresh
core then gets the same calls, so that only the core is timed. The second half of the requests is
timed: until then, the core has learned the batch time, and all workers are in use.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from uncork_dispatcher import CORE_IS_COMPILED
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.simulator import Clients, Scenario, ServiceTime, open_loop, simulate

_SERVICE = ServiceTime(intercept_s=0.020, slope_s=0.0002)
_LIMIT_ROWS = 32
_LOAD = 0.6
_CLIENTS_PER_WORKER = 16
_WORKERS = "1,4,8,64,512,2000"
_LEAST_REQUESTS = 20_000
_REQUESTS_PER_WORKER = 80  # five batches or so; the last half of them is timed
_ROUNDS = 3
_LONGEST_S = 1e6

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A call to the core: the name of the method and its arguments."""


def main() -> None:
    """Print microseconds per request."""
    parser = argparse.ArgumentParser(description="Measure the cost of a request in the core.")
    parser.add_argument("--workers", default=_WORKERS, help=f"numbers of workers (default {_WORKERS})")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"replays of each (default {_ROUNDS})")
    options = parser.parse_args()
    counts = [int(count) for count in options.workers.split(",")]
    core = "compiled" if CORE_IS_COMPILED else "in pure Python"
    title = f"Microseconds of processor time per request, medians of {options.rounds} replays, core {core}"
    table = Table(title=title)
    for column in ("workers", "open loop", "returning clients"):
        table.add_column(column, justify="right")
    for workers in counts:
        costs = [replay_us(record(workers, closed=closed), options.rounds) for closed in (False, True)]
        table.add_row(str(workers), *(f"{cost:.1f}" for cost in costs))
    Console(width=100).print(table)


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
    """Return the median processor time of a request of the second half, in microseconds."""
    submits = [place for place, (name, _, _) in enumerate(calls) if name == "submit"]
    timed = submits[len(submits) // 2 :]
    return median(_replay_s(calls, timed[0]) for _ in range(rounds)) / len(timed) * 1e6


def _replay_s(calls: Sequence[Call], first: int) -> float:
    """Return the processor time of the calls from the ``first`` on, in seconds."""
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


if __name__ == "__main__":
    main()
