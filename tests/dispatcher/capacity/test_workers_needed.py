"""The least number of workers."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_dispatcher.capacity.workers_needed import MOST_WORKERS, Load, Need, ScalingLimit, workers_needed
from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.simulator import Scenario, ServiceTime, open_loop, simulate

LOAD = Load(
    api="predict",
    rate_rows=1000.0,
    estimate=Estimate(intercept_s=0.05, slope_s=0.002, spread=0.1, earned_rows=100.0),
    goal_s=0.3,
    limit_rows=64,
)


def load(**changes: float) -> Load:
    """The load with other numbers; those of the estimate by their names."""
    estimate = {name: changes.pop(name) for name in list(changes) if name in Estimate._fields}
    return replace(LOAD, estimate=LOAD.estimate._replace(**estimate), **changes)  # type: ignore[arg-type]


def workers(*loads: Load) -> int:
    return workers_needed(loads).workers


LOADS = st.builds(
    load,
    rate_rows=st.floats(0.01, 5000),
    intercept_s=st.floats(0, 2),
    slope_s=st.floats(1e-5, 0.02),
    spread=st.floats(0, 1),
    goal_s=st.floats(0.02, 3),
    limit_rows=st.integers(1, 1000),
    smallest_rows=st.floats(0.5, 50),
    dispersion=st.floats(1, 50),
)


def in_reach(of: Load) -> bool:
    """Whether some number of workers meets its goal."""
    return workers_needed([of]).limit != "goal_out_of_reach"


@pytest.mark.parametrize("changed", ["rate_rows", "intercept_s", "slope_s"])
@given(LOADS, st.lists(LOADS, max_size=2), st.floats(1.01, 3))
def test_it_does_not_fall_with_more_arrivals_or_slower_batches(
    changed: str, of: Load, others: list[Load], times: float
) -> None:
    if changed == "rate_rows":
        more = replace(of, rate_rows=of.rate_rows * times)
    else:
        slower = of.estimate._replace(**{changed: getattr(of.estimate, changed) * times})
        more = replace(of, estimate=slower)

    if changed == "rate_rows" or in_reach(more):
        assert 1 <= workers(of, *others) <= workers(more, *others) <= MOST_WORKERS


@pytest.mark.parametrize(
    ("seconds", "limit", "expected"),
    [
        # Full batches: 1000 * (0.05 + 0.002 * 64) / 64 / 0.98 = 2.8
        (1.0, "throughput", 3),
        # The largest batch for this goal has 35 rows with 4 workers: 1000 * (0.05 + 0.002 * 35) / 35 = 3.4
        (0.2, "goal", 4),
    ],
)
def test_the_goal_or_the_arrivals_decide(seconds: float, limit: ScalingLimit, expected: int) -> None:
    assert workers_needed([load(goal_s=seconds)]) == Need(expected, "predict", limit)


def test_transport_is_taken_from_the_goal() -> None:
    assert workers(load(goal_s=0.25, transport_s=0.05)) == workers(load(goal_s=0.2))
    assert workers(load(goal_s=0.2, transport_s=0.05)) > workers(load(goal_s=0.2))


def test_bursts_and_scattering_batch_times_need_more() -> None:
    assert workers(load(goal_s=0.2, dispersion=16)) > workers(load(goal_s=0.2))
    assert workers(load(spread=0.3)) > workers(load(spread=0.1))
    assert workers(load(rate_rows=1e9)) == MOST_WORKERS


def test_batch_times_that_scatter_need_a_margin() -> None:
    tight = {"rate_rows": 5000.0, "goal_s": 0.2}
    assert workers(load(spread=0.151, **tight)) > workers(load(spread=0.15, **tight)) + 3


def test_a_goal_out_of_reach_takes_as_many_as_one_just_in_reach() -> None:
    """It does not take thousands, nor suddenly few."""
    near = [workers_needed([load(goal_s=goal_ms / 1000)]) for goal_ms in (10, 60, 71, 72, 73)]

    assert [need.limit for need in near] == ["goal_out_of_reach"] * 3 + ["goal"] * 2
    assert {need.workers for need in near[:3]} == {near[0].workers}
    assert all(20 < need.workers < 60 for need in near)


@pytest.mark.parametrize(("rate", "expected"), [(0.01, 2), (1.0, 3), (5.0, 5)])
def test_with_a_tight_goal_a_request_finds_an_idle_worker(rate: float, expected: int) -> None:
    """A batch of one row takes 0.2 s. For a goal of 0.27 s it may not wait for another."""
    assert workers(load(rate_rows=rate, intercept_s=0.198, goal_s=0.28)) == expected


def test_an_api_without_arrivals_needs_no_workers() -> None:
    assert workers_needed([load(rate_rows=0.0, earned_rows=0.0)]) == Need(1, None, "throughput")
    assert workers(LOAD, load(rate_rows=0.0, earned_rows=0.0)) == workers(LOAD)


def test_the_work_of_several_apis_adds_up() -> None:
    """Two halves of the traffic take about as many as the whole; none is wasted by rounding up for each."""
    half = load(rate_rows=10_000.0, goal_s=1.0)
    both = workers(half, replace(half, api="other"))

    assert both == workers(load(rate_rows=20_000.0, goal_s=1.0)) == 57


def test_the_api_that_takes_most_is_named() -> None:
    rare = replace(load(rate_rows=5.0), api="rare")

    assert workers_needed([rare, LOAD]) == workers_needed([LOAD, rare])
    assert workers_needed([rare, LOAD]).api == "predict"


SLOW = replace(load(rate_rows=0.1, intercept_s=2.0, goal_s=30.0), api="slow")


def test_another_api_is_waited_for() -> None:
    """A batch of 2 s every 10 s would keep the only worker from requests that must be answered in 0.3 s."""
    quick = load(rate_rows=10.0)

    assert workers(quick) == workers(SLOW) == 1
    assert workers(quick, SLOW) == 2
    assert workers(quick, replace(SLOW, estimate=quick.estimate)) == 1


def test_a_batch_that_takes_longer_than_another_goal_needs_a_worker_of_its_own() -> None:
    """The six workers have time left for it on average, but not while it runs."""
    quick, slow = load(rate_rows=2000.0, goal_s=1.0), replace(SLOW, rate_rows=1.0)
    patient = replace(quick, goal_s=5.0)

    assert [workers(quick), workers(quick, slow)] == [6, 7]
    assert [workers(patient), workers(patient, slow)] == [6, 6]


def in_goal(one: Load, count: int) -> float:
    """Share of the requests that simulations answer within the goal."""
    return fmean(in_goal_with_seed(one, count, seed) for seed in (4, 5, 6))


def in_goal_with_seed(one: Load, count: int, seed: int) -> float:
    estimate = one.estimate
    times = open_loop("poisson", rate=one.rate_rows, count=6000, random_=random.Random(seed))
    run = simulate(
        Scenario(
            service=ServiceTime(
                intercept_s=estimate.intercept_s, slope_s=estimate.slope_s, noise_cv=estimate.spread
            ),
            arrivals=times,
            workers=count,
            limit_rows=int(one.limit_rows),
            goal_s=one.goal_s,
        )
    )
    begin = times[1500]
    inside = sum(each.arrival >= begin and each.finish - each.arrival <= one.goal_s for each in run.answered)
    return inside / (len(times) - 1500)


@pytest.mark.long_run
@pytest.mark.parametrize("goal_s", [0.2, 0.4, 1.0])
def test_one_more_keeps_the_goal_and_two_fewer_do_not(goal_s: float) -> None:
    """A small sample of models and loads."""
    one = load(rate_rows=2000.0, goal_s=goal_s)
    found = workers(one)

    assert in_goal(one, found + 1) >= 0.99
    assert in_goal(one, found - 2) < 0.99
