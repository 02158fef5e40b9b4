"""The core: batches are no larger than fits into the memory of the worker that runs them."""

from __future__ import annotations

from typing import Any

from tests.dispatcher.driver import core_with, poll_all, starts
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules

API = ApiRules(name="a", max_batch_rows=64, goal_s=9.0, policy="fixed:0")


def submit(core: Dispatcher, requests: int, *, now: float = 0.0, first: int = 0, **fields: Any) -> None:
    for number in range(first, first + requests):
        assert core.submit(number, api="a", now=now, **fields) is None


def started(core: Dispatcher, now: float = 0.0) -> list[Batch[Any]]:
    return starts(poll_all(core, now))


def test_each_worker_gets_what_fits_there() -> None:
    """One small GPU does not shrink the batches of the others."""
    core = core_with(API, workers=3)
    core.limit_batches(1, "a", 20.0, now=0.0)
    submit(core, 200)

    assert {batch.worker: batch.rows for batch in started(core)} == {0: 64, 1: 20, 2: 64}


def test_it_is_gone_with_its_worker() -> None:
    core = core_with(API)
    core.limit_batches(0, "a", 20.0, now=0.0)
    core.worker_lost(0, now=0.0)
    core.limit_batches(0, "a", 20.0, now=0.0)
    core.worker_ready(0, now=0.0)
    submit(core, 64)

    assert [batch.rows for batch in started(core)] == [64]


def test_cost_is_limited_as_rows_are() -> None:
    """With the padding, which is assumed until batches show that there is none."""
    rules = ApiRules(name="a", max_batch_rows=4096, goal_s=9.0, policy="fixed:0")
    core = core_with(rules)
    core.limit_batches(0, "a", 100.0, now=0.0)
    core.profile("a", 0, [(10.0, 0.11), (100.0, 0.2)], now=0.0)
    for number in range(50):
        longest = 10.0 if number else 20.0
        submit(core, 1, first=number, rows=longest, count=1, longest=longest)

    [batch] = started(core)
    assert (batch.count, batch.padded, batch.pads) == (5, 100, True)


def test_a_queue_with_a_batch_that_fits_is_full() -> None:
    """No policy holds it to make it larger."""
    core = core_with(ApiRules(name="a", max_batch_rows=64, goal_s=9.0, policy="fixed:60"))
    core.limit_batches(0, "a", 20.0, now=0.0)
    submit(core, 19)
    assert started(core) == []
    submit(core, 1, first=19)

    [batch] = started(core)
    assert (batch.rows, batch.reason) == (20, "full")


def test_a_batch_that_fits_is_sent_ahead() -> None:
    """It is complete for the worker behind whose batch it goes."""
    core = Dispatcher()
    core.set_api(ApiRules(name="a", max_batch_rows=64, goal_s=9.0, policy="fixed:0"))
    core.worker_ready(0, now=0.0, takes_ahead=True)
    now, number = 0.0, 0
    for _ in range(200):
        submit(core, 1, now=now, first=number)
        number += 1
        [batch] = started(core, now)
        now += 0.3
        core.batch_done(batch.number, status="worked", now=now, chunks=[(1, 0.25)])
        poll_all(core, now)
    core.limit_batches(0, "a", 4.0, now=now)
    submit(core, 1, now=now, first=number)
    [running] = started(core, now)
    submit(core, 4, now=now, first=number + 1)
    late = running.finish - running.transport_s / 10

    [ahead] = started(core, late)
    assert (ahead.is_ahead, ahead.rows) == (True, 4)


def test_a_lost_batch_runs_again_in_parts_that_fit() -> None:
    """Memory may be why its worker died; if no worker limits it, it runs again whole."""
    core = core_with(API, workers=1)
    submit(core, 50)
    [whole] = started(core)
    core.worker_lost(0, now=0.0)
    core.worker_ready(1, now=0.0)
    core.limit_batches(1, "a", 20.0, now=0.0)
    parts = []
    while batches := started(core):
        parts += [batch.requests for batch in batches]
        core.batch_done(batches[0].number, status="worked", now=0.0)

    assert [len(part) for part in parts] == [20, 20, 10]
    assert tuple(number for part in parts for number in part) == whole.requests
    assert core.is_empty
