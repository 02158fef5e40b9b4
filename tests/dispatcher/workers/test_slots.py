"""The outbound semaphore, and what fits into the memory of workers."""

import math

from tests.dispatcher.driver import running
from uncork_dispatcher.workers.memory_fits import MemoryFits
from uncork_dispatcher.workers.slots import Slots


def slots_with(workers: int) -> Slots:
    """Idle workers, numbered from 0."""
    slots = Slots()
    for worker in range(workers):
        slots.add(worker)
    return slots


def rows_of(slots: Slots, api: str) -> list[float]:
    """Return the rows of each running batch."""
    shared = slots.shares.shared
    return [shared.rows(api, place) for place in range(len(shared.batches))]


def free_at(slots: Slots, now: float) -> list[float]:
    """When each worker is free."""
    outlook = slots.outlook(now, "a")
    return [outlook.free_at(place, now) for place in range(outlook.places)]


def counts(slots: Slots) -> tuple[int, int, int]:
    """Workers, idle ones, running batches."""
    return slots.workers, slots.idle, slots.running


def test_losing_a_worker_returns_its_own_batch() -> None:
    """None of an idle worker, nor of one that is unknown, was lost before, or has retired."""
    slots = slots_with(4)
    second = running(batch=2, worker=1)
    slots.occupy(running(batch=1, worker=0))
    slots.occupy(second)
    assert counts(slots) == (4, 2, 2)
    assert slots.lose(1, now=0.0) == [second]
    assert counts(slots) == (3, 2, 1)

    slots.retire(2)
    slots.retire(77)
    for worker in (1, 2, 3, 77):
        assert slots.lose(worker, now=0.0) == []
    assert counts(slots) == (1, 0, 1)
    assert slots.finish(2, now=0.0) is None
    assert slots.finish(1, now=0.0) is not None
    assert slots.finish(1, now=0.0) is None
    assert counts(slots) == (1, 1, 0)


def test_the_fastest_idle_worker_is_next() -> None:
    slots = slots_with(4)
    slowdowns = {0: 2.0, 1: 1.0, 2: 0.5, 3: 0.5}
    order = []
    for batch in range(4):
        order.append(slots.shares.next_idle(slowdowns.__getitem__, now=0.0))
        slots.occupy(running(batch=batch, worker=order[-1]))

    assert order == [2, 3, 1, 0]


def test_of_many_idle_workers_the_first_sixteen_are_compared() -> None:
    """One that is idle for a short time waits for its turn, however fast it is."""
    slots = slots_with(40)

    assert slots.shares.next_idle(lambda worker: -worker, now=0.0) == 15
    assert slots.shares.next_idle(None, now=0.0) == 0


def test_batches_predicted_to_end_at_one_moment_are_kept_apart() -> None:
    """Each with its own rows, whatever ends first."""
    slots = slots_with(3)
    for batch in (1, 2, 3):
        slots.occupy(running(batch=batch, worker=batch - 1, rows=batch, predicted_s=4.0))
    assert rows_of(slots, "a") == [1, 2, 3]
    assert rows_of(slots, "b") == [0, 0, 0]

    slots.finish(2, now=0.0)
    assert rows_of(slots, "a") == [1, 3]
    assert free_at(slots, 1.0) == [1.0, 4.0, 4.0]


def on_hosts(hosts: str) -> Slots:
    """Idle workers, numbered from 0, on these hosts."""
    slots = Slots()
    for worker, host in enumerate(hosts):
        slots.add(worker, host)
    return slots


def preferred(slots: Slots, *, now: float) -> list[int]:
    """Take all idle workers, one after another."""
    order = []
    while slots.idle:
        order.append(slots.shares.next_idle(lambda _: 1.0, now=now))
        slots.occupy(running(batch=100 + len(order), worker=order[-1]))
    return order


def test_a_host_that_lost_a_worker_is_used_last_for_two_seconds() -> None:
    """However fast its other workers are; they are used if there are no others."""
    slots = on_hosts("xxyxy")
    slots.lose(0, now=5.0)
    assert slots.shares.next_idle(lambda worker: worker, now=6.9) == 2
    assert slots.shares.next_idle(lambda worker: worker, now=7.0) == 1

    slots.lose(1, now=7.0)
    assert preferred(slots, now=8.9) == [2, 4, 3]


def test_the_host_of_a_lost_worker_that_was_retired_is_not_avoided() -> None:
    """Nor is that of one that ran past its timeout: the gateway ended it."""
    slots = on_hosts("xxyx")
    batch = running(batch=1, worker=0)
    slots.occupy(batch)
    slots.retire(0)
    assert slots.lose(0, now=0.0) == [batch]

    slots.occupy(running(batch=2, worker=1, gives_up_at=0.5))
    overdue = slots.give_up_overdue(0.5)
    assert len(overdue) == 1
    assert slots.lose(1, now=0.5) == []
    slots.occupy(running(batch=3, worker=2))
    assert slots.shares.avoids_idle_until(0.5) == 0.5


def test_each_worker_has_its_own_size_for_each_api() -> None:
    fits = MemoryFits()
    fits.limit(1, "a", 20.0)
    fits.limit(2, "a", 8.0)

    assert (fits.of(1, "a"), fits.of(2, "a"), fits.of(3, "a"), fits.of(1, "b")) == (20, 8, math.inf, math.inf)
    assert (fits.least("a"), fits.least("b")) == (8, math.inf)


def test_a_limit_changes_and_ends() -> None:
    fits = MemoryFits()
    for size in (20.0, 5.0, math.inf, math.inf):
        fits.limit(1, "a", size)
        assert fits.of(1, "a") == fits.least("a") == size
    assert fits.by_api == {}
