"""How long simulated batches take."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from uncork_dispatcher.simulator.service import ServiceTime

LINE = ServiceTime(intercept_s=0.010, slope_s=0.001)


def draw(service: ServiceTime, rows: float = 5, *, worker: int = 0) -> float:
    return service.draw(rows, rows, worker=worker, random_=random.Random(1))


def test_a_batch_takes_intercept_and_slope() -> None:
    """10 ms and one more for each row, exactly, when nothing else is asked for."""
    assert [LINE.mean(rows) for rows in (1, 5, 64, 2.5)] == pytest.approx([0.011, 0.015, 0.074, 0.0125])
    assert draw(LINE) == LINE.mean(5)


def test_without_noise_nothing_is_drawn() -> None:
    """So that a deterministic model leaves the random numbers to the arrivals."""
    random_ = random.Random(1)
    before = random_.getstate()
    LINE.draw(5, 5, worker=0, random_=random_)

    assert random_.getstate() == before


@pytest.mark.parametrize("cv", [0.05, 0.3, 1.0])
def test_noise_keeps_the_mean_and_has_its_width(cv: float) -> None:
    """Mean and coefficient of variation of 40 000 batches, and never a batch that takes no time."""
    service = ServiceTime(intercept_s=0.010, slope_s=0.001, noise_cv=cv)
    random_ = random.Random(1)
    drawn = [service.draw(5, 5, worker=0, random_=random_) for _ in range(40_000)]

    mean = statistics.fmean(drawn)
    assert mean == pytest.approx(0.015, rel=4 * cv / math.sqrt(len(drawn)))
    assert statistics.stdev(drawn) / mean == pytest.approx(cv, rel=0.05)
    assert min(drawn) > 0


def test_workers_have_their_speeds_in_turn() -> None:
    service = ServiceTime(intercept_s=0.010, slope_s=0.001, speeds=(1.0, 3.0))

    assert [draw(service, worker=worker) / LINE.mean(5) for worker in range(4)] == pytest.approx([1, 3, 1, 3])


def test_capacity_is_that_of_full_batches() -> None:
    """64 rows in 74 ms on each worker, half as many on one that takes twice as long."""
    uneven = ServiceTime(intercept_s=0.010, slope_s=0.001, speeds=(1.0, 2.0))

    assert LINE.capacity(workers=3, limit_rows=64) == pytest.approx(3 * 64 / 0.074)
    assert uneven.capacity(workers=3, limit_rows=64) == pytest.approx(2.5 * 64 / 0.074)
