"""Which requests go into a batch when not all of them can be answered in time."""

from __future__ import annotations

import math

from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.requests.largest_feasible_batch import Choice, largest_feasible_batch
from uncork_dispatcher.requests.queue import Entry, RequestQueue

# One second, and a tenth for each row; a batch of 10 takes 2 s.
LINE = Estimate(intercept_s=1.0, slope_s=0.1, spread=0.0, earned_rows=100.0)


def queued(*deadlines: float, rows: float = 1.0) -> list[Entry]:
    """Requests of so many rows each, with these deadlines."""
    queue = RequestQueue("api", None)
    return [
        Entry(number, 0.0, rows, 1, deadline, math.inf, queue, rows, 1, 1, rows)
        for number, deadline in enumerate(deadlines)
    ]


def chosen(
    entries: list[Entry], *, limit_rows: float = 100, next_start: float = 1e6, most_skipped: int = 99
) -> Choice:
    """What goes at 0 s; by default nothing starts after it for long."""
    return largest_feasible_batch(
        entries,
        limit_rows=limit_rows,
        now=0.0,
        next_start=next_start,
        estimate=LINE,
        most_skipped=most_skipped,
    )


def test_who_is_in_time_together_goes_together() -> None:
    """10 rows take 2 s."""
    assert chosen(queued(*[2.01] * 10)) == Choice(0, 100)


def test_one_that_would_keep_the_batch_small_is_left_behind() -> None:
    """With it at most 2 of the 10 could go."""
    assert chosen(queued(1.21, *[2.01] * 9)).skipped == 1


def test_one_that_may_not_be_refused_keeps_the_batch_small() -> None:
    """The second may not: the batch is such that it is in time."""
    assert chosen(queued(1.21, 1.51, *[2.01] * 9), most_skipped=2).skipped == 2
    choice = chosen(queued(1.21, 1.51, *[2.01] * 9), most_skipped=1)
    assert choice.skipped == 1
    assert int(choice.rows) == 5


def test_one_is_saved_when_the_others_can_follow_in_time() -> None:
    """2 now; the other 8 take 1.8 s from 0.1 s on."""
    assert chosen(queued(1.25, *[2.01] * 9), next_start=0.1) == Choice(0, (1.25 - 1.0) / 0.1)
    assert chosen(queued(1.25, *[2.01] * 9), next_start=0.3).skipped == 1


def test_the_hopeless_are_left_behind_for_those_that_are_not() -> None:
    """Requests due before one row could be done do not keep the others from a batch."""
    assert chosen(queued(0.5, 0.9, *[1.51] * 5)).skipped == 2


def test_where_nobody_is_in_time_all_go() -> None:
    assert chosen(queued(0.1, 0.2, 0.3)) == Choice(0, 100)


def test_rows_count_not_requests() -> None:
    """Five requests of 4 rows take 3 s; the three that are done in 2.25 s are more than the one in 1.45."""
    assert chosen(queued(1.45, 2.25, 2.25, 2.25, 2.25, rows=4.0)).skipped == 1
