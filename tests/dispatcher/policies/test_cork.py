"""The default policy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from statistics import fmean

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.dispatcher.policies.views import view
from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.learning.returns import ReturnForecast, Returns
from uncork_dispatcher.policies.base import BatchDone, Hold, Release, View
from uncork_dispatcher.policies.cork import CorkPolicy, _places
from uncork_dispatcher.requests.queue import Held

POLICY = CorkPolicy(limit_rows=32)
SECOND = Estimate(intercept_s=1.0, slope_s=0.0, spread=0.0, earned_rows=100.0)


def decide(**changes: object) -> Release | Hold:
    """Its answer to a view at time 10, 10 s before the deadline, with batches that take 1 s."""
    changes.setdefault("load_rate", changes.get("new_client_rate", 0.0))
    changes.setdefault("running_rows", tuple(1.0 for _ in changes.get("busy_until", ())))  # type: ignore[attr-defined]
    return POLICY.decide(view(**changes))


def until(**changes: object) -> float:
    """Until when it holds in that view."""
    decision = decide(**changes)
    assert isinstance(decision, Hold)
    return decision.until


def answered(*groups: tuple[float, int], back_after: float) -> ReturnForecast:
    """Groups of clients answered at a time, of whom it is known that such clients come back after a while."""
    returns = Returns()
    for number in range(200):
        returns.answered([(f"teacher {number}", 1.0)], now=0.0)
        returns.arrived(f"teacher {number}", now=back_after)
    for at, clients in groups:
        returns.answered([((at, client), 1.0) for client in range(clients)], now=at)
    return returns.forecast(now=10.0)


# Balance


def test_a_full_batch_goes() -> None:
    """Even where it would hold."""
    assert decide(full=True, busy_until=(10.5,), new_client_rate=8.0) == Release(32, "full")


@pytest.mark.parametrize("rate", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("rows", [1, 31])
def test_with_no_busy_worker_nothing_is_held(rate: float, rows: int) -> None:
    assert decide(busy_until=(), rows=rows, new_client_rate=rate) == Release(32, "idle")


def test_one_idle_and_one_busy_worker_keep_their_batches_even() -> None:
    """1 row, 8 rows per second, the other back at 10.5: until 1 row is all that comes in the rest, 10.375."""
    assert decide(rows=1, busy_until=(10.5,), new_client_rate=8.0) == Hold(10.375, "balance", 4.0)
    assert decide(rows=2, requests=2, busy_until=(10.5,), new_client_rate=8.0) == Hold(10.25, "balance", 4.0)


def test_balance_reached_is_not_worth_waiting() -> None:
    """4 rows are what 8 rows per second bring in half a second: no hold at the boundary, one below it."""
    assert decide(rows=4, busy_until=(10.5,), new_client_rate=8.0) == Release(32, "not_worth_waiting")
    assert decide(rows=3, busy_until=(10.5,), new_client_rate=8.0) == Hold(10.125, "balance", 4.0)


def test_other_idle_workers_count() -> None:
    """With two idle the first busy one is no longer next: 2 rows are even already, 1 is until 10.25."""
    assert decide(rows=2, idle_workers=2, busy_until=(10.5,), new_client_rate=8.0) == Release(
        32, "not_worth_waiting"
    )
    assert decide(rows=1, idle_workers=2, busy_until=(10.5,), new_client_rate=8.0) == Hold(
        10.25, "balance", 2.0
    )


def test_every_busy_worker_counts_not_only_the_first() -> None:
    """The second, further away, holds where the first would release: 10.5 - 1 * 2 / 8 = 10.25."""
    assert decide(rows=1, busy_until=(10.125, 10.5), new_client_rate=8.0) == Hold(10.25, "balance", 2.0)


def test_a_much_faster_worker_is_back_before_a_slow_one() -> None:
    """It takes 0.25 s: within the next half second it releases twice, so 10.5 - 1 * 2 / 8."""
    assert decide(rows=1, busy_until=(10.5,), new_client_rate=8.0, slowdown=0.25) == Hold(
        10.25, "balance", 2.0
    )
    assert decide(rows=1, busy_until=(10.5,), new_client_rate=8.0, slowdown=0.5) == Hold(
        10.375, "balance", 4.0
    )


def test_one_and_a_half_average_batches_are_enough() -> None:
    """8 rows per second and two workers of 1 s need batches of 4: 6 go, though the other is far away."""
    assert decide(rows=6, busy_until=(14.0,), new_client_rate=8.0) == Release(32, "not_worth_waiting")
    assert decide(rows=5, busy_until=(14.0,), new_client_rate=8.0) == Hold(13.375, "balance", 6.0)


def test_scattered_batch_times_shorten_the_hold() -> None:
    """A spread of 25 % counts as 1 of the 4 rows of the average batch that are queued already."""
    noisy = SECOND._replace(spread=0.25)

    assert decide(rows=1, busy_until=(10.5,), new_client_rate=8.0, estimate=noisy) == Hold(
        10.25, "balance", 3.0
    )
    assert decide(rows=3, busy_until=(10.5,), new_client_rate=8.0, estimate=noisy) == Release(
        32, "not_worth_waiting"
    )


def test_a_small_request_counts_as_an_average_one() -> None:
    """1 row where requests have 2 on average: the hold ends when 2 rows are all that comes in the rest."""
    small = view(rows=1, busy_until=(10.5,), new_client_rate=8.0, load_rate=8.0, mean_rows=2.0)

    assert POLICY.decide(small) == Hold(10.25, "balance", 3.0)
    assert POLICY.decide(small._replace(requests=2)) == Release(32, "not_worth_waiting")


def test_a_large_request_counts_with_its_rows() -> None:
    """As in a batch of average ones: 3 rows are held until 10.125, and 4 are balance reached."""
    assert decide(rows=3, mean_rows=2.0, busy_until=(10.5,), new_client_rate=8.0) == Hold(
        10.125, "balance", 4.0
    )
    assert decide(rows=4, mean_rows=2.0, busy_until=(10.5,), new_client_rate=8.0) == Release(
        32, "not_worth_waiting"
    )


def test_small_requests_are_enough_by_their_number() -> None:
    """Three requests, of 2 rows on average, are 1.5 batches of 4 rows, the average batch."""
    seen = view(requests=3, rows=1, busy_until=(14.0,), new_client_rate=8.0, load_rate=8.0, mean_rows=2.0)

    assert POLICY.decide(seen) == Release(32, "not_worth_waiting")
    assert isinstance(POLICY.decide(seen._replace(mean_rows=1.9)), Hold)


@given(
    requests=st.integers(1, 31),
    cost=st.sampled_from([1.0, 3.0, 100.0, 0.1, 0.7]),
    left=st.lists(st.floats(0, 20), min_size=1, max_size=4),
    rate=st.floats(0.1, 50),
    spread=st.floats(0, 0.5),
)
@example(requests=10, cost=0.1, left=[9.0], rate=40 / 3, spread=0.0)
def test_equal_requests_are_decided_by_their_rows_alone(
    *, requests: int, cost: float, left: list[float], rate: float, spread: float
) -> None:
    """To the last bit, although ten times 0.1 is not the sum of ten."""
    seen = view(
        rows=sum([cost] * requests),
        requests=requests,
        busy_until=tuple(sorted(10.0 + each for each in left)),
        running_rows=tuple(cost for _ in left),
        deadline=100.0,
        goal_s=90.0,
        estimate=SECOND._replace(spread=spread),
        new_client_rate=rate * cost,
        load_rate=rate * cost,
        mean_rows=cost,
    )

    assert POLICY.decide(seen) == POLICY.decide(seen._replace(mean_rows=0.0))


def test_nobody_is_held_for_arrivals_that_do_not_come() -> None:
    """A rate of 0 is nothing to wait for."""
    assert decide(busy_until=(10.5,), new_client_rate=0.0, load_rate=8.0) == Release(32, "not_worth_waiting")


def test_scarce_workers_are_not_held() -> None:
    """Rows that take 60 % of the workers' time leave none to waste."""
    scarce = Estimate(intercept_s=1.0, slope_s=0.151, spread=0.0, earned_rows=100.0)
    plenty = Estimate(intercept_s=1.0, slope_s=0.149, spread=0.0, earned_rows=100.0)

    assert decide(busy_until=(10.5,), new_client_rate=8.0, estimate=scarce) == Release(
        32, "not_worth_waiting"
    )
    assert decide(busy_until=(10.5,), new_client_rate=8.0, estimate=plenty) == Hold(10.375, "balance", 4.0)


