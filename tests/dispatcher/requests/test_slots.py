"""The outbound semaphore."""

import math

import pytest

from tests.dispatcher.driver import next_worker, running
from uncork_dispatcher.requests.slots import Slots


def slots_with(workers: int) -> Slots:
    """Idle workers, numbered from 0."""
    slots = Slots()
    for worker in range(workers):
        slots.add(worker)
    return slots


def counts(slots: Slots) -> tuple[int, int, int]:
    """Workers, idle ones, running batches."""
    return slots.workers, slots.idle, slots.running


def test_a_slot_is_taken_occupied_and_given_back() -> None:
    slots = slots_with(2)
    assert counts(slots) == (2, 2, 0)

    slots.occupy(running(batch=7, worker=next_worker(slots)))
    assert counts(slots) == (2, 1, 1)

    assert slots.finish(7) is not None
    assert counts(slots) == (2, 2, 0)


def test_the_worker_idle_longest_is_taken_first() -> None:
    """A worker that just finished goes to the end of the line."""
    slots = slots_with(3)
    order = []
    for batch in (1, 2, 3, 4):
        order.append(next_worker(slots))
        slots.occupy(running(batch=batch, worker=order[-1]))
        if batch == 1:
            slots.finish(1)

    assert order == [0, 1, 2, 0]


def test_adding_a_known_worker_changes_nothing() -> None:
    slots = slots_with(1)
    slots.add(0)
    assert counts(slots) == (1, 1, 0)

    slots.occupy(running(worker=next_worker(slots)))
    slots.add(0)
    assert counts(slots) == (1, 0, 1)


def test_losing_an_idle_worker_loses_no_batch() -> None:
    slots = slots_with(2)
    other = running(batch=1, worker=next_worker(slots))
    slots.occupy(other)

    assert slots.lose(1) is None
    assert counts(slots) == (1, 0, 1)


def test_losing_a_busy_worker_returns_its_own_batch() -> None:
    slots = slots_with(2)
    second = running(batch=2, worker=1)
    slots.occupy(running(batch=1, worker=0))
    slots.occupy(second)

    assert slots.lose(1) is second
    assert counts(slots) == (1, 0, 1)
    assert slots.finish(2) is None
    assert counts(slots) == (1, 0, 1)


def test_losing_an_unknown_worker_is_harmless() -> None:
    """It may be reported twice."""
    slots = slots_with(1)

    assert slots.lose(5) is None
    assert counts(slots) == (1, 1, 0)


def test_finishing_an_unknown_batch_gives_no_slot() -> None:
    slots = slots_with(1)
    slots.occupy(running(batch=1, worker=next_worker(slots)))
    slots.finish(1)

    assert slots.finish(1) is None
    assert counts(slots) == (1, 1, 0)


def test_overdue_batches_go_with_their_workers() -> None:
    """At the very moment of the timeout, not before; others stay."""
    slots = slots_with(2)
    first = running(batch=1, worker=next_worker(slots), gives_up_at=5.0)
    slots.occupy(first)
    slots.occupy(running(batch=2, worker=next_worker(slots), gives_up_at=6.0))
    assert slots.next_timeout == 5.0
    assert slots.give_up_overdue(4.999) == []

    assert slots.give_up_overdue(5.0) == [first]
    assert counts(slots) == (1, 0, 1)
    assert slots.next_timeout == 6.0

    slots.add(0)
    assert counts(slots) == (2, 1, 1)


def test_nothing_running_has_no_timeout() -> None:
    """The next timeout is then never."""
    assert slots_with(1).next_timeout == math.inf


def test_predicted_finishes_are_sorted_and_never_past() -> None:
    """A batch that runs longer than predicted may finish at any moment: now."""
    slots = slots_with(3)
    for batch, (started, predicted_s) in enumerate([(0.0, 9.0), (1.0, 2.0), (2.0, 5.0)], 1):
        slots.occupy(
            running(batch=batch, worker=next_worker(slots), started=started, predicted_s=predicted_s)
        )

    assert [finish for finish, _ in slots.outlook(4.0)] == [4.0, 7.0, 9.0]


def test_idle_workers_are_free_now() -> None:
    slots = slots_with(3)
    slots.occupy(running(worker=next_worker(slots), started=0.0, predicted_s=8.0))

    assert slots.free_at(3.0) == [3.0, 3.0, 8.0]


def test_a_slot_that_is_not_there_cannot_be_taken() -> None:
    with pytest.raises(StopIteration):
        next_worker(slots_with(0))
    with pytest.raises(KeyError):
        slots_with(1).occupy(running(worker=7))


def test_the_fastest_idle_worker_is_next() -> None:
    slots = slots_with(4)
    slowdowns = {0: 2.0, 1: 1.0, 2: 0.5, 3: 0.5}
    order = []
    for batch in range(4):
        order.append(slots.next_idle(slowdowns.__getitem__))
        slots.occupy(running(batch=batch, worker=order[-1]))

    assert order == [2, 3, 1, 0]
