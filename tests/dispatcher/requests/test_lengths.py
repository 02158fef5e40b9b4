"""The lengths that rows count, the numbers of rows, and which lengths may share a batch."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatcher.driver import entry
from uncork_dispatcher.requests.lengths import Lengths, RowLengths, padded_count, row_lengths
from uncork_dispatcher.requests.mixable_lengths import mixable_lengths


def of(
    rows: float,
    number: float | None = None,
    longest: float | None = None,
    *,
    size_bytes: int = 0,
    allowed: tuple[float, ...] = (),
    limit: float = math.inf,
) -> RowLengths:
    return row_lengths(
        rows=rows, count=number, longest=longest, size_bytes=size_bytes, allowed=allowed, limit=limit
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(of(3), (3, 1, 1, 3), id="no cost and no body"),
        pytest.param(of(4, size_bytes=100), (4, 25, 25, 100), id="rows share their body"),
        pytest.param(of(4, size_bytes=100, limit=20), (4, 25, 20, 80), id="bytes up to the limit"),
        pytest.param(of(100, 4, 40), (4, 40, 40, 160), id="cost"),
        pytest.param(of(100, 4, 40, limit=30), (4, 40, 30, 120), id="cost up to the limit"),
        pytest.param(of(100, 4, size_bytes=7), (4, 25, 25, 100), id="cost, longest unknown"),
    ],
)
def test_rows_have_the_length_of_their_cost_or_body(found: RowLengths, expected: tuple[float, ...]) -> None:
    """The number of rows, the longest, what that counts, and all of them padded to it."""
    assert found == expected


def test_equal_rows_have_no_padding_whatever_the_order_of_their_sum() -> None:
    rows = 0.1 + 0.1 + 0.1
    *_, padded = of(rows, 3, 0.1)
    assert padded == rows


@pytest.mark.parametrize(("longest", "length"), [(1, 16), (16, 16), (16.5, 32), (64, 64), (100, 64)])
def test_a_row_counts_as_the_next_allowed_length(longest: float, length: float) -> None:
    """A longer one as the last: the model has no place for more."""
    lengths = of(2 * longest, 2, longest, allowed=(16, 32, 64), limit=10)
    assert lengths == (2, longest, length, 2 * length)


@pytest.mark.parametrize(
    ("number", "computed"), [(1, 2), (2, 2), (3, 8), (8, 8), (9, 10), (16, 16), (17, 18), (19, 24)]
)
def test_rows_are_padded_to_the_next_allowed_number(number: int, computed: int) -> None:
    """More than the largest run in several calls."""
    assert padded_count(number, (2, 8)) == computed


@given(st.integers(1, 1000), st.lists(st.integers(1, 100), unique=True).map(sorted))
def test_no_row_is_lost_and_each_call_has_an_allowed_number(number: int, allowed: list[int]) -> None:
    computed = padded_count(number, allowed)
    if not allowed:
        assert computed == number
        return
    rest = computed % allowed[-1]
    assert number <= computed < number + allowed[-1]
    assert rest == 0 or rest in allowed


def mixable(
    *lengths: float,
    spare: float,
    limit: float = 1e9,
    queued: int | None = None,
    rows: int = 1,
    each: bool = False,
) -> Lengths:
    """Return the interval for requests of these lengths, the most urgent first."""
    sample = [entry(number, rows=rows, length=length) for number, length in enumerate(lengths)]
    return mixable_lengths(sample, queued=queued or len(sample), limit=limit, spare=spare, each=each)


MIXED: dict[str, tuple[Lengths, tuple[float, float]]] = {
    "one request": (mixable(5, spare=0), (5, 5)),
    "equal lengths": (mixable(5, 5, 5, spare=0), (5, 5)),
    # The second pads the first by 10, the third both by 170 in all.
    "worth no other": (mixable(10, 20, 100, spare=1), (10, 10)),
    "worth one other": (mixable(10, 20, 100, spare=20), (10, 20)),
    "worth all others": (mixable(10, 20, 100, spare=200), (10, 100)),
    # Each short one pads itself only, so company is cheap at first.
    "short ones are too short": (mixable(100, 10, 10, 10, spare=50), (100, 100)),
    "one is not much shorter": (mixable(100, 60, 10, 10, spare=50), (60, 100)),
    "long ones are too long": (mixable(10, 100, 101, 102, spare=50), (10, 10)),
    "many long ones pad one short": (mixable(10, 100, 101, 102, spare=100), (10, 102)),
    # 12 is nearer to 10 than 5 is; with it, 5 costs 7.
    "the cheaper side first": (mixable(10, 5, 12, spare=3), (10, 12)),
    "then the other side": (mixable(10, 5, 12, spare=9), (5, 12)),
    "one row each": (mixable(10, 12, spare=3), (10, 12)),
    "all of many rows are padded": (mixable(10, 12, spare=3, rows=4), (10, 10)),
    "a short queue": (mixable(10, 12, spare=5, queued=2), (10, 12)),
    "a long queue has more of each": (mixable(10, 12, spare=5, queued=20), (10, 10)),
    "the limit cuts a long queue": (mixable(10, 12, spare=5, queued=20, limit=48), (10, 12)),
    "a little padding is worth no split": (mixable(100, 101, spare=0), (100, 101)),
    "padding costs nothing": (mixable(1, 1000, spare=math.inf), (0, math.inf)),
    # All three have 170 of padding; the tolerance is 15.
    "each accepts too little": (mixable(10, 20, 100, spare=77, each=True), (10, 20)),
    "each accepts enough": (mixable(10, 20, 100, spare=78, each=True), (10, 100)),
    "each of a long queue": (mixable(10, 20, 100, spare=57, queued=30, each=True), (10, 100)),
    "each request, not each row": (mixable(10, 14, spare=10, rows=4, each=True), (10, 10)),
}


@pytest.mark.parametrize("case", MIXED)
def test_lengths_mix_if_padding_costs_less_than_another_batch(case: str) -> None:
    """The first is the most urgent; ``spare`` is the padding that another batch would be worth."""
    found, expected = MIXED[case]

    assert found == expected


LENGTHS = st.lists(st.integers(1, 500), min_size=1, max_size=32)
REST: dict[str, Any] = {"spare": st.floats(0, 1e4), "limit": st.floats(1, 1e5), "more": st.integers(0, 1000)}


@given(lengths=LENGTHS, each=st.booleans(), **REST)
def test_the_sample_pads_for_no_more_than_the_spare(
    lengths: list[int], spare: float, limit: float, more: int, each: bool
) -> None:
    lengths = list(dict.fromkeys(lengths))
    shortest, longest = mixable(*lengths, spare=spare, queued=len(lengths), each=each)
    inside = [length for length in lengths if shortest <= length <= longest]
    padding = sum(longest - length for length in inside)
    spare *= len(inside) - 1 if each else 1
    assert padding <= (spare + 0.05 * len(inside) * longest) * (1 + 1e-9)
