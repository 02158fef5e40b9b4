"""How long groups of clients stay away, by their size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_dispatcher.learning.returns import GroupTimes


def learned(*groups: tuple[float, float]) -> GroupTimes:
    """Groups of so many rows were back within so many seconds."""
    times = GroupTimes()
    for rows, seconds in groups:
        times.observe(rows, seconds)
    return times


@pytest.mark.parametrize(
    ("times", "whole_s", "half_s"),
    [
        pytest.param(learned(), 0.0, 0.0, id="nothing seen"),
        pytest.param(learned((8, 0.1)), 0.0, 0.0, id="sizes far away"),
        pytest.param(learned((64, 0.3), (32, 0.2)), 0.3, 0.2, id="both sizes"),
        pytest.param(learned((64, 0.3)), 0.3, 0.3, id="a half may take as long as the whole"),
        pytest.param(learned((32, 0.2)), 0.4, 0.2, id="a whole may take twice as long as a half"),
        # Groups take turns in halves for long: what is known of the whole may be wrong by now.
        pytest.param(learned((64, 0.9), (32, 0.2)), 0.4, 0.2, id="old time of the whole"),
        pytest.param(learned((32, 0.9), (64, 0.2)), 0.2, 0.2, id="old time of the half"),
    ],
)
def test_a_group_of_64_and_its_half_take_what_was_seen(
    times: GroupTimes, whole_s: float, half_s: float
) -> None:
    assert times.whole_and_half(64) == pytest.approx((whole_s, half_s))


@pytest.mark.parametrize("rows", [48, 60, 80])
def test_a_size_near_one_that_was_seen_takes_time_in_proportion(rows: float) -> None:
    whole_s, _ = learned((64, 0.64)).whole_and_half(rows)

    assert whole_s == pytest.approx(rows / 100, rel=0.05)


def test_one_group_hardly_moves_the_mean() -> None:
    """A mean follows the last ten or so groups, and none counts for more than twice the mean."""
    times = learned(*[(64, 0.1)] * 50, (64, 9.0))
    assert times.whole_and_half(64)[0] == pytest.approx(0.11)

    for _ in range(30):
        times.observe(64, 0.2)
    assert times.whole_and_half(64)[0] == pytest.approx(0.2, rel=0.05)


@given(
    groups=st.lists(st.tuples(st.floats(0.01, 1e6), st.floats(0, 2)), max_size=30),
    rows=st.floats(0.01, 1e6),
)
def test_a_half_takes_at_most_as_long_and_the_whole_at_most_twice_as_long(
    groups: list[tuple[float, float]], rows: float
) -> None:
    whole_s, half_s = learned(*groups).whole_and_half(rows)

    assert 0 <= half_s <= whole_s <= 2 * half_s
