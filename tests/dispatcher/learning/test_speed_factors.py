"""How much longer than the average each worker takes."""

from __future__ import annotations

import math
import random
from collections import Counter
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_dispatcher.learning.measures import BatchSize
from uncork_dispatcher.learning.service_model import ServiceModel
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


@pytest.mark.parametrize(
    ("factors", "rounds", "slowdowns"),
    [
        ({}, 0, {3: 1.0}),
        ({0: 1.0, 1: 3.0}, 4, {0: 1.0, 1: 1.0}),
        ({0: 1.0, 1: 4.0}, 5, {0: 0.5, 1: 2.0}),
        ({0: 2.0, 1: 2.0}, 20, {0: 1.0, 1: 1.0}),
        ({0: 2.0, **dict.fromkeys(range(1, 10), 1.0)}, 10, {0: 2**0.9, 5: 1.0}),
        ({0: 0.5, **dict.fromkeys(range(1, 10), 1.0)}, 10, {0: 0.5**0.9, 5: 1.0}),
    ],
    ids=["none seen", "too few batches", "one is slow", "all are slow", "a slow one", "a fast one"],
)
def test_a_worker_is_compared_with_the_average(
    factors: dict[int, float], rounds: int, slowdowns: dict[int, float]
) -> None:
    """What all workers share is no difference: the estimate of the average follows it."""
    learned = after(factors, rounds=rounds)

    assert {worker: learned.slowdown(worker) for worker in slowdowns} == pytest.approx(slowdowns)
    assert learned.differ == any(factor != 1.0 for factor in slowdowns.values())


def test_one_hiccup_is_no_difference() -> None:
    """A batch that takes 60 times as long counts as one that takes twice as long."""
    learned = after({0: 1.0, 1: 1.0}, rounds=20)
    learned.observe(1, seconds=60.0, average_s=1.0, spread=0.0)

    assert learned.slowdown(1) == 1.0


def test_workers_that_left_do_not_count() -> None:
    """The mean is that of the others: an only worker is the average."""
    learned = after({0: 0.5, **dict.fromkeys(range(1, 21), 1.0)}, rounds=10)
    for worker in range(1, 20):
        learned.forget(worker)
    assert learned.slowdown(0) == pytest.approx(0.5**0.5)

    learned.forget(20)
    learned.forget(77)
    assert learned.slowdown(0) == 1.0
    assert not learned.differ

    learned.observe(20, seconds=4.0, average_s=1.0, spread=0.0)
    assert learned.slowdown(20) == 1.0, "a new worker with the number of one that is gone starts anew"


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


def test_first_predictions_do_not_make_workers_slow() -> None:
    """The second batch has 100 times as many rows as the first, and takes ten times as long as predicted."""
    model = ServiceModel(goal_s=1.0, limit_rows=1000)
    for worker, rows in [(0, 1), (0, 100), (1, 1)] * 6:
        size = BatchSize(rows, rows)
        model.observe(worker, size, seconds=0.001 * rows, chunks=(), smallest=size, rows=None)
    assert (model.slowdown(0), model.slowdown(1)) == (1.0, 1.0)
