"""Rates and bursts from running totals."""

from __future__ import annotations

import random

import pytest

from uncork_dispatcher.capacity.arrival_history import HISTORY_S, ArrivalHistory
from uncork_dispatcher.simulator import open_loop


def after(*rows: float, every_s: float = 1.0) -> ArrivalHistory:
    """The history of intervals with so many arrivals, of which the last has just ended."""
    history, total = ArrivalHistory(), 0.0
    history.count(total, now=0.0)
    for number, each in enumerate(rows, 1):
        total += each
        history.count(total, now=number * every_s)
    return history


@pytest.mark.parametrize("every_s", [0.5, 1.0, 2.5, 5.0])
def test_the_highest_average_over_five_seconds_within_the_time(every_s: float) -> None:
    rows = [10 * every_s] * 100
    rows[60] += 40
    history = after(*rows, every_s=every_s)
    age_s = (100 - 61) * every_s

    assert history.highest_rate(1000) == pytest.approx(10 + 40 / 5)
    assert history.highest_rate(age_s) == pytest.approx(10 + 40 / 5)
    assert history.highest_rate(age_s - 5 - every_s) == pytest.approx(10)


@pytest.mark.parametrize(
    ("counts", "rate"),
    [
        pytest.param({}, 0, id="nothing is known"),
        pytest.param({0: 0, 1: 10, 2: 20, 3: 30, 4: 40}, 0, id="not yet five seconds"),
        pytest.param({0: 0, 1: 10, 2: 20, 3: 30, 4: 40, 5: 50}, 10, id="five seconds"),
        pytest.param({100: 1e6, 105: 1e6 + 50}, 10, id="arrivals before the first count"),
        pytest.param({0: 0, 30: 300, 60: 360}, 10, id="counts far apart"),
        pytest.param({0: 100, 5: 150, 10: 100}, 20, id="a total that restarts from 0"),
    ],
)
def test_the_rate_needs_five_seconds(counts: dict[float, float], rate: float) -> None:
    history = ArrivalHistory()
    for now, total in counts.items():
        history.count(total, now=now)

    assert history.highest_rate(60) == pytest.approx(rate)


def test_of_two_counts_at_one_moment_the_later_is_kept() -> None:
    history = after(*[10] * 5)
    history.count(60.0, now=5.0)

    assert history.highest_rate(60) == 12


def test_the_history_does_not_grow_for_ever() -> None:
    history = after(*[1] * 2000)

    assert len(history._counts) == HISTORY_S + 1
    assert history.highest_rate(HISTORY_S) == 1


def counted(kind: str, rate: float, *, seconds: int = 300) -> ArrivalHistory:
    """The history of simulated arrivals, counted once a second."""
    times = open_loop(kind, rate=rate, count=round(rate * seconds), random_=random.Random(3))
    rows = [0] * (seconds + 1)
    for time in times:
        if time < seconds:
            rows[int(time)] += 1
    return after(*rows[:seconds])


@pytest.mark.parametrize(
    ("kind", "expected"), [("constant", 1), ("poisson", 1), ("gamma:2", 4), ("gamma:4", 16)]
)
@pytest.mark.parametrize("rate", [20, 200])
def test_the_dispersion_of_a_stream(kind: str, expected: float, rate: float) -> None:
    assert counted(kind, rate).dispersion(HISTORY_S) == pytest.approx(expected, rel=0.35)


def test_a_rate_that_changes_now_and_then_is_no_burst() -> None:
    rows = [100] * 50 + [1000] * 50 + [50] * 50

    assert after(*rows).dispersion(HISTORY_S) == 1


def test_counts_that_are_few_or_far_apart_say_nothing_about_bursts() -> None:
    assert after(*[1, 100] * 10).dispersion(HISTORY_S) == 1
    assert after(*[1, 100] * 11).dispersion(HISTORY_S) > 50
    assert after(*[1, 100] * 20, every_s=5.0).dispersion(HISTORY_S) == 1
    assert after(*[0] * 100).dispersion(HISTORY_S) == 1
