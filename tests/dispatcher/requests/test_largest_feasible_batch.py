"""Which requests go into a batch when not all of them can be answered in time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice

import pytest

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


@pytest.mark.parametrize(
    ("found", "skipped", "rows"),
    [
        pytest.param(chosen(queued(*[2.01] * 10)), 0, 100, id="all are in time together"),
        # With the first, at most 2 of the 10 could go.
        pytest.param(chosen(queued(1.21, *[2.01] * 9)), 1, 9, id="one would keep the batch small"),
        pytest.param(chosen(queued(1.21, 1.51, *[2.01] * 9), most_skipped=2), 2, 9, id="two would"),
        pytest.param(chosen(queued(1.21, 1.51, *[2.01] * 9), most_skipped=1), 1, 5, id="the second stays"),
        # 2 now; the other 8 take 1.8 s from 0.1 s on.
        pytest.param(chosen(queued(1.25, *[2.01] * 9), next_start=0.1), 0, 2, id="the others can follow"),
        pytest.param(chosen(queued(1.25, *[2.01] * 9), next_start=0.3), 1, 9, id="the others would be late"),
        pytest.param(chosen(queued(0.5, 0.9, *[1.51] * 5)), 2, 5, id="two are hopeless"),
        pytest.param(chosen(queued(0.1, 0.2, 0.3)), 0, 100, id="all are hopeless"),
        # The three that are done in 2.25 s are more than the one in 1.45 s.
        pytest.param(chosen(queued(1.45, *[2.25] * 4, rows=4.0)), 1, 12, id="rows count, not requests"),
    ],
)
def test_a_batch_has_as_many_rows_in_time_as_it_can(found: Choice, skipped: int, rows: int) -> None:
    """Requests that are due first are left behind for that. 10 rows take 2 s."""
    assert (found.skipped, int(found.rows)) == (skipped, rows)


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


LONG, SHORT = (12, 2.3), (1, 2.4)


@pytest.mark.parametrize(
    ("entries", "skipped"),
    [
        # The long one takes 2.2 s alone; 3 short ones take 1.3 s.
        pytest.param(of_lengths(LONG, *[SHORT] * 3), 1, id="more answers count more than more work"),
        pytest.param(of_lengths(LONG, LONG, SHORT), 0, id="two long ones are more than a short one"),
        pytest.param(of_lengths(*[(4, 2.0)] * 2, *[SHORT] * 3), 2, id="two are less than three"),
        # All four fit into 1.45 s; that the batch with the long one could be larger is no reason to shed.
        pytest.param(of_lengths(*[(1, 1.45)] * 4, (12, 3.0)), 0, id="short ones go without the long one"),
        pytest.param(
            [entry(0, rows=3, length=4, deadline=2.3), *of_lengths(SHORT, SHORT)], 0, id="rows, not requests"
        ),
    ],
)
def test_of_mixed_lengths_most_rows_are_answered(entries: list[Entry], skipped: int) -> None:
    assert chosen_mixed(entries).skipped == skipped


def test_of_mixed_lengths_those_that_may_not_be_refused_go() -> None:
    assert chosen_mixed(of_lengths(LONG, *[SHORT] * 3), most_skipped=0).skipped == 0


def test_of_mixed_lengths_the_hopeless_are_left_behind() -> None:
    """However many they are: of a long queue, not every request is tried as the first."""
    for hopeless in (1, 40, 400):
        skipped = chosen_mixed(of_lengths(*[(12, 2.1)] * hopeless, *[(1, 2.4)] * 80)).skipped
        assert hopeless <= skipped < hopeless + 80
    assert chosen_mixed(of_lengths((12, 2.1), (1, 1.05))) == Choice(0, 100)
