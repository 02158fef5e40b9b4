"""Everything that the queue may wait for, in words."""

from __future__ import annotations

import math
from typing import Any

from tests.gateway.pages.status.staged import RUNNING, figures, stats, work
from uncork_dispatcher import Holding, WorkStats
from uncork_gateway.pages.status.figures import Figures

OTHER = RUNNING._replace(api="slow", left_s=-0.003)


def queued(workers: WorkStats | None = None, policy: str = "cork", **changes: Any) -> Figures:
    """Return an API with three requests in the queue; ``changes`` are of its stats."""
    api = stats({"policy": policy}, queued_requests=3, queued_rows=3.0, oldest_s=0.004, **changes)
    reason = "no worker is ready: worker 0 was killed by SIGKILL"
    return figures(api, work=workers or work(2, running=[RUNNING]), not_ready_reason=reason)


CASES: dict[str, Figures] = {
    "nothing": figures(),
    "a worker": queued(work(0)),
    "the only worker": queued(work(1, running=[RUNNING])),
    "the first of two workers": queued(work(2, running=[RUNNING, OTHER])),
    "a worker that another batch is about to get": queued(WorkStats(1, 0, [])),
    "no more": queued(),
    "even batches": queued(holding=Holding(0.0065, "balance")),
    "returning clients": queued(holding=Holding(0.004, "returns")),
    "the goal": queued(holding=Holding(0.12, "goal")),
    "one more": queued(holding=Holding(0.0021, "next"), policy="cork-classic"),
    "a fixed window": queued(holding=Holding(0.0182, "window"), policy="fixed:20"),
    "a fixed window of a proxy": queued(holding=Holding(0.0182, "window"), policy="fixed:20"),
    "the longest hold of a proxy": queued(holding=Holding(0.0003, "window")),
    "a quarantined request": queued(holding=Holding(math.inf, "quarantine")),
    "a lost batch": queued(holding=Holding(1.7, "host")),
    "a long batch": queued(holding=Holding(13.4, "neighbor")),
    "bulk": queued(holding=Holding(0.4, "class")),
}
