"""Batches of an API with ``concurrency`` run at the same time in one worker, beside one of the other APIs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dispatcher.driver import core_with, done, poll_all, starts, submit_all
from uncork_dispatcher.actions import Abandon, Lost
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules, SettingError

FETCH = ApiRules(name="fetch", policy="none", goal_s=10.0, timeout_s=2.0, concurrency=2)
MODEL = ApiRules(name="model", policy="none", goal_s=10.0)
OPEN = ApiRules(name="fetch", policy="none", goal_s=10.0)


def submit(core: Dispatcher, *requests: Any, api: str = "fetch", now: float = 0.0) -> list[Batch[Any]]:
    return submit_all(core, *requests, api=api, now=now)


def workers_of(batches: list[Batch[Any]]) -> list[int]:
    return [batch.worker for batch in batches]


def test_batches_go_to_the_workers_with_the_fewest() -> None:
    core = core_with(FETCH, workers=3)
    assert sorted(workers_of(submit(core, *range(3)))) == [0, 1, 2]
    assert sorted(workers_of(submit(core, *range(3, 6)))) == [0, 1, 2]
    assert submit(core, 6) == []


def test_the_fewest_decide_among_workers_of_hosts_that_have_lost_none() -> None:
    core = Dispatcher()
    core.set_api(FETCH)
    for worker, host in enumerate("xxyy"):
        core.worker_ready(worker, now=0.0, host=host)
    core.worker_lost(0, now=0.0)
    assert workers_of(submit(core, *range(6))) == [2, 3, 2, 3, 1, 1]


def test_other_apis_have_their_own_slot() -> None:
    """Neither waits for the other, and each has all workers."""
    core = core_with(FETCH, MODEL)
    assert len(submit(core, 1, 2, 3)) == 2
    [model] = submit(core, 4, 5, api="model")
    assert submit(core, 6) == []
    assert [each.workers for each in core.stats(now=0.0)] == [2, 1]
    assert [start.requests for start in done(core, model, now=0.1)] == [(5,)]


def test_nothing_joins_a_batch_that_runs_again() -> None:
    """It may kill its worker too; once it has ended, others may."""
    core = core_with(FETCH, workers=2)
    submit(core, 1)
    core.worker_lost(0, now=0.0)
    core.worker_ready(2, now=0.0)
    [again] = starts(poll_all(core, 3.0))
    others = submit(core, 2, 3, 4, now=3.0)
    assert len(others) == 2
    assert again.worker not in workers_of(others)
    assert workers_of(done(core, again, now=3.1)) == [again.worker]


def test_a_retired_worker_ends_its_batches_and_is_gone() -> None:
    core = core_with(FETCH, workers=1)
    first, second = submit(core, 1, 2)
    core.worker_retired(0, now=0.1)
    core.worker_ready(1, now=0.1)
    assert workers_of(submit(core, 3, 4, now=0.1)) == [1, 1]
    assert done(core, first, now=0.2) == done(core, second, now=0.2) == []
    assert core.work(now=0.2).workers == 1


def test_a_batch_past_its_timeout_costs_the_others_their_worker_only() -> None:
    """The worker has a second to end it by itself; the others run again."""
    core = core_with(FETCH)
    [late] = submit(core, 1)
    [other] = submit(core, 2, now=1.0)
    assert poll_all(core, 2.9) == []
    assert poll_all(core, 3.0) == [Abandon(late, [other])]
    core.worker_ready(1, now=3.1)
    assert [start.requests for start in starts(poll_all(core, 3.1))] == [(2,)]


def test_what_is_lost_with_an_abandoned_worker_follows() -> None:
    """The driver learns first that the worker is gone, then of the request that may not run again."""
    core = core_with(FETCH, ApiRules(name="once", policy="none", goal_s=1000.0, idempotent=False))
    [late] = submit(core, 1)
    [other] = submit(core, 2, api="once", now=1.0)
    assert poll_all(core, 3.0) == [Abandon(late, [other]), Lost(2)]


def test_workers_lost_to_other_batches_do_not_count() -> None:
    """A request is not to blame for them, however many; it runs until it is done."""
    core = core_with(FETCH, ApiRules(name="long", policy="none", goal_s=1000.0, concurrency=2))
    [running] = submit(core, "innocent", api="long")
    for worker in range(1, 6):
        now = 10.0 * worker
        [late] = submit(core, worker, now=now)
        assert poll_all(core, now + 3.0) == [Abandon(late, [running])]
        core.worker_ready(worker, now=now + 4.0)
        [running] = starts(poll_all(core, now + 6.0))
        assert running.requests == ("innocent",)
    assert done(core, running, now=60.0) == []
    assert core.is_empty


@pytest.mark.parametrize(("before", "after", "more"), [(FETCH, OPEN, 0), (OPEN, FETCH, 2)])
def test_the_setting_may_change_while_batches_run(before: ApiRules, after: ApiRules, more: int) -> None:
    """Those that run keep their slots; the next get the new ones."""
    core = core_with(before, MODEL, workers=1)
    running = submit(core, 1, 2)
    core.set_api(after)
    started = submit(core, 3, 4, 5, now=0.1)
    assert len(started) == more + (2 - len(running) if before is FETCH else 0)
    left = running + started
    served: list[int] = []
    while left:
        served += left[0].requests
        left += done(core, left.pop(0), now=0.2)
    assert sorted(served) == [1, 2, 3, 4, 5]
    assert core.is_empty
    assert [each.idle for each in core.stats(now=0.2)] == [after.concurrency, 1]


def test_nothing_is_sent_behind_a_batch_that_keeps_a_slot_of_its_own() -> None:
    """Its API has none any more; the worker takes batches ahead, but runs none that one could follow."""
    core = Dispatcher()
    for rules in (FETCH, MODEL):
        core.set_api(rules)
    core.worker_ready(0, now=0.0, takes_ahead=True)
    core.profile("fetch", 0, [(1, 1.0)], now=0.0)
    [running] = submit(core, 1)
    core.set_api(OPEN)
    assert submit(core, 2, api="model", now=0.1) == []
    assert [start.requests for start in done(core, running, now=1.0)] == [(2,)]


def test_slots_survive_the_change_of_another_api() -> None:
    core = core_with(FETCH, MODEL, workers=2)
    submit(core, 1)
    core.worker_lost(0, now=0.0)
    core.worker_ready(2, now=0.0)
    [again] = starts(poll_all(core, 3.0))
    [beside] = submit(core, 2, now=3.0)
    core.set_api(ApiRules(name="model", policy="none", workers=1))
    assert workers_of(submit(core, 3, 4, now=3.0)) == [beside.worker]
    core.worker_lost(beside.worker, now=3.1)
    assert done(core, again, now=3.2)


@pytest.mark.parametrize(
    ("setting", "rules"), [("concurrency", {"concurrency": 0}), ("workers", {"workers": 1})]
)
def test_settings_that_contradict_are_rejected(setting: str, rules: dict[str, int]) -> None:
    with pytest.raises(SettingError, match=f"API 'a': {setting} must be"):
        ApiRules(name="a", **({"concurrency": 8} | rules))  # type: ignore[arg-type]