# Returns


def test_answered_clients_that_are_due_are_waited_for() -> None:
    """3 of them are back within 100 ms; if this batch left without them they would wait for 1 s."""
    held = until(returns=answered((10.0, 3), back_after=0.1))

    assert held == pytest.approx(10.1, abs=0.02)


def test_answered_clients_that_come_too_late_are_not_waited_for() -> None:
    """By the time that they are back this batch is as well."""
    assert decide(returns=answered((10.0, 3), back_after=1.5)) == Release(32, "idle")


def test_many_are_not_held_for_one() -> None:
    """30 would wait for the last one; it would wait as long, but alone."""
    assert decide(rows=30, requests=30, returns=answered((10.0, 1), back_after=0.1)) == Release(32, "idle")
    assert isinstance(decide(rows=2, requests=2, returns=answered((10.0, 1), back_after=0.1)), Hold)


def test_two_groups_that_alternate_on_one_worker_are_merged() -> None:
    """3 wait 0.7 s for 3, and lose more than those would; in one batch they save an intercept in each round.

    Not if the wait is longer than the intercept, which is all that merging saves.
    """
    returns = answered((10.0, 3), back_after=0.7)
    short = Estimate(intercept_s=0.5, slope_s=0.2, spread=0.0, earned_rows=100.0)

    assert until(rows=3, requests=3, returns=returns) == pytest.approx(10.7, abs=0.1)
    assert decide(rows=3, requests=3, estimate=short, returns=returns) == Release(32, "idle")


