"""Figures that tests set as they need them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from uncork_dispatcher import ApiRules, ApiStats, Estimate, RunningBatch, WorkStats
from uncork_gateway.metrics import ApiTally
from uncork_gateway.status.figures import Figures
from uncork_gateway.status.recorder import Recent

ESTIMATE = Estimate(intercept_s=0.010, slope_s=0.002, spread=0.1, earned_rows=64)
RUNNING = RunningBatch(1, "predict", 8, 8, 0.004, 0.012)


def stats(rules: Mapping[str, Any] | None = None, **changes: Any) -> ApiStats:
    """An api that holds nothing, of whose batches something is known."""
    made = ApiRules(**{"name": "predict", "max_batch_rows": 32, **(rules or {})})
    told: dict[str, Any] = {
        "name": made.name,
        "queued_requests": 0,
        "queued_rows": 0.0,
        "queued_bytes": 0,
        "rate_rows": 0.0,
        "estimate": ESTIMATE,
        "rules": made,
        "limit_rows": made.max_batch_rows,
        "lasting_rate": changes.get("rate_rows", 0.0),
        "returning_share": 0.0,
        "clients": 0,
        "needed_s": 0.012,
        "known_rows": (1.0, 32.0),
        "oldest_s": 0.0,
        "holding": None,
    }
    return ApiStats(**{**told, **changes})


def recent(
    *,
    batches: int = 0,
    each: int = 1,
    rows: int = 1,
    reason: str = "idle",
    sheds: Mapping[str, int] | None = None,
    statuses: Mapping[int, int] | None = None,
    held_s: float = 0.001,
    ran_s: float = 0.012,
    took_s: float = 0.015,
) -> Recent:
    """Some batches of ``each`` requests with ``rows`` rows, all alike."""
    tally = ApiTally()
    for _ in range(batches):
        tally.releases[reason] += 1
        tally.batch_rows.observe(each * rows)
        tally.batch_requests.observe(each)
        tally.batch_duration.observe(ran_s)
        for _ in range(each):
            tally.queue_wait.observe(held_s)
            tally.answered(200, took_s)
    tally.statuses.update(statuses or {})
    ran = batches * each
    return Recent(
        30.0,
        tally.statuses,
        tally.releases,
        Counter(sheds or {}),
        tally.duration,
        tally.queue_wait,
        tally.batch_rows,
        tally.batch_requests,
        tally.batch_duration,
        ran,
        ran * ran_s,
    )


def work(workers: int = 1, *, running: Sequence[RunningBatch] = ()) -> WorkStats:
    """Workers, of which some run batches."""
    return WorkStats(workers, workers - len(running), list(running))


def figures(
    api: ApiStats | None = None,
    lately: Recent | None = None,
    doing: WorkStats | None = None,
    **changes: Any,
) -> Figures:
    """An api that nobody asks, with one idle worker and a goal of 300 ms."""
    given: dict[str, Any] = {
        "stats": api or stats(),
        "recent": lately or recent(),
        "work": doing or work(),
        "goal_s": 0.3,
    }
    return Figures(**{**given, **changes})
