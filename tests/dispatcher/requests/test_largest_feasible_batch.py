"""Which requests go into a batch when not all of them can be answered in time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice

from tests.dispatcher.driver import entry
from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.requests.fill import Fill
from uncork_dispatcher.requests.largest_feasible_batch import (
    Choice,
    largest_feasible_batch,
    largest_mixed_batch,
)
from uncork_dispatcher.requests.lengths import Lengths
from uncork_dispatcher.requests.queue import Entry, RequestQueue

# One second, and a tenth for each row; a batch of 10 takes 2 s.
LINE = Estimate(intercept_s=1.0, slope_s=0.1, spread=0.0, earned_rows=100.0)


def queued(*deadlines: float, rows: float = 1.0) -> list[Entry]:
    """Requests of so many rows each, with these deadlines."""
    queue = RequestQueue("api", None)
    return [
        Entry(number, number, 0.0, rows, 1, deadline, math.inf, queue, (rows, 1, 1, rows))
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


def of_lengths(*lengths_and_deadlines: tuple[float, float]) -> list[Entry]:
    """Requests of one row each, with these lengths and deadlines."""
    return [
        entry(number, length=length, deadline=deadline)
        for number, (length, deadline) in enumerate(lengths_and_deadlines)
    ]


def chosen_mixed(entries: list[Entry], *, limit_rows: float = 100, most_skipped: int = 999) -> Choice:
    """What goes at 0 s if rows only share a batch with others of their length."""

    def begin(turns: Iterable[Entry], rows: float) -> Fill:
        [first] = islice(turns, 1)
        return Fill(size=rows, measure=1, lengths=Lengths(first.length, first.length))

    return largest_mixed_batch(
        entries, limit_rows=limit_rows, now=0.0, estimate=LINE, most_skipped=most_skipped, begin=begin
    )


def test_of_mixed_lengths_more_answers_count_more_than_more_work() -> None:
    """The long one takes 2.2 s alone; 3 short ones take 1.3 s."""
    long, short = (12, 2.3), (1, 2.4)
    assert chosen_mixed(of_lengths(long, *[short] * 3)).skipped == 1
    assert chosen_mixed(of_lengths(long, long, short)).skipped == 0
    assert chosen_mixed(of_lengths(*[(4, 2.0)] * 2, *[short] * 3)).skipped == 2


def test_the_short_ones_before_a_long_one_go_without_it() -> None:
    """All four fit into 1.45 s; that the batch with the long one could be larger is no reason to shed one."""
    choice = chosen_mixed(of_lengths(*[(1, 1.45)] * 4, (12, 3.0)))
    assert choice.skipped == 0
    assert int(choice.rows) == 4


def test_of_mixed_lengths_those_that_may_not_be_refused_go() -> None:
    entries = of_lengths((12, 2.3), *[(1, 2.4)] * 3)
    assert chosen_mixed(entries, most_skipped=0).skipped == 0


def test_of_mixed_lengths_the_hopeless_are_left_behind() -> None:
    """However many they are: of a long queue, not every request is tried as the first."""
    for hopeless in (1, 40, 400):
        skipped = chosen_mixed(of_lengths(*[(12, 2.1)] * hopeless, *[(1, 2.4)] * 80)).skipped
        assert hopeless <= skipped < hopeless + 80
    assert chosen_mixed(of_lengths((12, 2.1), (1, 1.05))) == Choice(0, 100)


def test_of_mixed_lengths_rows_count_not_requests() -> None:
    """Two requests of one row each are fewer than one of three rows."""
    wide = entry(0, rows=3, length=4, deadline=2.3)
    assert chosen_mixed([wide, *of_lengths(*[(1, 2.4)] * 2)]).skipped == 0


def test_of_mixed_lengths_the_limit_counts() -> None:
    assert chosen_mixed(of_lengths(*[(1, 9.0)] * 5), limit_rows=3) == Choice(0, 3)