@pytest.mark.parametrize("load_rate", [1.0, 1500.0])
def test_answered_clients_are_waited_for_while_another_worker_is_busy(load_rate: float) -> None:
    """Until all are back."""
    line = Estimate(intercept_s=1.0, slope_s=0.001, spread=0.0, earned_rows=100.0)
    returns = answered((10.0, 3), back_after=0.1)
    held = until(busy_until=(12.0,), estimate=line, load_rate=load_rate, returns=returns)

    assert held == pytest.approx(10.1, abs=0.02)


def trickling(*, now: float) -> ReturnForecast:
    """Ten clients, answered at 10 s; of a hundred like them, ten are back within each tenth of a second."""
    returns = Returns()
    for number in range(100):
        returns.answered([(f"teacher {number}", 1.0)], now=0.0)
        returns.arrived(f"teacher {number}", now=(number + 1) / 100)
    returns.answered([(client, 1.0) for client in range(10)], now=10.0)
    return returns.forecast(now=now)


@pytest.mark.parametrize(("load_rate", "expected"), [(1.0, 10.45), (1500.0, None)])
def test_with_capacity_to_spare_trickling_clients_are_waited_for(
    load_rate: float, expected: float | None
) -> None:
    """For half of the time until the other worker is free, in which not all of them will be back."""
    line = Estimate(intercept_s=0.5, slope_s=0.001, spread=0.0, earned_rows=100.0)
    decision = decide(
        now=10.0, busy_until=(10.9,), estimate=line, load_rate=load_rate, returns=trickling(now=10.0)
    )

    if expected is None:
        assert isinstance(decision, Release)
    else:
        assert isinstance(decision, Hold)
        assert decision.until == pytest.approx(expected, abs=0.05)


