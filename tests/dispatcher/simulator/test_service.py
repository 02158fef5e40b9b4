"""How long simulated batches take."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_dispatcher.simulator.service import ServiceTime

LINE = ServiceTime(intercept_s=0.010, slope_s=0.001)


def draw(service: ServiceTime, rows: float = 5, *, worker: int = 0, now: float = 0.0) -> float:
    return service.draw(rows, rows, worker=worker, now=now, random_=random.Random(1))


def test_a_batch_takes_intercept_and_slope() -> None:
    """10 ms and one more for each row, exactly, when nothing else is asked for."""
    assert [LINE.mean(rows) for rows in (1, 5, 64, 2.5)] == pytest.approx([0.011, 0.015, 0.074, 0.0125])
    assert draw(LINE) == LINE.mean(5)


def test_without_noise_nothing_is_drawn() -> None:
    """So that a deterministic model leaves the random numbers to the arrivals."""
    random_ = random.Random(1)
    before = random_.getstate()
    LINE.draw(5, 5, worker=0, now=0.0, random_=random_)

    assert random_.getstate() == before


@pytest.mark.parametrize("cv", [0.05, 0.3, 1.0])
def test_noise_keeps_the_mean_and_has_its_width(cv: float) -> None:
    """Mean and coefficient of variation of 40 000 batches, and never a batch that takes no time."""
    service = ServiceTime(intercept_s=0.010, slope_s=0.001, noise_cv=cv)
    random_ = random.Random(1)
    drawn = [service.draw(5, 5, worker=0, now=0.0, random_=random_) for _ in range(40_000)]

    mean = statistics.fmean(drawn)
    assert mean == pytest.approx(0.015, rel=4 * cv / math.sqrt(len(drawn)))
    assert statistics.stdev(drawn) / mean == pytest.approx(cv, rel=0.05)
    assert min(drawn) > 0


@pytest.mark.parametrize(("rows", "padded"), [(1, 1), (2, 4), (3, 4), (4, 4), (5, 16), (16, 16), (17, 17)])
def test_a_batch_is_padded_to_its_bucket(rows: int, padded: int) -> None:
    """The next larger one; above the largest there is none."""
    service = ServiceTime(intercept_s=0.010, slope_s=0.001, buckets=(1, 4, 16))

    assert draw(service, rows) == LINE.mean(padded)


def test_workers_have_their_speeds_in_turn() -> None:
    service = ServiceTime(intercept_s=0.010, slope_s=0.001, speeds=(1.0, 3.0))

    assert [draw(service, worker=worker) / LINE.mean(5) for worker in range(4)] == pytest.approx([1, 3, 1, 3])


@pytest.mark.parametrize(("now", "factor"), [(9.999, 1.0), (10.0, 2.0), (20.0, 6.0), (30.0, 3.0)])
def test_the_factors_of_several_changes_multiply(now: float, factor: float) -> None:
    """Each counts from what was before: twice as long, three times that, then half of it."""
    service = ServiceTime(intercept_s=0.010, slope_s=0.001, changes=((10.0, 2.0), (20.0, 3.0), (30.0, 0.5)))

    assert draw(service, now=now) == pytest.approx(factor * LINE.mean(5))


@given(
    st.floats(0, 1),
    st.floats(0.001, 1),
    st.sets(st.integers(1, 100), max_size=4).map(lambda sizes: tuple(sorted(sizes))),
    st.integers(1, 200),
)
def test_more_rows_never_take_less(
    intercept_s: float, slope_s: float, buckets: tuple[int, ...], rows: int
) -> None:
    """And padding never makes a batch quicker."""
    service = ServiceTime(intercept_s=intercept_s, slope_s=slope_s, buckets=buckets)

    assert intercept_s + slope_s * rows <= service.mean(rows) <= service.mean(rows + 1)


def test_capacity_is_that_of_full_batches() -> None:
    """64 rows in 74 ms on each worker, half as many on one that takes twice as long."""
    uneven = ServiceTime(intercept_s=0.010, slope_s=0.001, speeds=(1.0, 2.0))

    assert LINE.capacity(workers=3, limit_rows=64) == pytest.approx(3 * 64 / 0.074)
    assert uneven.capacity(workers=3, limit_rows=64) == pytest.approx(2.5 * 64 / 0.074)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"intercept_s": -0.001}, "must take some time"),
        ({"slope_s": -0.001}, "must take some time"),
        ({"intercept_s": 0.0, "slope_s": 0.0}, r"must take some time, got 0\.0 \+ 0\.0 \* rows"),
        ({"prepare_s": -0.1}, "prepare_s must be finite and not negative, got -0.1"),
        ({"padding": 1.5}, "padding must be a share, got 1.5"),
        ({"noise_cv": -0.1}, "noise_cv must not be negative, got -0.1"),
        ({"speeds": (1.0, 0.0)}, "must be positive"),
        ({"changes": ((1.0, 2.0), (2.0, -1.0))}, "must be positive"),
        ({"buckets": (4, 1)}, r"must be ascending sizes, got \(4, 1\)"),
        ({"buckets": (4, 4)}, "must be ascending sizes"),
        ({"buckets": (0, 4)}, "must be ascending sizes"),
        ({"intercept_s": math.nan}, "must take some time, got nan"),
        ({"slope_s": math.inf}, "must take some time, got"),
        ({"noise_cv": math.nan}, "noise_cv must not be negative, got nan"),
        ({"truncated_at": 0}, "truncated_at must be positive, got 0"),
        ({"truncated_at": math.nan}, "truncated_at must be positive, got nan"),
        ({"speeds": (math.nan,)}, "must be positive"),
        ({"changes": ((1.0, math.inf),)}, "must be positive"),
        (
            {"changes": ((2.0, 2.0), (1.0, 2.0))},
            r"in order of time, starting at 0 s or later, got \(\(2.0, 2.0\)",
        ),
        ({"changes": ((-1.0, 2.0),)}, "in order of time"),
        ({"changes": ((math.nan, 2.0),)}, "in order of time"),
    ],
)
def test_wrong_values_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ServiceTime(**({"intercept_s": 0.010, "slope_s": 0.001} | wrong))  # type: ignore[arg-type]
