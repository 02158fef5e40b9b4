"""What one batch takes of the requests that are offered to it."""

from __future__ import annotations

import pytest

from tests.dispatcher.driver import entry
from uncork_dispatcher.requests.fill import Fill, Lengths
from uncork_dispatcher.requests.queue import Entry, RequestQueue


def of_lengths(*lengths: float, rows: int = 1) -> list[Entry]:
    """Requests of these lengths."""
    return [entry(number, rows=rows, length=length) for number, length in enumerate(lengths, 1)]


def taken(fill: Fill, entries: list[Entry]) -> list[int]:
    """Offer requests until the batch takes no more; return the numbers of those that it took."""
    for each in entries:
        if not fill.offer(each):
            break
    return [each.request for each in fill.entries]


@pytest.mark.parametrize(("rows", "many"), [(1, 1), (7, 1), (8, 2), (11, 2), (12, 3), (15, 3), (16, 4)])
def test_padding_counts(rows: float, many: int) -> None:
    """Of lengths 3, 4, 2 and 1, each counts 4 with padding once there are two."""
    assert taken(Fill(rows=rows, pads=True), of_lengths(3, 4, 2, 1)) == [1, 2, 3, 4][:many]


def test_without_padding_the_sum_counts() -> None:
    fill = Fill(rows=9)
    assert taken(fill, of_lengths(3, 4, 2, 1)) == [1, 2, 3]
    assert (fill.rows, fill.padded) == (9, 12)


def test_a_longer_request_pads_those_before_it() -> None:
    fill = Fill(rows=100, pads=True)
    assert taken(fill, of_lengths(2, 5, 3, rows=2)) == [1, 2, 3]
    assert (fill.rows, fill.padded) == (20, 30)


def test_rows_of_one_request_may_differ() -> None:
    """They are padded to their longest anyway."""
    mixed = Entry(1, 0.0, 6, 1, 1.0, 9.0, RequestQueue("a", None), 3, 4, 12)
    fill = Fill(rows=20, pads=True)
    assert taken(fill, [mixed, *of_lengths(4, 4, 4)]) == [1, 1, 2]
    assert (fill.rows, fill.padded) == (14, 20)


def test_requests_of_other_lengths_are_passed_over() -> None:
    """Later ones may fit; the first that does not fit ends the batch."""
    fill = Fill(rows=12, pads=True, lengths=Lengths(3, 4))
    assert taken(fill, of_lengths(4, 9, 3, 1, 4, 3)) == [1, 3, 5]


def test_no_more_than_512_are_passed_over() -> None:
    """At the head of a long queue of others, looking further would take too long."""
    others = of_lengths(*[9] * 600)
    for many, expected in ((511, 2), (512, 1)):
        fill = Fill(rows=100, pads=True, lengths=Lengths(1, 2))
        assert len(taken(fill, [*of_lengths(1), *others[:many], *of_lengths(2)])) == expected


def test_the_first_is_taken_whatever_its_size() -> None:
    fill = Fill(rows=1, size_bytes=0, pads=True)
    assert taken(fill, of_lengths(50, 1)) == [1]