def pooled(*, rate: float, batches: int) -> Iterator[tuple[float, int, ReturnForecast]]:
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
        yield now, len(queued), returns.forecast(now=now)
        running, queued = queued, []
        while at < now + 0.01:
            queued.append(free.pop())
            returns.arrived(queued[-1], now=at)
            at += random_.expovariate(rate)
        now += 0.01
        returns.answered([(source, 1.0) for source in running], now=now)
        free += running


def test_connections_that_independent_arrivals_reuse_are_seldom_waited_for() -> None:
    """One worker would put off the next batch as well, which is for as many."""
    line = Estimate(intercept_s=0.01, slope_s=0.0, spread=0.0, earned_rows=100.0)
    decisions = [
        decide(
            now=now, rows=rows, requests=rows, deadline=now + 10, load_rate=800.0, returns=seen, estimate=line
        )
        for now, rows, seen in pooled(rate=800.0, batches=2000)
    ]

    assert sum(isinstance(decision, Hold) for decision in decisions) < 0.02 * len(decisions)


def test_the_share_of_the_returning_is_enough_for_one_of_two_idle_workers() -> None:
    """4 queued and 4 due make 4 for each."""
    returns = answered((10.0, 4), back_after=0.1)

    assert decide(rows=4, requests=4, idle_workers=2, returns=returns) == Release(32, "idle")
    assert isinstance(decide(rows=3, requests=3, idle_workers=2, returns=returns), Hold)


# Share


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


def test_what_costs_nothing_by_the_row_is_not_shared() -> None:
    """A batch of 30 takes as long as one of 1."""
    assert decide(rows=30, idle_workers=4, load_rate=1e-3) == Release(32, "idle")


# Goal


def test_the_deadline_ends_a_hold() -> None:
    """11.25 - 1 s of execution - 2 % of the goal of 10 s, before balance at 10.375."""
    assert until(busy_until=(10.5,), new_client_rate=8.0, deadline=11.25) == pytest.approx(10.05)


def test_at_the_last_moment_for_the_deadline_it_releases() -> None:
    assert decide(busy_until=(10.5,), new_client_rate=8.0, deadline=11.2) == Release(32, "deadline")
    assert until(busy_until=(10.5,), new_client_rate=8.0, deadline=11.21) == pytest.approx(10.01)


def test_the_deadline_is_kept_for_one_row_more_and_two_deviations() -> None:
    """1 row queued: time for 2, 1 + 2 * 0.05 s, 2 * 25 % on top, and 0.2 s: 1.85 s before the deadline."""
    estimate = Estimate(intercept_s=1.0, slope_s=0.05, spread=0.25, earned_rows=100.0)
    ends = until(rows=1, busy_until=(10.9,), new_client_rate=8.0, deadline=11.9, estimate=estimate)

    assert ends == pytest.approx(10.05)


def test_a_slow_worker_must_start_earlier() -> None:
    """11.75 - 1.5 times 1 s of execution - 2 % of the goal of 10 s, before balance at 10.375."""
    assert until(busy_until=(10.5,), new_client_rate=8.0, deadline=11.75, slowdown=1.5) == pytest.approx(
        10.05
    )


def test_a_goal_about_to_bind_is_used_to_the_last_moment() -> None:
    """Balance would release 6 rows; with a goal of 2 s the policy holds them until 11.9 - 1 s - 2 % of it."""
    held = until(rows=6, requests=6, busy_until=(14.0,), new_client_rate=8.0, deadline=11.9, goal_s=2.0)

    assert held == pytest.approx(10.86)


def test_batches_teach_it_nothing() -> None:
    policy = CorkPolicy(limit_rows=32)
    policy.observe(BatchDone(now=9.0, rows=1, requests=1, queued_s=5.0, seconds=1.0))

    assert policy.decide(view(busy_until=(), new_client_rate=4.0, load_rate=4.0)) == Release(32, "idle")


positive = st.floats(0, 100)


