"""Which answered clients are expected back, how many rows they bring, and when; groups by their size."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from uncork_dispatcher.learning.returns import GroupTimes, Returns

PROPERTY = at_most(60)
ROUNDING = 1e-9
GONE_S = 2.0
"""After this long an answered client is not expected any more."""


def taught(*delays_s: float, never: int = 0, clients: int = 8, groups: int = 60) -> Returns:
    """Groups of clients of one row were answered; ``never`` of each did not come back.

    The others took one of ``delays_s`` in turn. In the end all are back, or given up: nobody is expected.
    """
    returns = Returns()
    delays = itertools.cycle(delays_s)
    for group in range(groups):
        now = group * (GONE_S + 1.0)
        returns.answered([((group, client), 1.0) for client in range(clients)], now=now)
        if delays_s:
            back = sorted((next(delays), client) for client in range(clients - never))
            for delay_s, client in back:
                assert returns.arrived((group, client), now=now + delay_s)
    returns.answered([], now=groups * (GONE_S + 1.0))
    assert returns.return_times(now=groups * (GONE_S + 1.0)) == []
    return returns


def between(low: float, high: float, count: int = 997) -> list[float]:
    """So many seconds, evenly spread in every part of the list."""
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    return [low + (high - low) * (i * golden % 1.0) for i in range(count)]


NOW = 1000.0


def group(returns: Returns, clients: int = 10, *, rows: float = 1.0, now: float = NOW) -> Returns:
    returns.answered([((now, client), rows) for client in range(clients)], now=now)
    return returns


def test_before_anybody_has_come_back_nobody_is_expected() -> None:
    """A gateway that has just started waits for no client, whichever it has answered."""
    returns = group(Returns())

    assert returns.delays.return_probability() == 0.0
    assert returns.expected_rows(math.inf, now=NOW) == 0.0
    assert returns.return_times(now=NOW) in ([], [math.inf])


def test_the_time_of_return_is_learned() -> None:
    """Clients that take 0.25 to 0.75 ms: nobody before, half in the middle, nearly all after it."""
    returns = group(taught(*between(0.00025, 0.00075)))

    assert returns.expected_rows(0.0002, now=NOW) == pytest.approx(0.0, abs=0.1)
    assert returns.expected_rows(0.0005, now=NOW) == pytest.approx(5.0, rel=0.1)
    assert returns.expected_rows(0.00075, now=NOW) > 9.5
    assert returns.expected_rows(0.0009, now=NOW) == pytest.approx(10.0)


def test_a_group_is_complete_when_the_slowest_usually_are_back() -> None:
    """98 % of them, at 0.74 ms, to within a bin of 15 %; from now, not from the answer."""
    returns = group(taught(*between(0.00025, 0.00075)))

    assert returns.return_times(now=NOW) == [pytest.approx(0.00074, rel=0.15)]
    assert returns.return_times(now=NOW + 0.0005) == [pytest.approx(0.00024, abs=0.00011)]
    assert returns.return_times(now=NOW + 0.001) == []


def test_the_variation_of_delays_is_learned() -> None:
    """0 if all take as long, (b - a)² / 3 (a + b)² between a and b, 1 by chance, more if a few take long."""
    by_chance = [-0.01 * math.log(1 - share) for share in between(0.0, 1.0)]

    assert Returns().delays.squared_variation() == 0.0
    assert taught(0.01).delays.squared_variation() == pytest.approx(0.0, abs=1e-9)
    assert taught(*between(0.005, 0.015)).delays.squared_variation() == pytest.approx(1 / 12, rel=0.05)
    assert taught(*by_chance, groups=120).delays.squared_variation() == pytest.approx(1.0, rel=0.1)
    assert taught(*[0.001] * 9, 0.1).delays.squared_variation() > 2


def test_a_client_is_expected_once_however_many_answers_it_had() -> None:
    """With the rows of the last one: in one batch, or in two."""
    returns = taught(0.001)
    returns.answered([("a", 1.0), ("a", 3.0)], now=NOW)
    assert returns.expected_rows(1.0, now=NOW) == pytest.approx(3.0)

    returns.answered([("a", 2.0)], now=NOW + 0.0001)
    assert returns.expected_rows(1.0, now=NOW + 0.0001) == pytest.approx(2.0)
    assert len(returns.return_times(now=NOW + 0.0001)) == 1


def test_what_is_kept_does_not_grow_with_the_clients_that_never_come_back() -> None:
    """150 000 strangers in 1.5 seconds: 50 000 clients are kept, and after a while none."""
    returns = Returns()
    for number in range(1500):
        returns.answered([((number, client), 1.0) for client in range(100)], now=number * 0.001)
    assert len(returns._sources) == 50_000
    assert len(returns._groups) == 500

    returns.answered([], now=20.0)
    assert (len(returns._sources), len(returns._groups)) == (0, 0)


class Step(NamedTuple):
    """Some time passes, some clients are answered, others come."""

    pause_s: float
    answered: list[tuple[int | None, float]]
    arrived: list[int | None]


sources = st.one_of(st.none(), st.integers(0, 12))
steps = st.lists(
    st.builds(
        Step,
        st.sampled_from([0.0, 0.0, 1e-4, 1e-3, 0.03, 0.7, 5.0]),
        st.lists(st.tuples(sources, st.sampled_from([1.0, 2.0, 0.25])), max_size=6),
        st.lists(sources, max_size=6),
    ),
    max_size=40,
)


def play(happened: list[Step]) -> tuple[Returns, dict[int, float], float]:
    """Let it happen; returns also the rows of each client that is outstanding, and the time."""
    returns = Returns()
    outstanding: dict[int, float] = {}
    now = 0.0
    for step in happened:
        now += step.pause_s
        returns.answered(step.answered, now=now)
        outstanding |= {source: rows for source, rows in step.answered if source is not None}
        for source in step.arrived:
            expected = returns.arrived(source, now=now)
            assert source is not None or not expected
            assert not (expected and source not in outstanding)
            if source is not None:
                outstanding.pop(source, None)
    return returns, outstanding, now


@PROPERTY
@given(steps, st.lists(st.floats(0, 10), min_size=2, max_size=6), st.floats(0, 3))
def test_never_more_rows_are_expected_than_are_outstanding(
    happened: list[Step], horizons: list[float], later: float
) -> None:
    """Nor fewer than none, and more the longer one waits, at any later time; after a silence nobody is."""
    returns, outstanding, now = play(happened)
    rows = [returns.expected_rows(within_s, now=now + later) for within_s in sorted(horizons)]

    assert 0.0 <= returns.delays.return_probability() <= 1.0
    assert rows[0] >= -ROUNDING
    assert rows[-1] <= sum(outstanding.values()) + ROUNDING
    assert all(fewer <= more + ROUNDING for fewer, more in itertools.pairwise(rows))
    times = returns.return_times(now=now + later)
    assert all(time > 0 for time in times)
    assert len(times) <= len(outstanding)

    now += GONE_S + 0.001
    returns.answered([], now=now)
    assert returns.expected_rows(math.inf, now=now) == 0.0
    assert returns.return_times(now=now) == []


def back(returns: Returns, clients: int, *, after_s: float, now: float = NOW) -> None:
    """The first clients of the group that was answered at ``now`` are back."""
    for client in range(clients):
        returns.arrived((now, client), now=now + after_s)


def test_a_group_is_back_when_no_more_than_a_straggler_is_missing() -> None:
    returns = group(Returns(), clients=60)
    back(returns, 58, after_s=0.3)
    assert returns.group_times.whole_and_half(60) == (0.0, 0.0)

    returns.arrived((NOW, 58), now=NOW + 0.4)
    returns.arrived((NOW, 59), now=NOW + 1.9)
    assert returns.group_times.whole_and_half(60) == pytest.approx((0.4, 0.4))


@pytest.mark.parametrize(("clients", "rows", "expected_s"), [(10, 6.0, 0.3), (3, 20.0, 0.0)])
def test_the_size_of_a_group_is_its_rows(clients: int, rows: float, expected_s: float) -> None:
    """Those that it had when it was answered; very few clients are no group."""
    returns = group(Returns(), clients=clients, rows=rows)
    back(returns, clients, after_s=0.3)

    assert returns.group_times.whole_and_half(60) == pytest.approx((expected_s, expected_s))


def test_only_clients_answered_a_moment_ago_are_away() -> None:
    """Clients that have gone are counted for no more than twice the time of a group."""
    returns = group(Returns(), clients=20)
    assert returns.away_rows(now=NOW) == 20
    back(returns, 20, after_s=0.1)
    assert returns.away_rows(now=NOW) == 0

    group(returns, clients=8, rows=2.0, now=NOW + 1.0)
    group(returns, clients=6, rows=2.0, now=NOW + 1.15)
    back(returns, 1, after_s=0.01, now=NOW + 1.15)
    assert returns.away_rows(now=NOW + 1.19) == 26
    assert returns.away_rows(now=NOW + 1.21) == 10


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


def test_a_forecast_is_not_older_than_the_last_arrival_or_response() -> None:
    """At one moment."""
    returns = group(taught(0.001))
    assert returns.expected_rows(1.0, now=NOW) == pytest.approx(10)
    returns.arrived((NOW, 0), now=NOW)
    assert returns.expected_rows(1.0, now=NOW) == pytest.approx(9)
    returns.answered([("another", 2.0)], now=NOW)
    assert returns.expected_rows(1.0, now=NOW) == pytest.approx(11)
