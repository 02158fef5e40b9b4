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
    return [entry(number, rows=rows, length=length) for number, length in enumerate(lengths, 1)]


def taken(fill: Fill, entries: list[Entry]) -> list[int]:
    """Offer requests until the batch takes no more; return the numbers of those that it took."""
    fill.take_from(iter(entries))
    return [each.request for each in fill.entries]


# Its rows are padded to their longest anyway.
MIXED = Entry(7, 7, 0.0, 6, 1, 1.0, 9.0, RequestQueue("a", None), (3, 4, 4, 12))
SIZES = (1, 2, 4, 8)
CASES: dict[str, tuple[Fill, list[Entry], list[int], tuple[float, float]]] = {
    # Of lengths 3, 4, 2 and 1, each counts 4 with padding once there are two.
    **{
        f"{size} rows with padding": (Fill(size=size, measure=1), of_lengths(3, 4, 2, 1), takes, padded)
        for size, takes, padded in [
            (1, [1], (3, 3)), (7, [1], (3, 3)), (8, [1, 2], (7, 8)), (11, [1, 2], (7, 8)),
            (12, [1, 2, 3], (9, 12)), (15, [1, 2, 3], (9, 12)), (16, [1, 2, 3, 4], (10, 16)),
        ]
    },
    "the sum without padding": (Fill(size=9), of_lengths(3, 4, 2, 1), [1, 2, 3], (9, 12)),
    "a longer one pads all": (Fill(size=100, measure=1), of_lengths(2, 5, 3, rows=2), [1, 2, 3], (20, 30)),
    "a mixed request": (Fill(size=20, measure=1), [MIXED, *of_lengths(4, 4, 4)], [7, 1, 2], (14, 20)),
    "the first is larger": (Fill(size=1, size_bytes=0, measure=1), of_lengths(50, 1), [1], (50, 50)),
    # Later ones may fit; the first that does not fit ends the batch.
    "other lengths are passed over": (
        Fill(size=12, measure=1, lengths=Lengths(3, 4)), of_lengths(4, 9, 3, 1, 4, 3), [1, 3, 5], (11, 12),
    ),
    # Three rows of length 10 are computed as four; a fifth one as eight.
    "numbers of rows are padded, full": (
        Fill(size=70, measure=1, allowed_batch_sizes=SIZES), of_lengths(*[10] * 9), [1, 2, 3, 4], (40, 40),
    ),
    "numbers of rows are padded": (
        Fill(size=100, measure=1, allowed_batch_sizes=SIZES), of_lengths(10, 10, 5), [1, 2, 3], (25, 40),
    ),
    "a limit of rows": (Fill(size=999, most_rows=4), of_lengths(*[10] * 9), [1, 2, 3, 4], (40, 40)),
    "more rows by itself": (Fill(size=999, most_rows=4), of_lengths(10, 10, rows=5), [1], (50, 50)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_batch_takes_requests_up_to_its_limits(case: str) -> None:
    """The numbers of the requests; their rows, and those with padding."""
    fill, entries, takes, size = CASES[case]

    assert taken(fill, entries) == takes
    assert fill.taken[:2] == size


def test_no_more_than_256_are_looked_at() -> None:
    """At the head of a long queue of others, looking further would take too long."""
    others = of_lengths(*[9] * 300)
    for many, expected in ((254, 2), (255, 1)):
        fill = Fill(size=100, measure=1, lengths=Lengths(1, 2))
        assert len(taken(fill, [*of_lengths(1), *others[:many], *of_lengths(2)])) == expected


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
