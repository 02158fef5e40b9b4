"""Everything that the queue may wait for, in words."""

from __future__ import annotations

import math
from typing import Any

from tests.gateway.pages.status.staged import RUNNING, figures, stats, work
from uncork_dispatcher import Holding, WorkStats
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.names import PROXY, SERVICE, Names

OTHER = RUNNING._replace(api="slow", left_s=-0.003)
THIRD = RUNNING._replace(api="rank", left_s=14.2)


def queued(workers: WorkStats | None = None, policy: str = "cork", **changes: Any) -> Figures:
    """Return an API with three requests in the queue; ``changes`` are of its stats."""
    api = stats({"policy": policy}, queued_requests=3, queued_rows=3.0, oldest_s=0.004, **changes)
    reason = "no worker is ready: worker 0 was killed by SIGKILL"
    return figures(api, work=workers or work(2, running=[RUNNING]), not_ready_reason=reason)


CASES: dict[str, tuple[Names, Figures]] = {
    "nothing": (SERVICE, figures()),
    "a worker": (
        SERVICE,
        queued(work(0)),
    ),
    "the only worker": (
        SERVICE,
        queued(work(1, running=[RUNNING])),
    ),
    "the first of two workers": (
        SERVICE,
        queued(work(2, running=[RUNNING, OTHER])),
    ),
    "a worker that another batch is about to get": (
        SERVICE,
        queued(WorkStats(1, 0, [])),
    ),
    "no more": (SERVICE, queued()),
    "even batches": (
        SERVICE,
        queued(holding=Holding(0.0065, "balance")),
    ),
    "returning clients": (
        SERVICE,
        queued(holding=Holding(0.004, "returns")),
    ),
    "the goal": (
        SERVICE,
        queued(holding=Holding(0.12, "goal")),
    ),
    "one more": (
        SERVICE,
        queued(holding=Holding(0.0021, "next"), policy="cork-classic"),
    ),
    "a fixed window": (
        SERVICE,
        queued(holding=Holding(0.0182, "window"), policy="fixed:20"),
    ),
    "a fixed window of a proxy": (
        PROXY,
        queued(holding=Holding(0.0182, "window"), policy="fixed:20"),
    ),
    "the longest hold of a proxy": (
        PROXY,
        queued(holding=Holding(0.0003, "window")),
    ),
    "a quarantined request": (
        SERVICE,
        queued(holding=Holding(math.inf, "quarantine")),
    ),
    "a lost batch": (
        SERVICE,
        queued(holding=Holding(1.7, "host")),
    ),
    "a long batch": (
        SERVICE,
        queued(holding=Holding(13.4, "neighbor")),
    ),
    "bulk": (
        SERVICE,
        queued(holding=Holding(0.4, "class")),
    ),
}
