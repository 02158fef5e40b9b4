"""The figures of a simulated API: what the status page would know after a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tests.gateway.pages.status.staged import figures, stats, work
from uncork_dispatcher.learning.estimator import BatchTimeEstimator
from uncork_dispatcher.simulator import Run, Scenario, simulate
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.telemetry.metrics import ApiTally
from uncork_gateway.telemetry.recent import Recent

_WARM_UP = 0.25
"""The share of a run that is learned from, but not counted."""


def end_s(run: Run) -> float:
    return max([one.finish for one in run.answered] + [at for at, _ in run.shed])


@lru_cache(maxsize=4)
def run_of(scenario: Scenario) -> Run:
    return simulate(scenario)


def throughput(scenario: Scenario) -> float:
    """Return the rows that a scenario answers within its goal, per second of its last three quarters."""
    run = run_of(scenario)
    end = end_s(run)
    begin = _WARM_UP * end
    kept = sum(
        1 for one in run.answered if one.finish >= begin and one.finish - one.arrival <= scenario.goal_s
    )
    return kept / (end - begin)


def mean_latency(scenario: Scenario) -> float:
    answered = run_of(scenario).answered
    return sum(one.finish - one.arrival for one in answered) / len(answered)


def figures_of(
    scenario: Scenario, *, profile: Sequence[int] = (), cold_s: float = 0.0, **changes: Any
) -> Figures:
    """Return the figures after a run of requests of one row.

    The warm-up measured the sizes in ``profile``; the first batch took ``cold_s`` longer.
    """
    run = run_of(scenario)
    end = end_s(run)
    begin = _WARM_UP * end
    estimator, tally = BatchTimeEstimator(), ApiTally()
    estimator.observe_profile([(float(rows), scenario.service.mean(rows)) for rows in profile])
    for number, batch in enumerate(run.batches):
        estimator.observe(batch.rows, batch.seconds + (0.0 if number else cold_s))
        if batch.started < begin:
            continue
        tally.releases[batch.reason] += 1  # type: ignore[index]
        tally.batch_requests.observe(batch.requests)
        tally.batch_rows.observe(batch.rows)
        tally.batch_duration.observe(batch.seconds)
        tally.ran += batch.requests
        tally.ran_s += batch.requests * batch.seconds
        tally.released_rows += batch.rows
    mean_run_s = tally.ran_s / tally.ran
    for one in run.answered:
        if one.finish >= begin:
            tally.answered(200, one.finish - one.arrival)
            tally.queue_wait.observe(max(0.0, one.finish - one.arrival - mean_run_s))
    for at, shed in run.shed:
        if at >= begin:
            tally.answered(503, 0.0, refusal=shed.reason)
    arrived = float(sum(tally.statuses.values()))
    api = stats(
        {"max_batch_rows": scenario.limit_rows, "policy": scenario.policy, "goal_s": scenario.goal_s},
        limit_rows=1 if scenario.policy == "none" else scenario.limit_rows,
        known_rows=estimator.known_rows,
        slope_error_s=estimator.slope_error_s,
    )
    given: dict[str, Any] = {
        "recent": Recent(end - begin, tally.copy(), arrived, estimator.estimate),
        "work": work(scenario.workers),
        "goal_s": scenario.goal_s if scenario.goal_s < math.inf else None,
    }
    return figures(api, **{**given, **changes})
