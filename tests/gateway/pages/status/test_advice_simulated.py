"""Advice holds in a simulation: after the change, the measurement is as the text says."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.gateway.pages.status.simulated import figures_of, mean_latency, throughput
from uncork_dispatcher.simulator import Clients, Scenario, ServiceTime, open_loop
from uncork_gateway.pages.status.advise import advice_for
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.names import SERVICE

pytestmark = pytest.mark.slow

POWERS = [1, 2, 4, 8, 16]
MODELS = [(0.050, 0.002), (0.010, 0.002), (0.0001, 0.002), (0.020, 0.0)]
_CLEARLY = 1.1


def scenario(model: tuple[float, float], clients: int, **changes: object) -> Scenario:
    """Return clients that send a row each, and send again 1 ms after the answer."""
    made = Scenario(
        service=ServiceTime(intercept_s=model[0], slope_s=model[1]),
        arrivals=Clients(count=clients, round_trip_s=0.001),
        limit_rows=16,
        goal_s=10.0,
        requests=1200,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def arriving(model: tuple[float, float], rate: float, *, count: int = 700, **changes: object) -> Scenario:
    """Return requests that arrive at random; full batches need more of them for a state that lasts."""
    arrivals = tuple(open_loop("poisson", rate=rate, count=count, random_=random.Random(1)))
    return scenario(model, 1, arrivals=arrivals, **changes)


def codes(made: Figures) -> set[str]:
    return {one.code for one in advice_for(made, SERVICE)}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("clients", [1, 16, 24, 64])
def test_a_larger_cap_answers_more_where_it_is_advised(model: tuple[float, float], clients: int) -> None:
    now = scenario(model, clients)
    made = figures_of(now, profile=POWERS)
    gain = throughput(replace(now, limit_rows=32)) / throughput(now)

    assert gain >= _CLEARLY or "raise_cap" not in codes(made)
    assert gain < 1.3 or "raise_cap" in codes(made)
    assert (made.limited_by == "cap") == ("raise_cap" in codes(made))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("cold_s", [0.0, 0.1])
def test_batches_of_one_size_promise_nothing_of_larger_ones(
    model: tuple[float, float], cold_s: float
) -> None:
    """A slow first batch makes the line flat: then it would seem that twice the cap answers twice as much."""
    made = figures_of(scenario(model, 32), cold_s=cold_s)

    assert made.limited_by == "workers"
    assert codes(made) == {"add_workers"}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("goal_s", [0.06, 0.4])
@pytest.mark.parametrize("load", [0.5, 3.0])
@pytest.mark.parametrize("cap", [16, 200])
def test_a_longer_goal_answers_more_where_it_is_advised(
    model: tuple[float, float], goal_s: float, load: float, cap: int
) -> None:
    rate = load * 16 / sum((model[0], 16 * model[1]))
    now = arriving(model, rate, count=2500 if load > 1 else 700, goal_s=goal_s, limit_rows=cap)
    made = figures_of(now, profile=POWERS)
    given = codes(made)
    gain = throughput(replace(now, goal_s=2 * goal_s)) / throughput(now)

    assert gain >= _CLEARLY or "raise_goal" not in given
    assert gain < 1.5 or "raise_goal" in given
    assert (made.limited_by == "goal") == ("raise_goal" in given)
    assert "raise_batch_bytes" not in given, "batches are full for the goal, not of bytes"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("load", [0.6, 2.0])
@pytest.mark.parametrize("policy", ["cork", "none"])
def test_more_workers_answer_more_where_they_are_advised(
    model: tuple[float, float], load: float, policy: str
) -> None:
    rows = 1 if policy == "none" else 16
    rate = load * rows / (model[0] + rows * model[1])
    now = arriving(model, rate, count=1200 if policy == "none" else 2500, policy=policy, goal_s=0.5)
    made = figures_of(now, profile=POWERS)
    advised = "add_workers" in codes(made)

    assert advised == (made.limited_by != "nothing") == (load > 1)
    if advised:
        more = replace(now, workers=1 + made.missing_workers)
        assert throughput(more) >= _CLEARLY * throughput(now)
        assert figures_of(more, profile=POWERS).limited_by == "nothing"


@pytest.mark.parametrize("model", MODELS)
def test_single_requests_are_as_slow_as_the_advice_about_the_slope_says(model: tuple[float, float]) -> None:
    now = scenario(model, 32)
    gain = throughput(now) / throughput(replace(now, policy="none"))

    assert ("slope_dominated" in codes(figures_of(now, profile=POWERS))) == (gain < 1.2)


@pytest.mark.parametrize("model", MODELS[:2])
@pytest.mark.parametrize("clients", [2, 8, 32])
def test_cork_answers_more_than_policy_none(model: tuple[float, float], clients: int) -> None:
    none = scenario(model, clients, policy="none")

    assert "policy_none" in codes(figures_of(none))
    assert throughput(replace(none, policy="cork")) >= throughput(none)


@pytest.mark.parametrize("model", MODELS[1:])
def test_cork_is_faster_than_a_window_that_merges_little(model: tuple[float, float]) -> None:
    window = arriving(model, 5.0, policy="fixed:60")

    assert "fixed_window" in codes(figures_of(window))
    assert mean_latency(replace(window, policy="cork")) < mean_latency(window)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("load", [0.1, 0.5])
def test_larger_batches_would_be_slower_at_a_low_rate(model: tuple[float, float], load: float) -> None:
    now = arriving(model, load / (model[0] + model[1]))

    assert "thin_traffic" in codes(figures_of(now, profile=POWERS))
    assert mean_latency(now) < mean_latency(replace(now, policy="fixed:50"))
