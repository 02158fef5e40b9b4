"""Builders of figures for tests."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from uncork_dispatcher import ApiRules, ApiStats, Estimate, Reason, RunningBatch, WorkStats
from uncork_gateway.errors import RefusalReason
from uncork_gateway.pages.status.document import Failure
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.telemetry.metrics import ApiTally
from uncork_gateway.telemetry.recent import Recent

ESTIMATE = Estimate(intercept_s=0.010, slope_s=0.002, spread=0.1, earned_rows=64)
TOKENS = Estimate(intercept_s=0.006, slope_s=0.00006, spread=0.15, earned_rows=8192)
RUNNING = RunningBatch(1, "predict", 8, 8, 0.004, 0.012)
FAILURE = Failure(
    error="IndexError",
    place="service.py:12",
    message=None,
    error_id="77ab",
    requests=30,
    first=1000.0,
    last=1029.0,
)
DIED = "no worker is ready: worker 0 was killed by SIGKILL"
UNHEALTHY = "no server is healthy: http://10.0.0.7:8000: GET /v2/health/ready returned 503"


def stats(rules: Mapping[str, Any] | None = None, **changes: Any) -> ApiStats:
    """Return an API with an empty queue and a known estimate."""
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
        "smallest_rows": 1.0,
        "known_rows": (1.0, 32.0),
        "slope_error_s": 0.0,
        "oldest_s": 0.0,
        "padding": None,
        "holding": None,
    }
    smallest, largest = (changes if "known_rows" in changes else told)["known_rows"] or (0.0, 0.0)
    if largest < 2 * smallest:
        told["slope_error_s"] = math.inf
    return ApiStats(**{**told, **changes})


def recent(
    *,
    batches: int = 0,
    each: int = 1,
    rows: int = 1,
    rate: float | None = None,
    reason: Reason = "idle",
    releases: Mapping[Reason, int] | None = None,
    sheds: Mapping[RefusalReason, int] | None = None,
    statuses: Mapping[int, int] | None = None,
    errors: Mapping[int, int] | None = None,
    queued_s: float = 0.001,
    ran_s: float = 0.012,
    took_s: float = 0.015,
    seconds: float = 30.0,
    estimate: Estimate | None = ESTIMATE,
    coalesced: int = 0,
) -> Recent:
    """Some batches of ``each`` requests with ``rows`` rows, all alike, and some other answers.

    ``statuses`` are answers that are no errors, ``sheds`` are answered 503, or 504 if their clients' time
    had passed. ``rate`` counts rows per second; by default, it is the rate of these batches. If it is given,
    they are a sample, and the time of all batches is predicted. ``releases`` replace the reason.
    """
    sampled_s = ran_s
    if rate and batches and estimate is not None:
        sampled_s = estimate.seconds(each * rows) * rate * seconds / (each * rows) / batches
    tally = ApiTally()
    for _ in range(batches):
        tally.releases[reason] += 1
        tally.batch_requests.observe(each)
        tally.batch_rows.observe(each * rows)
        tally.batch_duration.observe(sampled_s)
        for _ in range(each):
            tally.queue_wait.observe(queued_s)
            tally.answered(200, took_s)
    for status, times in (errors or {}).items():
        for _ in range(times):
            tally.answered(status, took_s)
    for status, times in (statuses or {}).items():
        tally.statuses[status] += times
        for _ in range(times):
            tally.duration.observe(took_s)
    tally.sheds.update(sheds or {})
    tally.statuses[504] += tally.sheds["client_deadline"]
    tally.statuses[503] += tally.sheds.total() - tally.sheds["client_deadline"]
    tally.coalesced = coalesced
    if releases is not None:
        tally.releases = Counter(releases)
    tally.ran, tally.released_rows = batches * each, float(batches * each * rows)
    tally.ran_s = tally.ran * ran_s
    arrived_rows = tally.released_rows if rate is None else rate * seconds
    tally.worked_rows, tally.worked_s = arrived_rows, tally.batch_duration.sum
    return Recent(seconds, tally.copy(), arrived_rows, estimate)


def work(workers: int = 1, *, running: Sequence[RunningBatch] = ()) -> WorkStats:
    return WorkStats(workers, workers - len(running), list(running))


def figures(api: ApiStats | None = None, **changes: Any) -> Figures:
    """Return an idle API with one worker and a goal of 300 ms."""
    given: dict[str, Any] = {"stats": api or stats(), "recent": recent(), "work": work(), "goal_s": 0.3}
    return Figures(**{**given, **changes})
