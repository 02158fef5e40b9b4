"""The cost of one decision of a policy.

``scripts/bench-decision`` runs it. Decisions are timed in simulated runs with 4 workers: an open loop, and
returning clients that the dispatcher knows. Decisions with about 50 queued requests count.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from rich.console import Console
from rich.table import Table

from uncork_dispatcher.policies.base import Hold, Release
from uncork_dispatcher.requests.queue import RequestQueue
from uncork_dispatcher.scheduler import Scheduler
from uncork_dispatcher.simulator import Clients, Scenario, ServiceTime, open_loop, simulate

_POLICIES = ("cork", "cork-classic", "aimd", "fixed:5", "none")
_SERVICE = ServiceTime(intercept_s=0.005, slope_s=0.0001, noise_cv=0.1)
_WORKERS = 4
_LIMIT_ROWS = 256
_QUEUED = range(40, 61)
_LONGEST_S = 1e6
_TIMES = 50


def main() -> None:
    """Print microseconds per decision of each policy."""
    parser = argparse.ArgumentParser(description="Measure the cost of a decision.")
    parser.add_argument("--requests", type=int, default=20_000, help="requests of each run (default 20000)")
    requests = parser.parse_args().requests
    table = Table(title=f"Microseconds per decision, {_WORKERS} workers, 40 to 60 requests queued: median")
    table.add_column("policy")
    table.add_column("open loop", justify="right")
    table.add_column("400 returning clients", justify="right")
    for policy in _POLICIES:
        table.add_row(policy, *(decision_us(policy, requests, closed=closed) for closed in (False, True)))
    Console(width=100).print(table)


def decision_us(policy: str, requests: int, *, closed: bool) -> str:
    """Return the median time of the decisions of one run, in microseconds."""
    rate = 0.9 * _SERVICE.capacity(workers=_WORKERS, limit_rows=_LIMIT_ROWS)
    arrivals: Clients | list[float] = Clients(count=400, round_trip_s=0.0005)
    if not closed:
        arrivals = open_loop("poisson", rate=rate, count=requests, random_=random.Random(1))
    with _timed_decisions() as seen:
        simulate(
            Scenario(
                service=_SERVICE,
                arrivals=arrivals,
                workers=_WORKERS,
                limit_rows=_LIMIT_ROWS,
                goal_s=_LONGEST_S,
                policy=policy,
                requests=requests,
            )
        )
    if not seen:
        return "not called"
    return f"{median(seen) * 1e6:.1f}"


@contextmanager
def _timed_decisions() -> Iterator[list[float]]:
    """Collect the seconds of each decision with that many requests queued.

    Each is repeated: a decision changes nothing, and a single one is too short to measure.
    """
    seen: list[float] = []
    decide = Scheduler.decide

    def timed(scheduler: Scheduler, queue: RequestQueue, now: float) -> Release | Hold:
        if len(queue) in _QUEUED:
            began = time.perf_counter()
            for _ in range(_TIMES):
                decide(scheduler, queue, now)
            seen.append((time.perf_counter() - began) / _TIMES)
        return decide(scheduler, queue, now)

    Scheduler.decide = timed  # type: ignore[method-assign, assignment]
    try:
        yield seen
    finally:
        Scheduler.decide = decide  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
