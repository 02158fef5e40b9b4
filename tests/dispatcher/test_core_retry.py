"""What becomes of a batch whose worker is lost: once more, at the head of the queue."""

from __future__ import annotations

from uncork_dispatcher.actions import Abandon, Lost
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.rules import ApiRules

from .driver import core_with, starts

RULES = ApiRules(name="a", max_batch_rows=3, goal_s=10.0)


def running_three(rules: ApiRules = RULES, *, workers: int = 1) -> Dispatcher:
    """A core whose worker 0 runs requests 1, 2 and 3 as batch 1 since time 0."""
    core = core_with(rules, workers=workers)
    for number in (1, 2, 3):
        core.submit(number, api="a", rows=1, size_bytes=10, now=0.0)
    [start] = starts(core.poll(0.0))
    assert start.requests == (1, 2, 3)
    return core


def test_a_lost_batch_goes_to_another_worker_at_once() -> None:
    """As a new batch of the same requests in the same order."""
    core = running_three(workers=2)
    core.worker_lost(0, now=0.5)

    [start] = starts(core.poll(0.5))
    assert (start.batch, start.worker, start.requests) == (2, 1, (1, 2, 3))
    assert core.batch_done(2, outcome="worked", now=0.6)
    assert core.is_empty


def test_it_stands_before_what_came_meanwhile() -> None:
    """And counts among what is held, until a worker is there."""
    core = running_three()
    core.submit(4, api="a", now=0.1)
    core.worker_lost(0, now=0.5)
    assert core.poll(0.5) == []
    [stats] = core.stats(now=0.5)
    assert (stats.queued_requests, stats.queued_rows, stats.queued_bytes) == (4, 4, 30)

    core.worker_ready(0, now=1.0)
    core.worker_ready(1, now=1.0)
    assert [start.requests for start in starts(core.poll(1.0))] == [(1, 2, 3), (4,)]


def test_the_answer_of_a_lost_worker_is_not_wanted() -> None:
    """It came too late: the requests run elsewhere."""
    core = running_three(workers=2)
    core.worker_lost(0, now=0.5)
    core.poll(0.5)

    assert not core.batch_done(1, outcome="worked", now=0.6)
    assert repr(core) == "<Dispatcher held=0 running=1 idle=0>"


def test_once_is_enough() -> None:
    """A batch that loses two workers may be what kills them."""
    core = running_three(workers=2)
    core.submit(4, api="a", now=0.1)
    core.worker_lost(0, now=0.5)
    core.poll(0.5)
    core.worker_lost(1, now=0.6)

    assert core.poll(0.6) == [Lost(1), Lost(2), Lost(3)]
    assert core.poll(0.6) == []
    assert core.stats(now=0.6)[0].queued_requests == 1


def test_a_second_chance_belongs_to_the_request() -> None:
    """A newcomer that shares the second batch with it has its own."""
    core = running_three(ApiRules(name="a", max_batch_rows=4, goal_s=10.0))
    core.submit(4, api="a", now=0.1)
    core.worker_lost(0, now=0.5)
    core.worker_ready(1, now=0.5)
    [start] = starts(core.poll(0.5))
    assert start.requests == (1, 2, 3, 4)
    core.worker_lost(1, now=0.6)
    core.worker_ready(2, now=0.6)

    *lost, again = core.poll(0.6)
    assert lost == [Lost(1), Lost(2), Lost(3)]
    assert [again] == starts([again])
    assert starts([again])[0].requests == (4,)


def test_what_may_not_run_twice_is_lost_at_once() -> None:
    """The api is not idempotent."""
    core = running_three(ApiRules(name="a", idempotent=False), workers=2)
    core.worker_lost(0, now=0.5)

    assert core.poll(0.5) == [Lost(1), Lost(2), Lost(3)]
    assert core.is_empty
    assert core.stats(now=0.5)[0].queued_requests == 0


def test_who_has_left_is_not_run_again() -> None:
    """The first, here; nor is anybody told of it."""
    core = running_three(workers=2)
    core.cancel(1, now=0.2)
    core.worker_lost(0, now=0.5)

    [start] = core.poll(0.5)
    assert [start] == starts([start])
    assert starts([start])[0].requests == (2, 3)


def test_nobody_left_nothing_to_run() -> None:
    """The batch of those who have left is forgotten."""
    core = running_three(workers=2)
    for number in (1, 2, 3):
        core.cancel(number, now=0.2)
    core.worker_lost(0, now=0.5)

    assert core.is_empty
    assert core.poll(0.5) == []


def test_who_leaves_after_it_was_put_back_leaves_the_queue() -> None:
    """And is not started again."""
    core = running_three()
    core.worker_lost(0, now=0.5)
    core.cancel(2, now=0.6)
    core.worker_ready(0, now=0.7)

    assert [start.requests for start in starts(core.poll(0.7))] == [(1, 3)]


def test_its_deadline_still_counts() -> None:
    """Without a worker it is refused at its goal, as if it had been held all the time."""
    core = running_three(ApiRules(name="a", goal_s=2.0))
    core.worker_lost(0, now=0.5)
    core.poll(0.5)
    assert core.next_wakeup() == 2.0

    assert {type(action).__name__ for action in core.poll(2.0)} == {"Shed"}
    assert core.is_empty


def test_an_abandoned_batch_is_not_run_again() -> None:
    """It ran its time; what hung once may hang twice."""
    core = running_three(ApiRules(name="a", timeout_s=1.0), workers=2)

    assert core.poll(1.0) == [Abandon(1, 0, (1, 2, 3))]
    core.worker_lost(0, now=1.1)
    assert core.poll(1.1) == []
    assert core.is_empty


def test_losing_an_idle_worker_runs_nothing_again() -> None:
    """The batch of the other goes on."""
    core = running_three(workers=2)
    core.worker_lost(1, now=0.5)
    assert core.poll(0.5) == []

    assert core.batch_done(1, outcome="worked", now=0.6)


def test_two_lost_batches_are_held_in_the_order_of_arrival() -> None:
    """Whichever worker went first."""
    core = running_three(workers=2)
    for number in (4, 5):
        core.submit(number, api="a", now=0.1)
    core.poll(0.1)
    core.worker_lost(0, now=0.5)
    core.worker_lost(1, now=0.5)
    core.worker_ready(0, now=0.6)
    core.worker_ready(1, now=0.6)

    assert [start.requests for start in starts(core.poll(0.6))] == [(1, 2, 3), (4, 5)]
