"""The lengths that rows count, and the numbers of rows."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_dispatcher.requests.lengths import RowLengths, padded_count, row_lengths


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