@given(
    rows=st.integers(1, 31),
    idle=st.integers(1, 4),
    busy=st.lists(positive, max_size=4),
    to_deadline=st.floats(-10, 100),
    rate=positive,
    estimate=st.builds(Estimate, positive, positive, st.floats(0, 1), positive),
)
@example(
    # Balance asks for half a second, and the goal is about to bind.
    rows=1,
    idle=1,
    busy=[1.0],
    to_deadline=6.0,
    rate=2.0,
    estimate=Estimate(5.0, 0.0, 0.0, 0.0),
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
        new_client_rate=rate,
        load_rate=rate,
        running_rows=tuple(1.0 for _ in busy),
    )
    decision = POLICY.decide(seen)

    if isinstance(decision, Hold):
        assert decision.until > now
        assert decision.until + estimate.upper(rows + 1) <= seen.deadline
        later = seen._replace(
            now=decision.until, busy_until=tuple(max(decision.until, at) for at in seen.busy_until)
        )
        assert isinstance(POLICY.decide(later), Release)


# Arrivals during a hold


def rows_held(**changes: object) -> float:
    """Up to how many rows it holds in that view."""
    decision = decide(**changes)
    assert isinstance(decision, Hold)
    return decision.rows


def test_returning_clients_end_a_hold_when_the_queued_lose_as_much_as_the_missing_gain() -> None:
    """1 is queued and 3 are missing, who would gain 900 ms where each queued row loses about 75 ms."""
    returns = answered((10.0, 3), back_after=0.1)
    ratio = 0.9 / 0.075

    assert rows_held(returns=returns) == pytest.approx(4 * ratio / (1 + ratio), rel=0.05)


def test_a_hold_ends_when_the_share_of_the_returning_is_queued() -> None:
    """1 is queued and 3 are due: 2 are the share of one of two idle workers."""
    returns = answered((10.0, 3), back_after=0.1)

    assert rows_held(idle_workers=2, returns=returns) == pytest.approx(2, rel=0.01)


def test_a_hold_ends_when_the_share_of_one_worker_is_queued() -> None:
    """Of 9 rows, 5 are its share; by the end of the hold, 0.1 s later, it may be less by 0.1 s / 2 s."""
    line = Estimate(intercept_s=1.0, slope_s=1.0, spread=0.0, earned_rows=100.0)
    returns = answered((10.0, 7), back_after=0.1)
    other = {"busy_until": (12.0,), "running_rows": (0.0,)}
    held = rows_held(rows=2, requests=2, estimate=line, load_rate=1e-3, returns=returns, **other)

    assert held == pytest.approx(5 - 0.1 / 2, rel=0.01)


def test_of_a_share_that_may_fall_fast_half_of_the_rest_ends_a_hold() -> None:
    """In 0.1 s it may fall by 5 rows if a row takes 10 ms."""
    line = Estimate(intercept_s=1.0, slope_s=0.01, spread=0.0, earned_rows=100.0)
    returns = answered((10.0, 7), back_after=0.1)
    other = {"busy_until": (10.02,), "running_rows": (0.0,)}
    held = rows_held(rows=2, requests=2, estimate=line, load_rate=1e-3, returns=returns, **other)

    assert held == pytest.approx((2 + 5) / 2)


def test_a_hold_ends_when_the_batch_becomes_too_large_for_the_deadline() -> None:
    """0.08 s are left to hold 1 row; each further one takes 0.05 s."""
    line = Estimate(intercept_s=1.0, slope_s=0.05, spread=0.0, earned_rows=100.0)
    decision = decide(busy_until=(10.9,), new_client_rate=8.0, deadline=11.38, estimate=line)

    assert isinstance(decision, Hold)
    assert decision.until == pytest.approx(10.08)
    assert decision.rows == pytest.approx(1 + 0.08 / 0.05)


