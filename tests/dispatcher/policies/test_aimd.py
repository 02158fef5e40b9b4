"""The cap of Clipper: a row more while batches meet the goal, 10 % less when one does not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatcher.policies.views import view
from uncork_dispatcher.policies.aimd import AimdPolicy
from uncork_dispatcher.policies.base import Release

GOAL_S = 1.0


def done(rows: float, seconds: float, *, requests: int | None = None) -> dict[str, Any]:
    """A batch, of one row in each request unless it is said otherwise."""
    count = int(rows) if requests is None else requests
    return {"now": 10.0, "rows": rows, "requests": count, "queued_s": 0.0, "seconds": seconds}


def grown(rows: int, *, limit_rows: int = 100) -> AimdPolicy:
    """A policy with a goal of a second, whose cap has grown to ``rows``."""
    policy = AimdPolicy(limit_rows=limit_rows)
    policy.decide(view(goal_s=GOAL_S))
    for cap in range(1, rows):
        policy.observe(**done(cap, 0.5))
    assert policy.limit_rows == rows
    return policy


def test_whatever_is_held_goes_at_once() -> None:
    """The core asks only when a worker is idle; neither the goal nor other workers make it wait."""
    assert AimdPolicy(limit_rows=100).decide(view()) == Release(1, "idle")
    assert grown(8).decide(view(rows=3, requests=3, busy_until=(11.0,))) == Release(8, "idle")


def test_a_batch_at_the_cap_is_full() -> None:
    """And takes no more than the cap."""
    assert grown(8).decide(view(rows=50, requests=50, full=True)) == Release(8, "full")


@pytest.mark.parametrize(
    ("cap", "batches", "then"),
    [
        pytest.param(1, [done(1, 1.0)], 2, id="meets the goal, just so"),
        pytest.param(100, [done(100, 0.1)], 100, id="never above the limit"),
        pytest.param(8, [done(7, 0.1)], 8, id="below the cap"),
        # Two of 4 rows where a third has no place: 8 of 10. Where it has one, the batch was not full.
        pytest.param(10, [done(8, 0.5, requests=2)], 11, id="no room for another request"),
        pytest.param(12, [done(8, 0.5, requests=2)], 12, id="room for another request"),
        # Else requests of 4 rows would travel alone for ever.
        pytest.param(1, [done(4, 0.5, requests=1)], 2, id="a request above the cap"),
        pytest.param(8, [done(7.5, 0.5, requests=15)], 8, id="room for half a row"),
        pytest.param(8, [done(8.0, 0.5, requests=16)], 9, id="no room for half a row"),
        pytest.param(20, [done(20, 1.001)], 18, id="a tenth less"),
        pytest.param(20, [done(20, 1.001), done(18, 1.001), done(16, 1.001)], 14, id="fractions count on"),
        # A larger one would have missed it by more.
        pytest.param(20, [done(2, 1.5)], 18, id="a small batch misses the goal"),
        # Four workers run 20 rows each when the model becomes slow: that is one lesson, not four.
        pytest.param(20, [done(20, 1.5)] * 4, 18, id="batches that ran at the same time"),
        # A smaller cap would not make it any faster.
        pytest.param(20, [done(500, 9.0, requests=1)], 20, id="a request that is too slow by itself"),
        pytest.param(3, [done(1, 9.0)] * 50, 1, id="never below one"),
        pytest.param(3, [*[done(1, 9.0)] * 50, done(1, 0.1)], 2, id="up again"),
    ],
)
def test_the_cap_follows_the_goal(cap: int, batches: list[dict[str, Any]], then: int) -> None:
    """A row more after a full batch within the goal of a second, a tenth less after one beyond it."""
    policy = grown(cap)
    for batch in batches:
        policy.observe(**batch)

    assert policy.limit_rows == then


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 5), st.floats(0, 3)), max_size=100),
)
def test_the_cap_stays_in_its_range_and_moves_the_right_way(
    limit_rows: int, batches: list[tuple[int, int, float]]
) -> None:
    """Up only when the goal is met, by one at most; down only when it is missed, by a tenth."""
    policy = AimdPolicy(limit_rows=limit_rows)
    policy.decide(view(goal_s=GOAL_S))
    for requests, rows_each, seconds in batches:
        before = policy.limit_rows
        policy.observe(**done(requests * rows_each, seconds, requests=requests))
        after = policy.limit_rows

        assert 1 <= after <= limit_rows
        if seconds > GOAL_S:
            assert int(0.9 * before) <= after <= before
        else:
            assert before <= after <= before + 1
