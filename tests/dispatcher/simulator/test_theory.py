"""The closed forms, by themselves and against the simulator: each shows that the other is right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatcher.simulator.measure import measure, poisson
from tests.dispatcher.simulator.theory import (
    lower_bound_s,
    paced_mean_s,
    release_when_free_bound_s,
    smallest_mean_batch,
    unbatched_mean_s,
)
from uncork_dispatcher.simulator.service import ServiceTime

# The model of the examples: a batch of 64 rows takes 7.4 seconds, one row takes 1.1.
SERVICE = ServiceTime(intercept_s=1.0, slope_s=0.1)
LIMIT = 64
# How many standard errors a right simulation may be off: 3 of 1000 seeds are further off.
SURE = 3.0


def rate_at(load: float, workers: int, service: ServiceTime = SERVICE) -> float:
    """Requests per second that make this load, as a share of what full batches of 64 rows can carry."""
    return load * service.capacity(workers=workers, limit_rows=LIMIT)


# The formulas by themselves


@pytest.mark.parametrize(
    ("workers", "load", "batch", "lower", "paced"),
    [
        (4, 0.3, 3.504, 1.471, 1.619),
        (4, 0.5, 7.619, 1.953, 2.082),
        (4, 0.7, 15.342, 2.830, 2.951),
        (8, 0.3, 3.504, 1.411, 1.535),
        (8, 0.5, 7.619, 1.858, 1.972),
        (2, 0.5, 7.619, 2.145, 2.302),
    ],
)
def test_the_examples_come_out(workers: int, load: float, batch: float, lower: float, paced: float) -> None:
    """Smallest batch, lower bound and paced ideal, as computed by hand."""
    rate = rate_at(load, workers)

    values = [
        formula(SERVICE, rate=rate, workers=workers, limit_rows=LIMIT)
        for formula in (smallest_mean_batch, lower_bound_s, paced_mean_s)
    ]

    assert values == pytest.approx([batch, lower, paced], abs=0.0006)


@pytest.mark.parametrize(("load", "mean"), [(0.3, 1.3357), (0.6, 1.925), (0.8, 3.3)])
def test_one_at_a_time_is_an_m_d_1_queue(load: float, mean: float) -> None:
    """Which waits ``load / (2 * (1 - load))`` services of 1.1 s before its own."""
    assert unbatched_mean_s(SERVICE, rate=load / 1.1) == pytest.approx(mean, abs=0.0001)


def test_noise_lengthens_the_wait_of_one_at_a_time() -> None:
    """With a coefficient of variation of 1, as an M/M/1 queue has it, to twice that of M/D/1."""
    noisy = ServiceTime(intercept_s=1.0, slope_s=0.1, noise_cv=1.0)

    assert unbatched_mean_s(noisy, rate=0.5 / 1.1) == pytest.approx(1.1 / (1 - 0.5))


@pytest.mark.parametrize(("rate", "bound"), [(6.0, 3.953), (8.0, 7.889), (9.5, 31.513), (1e-9, 1.1)])
def test_release_when_free_is_bounded_by_inoue(rate: float, bound: float) -> None:
    """By phi1 when rows make much of the load, by phi0 when requests hardly ever meet."""
    assert release_when_free_bound_s(SERVICE, rate=rate) == pytest.approx(bound, abs=0.0006)


services = st.builds(
    lambda intercept, slope: ServiceTime(intercept_s=intercept, slope_s=slope),
    st.floats(0.001, 10),
    st.floats(0.001, 10),
)


@given(services, st.floats(0.01, 0.99), st.integers(1, 16), st.integers(1, 1000))
def test_no_ideal_is_better_than_the_bound(
    service: ServiceTime, load: float, workers: int, limit_rows: int
) -> None:
    """Paced batches and Inoue's bound lie above it, and it lies above one row on an idle worker."""
    rate = load * service.capacity(workers=workers, limit_rows=limit_rows)
    bound = lower_bound_s(service, rate=rate, workers=workers, limit_rows=limit_rows)

    assert service.mean(1) <= bound
    assert bound <= paced_mean_s(service, rate=rate, workers=workers, limit_rows=limit_rows)
    assert lower_bound_s(service, rate=rate, workers=workers + 1, limit_rows=limit_rows) <= bound
    alone = rate / workers
    assert lower_bound_s(service, rate=alone) <= release_when_free_bound_s(service, rate=alone) * (1 + 1e-9)
    assert smallest_mean_batch(service, rate=rate, workers=workers) <= limit_rows


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (
            lambda: unbatched_mean_s(SERVICE, rate=1.0),
            r"1 requests per second exceed the capacity of 0\.909091",
        ),
        (
            lambda: release_when_free_bound_s(SERVICE, rate=10.0),
            "10 requests per second exceed the capacity of 10",
        ),
        (
            lambda: lower_bound_s(SERVICE, rate=40.0, workers=4),
            "40 requests per second exceed the capacity of 40",
        ),
        (lambda: lower_bound_s(SERVICE, rate=35.0, workers=4, limit_rows=64), r"capacity of 34\.5946"),
        (lambda: paced_mean_s(SERVICE, rate=35.0, workers=4, limit_rows=64), r"capacity of 34\.5946"),
        (lambda: lower_bound_s(SERVICE, rate=0.0), "must be positive, got 0"),
        (lambda: unbatched_mean_s(SERVICE, rate=float("nan")), "must be positive, got nan"),
    ],
)
def test_what_cannot_be_is_refused(formula: Callable[[], float], message: str) -> None:
    """A load that grows the queue for ever, or no traffic at all."""
    with pytest.raises(ValueError, match=message):
        formula()


