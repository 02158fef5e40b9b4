"""The outbound semaphore: workers that get a batch while they run another."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.dispatcher.driver import running
from tests.dispatcher.workers.test_slots import counts, free_at, rows_of
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.workers.slots import Slots


def first_of(slots: Slots, worker: int = 0, *, predicted_s: float = 4.0, spread_s: float = 0.0) -> Batch[Any]:
    """A batch that runs on a worker since time 0; transport takes a second."""
    batch = running(
        batch=1 + worker,
        worker=worker,
        predicted_s=predicted_s,
        gives_up_at=10.0,
        transport_s=1.0,
        spread_s=spread_s,
    )
    slots.occupy(batch)
    return batch


def put_ahead(slots: Slots, *, worker: int = 0, started: float = 4.0) -> Batch[Any]:
    """A batch of 3 rows and 2 s that a worker is to run next, for 10 s at most."""
    batch = running(
        batch=9, worker=worker, rows=3, started=started, predicted_s=2.0, gives_up_at=started + 10.0
    )
    slots.put_ahead(batch)
    return batch


def busy(*, workers: int = 1, takers: int = 17) -> Slots:
    """Workers, of which the first ``takers`` take batches ahead, and the first runs one until 4.0."""
    slots = Slots()
    for worker in range(workers):
        slots.add(worker, takes_ahead=worker < takers)
    first_of(slots)
    return slots


def runs(slots: Slots, batch: int) -> bool:
    return slots.batch(batch) is not None


def test_the_next_to_end_gets_a_batch_ahead() -> None:
    """Unless it is late, or has one: it will be busy for longer then."""
    slots = busy(workers=3)
    first = slots.next_ahead(0.0, "a")
    second = first_of(slots, 1, predicted_s=3.0)
    third = first_of(slots, 2, predicted_s=2.5)
    assert slots.next_ahead(0.0, "a") is third
    assert slots.next_ahead(3.5, "a") is second

    put_ahead(slots, worker=2, started=2.5)
    assert slots.next_ahead(0.0, "a") is second
    put_ahead(slots, worker=1, started=3.0)
    assert first is not None
    assert slots.next_ahead(0.0, "a") is first


def test_of_many_late_batches_nothing_is_expected() -> None:
    """Whatever else runs."""
    slots = busy(workers=17)
    for worker in range(1, 16):
        first_of(slots, worker, predicted_s=1.0)
    assert slots.next_ahead(3.0, "a") is not None
    first_of(slots, 16, predicted_s=1.0)
    assert slots.next_ahead(3.0, "a") is None


@pytest.mark.parametrize(("now", "expected"), [(4.99, True), (5.0, False)])
def test_none_is_sent_behind_a_late_batch(now: float, expected: bool) -> None:
    """Its reply should have arrived by then."""
    assert (busy().next_ahead(now, "a") is not None) == expected


@pytest.mark.parametrize(("spread_s", "alone", "expected"), [(3.0, 0, True), (3.1, 0, False), (3.1, 1, True)])
def test_none_is_sent_behind_one_whose_end_is_uncertain(spread_s: float, alone: int, expected: bool) -> None:
    """Unless there is no other worker that could be idle before."""
    slots = Slots()
    for worker in range(2 - alone):
        slots.add(worker, takes_ahead=True)
    first_of(slots, spread_s=spread_s)

    assert (slots.next_ahead(0.0, "a") is not None) == expected


def test_the_batch_ahead_starts_when_the_other_one_has_ended() -> None:
    """Its worker is not idle in between, and its timeout begins then."""
    slots = busy()
    changes = slots.changes
    ahead = put_ahead(slots)
    assert slots.changes > changes
    assert counts(slots) == (1, 0, 2)
    assert free_at(slots, 1.0) == [6.0]
    assert rows_of(slots, "a") == [3]
    assert slots.next_timeout == 10.0

    finished = slots.finish(1, now=4.5)
    assert finished is not None
    assert ahead.started == 4.5
    assert (ahead.started, runs(slots, 9), runs(slots, 1)) == (4.5, True, False)
    assert counts(slots) == (1, 0, 1)
    assert free_at(slots, 1.0) == [6.5]
    assert slots.next_timeout == 14.5
    assert slots.next_ahead(4.5, "a") is ahead, "another one may follow"

    slots.finish(9, now=7.0)
    assert counts(slots) == (1, 1, 0)
    assert slots.next_timeout == math.inf


def test_a_retired_worker_runs_both() -> None:
    slots = busy()
    put_ahead(slots)
    slots.retire(0)
    slots.add(1)
    assert free_at(slots, 1.0) == [1.0]

    slots.finish(1, now=4.0)
    assert free_at(slots, 1.0) == [1.0]
    slots.finish(9, now=6.0)
    assert counts(slots) == (1, 1, 0)


def test_either_of_two_batches_may_end_first_and_both_are_lost_with_their_worker() -> None:
    """The one ahead ends first if it cannot be sent, or another process has taken over from the worker."""
    slots = busy()
    ahead = put_ahead(slots)
    [shown] = slots.stats(1.0).running
    assert (shown.worker, shown.rows) == (0, 1), "only the batch that runs is shown"

    assert slots.finish(9, now=1.0) is ahead
    assert counts(slots) == (1, 0, 1)
    assert free_at(slots, 1.0) == [4.0]
    assert (runs(slots, 1), runs(slots, 9), slots.next_timeout) == (True, False, 10.0)

    put_ahead(slots)
    assert [batch.number for batch in slots.lose(0, now=1.0)] == [1, 9]
    assert counts(slots) == (0, 0, 0)
    assert (runs(slots, 9), slots.next_timeout) == (False, math.inf)


def test_an_api_with_slots_of_its_own_gets_none_ahead_and_is_in_nobodys_way() -> None:
    """A worker that runs the lost batch of such an API has no slot for it."""
    slots = busy()
    slots.reserve("fetch", 0, 2)
    again = running(batch=2, gives_up_at=10.0)
    again.api, again.entries[0].queue.retry = "fetch", "batch"
    slots.occupy(again)

    behind = slots.next_ahead(0.0, "a")
    assert behind is not None
    assert behind.number == 1
    assert slots.next_ahead(0.0, "fetch") is None
