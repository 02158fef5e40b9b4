"""A queue that its flows share equally."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_dispatcher.requests.fair_queue import FairQueue, Load
from uncork_dispatcher.requests.fill import Fill
from uncork_dispatcher.requests.queue import Entry

LIMITS = Load(100, 100, 100)


class Filler:
    """Fills a fair queue, and numbers what comes."""

    def __init__(self, queue: FairQueue) -> None:
        self._queue = queue
        self._numbers = itertools.count(1)

    def __call__(
        self, flow: str, count: int = 1, *, rows: float = 1, size_bytes: int = 1, **due: float
    ) -> Entry:
        """Add so many requests of a flow; returns the last."""
        for _ in range(count):
            number = next(self._numbers)
            deadline, expires_at = due.get("deadline", 1e6 + number), due.get("expires_at", math.inf)
            sizes = (rows, 1, 1, rows)
            entry = Entry(
                number, number, 0.0, rows, size_bytes, deadline, expires_at, self._queue, sizes, None, flow
            )
            self._queue.append(entry)
        return entry


def empty() -> tuple[FairQueue, Filler]:
    queue = FairQueue("a", None)
    return queue, Filler(queue)


def test_within_a_flow_the_most_urgent_goes_first() -> None:
    queue, add = empty()
    add("a", deadline=9.0)
    leaver = add("a", deadline=7.0)
    add("a", deadline=8.0)
    queue.remove(leaver)

    assert [entry.deadline for entry in Fill(size=9, size_bytes=9).take(queue)] == [8.0, 9.0]
    assert not queue


def test_what_goes_before_a_request() -> None:
    """All of the smaller flows, as much as its own of the larger, and its own."""
    queue, add = empty()
    add("a", 10)
    add("b", 2)
    add("c", 4)

    def before(flow: str) -> tuple[float, int]:
        new = Entry(99, 99, 1.0, 1, 0, 2e6, math.inf, queue, (1, 1, 1, 1), flow=flow)
        return queue.before(new, goal_s=1.0)

    assert before("b") == (3 + 3 + 3, 3 + 3 + 3)
    assert before("new") == (4, 4)
    assert before("a") == (17, 17)


def test_a_flood_does_not_count_for_all_light_flows() -> None:
    """Of the flood, at most as many rows go first as the new request has."""
    queue, add = empty()
    add("flood", 1000)
    for number in range(100):
        add(f"light{number}")
    new = Entry(9999, 9999, 1.0, 8, 0, 2e6, math.inf, queue, (8, 1, 8, 8), flow="new")

    assert queue.before(new, goal_s=1.0) == (8 + 8 + 100, 1 + 1 + 100)


def test_only_those_with_more_than_their_share_of_a_batch_make_room() -> None:
    """Up to the first that has no more; unless its client is in a hurry."""
    queue, add = empty()
    add("a", 10, deadline=1.0)
    add("hasty", deadline=2.0, expires_at=0.5)
    add("b", 3, deadline=3.0)
    entries = queue.by_urgency()

    assert queue.skippable(entries, rows=9, goal_s=1.0) == 11
    assert queue.skippable(entries, rows=6, goal_s=1.0) == 14
    assert queue.skippable(entries, rows=9, goal_s=0.5) == 10


def test_a_full_queue_displaces_the_newest_of_the_largest_flow() -> None:
    queue, add = empty()
    add("a", 60)
    add("b", 40)

    for more, count in ((Load(1, 1, 1), 1), (Load(5, 1, 1), 5), (Load(1, 1, 5), 5)):
        over = Load(100, 100, 100).plus(more).plus(LIMITS, -1)
        displaced = queue.displaced("c", more, over=over, limits=LIMITS)
        assert [entry.request for entry in displaced] == [60, 59, 58, 57, 56][:count]


@pytest.mark.parametrize(
    ("flow", "rows", "taken"),
    [("a", 1, False), ("b", 1, True), ("b", 31, False), ("c", 33, True), ("c", 34, False)],
)
def test_nobody_displaces_for_more_than_its_equal_share(flow: str, rows: int, taken: bool) -> None:
    """Half of 100 rows for each of two, a third for each of three."""
    queue, add = empty()
    add("a", 80)
    add("b", 20)

    more = Load(rows, 1, 1)
    assert bool(queue.displaced(flow, more, over=more, limits=LIMITS)) == taken


def test_nobody_displaces_in_vain() -> None:
    """Other queues fill the API: the flows here have queued no more than the new one would."""
    queue, add = empty()
    add("a", 2)
    assert queue.displaced("b", Load(3, 1, 3), over=Load(3, 0, 0), limits=LIMITS) == []
    assert queue.displaced("b", Load(1, 1, 1), over=Load(3, 0, 0), limits=LIMITS) == []
    assert queue.displaced("a", Load(1, 1, 1), over=Load(1, 0, 0), limits=LIMITS) == []


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("aaart"), st.sampled_from("xyz"), st.integers(1, 4)), max_size=60
    )
)
def test_no_flow_gets_more_than_another_that_waits(steps: list[tuple[str, str, int]]) -> None:
    """While both have requests queued, not by more than their largest requests; none is lost."""
    (queue, add), queued = empty(), list[Entry]()
    since: dict[tuple[str, str], Counter[object]] = {}
    for step, name, number in steps:
        if step == "a":
            queued.append(add(name, rows=number))
        elif step == "r" and queued:
            queue.remove(queued.pop(number % len(queued)))
            since.clear()  # who waits for a large request and then withdraws it is owed the turn
        elif step == "t" and queued:
            taken = Fill(size=number, size_bytes=100).take(queue)
            queued = [entry for entry in queued if entry not in taken]
            for pair, rows in since.items():
                for entry in taken:
                    rows[entry.flow] += int(entry.rows) * (entry.flow in pair)
        waiting = {str(entry.flow) for entry in queued}
        since = {pair: rows for pair, rows in since.items() if set(pair) <= waiting}
        for pair in itertools.combinations(sorted(waiting), 2):
            since.setdefault(pair, Counter())
        for (one, other), rows in since.items():
            assert abs(rows[one] - rows[other]) <= 8
        assert len(queue) == len(queued)
        assert queue.rows == sum(entry.rows for entry in queued)
