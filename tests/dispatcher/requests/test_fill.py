"""What one batch takes of the requests that are offered to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatcher.driver import entry
from uncork_dispatcher.requests.fill import Fill
from uncork_dispatcher.requests.lengths import Lengths
from uncork_dispatcher.requests.queue import Entry, RequestQueue


def of_lengths(*lengths: float, rows: int = 1) -> list[Entry]:
    """Requests of these lengths."""
    return [entry(number, rows=rows, length=length) for number, length in enumerate(lengths, 1)]


def taken(fill: Fill, entries: list[Entry]) -> list[int]:
    """Offer requests until the batch takes no more; return the numbers of those that it took."""
    fill.take_from(iter(entries))
    return [each.request for each in fill.entries]


@pytest.mark.parametrize(("rows", "many"), [(1, 1), (7, 1), (8, 2), (11, 2), (12, 3), (15, 3), (16, 4)])
def test_padding_counts(rows: float, many: int) -> None:
    """Of lengths 3, 4, 2 and 1, each counts 4 with padding once there are two."""
    assert taken(Fill(size=rows, measure=1), of_lengths(3, 4, 2, 1)) == [1, 2, 3, 4][:many]


def test_without_padding_the_sum_counts() -> None:
    fill = Fill(size=9)
    assert taken(fill, of_lengths(3, 4, 2, 1)) == [1, 2, 3]
    assert fill.taken[:2] == (9, 12)


def test_a_longer_request_pads_those_before_it() -> None:
    fill = Fill(size=100, measure=1)
    assert taken(fill, of_lengths(2, 5, 3, rows=2)) == [1, 2, 3]
    assert fill.taken[:2] == (20, 30)


def test_rows_of_one_request_may_differ() -> None:
    """They are padded to their longest anyway."""
    mixed = Entry(1, 1, 0.0, 6, 1, 1.0, 9.0, RequestQueue("a", None), (3, 4, 4, 12))
    fill = Fill(size=20, measure=1)
    assert taken(fill, [mixed, *of_lengths(4, 4, 4)]) == [1, 1, 2]
    assert fill.taken[:2] == (14, 20)


def test_requests_of_other_lengths_are_passed_over() -> None:
    """Later ones may fit; the first that does not fit ends the batch."""
    fill = Fill(size=12, measure=1, lengths=Lengths(3, 4))
    assert taken(fill, of_lengths(4, 9, 3, 1, 4, 3)) == [1, 3, 5]


def test_no_more_than_256_are_looked_at() -> None:
    """At the head of a long queue of others, looking further would take too long."""
    others = of_lengths(*[9] * 300)
    for many, expected in ((254, 2), (255, 1)):
        fill = Fill(size=100, measure=1, lengths=Lengths(1, 2))
        assert len(taken(fill, [*of_lengths(1), *others[:many], *of_lengths(2)])) == expected


def test_the_first_is_taken_whatever_its_size() -> None:
    fill = Fill(size=1, size_bytes=0, measure=1)
    assert taken(fill, of_lengths(50, 1)) == [1]


def test_numbers_of_rows_are_padded_too() -> None:
    """Three rows of length 10 are computed as four; a fifth one as eight."""
    fill = Fill(size=70, measure=1, allowed_batch_sizes=(1, 2, 4, 8))
    assert taken(fill, of_lengths(*[10] * 9)) == [1, 2, 3, 4]
    assert fill.taken[:2] == (40, 40)
    fill = Fill(size=100, measure=1, allowed_batch_sizes=(1, 2, 4, 8))
    assert taken(fill, of_lengths(10, 10, 5)) == [1, 2, 3]
    assert fill.taken[:2] == (25, 40)


def test_no_more_rows_than_the_limit() -> None:
    """But a request that has more by itself runs."""
    assert taken(Fill(size=999, most_rows=4), of_lengths(*[10] * 9)) == [1, 2, 3, 4]
    assert taken(Fill(size=999, most_rows=4), of_lengths(10, 10, rows=5)) == [1]


def test_rows_are_limited_beside_the_measure() -> None:
    """Where bytes are the measure, the limit of rows stays."""
    entries = [entry(number, size_bytes=100) for number in range(1, 10)]
    assert taken(Fill(size=1000, measure=2, most_rows=3), entries) == [1, 2, 3]
    assert taken(Fill(size=400, measure=2, most_rows=9), entries) == [1, 2, 3, 4]


LIMITS = st.sampled_from([2.0, 5.0, 8.0, 100.0])


@given(
    rows=st.lists(st.integers(1, 3), min_size=1, max_size=6),
    size=LIMITS,
    most_rows=LIMITS,
    size_bytes=LIMITS,
)
def test_a_queue_gives_the_same_batch_at_once_as_request_by_request(
    rows: list[int], size: float, most_rows: float, size_bytes: float
) -> None:
    batches = []
    for one_by_one in (False, True):
        queue = RequestQueue("a", None)
        for number, each in enumerate(rows, 1):
            queue.append(entry(number, rows=each, size_bytes=1, queue=queue))
        fill = Fill(size=size, most_rows=most_rows, size_bytes=size_bytes)
        numbers = taken(fill, list(queue.turns())) if one_by_one else [e.request for e in fill.take(queue)]
        batches.append((numbers, fill.taken, fill.count))
        if not one_by_one:
            left = rows[len(numbers) :]
            assert (len(queue), queue.rows, queue.size_bytes) == (len(left), sum(left), len(left))
    assert batches[0] == batches[1]
