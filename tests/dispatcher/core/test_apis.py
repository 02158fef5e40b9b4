"""Several apis and several keys share the workers."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.dispatcher.driver import Arrival, Driver, core_with, done, poll_all, start_one, starts, teach
from uncork_dispatcher.rules import ApiRules

TIGHT = ApiRules(name="tight", goal_s=0.1)
LOOSE = ApiRules(name="loose", goal_s=1.0)


def test_the_tight_goal_goes_first() -> None:
    """Both came while the worker was busy; the loose one came first, and waits."""
    core = core_with(TIGHT, LOOSE)
    first = start_one(core, 0, now=0.0, api="loose")
    core.submit(1, api="loose", now=0.01)
    core.submit(2, api="tight", now=0.02)
    core.batch_done(first.number, status="worked", now=0.05)
    [start] = starts(core.poll(0.05))
    assert start.requests == (2,)

    core.batch_done(start.number, status="worked", now=0.06)
    assert [start.requests for start in starts(core.poll(0.06))] == [(1,)]


def test_who_waits_long_becomes_urgent() -> None:
    """0.9 s later the loose one has as little time left as a fresh one of the other, and goes first."""
    core = core_with(TIGHT, LOOSE)
    first = start_one(core, 0, now=0.0, api="loose")
    core.submit(1, api="loose", now=0.0)
    core.submit(2, api="tight", now=0.91)
    core.batch_done(first.number, status="failed", now=0.92)

    assert [start.requests for start in starts(core.poll(0.92))] == [(1,)]


def test_a_goal_that_cannot_be_met_does_not_push_ahead() -> None:
    """A model of 2 s counts with 4 s, whatever its goal says."""
    core = core_with(TIGHT, LOOSE)
    now = teach(core, 2.0, api="tight", batches=1)
    first = start_one(core, 0, now=now, api="loose")
    core.submit(1, api="tight", now=now)
    core.submit(2, api="loose", now=now)
    core.batch_done(first.number, status="failed", now=now + 0.1)

    assert [start.requests for start in starts(core.poll(now + 0.1))] == [(2,)]


@pytest.mark.parametrize(("slow_goal_s", "quick_goal_s"), [(0.1, 1.0), (1.0, 0.1)])
def test_the_earliest_end_of_several_holds_counts(slow_goal_s: float, quick_goal_s: float) -> None:
    slow = ApiRules(name="slow", goal_s=slow_goal_s, policy="fixed:90")
    quick = ApiRules(name="quick", goal_s=quick_goal_s, policy="fixed:20")
    core = core_with(slow, quick)
    core.submit(1, api="slow", now=0.0)
    core.submit(2, api="quick", now=0.0)
    assert core.poll(0.0) == []
    assert core.next_wakeup() == pytest.approx(0.02)

    assert [start.requests for start in starts(core.poll(core.next_wakeup()))] == [(2,)]


@pytest.mark.parametrize(("many", "few"), [(LOOSE, TIGHT), (TIGHT, LOOSE)])
def test_a_flood_of_one_api_does_not_starve_the_other(many: ApiRules, few: ApiRules) -> None:
    """500 requests/s of the one, 10 of the other, a worker that is always busy: all in time."""
    flood = [Arrival(i / 500, api=many.name) for i in range(1000)]
    others = [Arrival(i / 10 + 0.003, api=few.name) for i in range(20)]
    end = Driver(core_with(TIGHT, LOOSE), flood + others, lambda start: 0.02 + start.rows * 0.0005).run()

    assert end.refused == {}
    assert max(end.latency[number] for number in range(1000, 1020)) < few.goal_s


@pytest.mark.parametrize("takes_ahead", [False, True])
def test_an_api_with_long_batches_does_not_starve(takes_ahead: bool) -> None:
    """An overloaded one with short batches would always be more urgent; it loses a twentieth of the time."""
    quick = ApiRules(name="quick", goal_s=0.03, max_batch_rows=8)
    slow = ApiRules(name="slow", goal_s=0.15, max_batch_rows=8)
    core = core_with(quick, slow, workers=0)
    core.worker_ready(0, now=0.0, takes_ahead=takes_ahead)
    teach(core, 0.1, api="slow", now=teach(core, 0.005, api="quick"))
    flood = [Arrival(1 + i / 2000, api="quick") for i in range(20_000)]
    others = [Arrival(1 + i / 20, api="slow") for i in range(200)]
    end = Driver(core, flood + others, lambda start: 0.1 if start.api == "slow" else 0.005).run()
    slow_at = [start.started for _, start in end.batches if start.api == "slow" and start.started < 11]

    assert len(slow_at) == pytest.approx(5, abs=1)
    assert min(after - before for before, after in pairwise(slow_at)) > 1.9


def test_many_apis_with_long_batches_leave_half_of_the_time_to_short_ones() -> None:
    """Each of 30 is owed a share, but together no more than that."""
    names = [f"slow{number}" for number in range(30)]
    quick = ApiRules(name="quick", goal_s=0.03, max_batch_rows=8)
    core = core_with(quick, *[ApiRules(name=name, goal_s=0.15, max_batch_rows=8) for name in names])
    now = teach(core, 0.005, api="quick")
    for name in names:
        now = teach(core, 0.1, api=name, now=now)
    flood = [Arrival(now + i / 2000, api="quick") for i in range(10_000)]
    others = [Arrival(now + i / 20, api=name) for name in names for i in range(100)]
    end = Driver(core, flood + others, lambda start: 0.005 if start.api == "quick" else 0.1).run()
    short = [start for at, start in end.batches if start.api == "quick" and at < now + 5]

    assert 0.005 * len(short) > 0.35 * 5


def test_requests_from_before_a_change_of_the_unit_teach_nothing() -> None:
    """Running or queued: their rows are counted in the other one. The first that comes after it does."""
    old, new = (ApiRules(name="a", goal_s=9.0, unit=unit) for unit in ("bytes", "rows"))
    core = core_with(old)
    core.submit(0, api="a", rows=4000, now=0.0)
    [running] = starts(poll_all(core, 0.0))
    core.submit(1, api="a", rows=5000, now=0.0)
    core.set_api(new)
    core.submit(2, api="a", now=0.05, key="new")
    [queued] = done(core, running, 0.1)
    assert queued.requests == (1,)
    [counted] = done(core, queued, 0.2)
    assert core.sample("a").estimate.seconds(1) == 0

    assert done(core, counted, 0.3) == []
    assert core.sample("a").estimate.seconds(1) == pytest.approx(0.1)


def test_responses_of_a_removed_api_teach_nothing() -> None:
    """A caller may remove it as it gets the last one."""
    core = core_with(TIGHT, LOOSE)
    assert core.remove_api("tight")
    core.responses_written("tight", 0.05, now=1.0)

    assert [stats.name for stats in core.stats(now=1.0)] == ["loose"]
