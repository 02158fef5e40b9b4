"""The cost of one decision of a policy, and of choosing the members of a batch.

``scripts/bench decision`` runs it. Decisions are timed in simulated runs with 4 workers: an open loop, and
returning clients that the dispatcher knows. Decisions with about 50 queued requests count. Members are chosen
from a queue alone: which lengths may share a batch, and the requests of such lengths.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from statistics import median

from rich.console import Console
from rich.table import Table

from uncork_dispatcher.policies.base import Hold, Release
from uncork_dispatcher.requests.fill import Fill
from uncork_dispatcher.requests.mixable_lengths import SAMPLE, mixable_lengths
from uncork_dispatcher.requests.queue import Entry, RequestQueue
from uncork_dispatcher.scheduler import Scheduler
from uncork_dispatcher.simulator import Clients, Scenario, ServiceTime, open_loop, row_lengths, simulate

_POLICIES = ("cork", "cork-classic", "aimd", "fixed:5", "none")
_SERVICE = ServiceTime(intercept_s=0.005, slope_s=0.0001, noise_cv=0.1)
_WORKERS = 4
_LIMIT_ROWS = 256
_QUEUED = range(40, 61)
_LONGEST_S = 1e6
_TIMES = 50
_MEMBERS_QUEUED = (32, 20_000)
_MEMBERS_ROUNDS = 2000
_BATCH = 32
# Half of a fixed cost of 200 units of length.
_SPARE = 100.0


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
    console = Console(width=100)
    console.print(table)
    console.print(members_table())


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


def members_table() -> Table:
    """Tabulate microseconds per batch of about 32 requests, by queue and lengths."""
    title = f"Microseconds to choose and take a batch of up to {_BATCH} requests: median"
    table = Table(title=title)
    for column in ("queued", "equal lengths", "choice", "choice and taking", "more than equal lengths"):
        table.add_column(column, justify="right")
    for queued in _MEMBERS_QUEUED:
        _, equal_us = members_us("constant:64", queued)
        choice_us, all_us = members_us("lognormal:64:1", queued)
        table.add_row(
            f"{queued:,}", f"{equal_us:.1f}", f"{choice_us:.1f}", f"{all_us:.1f}", f"{all_us - equal_us:.1f}"
        )
    return table


def members_us(lengths: str, queued: int, rounds: int = _MEMBERS_ROUNDS) -> tuple[float, float]:
    """Return the median time to choose the lengths of a batch, and of that and taking it; in microseconds.

    Equal lengths need no choice. The queue is filled up again after each batch.
    """
    random_, of_rows = random.Random(1), row_lengths(lengths)
    queue, numbers = RequestQueue("a", None), count()

    def append() -> None:
        number, length = next(numbers), of_rows.draw(random_)
        queue.append(
            Entry(number, number, number, length, 100, number, math.inf, queue, (1, length, length, length))
        )

    chosen, taken = [], []
    for _ in range(rounds):
        while len(queue) < queued:
            append()
        began = time.perf_counter()
        interval = None
        if queue.has_lengths:
            sample = list(islice(queue.turns(), SAMPLE))
            interval = mixable_lengths(sample, queued=queued, limit=_BATCH * of_rows.mean, spare=_SPARE)
        between = time.perf_counter()
        Fill(size=_BATCH * of_rows.mean, measure=1, lengths=interval).take(queue)
        taken.append(time.perf_counter() - began)
        chosen.append(between - began)
    return median(chosen) * 1e6, median(taken) * 1e6


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
