"""The requests queued for one (api, batch key)."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatcher.driver import entry
from uncork_dispatcher.policies.base import Hold
from uncork_dispatcher.requests.fair_queue import FairQueue
from uncork_dispatcher.requests.fill import Fill
from uncork_dispatcher.requests.queue import Entry, RequestQueue


def filled(*entries: Entry) -> RequestQueue:
    """A queue that these were appended to."""
    queue = RequestQueue("a", None)
    for each in entries:
        queue.append(each)
    return queue


def stays_held(hold: Hold, rows: float, now: float) -> bool:
    """Whether a queue of two rows that is held from 10 s on stays so once there are ``rows``."""
    queue = filled(entry(0, rows=2.0))
    queue.hold(hold, 10.0)
    queue.append(entry(1, rows=rows - 2.0))
    return queue.stays_held(now)


def numbers(entries: list[Entry]) -> list[int]:
    return [each.request for each in entries]


@pytest.mark.parametrize("kind", [RequestQueue, FairQueue])
def test_a_queue_keeps_nothing_of_requests_that_left(kind: type[RequestQueue]) -> None:
    """Of thousands that passed through, 20 are queued."""
    queue = kind("a", None)
    times = random.Random(1)
    for number in range(5000):
        # Behind a first one that is urgent and stays, nothing that left comes to the top of a heap.
        queue.append(entry(number, deadline=1.0 + (number > 0) * times.uniform(5, 9), queue=queue))
        if len(queue) > 20:
            queue.remove(queue.by_urgency()[times.randrange(1, 21)])

    assert len(queue) == 20
    assert queue._deadlines is not None
    assert len(queue._deadlines) < 200


@given(st.lists(st.tuples(st.sampled_from("aart"), st.integers(0, 4)), max_size=30))
def test_the_most_urgent_is_taken_whatever_came_before(steps: list[tuple[str, int]]) -> None:
    """Against a sorted list: requests are added with any deadline, removed, and taken."""
    queue, queued = filled(), list[Entry]()
    for number, (step, value) in enumerate(steps):
        if step == "a":
            added = entry(number, arrival=float(number), deadline=float(number + 3 * value))
            queue.append(added)
            queued.append(added)
        elif step == "r" and queued:
            queue.remove(queued.pop(value % len(queued)))
        elif step == "t" and queued:
            urgent = sorted(queued, key=lambda one: (one.deadline, one.request))[: value + 1]
            assert numbers(Fill(size=value + 1, size_bytes=10).take(queue)) == numbers(urgent)
            queued = [one for one in queued if one not in urgent]
        if queued:
            assert queue.most_urgent is min(queued, key=lambda one: (one.deadline, one.request))
            assert queue.oldest is queued[0]
        assert numbers(queue.by_urgency()) == numbers(
            sorted(queued, key=lambda one: (one.deadline, one.request))
        )


@pytest.mark.parametrize(("now", "most"), [(10.0, 6.0), (10.25, 4.0), (10.5, 2.0)])
def test_a_hold_stands_for_fewer_rows_the_longer_it_lasts(now: float, most: float) -> None:
    """From 6 rows at its beginning to the 2 that were queued then, at its end, where it does not stand."""
    hold = Hold(10.5, "balance", 6.0)

    assert stays_held(hold, most - 0.1, now) is (now < 10.5)
    assert not stays_held(hold, most, now)


def test_by_default_a_hold_stands_for_no_arrival() -> None:
    """Unless the policy says how many rows it is for; the number may be infinite, until the hold ends."""
    assert not stays_held(Hold(10.5, "next"), 2.1, 10.0)
    assert not stays_held(Hold(math.inf, "quarantine"), 2.1, 11.0)
    assert stays_held(Hold(10.5, "window", math.inf), 1e9, 10.4)
    assert not stays_held(Hold(10.5, "window", math.inf), 2.1, 10.5)
