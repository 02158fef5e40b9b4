"""The simulator against closed forms: each shows that the other is right."""

from __future__ import annotations

import pytest

from tests.dispatcher.simulator.measure import measure, poisson
from tests.dispatcher.simulator.theory import (
    lower_bound_s,
    release_when_free_bound_s,
    unbatched_mean_s,
)
from uncork_dispatcher.simulator.service import ServiceTime

LIMIT = 64
# How many standard errors a right simulation may be off: 3 of 1000 seeds are further off.
SURE = 3.0

pytestmark = pytest.mark.long_run


@pytest.mark.parametrize("cv", [0.0, 0.5])
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_at_a_time_takes_as_long_as_theory_says(load: float, cv: float) -> None:
    """One worker without batching is an M/D/1 queue, and M/G/1 if batch times scatter."""
    service = ServiceTime(intercept_s=0.009, slope_s=0.001, noise_cv=cv)
    measured = measure(poisson(service, "none", rate=load / 0.010, count=10_000))

    expected = unbatched_mean_s(service, rate=measured.rate)
    assert measured.mean_s == pytest.approx(expected, abs=SURE * measured.error_s)
    assert measured.error_s < 0.05 * expected


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

    bound = lower_bound_s(service, rate=measured.rate, workers=workers)
    assert len(run.answered) == 2000
    assert measured.mean_s >= bound - SURE * measured.error_s
