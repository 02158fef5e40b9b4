"""Everything that the queue may wait for, in words."""

from __future__ import annotations

import math
from typing import Any

from tests.gateway.pages.status.staged import RUNNING, figures, stats, work
from uncork_dispatcher import Holding, WorkStats
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.formatting import PROXY, SERVICE, Names

OTHER = RUNNING._replace(api="slow", left_s=-0.003)
THIRD = RUNNING._replace(api="rank", left_s=14.2)


def queued(workers: WorkStats | None = None, policy: str = "cork", **changes: Any) -> Figures:
    """Return an API with three requests in the queue; ``changes`` are of its stats."""
    api = stats({"policy": policy}, queued_requests=3, queued_rows=3.0, oldest_s=0.004, **changes)
    reason = "no worker is ready: worker 0 was killed by SIGKILL"
    return figures(api, work=workers or work(2, running=[RUNNING]), not_ready_reason=reason)


CASES: dict[str, tuple[Names, Figures, str]] = {
    "nothing": (SERVICE, figures(), "The queue is empty."),
    "a worker": (
        SERVICE,
        queued(work(0)),
        "No worker is ready: worker 0 was killed by SIGKILL.",
    ),
    "the only worker": (
        SERVICE,
        queued(work(1, running=[RUNNING])),
        "The only worker is busy. It should finish in about 12 ms.",
    ),
    "the only call": (
        PROXY,
        queued(work(1, running=[RUNNING])),
        "The only allowed call is in progress. It should finish in about 12 ms.",
    ),
    "the only worker, with another API": (
        SERVICE,
        queued(work(1, running=[OTHER])),
        "The only worker is busy. Running now: slow. It should have finished 3 ms ago.",
    ),
    "the first of two workers": (
        SERVICE,
        queued(work(2, running=[RUNNING, OTHER])),
        "Both workers are busy. Running now: predict and slow. The first should have finished 3 ms ago.",
    ),
    "the first of four calls": (
        PROXY,
        queued(work(4, running=[THIRD, RUNNING, OTHER._replace(left_s=10.4), THIRD])),
        "All 4 allowed calls are in progress. Running now: predict, rank and slow. The first should finish "
        "in about 12 ms.",
    ),
    "a slow batch": (
        SERVICE,
        queued(work(2, running=[THIRD, THIRD])),
        "Both workers are busy. Running now: rank. The first should finish in about 14 s.",
    ),
    "a worker that another batch is about to get": (
        SERVICE,
        queued(WorkStats(1, 0, [])),
        "The only worker is busy.",
    ),
    "no more": (SERVICE, queued(), "The queued requests are about to run."),
    "even batches": (
        SERVICE,
        queued(holding=Holding(0.0065, "balance")),
        "The policy holds the queue for up to 6.5 ms more to keep batches equally large across workers.",
    ),
    "returning clients": (
        SERVICE,
        queued(holding=Holding(0.004, "returns")),
        "The policy holds the queue for up to 4 ms more because clients that were just answered usually send "
        "again.",
    ),
    "the goal": (
        SERVICE,
        queued(holding=Holding(0.12, "goal")),
        "The policy holds the queue for up to 120 ms more to fill the batch while the goal can still be met.",
    ),
    "one more": (
        SERVICE,
        queued(holding=Holding(0.0021, "next"), policy="cork-classic"),
        "The policy holds the queue for up to 2.1 ms more in case another request arrives.",
    ),
    "a fixed window": (
        SERVICE,
        queued(holding=Holding(0.0182, "window"), policy="fixed:20"),
        "The policy holds the queue for up to 18 ms more, as long as policy fixed:20 allows.",
    ),
    "a fixed window of a proxy": (
        PROXY,
        queued(holding=Holding(0.0182, "window"), policy="fixed:20"),
        "The policy holds the queue for up to 18 ms more, as long as policy fixed:20 or "
        "--max-latency allows.",
    ),
    "the longest hold of a proxy": (
        PROXY,
        queued(holding=Holding(0.0003, "window")),
        "The policy holds the queue for up to 0.3 ms more, as long as --max-latency allows.",
    ),
    "a quarantined request": (
        SERVICE,
        queued(holding=Holding(math.inf, "quarantine")),
        "The queued requests lost their worker. They run again while another serves the rest.",
    ),
    "a lost batch": (
        SERVICE,
        queued(holding=Holding(1.7, "host")),
        "The queued requests lost their worker. They wait for up to 1,700 ms more for a worker on another "
        "host.",
    ),
}