@given(
    rows=st.integers(1, 20),
    idle=st.integers(1, 3),
    left=st.lists(st.floats(0, 5), min_size=1, max_size=4),
    rate=st.floats(0.1, 50),
    spread=st.floats(0, 0.5),
    part=st.floats(0, 1),
    passed=st.floats(0, 1),
)
@example(rows=1, idle=1, left=[0.5], rate=8.0, spread=0.0, part=0.99, passed=0.0)
def test_fewer_arrivals_than_it_says_do_not_end_a_hold(
    *, rows: int, idle: int, left: list[float], rate: float, spread: float, part: float, passed: float
) -> None:
    """At any time until its end."""
    seen = view(
        rows=rows,
        requests=rows,
        idle_workers=idle,
        busy_until=tuple(sorted(10.0 + each for each in left)),
        running_rows=tuple(1.0 for _ in left),
        deadline=20.0,
        estimate=SECOND._replace(spread=spread),
        new_client_rate=rate,
        load_rate=rate,
    )
    decision = POLICY.decide(seen)
    if isinstance(decision, Release):
        return
    held = Held(since=10.0, rows=rows, hold=decision)
    now = 10.0 + passed * (decision.until - 10.0)
    later = rows + int(part * (min(decision.rows, 100.0) - rows + 1))
    if held.stands(later, now):
        again = POLICY.decide(seen._replace(now=now, rows=later, requests=later))

        assert isinstance(again, Hold)


# Many workers


class EveryWorker(CorkPolicy):
    """Looks at all workers, however many there are."""

    place_ratio = 1.0


def crowd(seed: int, workers: int) -> View:
    """A queue in front of this many workers, of which some are idle, with traffic that keeps them busy."""
    chance = random.Random(seed)
    idle = chance.randint(1, workers)
    estimate = Estimate(0.02, 0.001, chance.choice([0.0, 0.1]), 100.0)
    rate = workers * chance.uniform(50, 400)
    clients = [(f"client {number}", 1.0) for number in range(10 * workers)]
    returns = Returns()
    returns.answered(clients, now=9.98)
    for source, _ in clients[::2]:
        returns.arrived(source, now=chance.uniform(9.98, 10.0))
    return view(
        rows=chance.randint(1, 40),
        requests=1,
        idle_workers=idle,
        busy_until=sorted(10.0 + chance.uniform(-0.005, 0.06) for _ in range(workers - idle)),
        running_rows=[float(chance.randint(0, 20)) for _ in range(workers - idle)],
        estimate=estimate,
        slowdown=chance.choice([0.5, 1.0]),
        new_client_rate=rate * chance.choice([0.0, 0.5, 1.0]),
        load_rate=rate,
        returns=returns.forecast(now=10.0) if chance.random() < 0.5 else Returns().forecast(now=10.0),
    )


@pytest.mark.parametrize("workers", [1, 2, 5, 9])
def test_up_to_nine_workers_are_all_looked_at(workers: int) -> None:
    for seed in range(50):
        seen = crowd(seed, workers)
        assert POLICY.decide(seen) == EveryWorker(limit_rows=32).decide(seen)


@pytest.mark.parametrize("workers", [128, 1024])
def test_of_many_workers_a_few_suffice(workers: int) -> None:
    """The share of a worker and the end of a hold are about those from looking at all."""
    shares, holds = [], []
    for seed in range(30):
        seen = crowd(seed, workers)
        few, every = POLICY.decide(seen), EveryWorker(limit_rows=32).decide(seen)
        if isinstance(few, Release) and isinstance(every, Release):
            shares.append((min(few.rows, seen.rows), min(every.rows, seen.rows)))
        elif isinstance(few, Hold) and isinstance(every, Hold):
            holds.append((few.until - 10.0, every.until - 10.0))
    assert len(shares) + len(holds) >= 28
    for pairs, scale in ((shares, 40), (holds, 0.06)):
        assert pairs
        off = [abs(few - every) / scale for few, every in pairs]
        assert fmean(off) < 0.03
        assert max(off) < 0.3


def test_places_reach_the_last_worker_in_few_steps() -> None:
    assert _places(1, 2.0) == []
    assert _places(9, 2.0) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert _places(40, 2.0) == [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 39]
    assert len(_places(2000, 2.0)) == 16
