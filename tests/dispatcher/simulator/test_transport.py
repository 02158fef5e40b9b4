"""Simulated runs whose batches and replies take time on the way."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from uncork_dispatcher.simulator.run import simulate
from uncork_dispatcher.simulator.scenario import Loss, Scenario
from uncork_dispatcher.simulator.service import ServiceTime
from uncork_dispatcher.simulator.traffic import Clients, open_loop

SERVICE = ServiceTime(intercept_s=0.010, slope_s=0.001)
FAR = 1e6
"""A goal so far off that it decides nothing."""


def crowded(**changes: object) -> Scenario:
    """Three times as many clients as go into a batch of 8, and 4 ms on the way there and back."""
    scenario = Scenario(
        service=SERVICE,
        arrivals=Clients(count=24, round_trip_s=0.001),
        limit_rows=8,
        goal_s=FAR,
        requests=2000,
        transport_s=0.004,
    )
    return dataclasses.replace(scenario, **changes)  # type: ignore[arg-type]


def test_a_lone_request_takes_its_time_and_the_way() -> None:
    """It starts at its worker after half of the way."""
    run = simulate(Scenario(service=SERVICE, arrivals=[1.0], transport_s=0.004))

    [answered], [batch] = run.answered, run.batches
    assert answered.finish == pytest.approx(1.0 + 0.004 + 0.011)
    assert (batch.started, batch.seconds) == pytest.approx((1.002, 0.011))


def test_a_crowded_worker_does_not_wait_for_its_batches() -> None:
    """All but the first batches are ahead, so that no transport lies between one and the next."""
    run = simulate(crowded())

    gaps = [
        after.started - before.started - before.seconds for before, after in itertools.pairwise(run.batches)
    ]
    late = gaps[len(gaps) // 2 :]
    assert min(gaps) >= -1e-9, "one batch at a time"
    assert sum(gap < 1e-9 for gap in late) > 0.95 * len(late)
    assert {batch.rows for batch in run.batches[len(gaps) // 2 : -3]} == {8}


@at_most(40)
@given(
    st.integers(1, 3),
    st.integers(1, 6),
    st.floats(0, 0.03),
    st.floats(0.2, 3.0),
    st.sampled_from(["cork", "fixed:0", "fixed:3", "none"]),
    st.floats(0.03, 0.5),
    st.integers(0, 1000),
)
def test_every_request_has_one_end(
    workers: int, limit_rows: int, transport_s: float, load: float, policy: str, goal_s: float, seed: int
) -> None:
    """Also if workers are lost with a batch ahead, or are abandoned."""
    random_ = random.Random(seed)
    rate = load * SERVICE.capacity(workers=workers, limit_rows=limit_rows)
    times = open_loop("poisson", rate=rate, count=150, random_=random_)
    losses: list[Loss] = []
    for at in sorted(random_.sample(times, 3)):
        loss = Loss(random_.randrange(workers), at, at + 0.02)
        if all(one.worker != loss.worker or one.back_at <= at for one in losses):
            losses.append(loss)
    run = simulate(
        Scenario(
            service=dataclasses.replace(SERVICE, noise_cv=0.3),
            arrivals=times,
            workers=workers,
            limit_rows=limit_rows,
            goal_s=goal_s,
            policy=policy,
            transport_s=transport_s,
            losses=tuple(losses),
            seed=seed,
        )
    )

    assert len(run.answered) + len(run.shed) + run.lost == len(times)
    free_at = [0.0] * workers
    for batch in sorted(run.batches, key=lambda batch: batch.started):
        assert batch.started >= free_at[batch.worker] - 1e-9, "one batch at a time"
        free_at[batch.worker] = batch.started + batch.seconds


def test_a_first_stage_takes_no_time_of_a_crowded_worker() -> None:
    """Each batch is prepared while the one before runs; the first one is not."""
    prepared = dataclasses.replace(SERVICE, prepare_s=0.001)
    plain, staged = [simulate(crowded(service=service)) for service in (SERVICE, prepared)]

    last, last_staged = plain.answered[-1].finish, staged.answered[-1].finish
    assert last < last_staged < 1.02 * last
    assert max(batch.seconds for batch in staged.batches[20:-3]) < 0.018 + 1e-6
    assert staged.batches[0].seconds == pytest.approx(0.001 + 0.011)


def test_responses_are_written_one_after_another() -> None:
    """A request that arrives meanwhile is read late; its latency counts from its arrival."""
    run = simulate(Scenario(service=SERVICE, arrivals=[1.0, 1.0, 1.013], response_s=0.004))

    assert [(one.arrival, one.finish) for one in run.answered] == [
        pytest.approx((1.0, 1.012 + 0.004)),
        pytest.approx((1.0, 1.012 + 0.008)),
        pytest.approx((1.013, 1.012 + 0.008 + 0.011 + 0.004)),
    ]