@pytest.mark.parametrize(
    "service",
    [
        ServiceTime(intercept_s=1.0, slope_s=0.1, buckets=(1, 8, 64)),
        ServiceTime(intercept_s=1.0, slope_s=0.1, speeds=(1.0, 2.0)),
        ServiceTime(intercept_s=1.0, slope_s=0.1, changes=((5.0, 2.0),)),
        ServiceTime(intercept_s=1.0, slope_s=0.1, noise_cv=0.1),
    ],
)
def test_what_no_formula_covers_is_refused(service: ServiceTime) -> None:
    """Rather than answered wrongly. Of noise two formulas know."""
    formulas: list[Callable[[], float]] = [
        lambda: release_when_free_bound_s(service, rate=0.1),
        lambda: paced_mean_s(service, rate=0.1),
    ]
    if not service.noise_cv:
        formulas.append(lambda: unbatched_mean_s(service, rate=0.1))
        formulas.append(lambda: lower_bound_s(service, rate=0.1))

    for formula in formulas:
        with pytest.raises(ValueError, match=r"got ServiceTime\(intercept_s=1.0"):
            formula()


# Against the simulator


@pytest.mark.long_run
@pytest.mark.parametrize("cv", [0.0, 0.5])
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_at_a_time_takes_as_long_as_theory_says(load: float, cv: float) -> None:
    """One worker without batching is an M/D/1 queue, and M/G/1 if batch times scatter."""
    service = ServiceTime(intercept_s=0.009, slope_s=0.001, noise_cv=cv)
    measured = measure(poisson(service, "none", rate=load / 0.010, count=10_000))

    expected = unbatched_mean_s(service, rate=measured.rate)
    assert measured.mean_s == pytest.approx(expected, abs=SURE * measured.error_s)
    assert measured.error_s < 0.05 * expected


@pytest.mark.long_run
@pytest.mark.parametrize("load", [0.1, 0.3, 0.6, 0.7, 0.8])
def test_release_when_free_takes_as_long_as_inoue_says(load: float) -> None:
    """Never longer than the bound, and within 2 percent of it where rows make 0.6 of the load or more."""
    service = ServiceTime(intercept_s=0.010, slope_s=0.001)
    measured = measure(poisson(service, "fixed:0", rate=load / 0.001, count=20_000))

    bound = release_when_free_bound_s(service, rate=measured.rate)
    assert measured.mean_s <= bound + SURE * measured.error_s
    assert measured.error_s < 0.02 * bound
    if load >= 0.6:
        assert measured.mean_s == pytest.approx(bound, rel=0.02)


@pytest.mark.long_run
@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("slope_s", [0.0001, 0.001, 0.010])
@pytest.mark.parametrize("policy", ["cork", "cork-classic", "fixed:0", "fixed:2", "none"])
def test_no_policy_is_better_than_the_bound(policy: str, slope_s: float, workers: int, load: float) -> None:
    """Whatever the model, the load and the workers; a mean below it would be a simulation that cheats."""
    service = ServiceTime(intercept_s=0.010, slope_s=slope_s)
    limit = 1 if policy == "none" else LIMIT
    rate = load * service.capacity(workers=workers, limit_rows=limit)
    run = poisson(service, policy, rate=rate, count=2000, workers=workers, limit_rows=limit)
    measured = measure(run)

    bound = lower_bound_s(service, rate=measured.rate, workers=workers, limit_rows=limit)
    assert len(run.answered) == 2000
    assert measured.mean_s >= bound - SURE * measured.error_s


@pytest.mark.long_run
@pytest.mark.parametrize("workers", [4, 8])
@pytest.mark.parametrize("load", [0.3, 0.5])
def test_cork_comes_near_to_the_paced_ideal(load: float, workers: int) -> None:
    """Within 15 percent, at loads at which release-when-free is 20 to 30 percent above it."""
    service = ServiceTime(intercept_s=0.010, slope_s=0.001)
    rate = rate_at(load, workers, service)
    measured = measure(poisson(service, "cork", rate=rate, count=10_000, workers=workers, limit_rows=LIMIT))

    paced = paced_mean_s(service, rate=measured.rate, workers=workers, limit_rows=LIMIT)
    assert measured.mean_s < 1.15 * paced
