"""Whole simulated runs: invariants of all policies, and runs that are known exactly."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatcher.wrapped_core import WrappedCore, note_sources
from tests.examples import at_most
from uncork_dispatcher.actions import Action
from uncork_dispatcher.simulator.run import simulate
from uncork_dispatcher.simulator.scenario import Loss, Run, Scenario, SimulatedBatch
from uncork_dispatcher.simulator.service import ServiceTime
from uncork_dispatcher.simulator.traffic import Clients, Sources, open_loop

PROPERTY = at_most(60)
POLICIES = ["cork", "cork-classic", "fixed:0", "fixed:3", "aimd", "none"]
SERVICE = ServiceTime(intercept_s=0.010, slope_s=0.001)
FAR = 1e6
"""A goal so far off that it decides nothing."""
SOURCES: tuple[Sources, ...] = get_args(Sources)
ROUNDING = 1e-9
# A fraction of a second of which sums are exact, so that things happen at the very same time.
TICK = 2.0**-10

policies = st.sampled_from(POLICIES)
few_policies = pytest.mark.parametrize("policy", ["cork", "fixed:3", "aimd"])
ticks = st.integers(0, 12).map(lambda count: count * TICK)
arrivals = st.lists(st.sampled_from([0.0, 0.0, TICK, 3 * TICK, 20 * TICK]), min_size=1, max_size=60).map(
    lambda gaps: list(itertools.accumulate(gaps))
)
services = st.builds(
    lambda intercept, slope: ServiceTime(intercept_s=TICK + intercept, slope_s=slope), ticks, ticks
)


def busy(policy: str = "cork", *, count: int = 2000, workers: int = 2, load: float = 0.7) -> Scenario:
    """Workers at 0.7 of what they can carry; without batching, of what single rows leave of that."""
    limit = 1 if policy == "none" else 64
    rate = load * SERVICE.capacity(workers=workers, limit_rows=limit)
    times = open_loop("poisson", rate=rate, count=count, random_=random.Random(1))
    return Scenario(service=SERVICE, arrivals=times, workers=workers, policy=policy, goal_s=FAR)


@pytest.fixture
def polled(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times at which the core is polled, without the polls that only find that nothing is left to do."""
    times: list[float] = []
    last: list[Action] = []

    def noting(poll: Callable[[float], list[Action]]) -> Callable[[float], list[Action]]:
        def noted(now: float) -> list[Action]:
            nonlocal last
            if not last or times[-1] < now:
                times.append(now)
            last = poll(now)
            return last

        return noted

    monkeypatch.setattr("uncork_dispatcher.simulator.run.Dispatcher", lambda: WrappedCore("poll", noting))
    return times


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """How many of these (begin, end) overlap at most; one that ends makes room at that instant."""
    steps = sorted(step for begin, end in spans for step in ((begin, 1), (end, -1)))
    now = most = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def end_of(batch: SimulatedBatch) -> float:
    return batch.started + batch.seconds


def check_batches(run: Run, scenario: Scenario) -> None:
    """One batch per worker at a time, none above the limit; together they carry the answered requests."""
    free_at = [0.0] * scenario.workers
    for batch in sorted(run.batches, key=lambda batch: (batch.started, batch.seconds)):
        assert batch.started >= free_at[batch.worker] - ROUNDING
        free_at[batch.worker] = end_of(batch)
        assert batch.rows <= scenario.limit_rows or batch.requests == 1
    answered = iter(run.answered)
    for batch in run.batches:
        for one in itertools.islice(answered, batch.requests):
            assert one.arrival <= batch.started
            assert one.finish == pytest.approx(end_of(batch), abs=ROUNDING)
    assert next(answered, None) is None


def ends(run: Run) -> list[tuple[float, float]]:
    """Arrival and finish of every answered request, to the microsecond."""
    return [(one.arrival, round(one.finish, 6)) for one in run.answered]


