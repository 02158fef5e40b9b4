"""How much longer than the average each worker takes."""

from __future__ import annotations

import math
import random
from collections import Counter
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_dispatcher.learning.speed_factors import SpeedFactors


def after(factors: dict[int, float], *, rounds: int, noise: float = 0.0, seed: int = 1) -> SpeedFactors:
    """Batches predicted to take 1 s, one on each worker in turn, which take ``factors`` times that."""
    chance = random.Random(seed)
    learned = SpeedFactors()
    for _ in range(rounds):
        for worker, factor in factors.items():
            seconds = factor * math.exp(chance.gauss(0.0, noise))
            learned.observe(worker, seconds=seconds, average_s=1.0, spread=noise)
    return learned


def test_a_worker_never_seen_is_average() -> None:
    assert SpeedFactors().slowdown(3) == 1.0
    assert after({0: 1.0, 1: 3.0}, rounds=4).slowdown(1) == 1.0


def test_a_slow_worker_is_known_after_five_batches() -> None:
    learned = after({0: 1.0, 1: 4.0}, rounds=5)

    assert learned.slowdown(0) == pytest.approx(0.5)
    assert learned.slowdown(1) == pytest.approx(2.0)


def test_what_all_workers_share_is_no_difference() -> None:
    """The estimate of the average follows that, not the learned."""
    learned = after({0: 2.0, 1: 2.0, 2: 2.0}, rounds=20)

    assert [learned.slowdown(worker) for worker in range(3)] == [1.0, 1.0, 1.0]


def test_one_worker_alone_is_the_average() -> None:
    assert after({0: 3.0}, rounds=20).slowdown(0) == 1.0


def test_noise_is_no_difference() -> None:
    """Four equal workers whose batches scatter by 30 %: no factor but 1 in nearly all looks."""
    equal = dict.fromkeys(range(4), 1.0)
    looks = [after(equal, rounds=50, noise=0.3, seed=seed).slowdown(2) for seed in range(100)]

    assert sum(look == 1.0 for look in looks) >= 85


def test_a_difference_is_found_in_noise() -> None:
    """A worker twice as slow among four, batches scatter by 20 %."""
    learned = after({0: 1.0, 1: 1.0, 2: 1.0, 3: 2.0}, rounds=100, noise=0.2)

    assert learned.slowdown(3) / learned.slowdown(0) == pytest.approx(2.0, rel=0.3)


def test_one_hiccup_is_no_difference() -> None:
    """A batch that takes 60 times as long counts as one that takes twice as long."""
    learned = after({0: 1.0, 1: 1.0}, rounds=20)
    learned.observe(1, seconds=60.0, average_s=1.0, spread=0.0)

    assert learned.slowdown(1) == 1.0


def test_a_worker_that_slows_down_is_followed() -> None:
    """Within 20 batches, and it is forgotten as fast."""
    learned = after({0: 1.0, 1: 1.0}, rounds=50)
    for _ in range(20):
        learned.observe(1, seconds=2.0, average_s=1.0, spread=0.0)
    slow = learned.slowdown(1) / learned.slowdown(0)
    for _ in range(40):
        learned.observe(1, seconds=1.0, average_s=1.0, spread=0.0)

    assert slow == pytest.approx(2.0, rel=0.2)
    assert learned.slowdown(1) == 1.0


def test_workers_that_are_gone_do_not_differ() -> None:
    learned = after({0: 1.0, 1: 4.0}, rounds=5)
    assert learned.differ

    learned.forget(0)
    learned.forget(1)

    assert not learned.differ


def test_a_worker_that_is_replaced_starts_anew() -> None:
    """Another process, perhaps on another device."""
    learned = after({0: 1.0, 1: 4.0}, rounds=10)
    learned.forget(1)
    learned.forget(7)

    assert learned.slowdown(1) == 1.0


def test_workers_that_left_do_not_count() -> None:
    """The mean is that of the others: an only worker is the average."""
    learned = after({0: 0.5, **dict.fromkeys(range(1, 21), 1.0)}, rounds=10)
    for worker in range(1, 20):
        learned.forget(worker)
    assert learned.slowdown(0) == pytest.approx(0.5**0.5)

    learned.forget(20)
    assert learned.slowdown(0) == 1.0
    assert not learned.differ


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_one_different_worker_among_many_is_noticed(factor: float) -> None:
    """The others are too close to the average to differ from it."""
    learned = after({0: factor, **dict.fromkeys(range(1, 10), 1.0)}, rounds=10)

    assert learned.differ
    assert learned.slowdown(0) == pytest.approx(factor**0.9)
    assert learned.slowdown(5) == 1.0


def reference(learned: SpeedFactors, batches: list[tuple[int, float]], spread: float) -> dict[int, float]:
    """The factors by their definition, from the averages of all workers."""
    noise = max(0.1, 2 * spread * math.sqrt(0.1 / 1.9))
    seen = Counter(worker for worker, seconds in batches if seconds > 0)
    logs = {worker: learned._logs[worker] for worker, count in seen.items() if count >= 5}
    mean = fmean(logs.values()) if logs else 0.0
    return {worker: math.exp(log - mean) if abs(log - mean) > noise else 1.0 for worker, log in logs.items()}


@given(
    st.lists(st.tuples(st.integers(0, 4), st.just(0.0) | st.floats(0.5, 2.0)), max_size=120),
    st.sets(st.integers(0, 4)),
    st.sets(st.integers(0, 4)),
    st.sampled_from([0.0, 0.3]),
)
def test_factors_are_those_of_the_definition(
    batches: list[tuple[int, float]], gone: set[int], leaving: set[int], spread: float
) -> None:
    """Whatever came and went before, each is compared with the mean of all."""
    learned = SpeedFactors()
    for worker in gone:
        for _ in range(6):
            learned.observe(worker, seconds=3.0, average_s=1.0, spread=spread)
    for worker in gone:
        learned.forget(worker)
    for worker, seconds in batches:
        learned.observe(worker, seconds=seconds, average_s=1.0, spread=spread)

    for worker in leaving:
        learned.forget(worker)
    batches = [batch for batch in batches if batch[0] not in leaving]

    expected = reference(learned, batches, spread)
    got = {worker: learned.slowdown(worker) for worker in range(5)}
    assert got == pytest.approx({worker: expected.get(worker, 1.0) for worker in range(5)})
    assert learned.differ == any(factor != 1.0 for factor in got.values())


@given(st.lists(st.tuples(st.integers(0, 3), st.just(0.0) | st.floats(1e-9, 1e6)), max_size=60))
def test_a_pace_is_positive_and_finite(batches: list[tuple[int, float]]) -> None:
    learned = SpeedFactors()
    for worker, seconds in batches:
        learned.observe(worker, seconds=seconds, average_s=0.01, spread=0.3)

        assert all(0 < learned.slowdown(number) < math.inf for number in range(4))
