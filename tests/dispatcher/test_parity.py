"""The simulator and the asyncio shell take the same decisions.

Both run the same arrivals on workers that take the same time, one in the simulator's own loop, one on an
asyncio loop of virtual time, and every batch must be the same: who is in it, where and when it ran, why it
was released, what was predicted.

All times lie between 8 and 16 seconds. There the difference of two floats, and the sum of a float and such a
difference, have no rounding error, so that the loop's timers fire at exactly the times that the core named,
and things that are meant to happen at one instant do. They are on a grid of a 4096th of a second, to meet
often.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.dispatcher.shell import shell_of
from tests.dispatcher.virtual_loop import VirtualLoop
from tests.examples import at_most
from tests.loops import run
from uncork_dispatcher.asyncio_dispatcher import AsyncDispatcher
from uncork_dispatcher.errors import RequestShed, WorkerLost
from uncork_dispatcher.jobs import BatchResult, payloads_of
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.simulator.run import simulate
from uncork_dispatcher.simulator.scenario import Loss, Scenario
from uncork_dispatcher.simulator.service import ServiceTime
from uncork_dispatcher.simulator.traffic import Clients
from uncork_dispatcher.tasks import TaskRunner

pytestmark = pytest.mark.slow

PROPERTY = at_most(30)
START = 8.0
GRID = 2.0**-12
FIXED = f"fixed:{15 * GRID * 1000}"
POLICIES = ["cork", "cork-classic", FIXED, "aimd", "none"]
FAR = 1e6
TIMES = st.sets(st.integers(0, 150), max_size=8)


class ToldBatch(NamedTuple):
    """One batch as both tell it."""

    started: float
    worker: int
    seconds: float
    arrivals: tuple[float, ...]
    rows: float
    reason: str
    predicted_s: float


class Refusal(NamedTuple):
    """One request that was shed."""

    request: int
    at: float
    reason: str


@dataclass
class Story:
    """What happened, in an order that does not depend on who tells it."""

    batches: list[ToldBatch] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    lost: int = 0

    def sorted(self) -> Story:
        return Story(sorted(self.batches), sorted(self.refused), self.lost)


def simulated(scenario: Scenario) -> Story:
    run = simulate(scenario)
    answered = iter(run.answered)
    batches = [
        ToldBatch(
            one.started,
            one.worker,
            one.seconds,
            tuple(each.arrival for each in itertools.islice(answered, one.requests)),
            one.rows,
            one.reason,
            one.predicted_s,
        )
        for one in run.batches
    ]
    refused = [Refusal(shed.request, at, shed.reason) for at, shed in run.shed]
    return Story(batches, refused, run.lost).sorted()


def live(scenario: Scenario, rows: Sequence[int]) -> Story:
    return run(_Live(scenario, rows).story(), loop_factory=_Loop).sorted()


class _Loop(VirtualLoop):
    """A virtual loop with alarms for whatever comes from outside: requests, answers of workers, deaths.

    At one time they ring in the order in which they were set, and before the loop's own timers, as in the
    simulator. In reality that order is chance, and timers of asyncio that are due at one time have none.
    The called code must need exactly one more step of the loop to tell the shell, as tasks do that wake up.
    """

    def __init__(self) -> None:
        super().__init__()
        self._alarms: dict[float, list[Callable[[], object]]] = {}

    def alarm(self, time: float, call: Callable[[], object]) -> None:
        """Call at ``time``, which lies ahead."""
        if time not in self._alarms:
            self._alarms[time] = []
            self.call_at(time, lambda: None)  # so that the clock stops there
        self._alarms[time].append(call)

    def _process_events(self, event_list: list[Any]) -> None:
        # The loop's hook for what comes from outside, called before it looks at its timers.
        super()._process_events(event_list)  # type: ignore[misc]
        for call in self._alarms.pop(self.time(), ()):
            call()


class _Live:
    """The shell, its callers and its workers, on the clock of a virtual loop."""

    def __init__(self, scenario: Scenario, rows: Sequence[int]) -> None:
        self._scenario = scenario
        self._rows = rows
        self._told = Story()
        self._working: dict[int, asyncio.Future[None]] = {}
        self._callers: list[asyncio.Task[None]] = []
        self._batches: dict[int, Batch[Any]] = {}

    async def story(self) -> Story:
        """Let everything happen."""
        scenario = self._scenario
        times = scenario.arrivals
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Loop)
        assert not isinstance(times, Clients)
        self._shell: AsyncDispatcher[None, None] = shell_of(TaskRunner(self._work))
        self._shell.set_api(
            ApiRules(
                name="simulated",
                goal_s=scenario.goal_s,
                max_batch_rows=scenario.limit_rows,
                policy=scenario.policy,
                max_queue_rows=10**9,
                max_queue_requests=10**9,
            )
        )
        for worker in range(scenario.workers):
            self._ready(worker)
        for number, time in enumerate(times):
            loop.alarm(time, partial(self._arrive, number))
        for loss in scenario.losses:
            loop.alarm(loss.at, partial(self._lose, loss.worker))
            loop.alarm(loss.back_at, partial(loop.call_soon, self._ready, loss.worker))
        await asyncio.sleep(times[-1] + GRID)
        await asyncio.gather(*self._callers)
        self._told.batches = [
            ToldBatch(
                batch.started,
                batch.worker,
                batch.seconds,
                tuple(request.arrival for request in batch.requests),
                batch.rows,
                batch.reason,
                batch.predicted_s,
            )
            for batch in self._batches.values()
        ]
        return self._told

    def _ready(self, worker: int) -> None:
        self._shell.worker_ready(worker, host=worker % self._scenario.hosts)

    def _arrive(self, number: int) -> None:
        self._callers.append(asyncio.ensure_future(self._call(number)))

    async def _call(self, number: int) -> None:
        try:
            answer = await self._shell.call("simulated", None, rows=self._rows[number])
        except RequestShed as shed:
            now = asyncio.get_running_loop().time()
            self._told.refused.append(Refusal(number + 1, now, shed.reason))
        except WorkerLost:
            self._told.lost += 1
        else:
            self._batches[answer.batch.number] = answer.batch

    async def _work(self, job: Batch[Any]) -> BatchResult[None]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Loop)
        start = job
        seconds = self._scenario.service.draw(
            start.rows, start.padded, worker=start.worker, random_=random.Random(0)
        )
        done = self._working[start.worker] = loop.create_future()
        loop.alarm(loop.time() + seconds, partial(self._finish, done))
        await done
        return BatchResult([None] * len(payloads_of(job)))

    def _finish(self, working: asyncio.Future[None]) -> None:
        if not working.done():
            working.set_result(None)

    def _lose(self, worker: int) -> None:
        working = self._working.pop(worker, None)
        if working is None or working.done():
            asyncio.get_running_loop().call_soon(self._shell.worker_lost, worker)
        else:
            working.set_exception(WorkerLost("died"))


@dataclass(frozen=True)
class Pattern:
    """What both are given."""

    arrivals: list[float]
    rows: list[int]
    service: ServiceTime
    workers: int
    limit_rows: int
    hosts: int = 1

    def scenario(self, policy: str, *, goal_s: float = FAR, losses: tuple[Loss, ...] = ()) -> Scenario:
        """For the simulator. Made anew for each run, because the rows are used up."""
        rows = iter(self.rows)
        return Scenario(
            service=self.service,
            arrivals=self.arrivals,
            workers=self.workers,
            hosts=min(self.hosts, self.workers),
            limit_rows=self.limit_rows,
            goal_s=goal_s,
            policy=policy,
            rows=lambda _: next(rows),
            losses=losses,
        )


@st.composite
def patterns(draw: st.DrawFn, *, gaps: Sequence[int] = (0, 0, 1, 4, 9, 16, 40), least: int = 1) -> Pattern:
    """Up to 40 requests, many at the same time, and maybe a pause after which ``cork-classic`` fits again."""
    times = list(itertools.accumulate(draw(st.lists(st.sampled_from(gaps), min_size=least, max_size=40))))
    pause = draw(st.integers(0, len(times)))
    times[pause:] = [time + round(5.5 / GRID) for time in times[pause:]]
    rows = st.lists(st.sampled_from([1, 1, 1, 2, 3]), min_size=len(times), max_size=len(times))
    service = ServiceTime(
        intercept_s=draw(st.integers(1, 40)) * GRID,
        slope_s=draw(st.integers(0, 8)) * GRID,
        speeds=draw(st.sampled_from([(), (1.0, 2.0)])),
    )
    return Pattern(
        arrivals=[START + time * GRID for time in times],
        rows=draw(rows),
        service=service,
        workers=draw(st.integers(1, 4)),
        limit_rows=draw(st.sampled_from([1, 4, 64])),
        hosts=draw(st.integers(1, 2)),
    )


@pytest.mark.parametrize("policy", POLICIES)
@PROPERTY
@given(
    pattern=patterns(gaps=(0, 0, 1, 4), least=25), goal_s=st.integers(20, 100).map(lambda ticks: ticks * GRID)
)
def test_they_refuse_the_same_requests(policy: str, pattern: Pattern, goal_s: float) -> None:
    """At the same time and for the same reason, when the goal leaves no room for all."""
    told = live(pattern.scenario(policy, goal_s=goal_s), pattern.rows)

    assert told == simulated(pattern.scenario(policy, goal_s=goal_s))
    event(f"{policy} refused some: {bool(told.refused)}")


@st.composite
def deaths(draw: st.DrawFn) -> tuple[Loss, ...]:
    """Up to 4 deaths of workers, a quarter of the grid away from all other events."""
    times = [START + (time + 0.25) * GRID for time in sorted(draw(TIMES))]
    return tuple(
        Loss(draw(st.integers(0, 1)), at, back_at)
        for at, back_at in zip(times[::2], times[1::2], strict=False)
    )


@pytest.mark.parametrize("policy", POLICIES)
@PROPERTY
@given(pattern=patterns(), losses=st.just(()) | deaths())
def test_they_take_the_same_decisions(policy: str, pattern: Pattern, losses: tuple[Loss, ...]) -> None:
    """Also when workers die."""
    losses = tuple(loss._replace(worker=loss.worker % pattern.workers) for loss in losses)
    told = live(pattern.scenario(policy, losses=losses), pattern.rows)

    assert told == simulated(pattern.scenario(policy, losses=losses))
    held = any(batch.started not in pattern.arrivals for batch in told.batches)
    event(f"{policy} held: {held}; lost some: {bool(told.lost)}")
    answered = sum(len(batch.arrivals) for batch in told.batches)
    assert answered + told.lost + len(told.refused) == len(pattern.arrivals)


def test_a_batch_that_was_cut_off_decides_nothing() -> None:
    """Else the policy is asked once more, with a rate that has fallen since, and holds for another time."""
    pattern = Pattern(
        arrivals=[START] + [START + GRID] * 13,
        rows=[1, 1, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1],
        service=ServiceTime(intercept_s=GRID, slope_s=6 * GRID),
        workers=3,
        limit_rows=4,
    )
    losses = (Loss(0, START + 7.25 * GRID, START + 20.25 * GRID),)

    told = live(pattern.scenario("cork", losses=losses), pattern.rows)

    assert told == simulated(pattern.scenario("cork", losses=losses))
