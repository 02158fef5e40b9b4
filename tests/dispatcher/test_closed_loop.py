"""The core: what policies see of clients that wait for their answers, and batches that are complete."""

from __future__ import annotations

import math

import pytest

from tests.dispatcher.driver import poll_all, starts
from uncork_dispatcher.actions import Start
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.policies.base import REGISTERED, ClosedLoop, Hold, Policy, Release, View
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.simulator.cells import Cell
from uncork_dispatcher.simulator.measure import measure


class Planner(Policy):
    """Releases when free; keeps the loops that it has seen, and takes ``complete`` rows for a batch."""

    loops: list[ClosedLoop | None]
    complete = math.inf

    def __init__(self, *, limit_rows: int) -> None:
        super().__init__(limit_rows=limit_rows)
        self.loops = []

    def decide(self, view: View) -> Release | Hold:
        return Release(self.limit_rows, "idle")

    def plan(self, loop: ClosedLoop | None) -> None:
        self.loops.append(loop)
        self.complete_rows = self.complete


class Stage:
    """A core whose API ``a`` has a policy that plans."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        complete: float = math.inf,
        workers: int = 1,
        **rules: object,
    ) -> None:
        self.planners: list[Planner] = []

        class Watched(Planner):
            def __init__(planner, *, limit_rows: int) -> None:
                super().__init__(limit_rows=limit_rows)
                planner.complete = complete
                self.planners.append(planner)

        monkeypatch.setitem(REGISTERED, "planner", Watched)
        self.core = Dispatcher()
        self.core.set_api(ApiRules(**{"name": "a", "policy": "planner", "goal_s": 9.0, **rules}))  # type: ignore[arg-type]
        self.core.set_api(ApiRules(name="b", goal_s=9.0))
        self.now = 0.0
        self.requests = 0
        for worker in range(workers):
            self.core.worker_ready(worker, now=0.0, takes_ahead=True)

    @property
    def loops(self) -> list[ClosedLoop | None]:
        return [loop for planner in self.planners for loop in planner.loops]

    def submit(self, clients: int, *, api: str = "a", first: int = 0, **size: float) -> None:
        """Clients with these numbers send a request each."""
        for client in range(first, first + clients):
            self.requests += 1
            self.core.submit(self.requests, api=api, now=self.now, source=(api, client), **size)  # type: ignore[arg-type]

    def start(self) -> Start:
        [start] = starts(poll_all(self.core, self.now))
        return start

    def done(self, start: Start, *, took_s: float = 0.25, late_s: float = 0.0) -> None:
        """A batch ends ``took_s`` after now; the driver reports it ``late_s`` later."""
        self.now += took_s + late_s
        self.core.batch_done(start.batch, status="worked", now=self.now, seconds=took_s)

    def poll(self) -> list[Start]:
        started = starts(poll_all(self.core, self.now))
        self.core.stats(now=self.now)  # if nothing is queued, policies see an end only before the next input
        return started


def test_a_loop_is_all_the_rows_of_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queued, at the other worker, and of the clients that have just been answered."""
    stage = Stage(monkeypatch, workers=2)
    stage.submit(5, rows=2)
    first = stage.start()
    stage.submit(4, first=10)
    stage.start()
    stage.submit(3, first=20)
    stage.done(first)
    stage.poll()

    [loop] = stage.loops
    assert loop is not None
    assert loop.rows == 10 + 4 + 3
    assert (loop.workers, loop.sends_ahead) == (2, True)
    assert loop.load_rate > 0
    assert loop.returns.away_rows() == 10


@pytest.mark.parametrize("requests", [3, 4])
def test_policies_plan_after_a_batch_of_several_requests(
    monkeypatch: pytest.MonkeyPatch, requests: int
) -> None:
    stage = Stage(monkeypatch)
    stage.submit(requests, rows=10)
    stage.done(stage.start())
    stage.poll()

    assert len(stage.loops) == (requests == 4)


