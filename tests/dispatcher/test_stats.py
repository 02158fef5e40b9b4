"""Statistics of the core."""

from __future__ import annotations

import pytest

from tests.dispatcher.driver import core_with, start_one
from uncork_dispatcher import ApiRules, Dispatcher, Holding, RunningBatch, WorkStats
from uncork_dispatcher.requests.batch import Batch


def fixed(**limits: float) -> ApiRules:
    """An api called ``a`` that holds for a second."""
    return ApiRules(name="a", policy="fixed:1000", goal_s=5.0, **limits)  # type: ignore[arg-type]


def holding(core: Dispatcher, now: float) -> Holding | None:
    """Why the policy of the only API holds."""
    [api] = core.stats(now=now)
    return api.holding


def test_what_a_policy_waits_for_is_told_with_its_reason() -> None:
    """As long as a worker is idle: otherwise it waits for one."""
    core = core_with(fixed())
    assert holding(core, 0.0) is None
    core.submit(1, api="a", now=0.0)
    assert core.poll(0.0) == []

    assert holding(core, 0.25) == Holding(0.75, "window")
    [api] = core.stats(now=0.25)
    assert api.oldest_s == 0.25
    core.poll(1.0)
    core.submit(2, api="a", now=1.0)
    assert holding(core, 1.25) is None


def test_what_runs_is_told_with_how_long_it_has_left() -> None:
    """Of each worker; those that are idle are counted."""
    core = core_with(ApiRules(name="a"), workers=2)
    first = start_one(core, 0, now=0.0)
    core.batch_done(first.number, status="worked", now=2.0)
    core.submit(1, api="a", rows=3, now=5.0)
    [start] = core.poll(5.0)

    told = core.work(now=5.5)
    [running] = told.running
    assert told == WorkStats(2, 1, [running])
    assert isinstance(start, Batch)
    assert running == RunningBatch(start.worker, "a", 3, 1, 0.5, start.predicted_s - 0.5)


def test_a_sample_has_all_that_arrived_and_what_is_queued() -> None:
    """Shed requests too; and the estimate of batch times, with transport."""
    core = core_with(fixed(max_queue_rows=5))
    core.submit(1, api="a", rows=2, now=0.0)
    core.poll(1.0)
    core.batch_done(1, status="worked", seconds=0.3, chunks=[(2, 0.2)], now=1.3)
    core.submit(2, api="a", rows=4, now=1.4)
    assert core.submit(3, api="a", rows=3, now=1.4) is not None

    sample = core.sample("a")
    assert (sample.arrived_rows, sample.queued_rows) == (9, 4)
    assert sample.estimate.seconds(2) == pytest.approx(0.2)
    assert 0 < sample.transport_s <= 0.1
