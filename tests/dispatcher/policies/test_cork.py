"""The rule of the default policy: properties, and the examples that its text works out."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.dispatcher.driver import entry
from tests.dispatcher.policies.views import view
from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.learning.returns import Returns
from uncork_dispatcher.policies.base import Hold, Release, View
from uncork_dispatcher.policies.cork import CorkPolicy, _places
from uncork_dispatcher.requests.queue import RequestQueue

POLICY = CorkPolicy(limit_rows=32)
SECOND = Estimate(intercept_s=1.0, slope_s=0.0, spread=0.0, earned_rows=100.0)


def decide(**changes: object) -> Release | Hold:
    """Its answer to a view at time 10, 10 s before the deadline, with batches that take 1 s."""
    changes.setdefault("load_rate", changes.get("new_client_rate", 0.0))
    changes.setdefault("requests", changes.get("rows", 1))
    return POLICY.decide(view(**changes))


def until(**changes: object) -> float:
    """Until when it holds in that view."""
    decision = decide(**changes)
    assert isinstance(decision, Hold)
    return decision.until


def answered(*groups: tuple[float, int], back_after: float) -> Returns:
    """Groups of clients answered at a time, of whom it is known that such clients come back after a while."""
    returns = Returns()
    for number in range(200):
        returns.answered([(f"teacher {number}", 1.0)], now=0.0)
        returns.arrived(f"teacher {number}", now=back_after)
    for at, clients in groups:
        returns.answered([((at, client), 1.0) for client in range(clients)], now=at)
    return returns


ESTIMATES = st.builds(
    Estimate,
    intercept_s=st.floats(1e-4, 1.0),
    slope_s=st.floats(0.0, 0.1),
    spread=st.floats(0.0, 0.5),
    earned_rows=st.just(100.0),
)
FORECASTS = st.one_of(
    st.just(Returns()),
    st.builds(
        lambda clients, ago, back: answered((10.0 - ago, clients), back_after=back),
        st.integers(1, 60),
        st.floats(0.0, 0.5),
        st.floats(0.001, 1.0),
    ),
)


@st.composite
def views(draw: st.DrawFn) -> View:
    """Draw whatever a policy may see."""
    requests, mean = draw(st.integers(1, 31)), draw(st.sampled_from([1.0, 0.5, 7.0]))
    left = sorted(draw(st.lists(st.floats(-0.1, 5.0), max_size=12)))
    new, returning = draw(st.floats(0, 500)), draw(st.floats(0, 500))
    return view(
        rows=requests * mean * draw(st.sampled_from([1.0, 0.2, 3.0])),
        requests=requests,
        mean_rows=mean,
        deadline=10.0 + draw(st.floats(-1.0, 10.0)),
        idle_workers=draw(st.integers(1, 4)),
        busy_until=tuple(10.0 + each for each in left),
        running_rows=lambda _: mean,
        estimate=draw(ESTIMATES),
        slowdown=draw(st.sampled_from([1.0, 0.3, 2.0])),
        new_client_rate=new,
        load_rate=new + returning,
        returns=draw(FORECASTS),
    )


@given(views())
def test_a_hold_ends_in_the_future_and_in_time_for_the_deadline(seen: View) -> None:
    decision = POLICY.decide(seen)

    if isinstance(decision, Hold):
        one_more = seen.rows * (1 + 1 / seen.requests)
        latest = seen.deadline - seen.slowdown * seen.estimate.upper(one_more)
        assert seen.now < decision.until <= latest
        assert not math.isnan(decision.rows)
    else:
        assert decision.rows >= 1


@given(views())
def test_a_full_queue_is_free(seen: View) -> None:
    assert POLICY.decide(seen._replace(full=True)) == Release(32, "full")


@given(views())
def test_one_worker_never_holds_for_independent_arrivals(seen: View) -> None:
    """Nor does any while no other is busy: there is no later batch to save arrivals from."""
    alone = seen._replace(idle_workers=1, busy_until=(), returns=Returns())
    assert POLICY.decide(alone) == Release(32, "idle")


@given(views(), st.integers(1, 20))
def test_more_of_the_same_requests_do_not_begin_a_hold(seen: View, more: int) -> None:
    """Where batches take equally long, whatever their size, and no group returns."""
    flat = seen._replace(
        estimate=seen.estimate._replace(slope_s=0.0),
        rows=seen.requests * seen.mean_rows,
        returns=Returns(),
        deadline=100.0,
    )
    requests = flat.requests + more
    larger = flat._replace(requests=requests, rows=requests * flat.mean_rows)
    if isinstance(POLICY.decide(flat), Release):
        assert isinstance(POLICY.decide(larger), Release)


@given(views(), st.floats(0.01, 100.0))
def test_the_unit_of_rows_does_not_matter(seen: View, unit: float) -> None:
    """Of new clients; a share is a whole number of rows, so there is none here."""
    one = seen._replace(estimate=seen.estimate._replace(slope_s=0.0), returns=Returns())
    scaled = one._replace(
        rows=one.rows * unit,
        mean_rows=one.mean_rows * unit,
        running_rows=lambda _: one.mean_rows * unit,
        new_client_rate=one.new_client_rate * unit,
        load_rate=one.load_rate * unit,
    )
    decisions = POLICY.decide(one), POLICY.decide(scaled)
    if isinstance(decisions[0], Hold) and isinstance(decisions[1], Hold):
        assert decisions[1].until == pytest.approx(decisions[0].until)


def test_with_an_idle_and_a_busy_worker_batches_are_kept_even() -> None:
    """8 rows per second, the other back in 0.8 s: 6.4 rows are all that comes in that time.

    Half a second before the other is free, the two are evenly spread.
    """
    held: object = decide(rows=1, busy_until=(10.8,), new_client_rate=8.0)
    assert held == (pytest.approx(10.3), "balance", pytest.approx(6.4))
    assert isinstance(decide(rows=6, busy_until=(10.8,), new_client_rate=8.0), Hold)
    assert decide(rows=7, busy_until=(10.8,), new_client_rate=8.0) == Release(32, "not_worth_waiting")


def test_the_next_release_is_sooner_with_other_idle_or_faster_workers() -> None:
    """Of two idle workers, each gets 3.2 rows. One that is twice as fast releases again before the other."""
    held: object = decide(rows=1, idle_workers=2, busy_until=(10.8,), new_client_rate=8.0)
    assert held == (pytest.approx(10 + 2 / 15), "balance", pytest.approx(3.2))
    faster = decide(rows=1, busy_until=(10.8,), new_client_rate=8.0, slowdown=0.5)
    assert faster == Release(32, "not_worth_waiting")


def test_before_the_first_batch_nothing_is_held_for_busy_workers() -> None:
    unknown = Estimate(intercept_s=0.0, slope_s=0.0, spread=0.0, earned_rows=0.0)
    decision = decide(rows=1, busy_until=(10.8,), new_client_rate=8.0, estimate=unknown)
    assert decision == Release(32, "not_worth_waiting")


def test_scattered_batch_times_shorten_the_hold() -> None:
    """A spread of 25 % counts as 1 of the 4 rows of the average batch that are queued already."""
    noisy = SECOND._replace(spread=0.25)
    held: object = decide(rows=1, busy_until=(10.8,), new_client_rate=8.0, estimate=noisy)
    assert held == (pytest.approx(10.3), "balance", pytest.approx(5.4))


def test_answered_clients_that_are_due_are_waited_for() -> None:
    """3 are back within 100 ms; if this batch left without them, they would wait for 1 s."""
    decision = decide(returns=answered((10.0, 3), back_after=0.1))

    assert isinstance(decision, Hold)
    assert decision.reason == "returns"
    assert decision.until == pytest.approx(10.1, abs=0.02)
    assert decide(returns=answered((10.0, 3), back_after=1.5)) == Release(32, "idle")
    assert decide(rows=30, returns=answered((10.0, 1), back_after=0.1)) == Release(32, "idle")


def test_requests_of_other_lengths_do_not_make_the_batch_longer() -> None:
    """Clients are back in 0.3 s: before a batch of all ends, but after one of the next lengths alone."""
    by_row = Estimate(intercept_s=0.1, slope_s=0.1, spread=0.0, earned_rows=100.0)
    returns = answered((10.0, 8), back_after=0.3)

    assert isinstance(decide(rows=8, estimate=by_row, returns=returns), Hold)
    assert decide(rows=8, batch_rows=1, estimate=by_row, returns=returns) == Release(32, "idle")


def test_a_hold_for_several_clients_lasts_less_than_until_its_end() -> None:
    """The last of 4 is back after 4/5 of 0.23 s on average: each saves 4.4 times what a queued row loses."""
    returns = answered((9.9, 4), back_after=0.3)

    assert isinstance(decide(rows=16, returns=returns), Hold)
    assert decide(rows=19, returns=returns) == Release(32, "idle")


def test_two_groups_that_alternate_on_one_worker_are_merged() -> None:
    """Unless the wait is longer than the intercept, which is all that merging saves."""
    returns = answered((10.0, 3), back_after=0.7)
    short = Estimate(intercept_s=0.5, slope_s=0.2, spread=0.0, earned_rows=100.0)

    assert isinstance(decide(rows=3, returns=returns), Hold)
    assert decide(rows=3, estimate=short, returns=returns) == Release(32, "idle")


def pooled(*, rate: float, batches: int) -> Iterator[tuple[float, int, Returns]]:
    """One worker takes 10 ms for what is queued; yields when it is idle: now, rows queued, and returns.

    Independent arrivals take the connection of a pool that was freed last.
    """
    returns, random_ = Returns(), random.Random(1)
    free, queued = list(range(100)), list[int]()
    now = at = random_.expovariate(rate)
    for _ in range(batches):
        now = max(now, at)
        while at <= now:
            queued.append(free.pop())
            returns.arrived(queued[-1], now=at)
            at += random_.expovariate(rate)
        yield now, len(queued), returns
        running, queued = queued, []
        while at < now + 0.01:
            queued.append(free.pop())
            returns.arrived(queued[-1], now=at)
            at += random_.expovariate(rate)
        now += 0.01
        returns.answered([(source, 1.0) for source in running], now=now)
        free += running


def test_connections_that_independent_arrivals_reuse_are_seldom_waited_for() -> None:
    """They look like returning clients, but as many would be delayed in the batch after this one."""
    line = Estimate(intercept_s=0.01, slope_s=0.0, spread=0.0, earned_rows=100.0)
    decisions = [
        decide(now=now, rows=rows, deadline=now + 10, load_rate=800.0, returns=seen, estimate=line)
        for now, rows, seen in pooled(rate=800.0, batches=2000)
    ]

    assert sum(isinstance(decision, Hold) for decision in decisions) < 0.05 * len(decisions)


def test_idle_workers_share_what_costs_by_the_row() -> None:
    """8 rows and nobody new to come: 4 for each of two idle workers."""
    line = Estimate(intercept_s=1.0, slope_s=1.0, spread=0.0, earned_rows=100.0)

    assert decide(rows=8, idle_workers=2, estimate=line, load_rate=1e-3) == Release(4, "not_worth_waiting")


def test_a_worker_that_is_back_soon_takes_a_share() -> None:
    """2 n + 0 equals 2 m + 2 and n + m is 9: 5 now, 4 at 12."""
    line = Estimate(intercept_s=1.0, slope_s=1.0, spread=0.0, earned_rows=100.0)

    assert decide(rows=9, busy_until=(12.0,), estimate=line, load_rate=1e-3) == Release(
        5, "not_worth_waiting"
    )


def test_of_many_workers_few_are_looked_at() -> None:
    assert _places(10) == list(range(1, 10))
    assert _places(513) == [*range(1, 9), 16, 32, 64, 128, 256, 512]


def test_the_deadline_ends_a_hold() -> None:
    """11.25 - 1 s of execution - 2 % of the goal of 10 s, before balance at 10.675."""
    assert until(busy_until=(10.8,), new_client_rate=8.0, deadline=11.25) == pytest.approx(10.05)


def test_the_margin_of_a_short_deadline_is_a_share_of_it() -> None:
    """With a goal of a day, 2 % of it are half an hour."""
    held = until(busy_until=(10.8,), new_client_rate=8.0, deadline=11.25, goal_s=86_400.0, patience_s=2.5)
    assert held == pytest.approx(10.2)


def test_at_the_last_moment_for_the_deadline_it_releases() -> None:
    assert decide(busy_until=(10.8,), new_client_rate=8.0, deadline=11.2) == Release(32, "deadline")
    assert until(busy_until=(10.8,), new_client_rate=8.0, deadline=11.21) == pytest.approx(10.01)


def test_the_deadline_is_kept_for_one_row_more_and_two_deviations() -> None:
    """1 row queued: time for 2, 1 + 2 * 0.05 s, 2 * 25 % on top, and 0.2 s: 1.85 s before the deadline."""
    estimate = Estimate(intercept_s=1.0, slope_s=0.05, spread=0.25, earned_rows=100.0)
    ends = until(rows=1, busy_until=(10.9,), new_client_rate=8.0, deadline=11.9, estimate=estimate)

    assert ends == pytest.approx(10.05)


def test_arrivals_that_bring_the_latest_moment_forward_end_a_hold() -> None:
    """It is at 11.45 s with one row more, and 0.2 s earlier for each row: 7.25 rows would bring it to now."""
    estimate = Estimate(intercept_s=1.0, slope_s=0.2, spread=0.0, earned_rows=100.0)
    held: object = decide(rows=1, busy_until=(12.0,), new_client_rate=8.0, deadline=13.05, estimate=estimate)

    assert held == (pytest.approx(11.4), "balance", pytest.approx(8.25))


def test_a_slow_worker_must_start_earlier() -> None:
    """11.75 - 1.5 times 1 s of execution - 2 % of the goal of 10 s, before balance at 10.675."""
    assert until(busy_until=(10.8,), new_client_rate=8.0, deadline=11.75, slowdown=1.5) == pytest.approx(
        10.05
    )


@given(
    rows=st.integers(1, 20),
    idle=st.integers(1, 3),
    left=st.lists(st.floats(0, 5), min_size=1, max_size=4),
    rate=st.floats(0.1, 50),
    spread=st.floats(0, 0.5),
    part=st.floats(0, 1),
    passed=st.floats(0, 1),
)
@example(rows=1, idle=1, left=[0.8], rate=8.0, spread=0.0, part=0.99, passed=0.0)
def test_fewer_arrivals_than_it_says_do_not_end_a_hold(
    *, rows: int, idle: int, left: list[float], rate: float, spread: float, part: float, passed: float
) -> None:
    """At any time until its end, where batches take equally long."""
    seen = view(
        rows=rows,
        requests=rows,
        idle_workers=idle,
        busy_until=tuple(sorted(10.0 + each for each in left)),
        deadline=20.0,
        estimate=SECOND._replace(spread=spread),
        new_client_rate=rate,
        load_rate=rate,
    )
    decision = POLICY.decide(seen)
    if isinstance(decision, Release):
        return
    now = 10.0 + passed * (decision.until - 10.0)
    later = rows + int(part * (min(decision.rows, 100.0) - rows + 1))
    queue = RequestQueue("a", None)
    queue.append(entry(0, rows=rows))
    queue.hold(decision, 10.0)
    queue.append(entry(1, rows=later - rows))
    if queue.stays_held(now):
        again = POLICY.decide(seen._replace(now=now, rows=later, requests=later))

        assert isinstance(again, Hold)


@given(views(), st.floats(0, 1))
def test_arrivals_do_not_carry_a_hold_past_the_latest_moment(seen: View, passed: float) -> None:
    """So many rows are the most with which it lasts."""
    decision = POLICY.decide(seen)
    if isinstance(decision, Release) or decision.rows <= seen.rows:
        return
    now = seen.now + passed * (decision.until - seen.now)
    last = seen.rows + (1 - passed) * (decision.rows - seen.rows)
    assert now <= seen.deadline - seen.slowdown * seen.estimate.upper(last) + 1e-9