@PROPERTY
@given(
    arrivals,
    services,
    policies,
    st.integers(1, 4),
    st.integers(1, 8),
    st.just([])
    | st.lists(st.tuples(st.integers(0, 2), st.floats(0, 0.3), st.floats(0.001, 0.1)), max_size=6),
)
def test_every_request_has_one_end(
    times: list[float],
    service: ServiceTime,
    policy: str,
    workers: int,
    limit_rows: int,
    deaths: list[tuple[int, float, float]],
) -> None:
    """Unless workers die, an answer, from a batch that a worker had to itself. A cut-off one is none."""
    losses = tuple(Loss(worker % workers, at, at + away) for worker, at, away in deaths)
    scenario = Scenario(
        service=service,
        arrivals=times,
        workers=workers,
        limit_rows=limit_rows,
        policy=policy,
        goal_s=FAR,
        losses=losses,
    )
    run = simulate(scenario)

    assert len(run.answered) + len(run.shed) + run.lost == len(times)
    assert sum(batch.requests for batch in run.batches) == len(run.answered)
    for loss, batch in itertools.product(losses, run.batches):
        cut = batch.started < loss.at < end_of(batch) - ROUNDING
        assert batch.worker != loss.worker or not cut
    if not losses:
        assert sorted(one.arrival for one in run.answered) == times
        assert all(one.finish - one.arrival >= service.mean(1) - 1e-12 for one in run.answered)
        check_batches(run, scenario)


@PROPERTY
@given(
    st.builds(Clients, count=st.integers(1, 30), round_trip_s=ticks, think_s=ticks, jitter=st.floats(0, 1)),
    services,
    policies,
    st.integers(1, 4),
    st.integers(1, 80),
    st.sampled_from(SOURCES),
    st.integers(0, 100),
)
def test_a_closed_loop_is_never_fuller_than_its_clients(  # one argument for each part of a scenario
    clients: Clients,
    service: ServiceTime,
    policy: str,
    workers: int,
    requests: int,
    sources: Sources,
    seed: int,
) -> None:
    """Each has one request under way at most; together they send as many as they should, and no more."""
    scenario = Scenario(
        service=service,
        arrivals=clients,
        workers=workers,
        limit_rows=16,
        policy=policy,
        goal_s=FAR,
        requests=requests,
        sources=sources,
        seed=seed,
    )
    run = simulate(scenario)

    assert len(run.answered) == requests
    assert (run.shed, run.lost) == ([], 0)
    assert most_at_once((one.arrival, one.finish) for one in run.answered) <= clients.count
    check_batches(run, scenario)


def test_a_client_comes_back_after_its_pause() -> None:
    """Alone with an idle worker: pause, 11 ms, pause, 11 ms."""
    clients = Clients(count=1, round_trip_s=0.002, think_s=0.1, jitter=0.5)
    run = simulate(Scenario(service=SERVICE, arrivals=clients, requests=50, policy="none"))

    pauses = [after.arrival - before.finish for before, after in itertools.pairwise(run.answered)]
    assert [one.finish - one.arrival for one in run.answered] == pytest.approx([0.011] * 50)
    assert all(0.051 <= pause <= 0.153 for pause in pauses)
    assert max(pauses) - min(pauses) > 0.05


def test_a_refused_client_comes_back_too() -> None:
    """Four clients of whom the goal leaves room for fewer: all requests are sent, and answered or shed."""
    scenario = Scenario(service=SERVICE, arrivals=Clients(count=4), requests=500, policy="none", goal_s=0.025)
    run = simulate(scenario)

    assert len(run.answered) + len(run.shed) == 500
    assert min(len(run.answered), len(run.shed)) > 10


@pytest.mark.parametrize("sources", SOURCES)
def test_the_same_seed_gives_the_same_closed_loop(sources: Sources) -> None:
    scenario = Scenario(service=SERVICE, arrivals=Clients(count=8), requests=300, sources=sources)

    assert simulate(scenario) == simulate(scenario)
    assert simulate(scenario) != simulate(dataclasses.replace(scenario, seed=2))


