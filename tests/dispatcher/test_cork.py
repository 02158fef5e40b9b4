"""The default policy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncork_dispatcher.estimator import Estimate
from uncork_dispatcher.policies.cork import CorkPolicy
from uncork_dispatcher.policy import BatchDone, Hold, Release, View

from .views import view

POLICY = CorkPolicy(limit_rows=32)
SECOND = Estimate(intercept_s=1.0, slope_s=0.0, spread=0.0, earned_rows=100.0)


def decide(**changes: object) -> Release | Hold:
    """Its answer to a view at time 10, 10 s before the deadline, with batches that take 1 s."""
    return POLICY.decide(view(**changes))


def until(**changes: object) -> float:
    """Until when it holds in that view."""
    decision = decide(**changes)
    assert isinstance(decision, Hold)
    return decision.until


def test_a_full_batch_goes() -> None:
    """Even where it would hold."""
    assert decide(full=True, busy_until=(18.0,), rate=4.0) == Release(32, "full")


@pytest.mark.parametrize("rate", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("rows", [1, 31])
def test_with_no_busy_worker_nothing_is_held(rate: float, rows: int) -> None:
    """There is nothing to wait for."""
    assert decide(busy_until=(), rows=rows, rate=rate) == Release(32, "idle")


def test_one_idle_and_one_busy_worker_keep_their_batches_even() -> None:
    """1 row, 4 rows per second, the other back at 14: until 1 row is all that comes in the rest, 13.75."""
    assert decide(rows=1, busy_until=(14.0,), rate=4.0) == Hold(13.75)
    assert decide(rows=8, requests=8, busy_until=(14.0,), rate=4.0) == Hold(12.0)


def test_balance_reached_is_not_worth_waiting() -> None:
    """16 rows are what 4 rows per second bring in 4 s: no hold at the boundary, a hold below it."""
    assert decide(rows=16, busy_until=(14.0,), rate=4.0) == Release(32, "not_worth_waiting")
    assert decide(rows=15, busy_until=(14.0,), rate=4.0) == Hold(10.25)


def test_other_idle_workers_count() -> None:
    """With two idle the first busy one is no longer next: 8 rows are even already, 4 until 12."""
    assert decide(rows=8, idle_workers=2, busy_until=(14.0,), rate=4.0) == Release(32, "not_worth_waiting")
    assert decide(rows=4, idle_workers=2, busy_until=(14.0,), rate=4.0) == Hold(12.0)


def test_every_busy_worker_counts_not_only_the_first() -> None:
    """The second, far away, holds what the first would let go: 18 - 8 * 2 / 4 = 14."""
    assert decide(rows=8, busy_until=(11.0, 18.0), rate=4.0, deadline=100.0) == Hold(14.0)


def test_nobody_is_held_for_arrivals_that_do_not_come() -> None:
    """A rate of 0 is nothing to wait for."""
    assert decide(busy_until=(14.0,), rate=0.0) == Release(32, "not_worth_waiting")


def test_the_deadline_ends_a_hold() -> None:
    """16 - 1 s of execution - 1 ms to spare, before balance at 17.75."""
    assert until(busy_until=(18.0,), rate=4.0, deadline=16.0) == pytest.approx(14.999)


def test_at_the_last_moment_for_the_deadline_it_releases() -> None:
    """A little before it still holds."""
    at_last = decide(now=10.0, busy_until=(18.0,), rate=4.0, deadline=11.001)

    assert at_last == Release(32, "deadline")
    assert until(now=10.0, busy_until=(18.0,), rate=4.0, deadline=11.002) == pytest.approx(10.001)


def test_the_deadline_is_kept_for_one_row_more_and_two_deviations() -> None:
    """3 rows held: time for 4, 1 + 4 * 0.25 s, and 2 * 25 % on top: 3 s before the deadline."""
    estimate = Estimate(intercept_s=1.0, slope_s=0.25, spread=0.25, earned_rows=100.0)
    ends = until(rows=3, requests=3, busy_until=(40.0,), rate=1.0, deadline=16.0, estimate=estimate)

    assert ends == pytest.approx(12.999)


def test_scarce_workers_are_not_held() -> None:
    """Rows that keep the workers busy for more than 60 % of the time leave no time to waste."""
    scarce = Estimate(intercept_s=0.01, slope_s=0.31, spread=0.0, earned_rows=100.0)
    plenty = Estimate(intercept_s=0.01, slope_s=0.29, spread=0.0, earned_rows=100.0)

    assert decide(busy_until=(14.0,), rate=4.0, estimate=scarce) == Release(32, "not_worth_waiting")
    assert decide(busy_until=(14.0,), rate=4.0, estimate=plenty) == Hold(13.75)


def test_all_workers_share_the_work() -> None:
    """What is scarce with two workers is plenty with three."""
    estimate = Estimate(intercept_s=0.01, slope_s=0.31, spread=0.0, earned_rows=100.0)

    assert decide(rows=1, busy_until=(14.0, 14.0), rate=4.0, estimate=estimate) == Hold(13.75)


def test_a_finish_that_cannot_be_foreseen_is_not_waited_for() -> None:
    """A spread above 30 % says so; 30 % itself, where the estimate starts, does not."""
    noisy, fair = SECOND._replace(spread=0.31), SECOND._replace(spread=0.3)

    assert decide(busy_until=(14.0,), rate=4.0, estimate=noisy) == Release(32, "not_worth_waiting")
    assert decide(busy_until=(14.0,), rate=4.0, estimate=fair) == Hold(13.75)


def test_batches_teach_it_nothing() -> None:
    """What it needs is in the view."""
    policy = CorkPolicy(limit_rows=32)
    policy.observe(BatchDone(now=9.0, rows=1, requests=1, held_s=5.0, seconds=1.0))

    assert policy.decide(view(busy_until=(14.0,), rate=4.0)) == Hold(13.75)


positive = st.floats(0, 100)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    rows=st.integers(1, 31),
    idle=st.integers(1, 4),
    busy=st.lists(positive, max_size=4),
    to_deadline=st.floats(-10, 100),
    rate=positive,
    estimate=st.builds(Estimate, positive, positive, st.floats(0, 1), positive),
)
def test_a_hold_ends_in_the_future_and_in_time_for_the_deadline(
    *, rows: int, idle: int, busy: list[float], to_deadline: float, rate: float, estimate: Estimate
) -> None:
    """In every view; and the same view at the end of the hold is released."""
    now = 10.0
    seen: View = view(
        now=now,
        rows=rows,
        requests=rows,
        idle_workers=idle,
        busy_until=tuple(sorted(now + finish for finish in busy)),
        deadline=now + to_deadline,
        estimate=estimate,
        rate=rate,
    )
    decision = POLICY.decide(seen)

    if isinstance(decision, Hold):
        assert decision.until > now
        assert decision.until + estimate.upper(rows + 1) <= seen.deadline
        later = seen._replace(
            now=decision.until, busy_until=tuple(max(decision.until, at) for at in seen.busy_until)
        )
        assert isinstance(POLICY.decide(later), Release)