def test_workers_that_are_hardly_idle_have_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixed part of a batch takes longer than twice the time in which its clients are back.

    After the first batch, neither is known.
    """
    stage = Stage(monkeypatch)
    for away_s in (0.05, 0.05, 0.5, 0.5):
        stage.submit(5)
        stage.done(stage.start())
        stage.poll()
        stage.now += away_s

    assert [loop is not None for loop in stage.loops[1:]] == [False, False, True]


def test_the_requests_of_another_api_end_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queued or at a worker: while the clients of one API are away, the worker is not idle."""
    queued = Stage(monkeypatch)
    queued.submit(5)
    first = queued.start()
    queued.submit(1, api="b")
    queued.done(first)
    queued.poll()
    assert queued.loops == [None]

    at_worker = Stage(monkeypatch, workers=2)
    at_worker.submit(5)
    first = at_worker.start()
    at_worker.submit(1, api="b")
    at_worker.start()
    at_worker.done(first)
    at_worker.poll()
    assert at_worker.loops == [None]


@pytest.mark.parametrize(("workers", "follows"), [(8, True), (9, False)])
def test_of_many_workers_loops_are_not_followed(
    monkeypatch: pytest.MonkeyPatch, workers: int, follows: bool
) -> None:
    stage = Stage(monkeypatch, workers=workers)
    stage.submit(5)
    stage.done(stage.start())
    stage.poll()

    assert [loop is not None for loop in stage.loops] == [follows]


def test_an_api_that_may_not_run_again_sends_nothing_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, idempotent=False)
    stage.submit(5)
    stage.done(stage.start())
    stage.poll()

    [loop] = stage.loops
    assert loop is not None
    assert not loop.sends_ahead


def test_clients_are_away_from_the_end_of_the_batch_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver may report the end after it has answered them: that is part of the time."""
    stage = Stage(monkeypatch)
    stage.submit(8)
    stage.done(stage.start(), late_s=0.5)
    stage.poll()
    stage.now += 0.25
    stage.submit(8)
    stage.done(stage.start())
    stage.poll()

    last = stage.loops[-1]
    assert last is not None
    assert last.returns.group_s(8) == pytest.approx((0.75, 0.75))


def test_a_complete_batch_starts_without_asking_the_policy_and_takes_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(monkeypatch, complete=6)
    for _ in range(6):
        stage.submit(5)
        stage.done(stage.start())
        stage.poll()
    stage.submit(5)
    running = stage.start()
    stage.submit(7, first=10)
    stage.done(running)

    start = stage.start()
    assert (start.rows, start.reason) == (6, "not_worth_waiting")


def test_a_complete_batch_is_sent_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, complete=6)
    for _ in range(6):
        stage.submit(5)
        start = stage.start()
        stage.now += 0.25
        stage.core.batch_done(start.batch, status="worked", now=stage.now, chunks=[(5, 0.2)])
        stage.poll()
    stage.submit(5)
    stage.start()
    stage.submit(5, first=10)
    assert stage.poll() == []
    stage.submit(2, first=20)
    assert stage.poll() == []

    stage.now = stage.core.next_wakeup()
    [ahead] = stage.poll()
    assert (ahead.rows, ahead.reason) == (6, "not_worth_waiting")
    assert ahead.ahead_s is not None


def test_clients_whose_requests_take_the_gateway_long_take_turns() -> None:
    """64 clients, 1 + 0.02 n ms, 30 us for each request: two batches cost less than the pause between two."""
    cell = Cell(intercept_ms=1, slope_ms=0.02, clients=64, goal_ms=1e6, request_ms=0.03, transport_ms=0.4)
    in_turns = measure(cell, "cork", 1, requests=6_000)
    at_once = measure(cell, "fixed:0", 1, requests=6_000)

    assert in_turns.batch_rows == pytest.approx(32, rel=0.1)
    assert in_turns.rows_per_s > 1.1 * at_once.rows_per_s


def test_clients_of_a_slow_model_stay_together() -> None:
    cell = Cell(intercept_ms=5, slope_ms=0.1, clients=64, goal_ms=1e6, request_ms=0.03, transport_ms=0.4)

    assert measure(cell, "cork", 1, requests=6_000).batch_rows == pytest.approx(64, rel=0.05)