def test_a_pool_uses_the_connection_that_was_free_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two come together on new ones, which are free again at 11 ms in the order of their answers."""
    seen = note_sources(monkeypatch, "uncork_dispatcher.simulator.run")
    times = [0.0, 0.0, 0.002, 0.1, 0.2]
    simulate(Scenario(service=SERVICE, arrivals=times, workers=3, policy="none", sources="pool"))

    assert seen == [0, 1, 2, 2, 2]


def greedy(
    times: Sequence[float], service: ServiceTime, *, workers: int, limit_rows: int
) -> list[tuple[float, int]]:
    """Start and size of each batch if the next free worker takes all queued requests.

    The recursion of Kiefer and Wolfowitz 1955, with batches.
    """
    free = [0.0] * workers
    batches = []
    first = 0
    while first < len(times):
        start = max(heapq.heappop(free), times[first])
        rows = min(limit_rows, sum(time <= start for time in times[first:]))
        batches.append((start, rows))
        heapq.heappush(free, start + service.mean(rows))
        first += rows
    return batches


@PROPERTY
@given(arrivals, services, st.integers(1, 4), st.integers(1, 8))
def test_release_when_free_is_the_textbooks_recursion(
    times: list[float], service: ServiceTime, workers: int, limit_rows: int
) -> None:
    """Batch for batch: who comes as a worker becomes free is still taken along."""
    scenario = Scenario(
        service=service,
        arrivals=times,
        workers=workers,
        limit_rows=limit_rows,
        policy="fixed:0",
        goal_s=FAR,
    )
    run = simulate(scenario)

    expected = greedy(times, service, workers=workers, limit_rows=limit_rows)
    assert sorted((batch.started, batch.rows) for batch in run.batches) == sorted(expected)


def test_batches_are_told_as_they_ran() -> None:
    """Five requests on one worker: the first alone, then three that fit, then the rest."""
    times = [0.0, 0.001, 0.002, 0.003, 0.004]
    run = simulate(Scenario(service=SERVICE, arrivals=times, limit_rows=3, policy="fixed:0"))

    assert [
        (one.worker, round(one.started, 6), round(one.seconds, 6), one.rows, one.requests, one.reason)
        for one in run.batches
    ] == [
        (0, 0.0, 0.011, 1, 1, "deadline"),
        (0, 0.011, 0.013, 3, 3, "full"),
        (0, 0.024, 0.011, 1, 1, "deadline"),
    ]
    assert ends(run) == list(zip(times, [0.011, 0.024, 0.024, 0.024, 0.035], strict=True))
    assert run.batches[0].predicted_s == 0.0
    assert run.batches[1].predicted_s > 0.011


@few_policies
def test_a_death_in_mid_run_loses_nobody(policy: str) -> None:
    """Its batch is run once more elsewhere, and nothing runs on the dead worker until it is back."""
    untroubled = busy(policy, count=800, load=0.4)
    cut = next(one for one in simulate(untroubled).batches if one.worker == 0 and one.started > 0.4)
    dies = cut.started + cut.seconds / 2
    scenario = dataclasses.replace(untroubled, losses=(Loss(0, at=dies, back_at=dies + 0.3),))
    run = simulate(scenario)

    assert cut not in run.batches
    assert (len(run.answered), run.shed, run.lost) == (800, [], 0)
    assert sorted(one.arrival for one in run.answered) == scenario.arrivals
    mine = [batch for batch in run.batches if batch.worker == 0]
    assert not [batch for batch in mine if batch.started < dies + 0.3 and end_of(batch) > dies]
    assert any(end_of(batch) < dies for batch in mine)
    assert any(batch.started >= dies + 0.3 for batch in mine)
    check_batches(run, scenario)


@pytest.mark.parametrize("at", [0.005, SERVICE.mean(1)])
def test_a_batch_that_is_cut_off_starts_again_at_once(at: float, polled: list[float]) -> None:
    """On the worker that is idle, even if it would end now; at that end nobody asks the core."""
    losses = (Loss(0, at=at, back_at=1.0),)
    run = simulate(Scenario(service=SERVICE, arrivals=[0.0], workers=2, losses=losses))

    assert [(one.worker, one.started) for one in run.batches] == [(1, at)]
    assert ends(run) == [(0.0, round(at + SERVICE.mean(1), 6))]
    assert [round(time, 6) for time in polled] == [0.0, at, 1.0]


def test_a_request_that_is_cut_off_three_times_is_lost() -> None:
    """It is counted; the other of its batch is tried after it, and the next one is served."""
    losses = tuple(Loss(0, at=at, back_at=at + 0.001) for at in (0.005, 0.008, 0.011))
    run = simulate(Scenario(service=SERVICE, arrivals=[0.0, 0.0, 0.5], losses=losses))

    assert run.lost == 1
    assert ends(run) == [(0.0, 0.023), (0.5, 0.511)]


def test_a_batch_that_hangs_is_given_up() -> None:
    """After the minute that a batch may run; the worker is replaced and serves the next."""
    sizes = iter([1.0, 1.0, 0.001])
    service, arrivals = ServiceTime(intercept_s=0.0, slope_s=61.0), [0.0, 0.0, 110.0]
    run = simulate(Scenario(service=service, arrivals=arrivals, policy="fixed:0", rows=lambda _: next(sizes)))

    assert run.lost == 2
    assert ends(run) == [(110.0, 110.061)]


@few_policies
def test_a_long_run_asks_the_core_seldom(policy: str, polled: list[float]) -> None:
    """At most once for each time at which a request comes or a batch ends, and at a few timers."""
    run = simulate(busy(policy, count=1000, workers=4))

    events = 1000 + len(run.batches)
    assert len(run.answered) == 1000
    assert 0.5 * events < len(polled) < 1.2 * events
