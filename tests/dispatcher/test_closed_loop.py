"""The core: what policies see of clients that wait for their answers, and batches that are complete."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest

from tests.dispatcher.driver import poll_all, starts
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.loop_plan import ClosedLoop
from uncork_dispatcher.policies.base import REGISTERED, Hold, Policy, Release, View
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.simulator.cells import Cell
from uncork_dispatcher.simulator.measure import measure


class Planner(Policy):
    """Releases when free; keeps the loops that it has seen, and takes ``complete`` rows for a batch."""

    plans = True
    complete: ClassVar[float]
    loops: ClassVar[list[ClosedLoop | None]]

    def decide(self, view: View) -> Release | Hold:
        if view.rows >= self.complete_rows:
            return Release(self.complete_rows, "not_worth_waiting")
        return Release(self.limit_rows, "full" if view.full else "idle")

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
        takes_ahead: bool = True,
        **rules: object,
    ) -> None:
        self.loops: list[ClosedLoop | None] = []
        planner = type("Watched", (Planner,), {"complete": complete, "loops": self.loops})
        monkeypatch.setitem(REGISTERED, "planner", planner)
        self.core = Dispatcher()
        self.core.set_api(ApiRules(**{"name": "a", "policy": "planner", "goal_s": 9.0, **rules}))  # type: ignore[arg-type]
        self.core.set_api(ApiRules(name="b", goal_s=9.0))
        self.now = 0.0
        self.requests = 0
        for worker in range(workers):
            self.core.worker_ready(worker, now=0.0, takes_ahead=takes_ahead)

    def submit(self, clients: int, *, api: str = "a", first: int = 0, **size: float) -> None:
        """Clients with these numbers send a request each."""
        for client in range(first, first + clients):
            self.requests += 1
            self.core.submit(self.requests, api=api, now=self.now, source=client, **size)  # type: ignore[arg-type]

    def start(self) -> Batch[Any]:
        [start] = starts(poll_all(self.core, self.now))
        return start

    def done(self, start: Batch[Any], *, took_s: float = 0.25, late_s: float = 0.0) -> None:
        """A batch ends ``took_s`` after now; the driver reports it ``late_s`` later."""
        self.now += took_s + late_s
        self.core.batch_done(start.number, status="worked", now=self.now, seconds=took_s)

    def poll(self) -> list[Batch[Any]]:
        started = starts(poll_all(self.core, self.now))
        self.core.stats(now=self.now)  # if nothing is queued, policies see an end only before the next input
        return started

    def settle(self, clients: int, *, away_s: float = 0.5, rounds: int = 20, rows: int = 1) -> None:
        """All clients send, are answered together, and are away for so long: nobody is new any more."""
        for _ in range(rounds):
            self.submit(clients, rows=rows)
            self.done(self.start())
            self.poll()
            self.now += away_s

    def loop_after(self, clients: int) -> ClosedLoop | None:
        """What the policy sees after a batch with the requests of so many clients."""
        self.submit(clients)
        self.done(self.start())
        self.poll()
        return self.loops[-1]


def test_a_loop_is_all_the_rows_of_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queued, at the other worker, and of clients that have just been answered or should be back."""
    stage = Stage(monkeypatch, workers=2)
    stage.settle(20, rows=2)
    stage.submit(5, rows=2)
    first = stage.start()
    stage.submit(4, first=5, rows=2)
    stage.start()
    stage.submit(3, first=9, rows=2)
    stage.done(first)
    stage.poll()

    loop = stage.loops[-1]
    assert loop is not None
    assert loop.rows == 40
    assert (loop.workers, loop.sends_ahead) == (2, True)
    assert loop.mean_rows == pytest.approx(2)
    assert loop.returns.away_rows(now=stage.now) == 10 + 16


@pytest.mark.parametrize(("requests", "complete", "plans"), [(3, math.inf, 0), (4, math.inf, 1), (3, 99, 1)])
def test_policies_plan_after_a_batch_of_several_requests(
    monkeypatch: pytest.MonkeyPatch, requests: int, complete: float, plans: int
) -> None:
    """After each batch, while a plan is in force that may have to end."""
    stage = Stage(monkeypatch, complete=complete)
    stage.settle(8)
    before = len(stage.loops)
    stage.loop_after(requests)

    assert len(stage.loops) == before + plans


def test_workers_that_are_hardly_idle_have_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixed part of a batch takes longer than twice the time in which its clients are back."""
    stage = Stage(monkeypatch)
    stage.settle(8, away_s=0.05)
    assert stage.loop_after(8) is None

    stage.settle(8, away_s=0.1)
    assert stage.loop_after(8) is not None


def test_new_clients_end_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are more than a twentieth of the traffic."""
    stage = Stage(monkeypatch)
    stage.settle(40)
    assert stage.loop_after(40) is not None
    stage.now += 0.5

    assert stage.loop_after(60) is None


def test_clients_that_return_one_by_one_are_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the connections of a pool do."""
    stage = Stage(monkeypatch)
    stage.settle(40)
    for _ in range(40):
        stage.submit(36)
        early = stage.start()
        stage.now += 0.9
        stage.submit(4, first=36)
        stage.core.batch_done(early.number, status="worked", now=stage.now)
        stage.done(stage.start(), took_s=0.01)
        stage.poll()
        stage.now += 0.001

    assert stage.loops[-1] is None


@pytest.mark.parametrize("other", [{"api": "b"}, {"key": "other"}])
def test_requests_that_cannot_share_the_batch_end_the_loop(
    monkeypatch: pytest.MonkeyPatch, other: dict[str, str]
) -> None:
    """Queued or at a worker: while the clients are away, the worker is not idle."""
    queued = Stage(monkeypatch)
    queued.settle(8)
    queued.submit(7)
    first = queued.start()
    queued.submit(1, first=7, **other)  # type: ignore[arg-type]
    queued.done(first)
    queued.poll()
    assert queued.loops[-1] is None

    at_worker = Stage(monkeypatch, workers=2)
    at_worker.settle(8)
    at_worker.submit(7)
    first = at_worker.start()
    at_worker.submit(1, first=7, **other)  # type: ignore[arg-type]
    at_worker.start()
    at_worker.done(first)
    at_worker.poll()
    assert at_worker.loops[-1] is None


@pytest.mark.parametrize("of", ["key", "group"])
def test_clients_whose_requests_are_the_fewer_are_no_loop(monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    """Their last batch runs alone, and what is known of their returns says nothing about the others."""
    stage = Stage(monkeypatch, complete=99)
    for _ in range(20):
        stage.submit(8)
        stage.done(stage.start(), took_s=0.001)
        stage.submit(4, first=8, **{of: "other"})  # type: ignore[arg-type]
        stage.done(stage.start(), took_s=0.001)
        stage.poll()
        stage.now += 0.5

    assert stage.loops[-1] is None


def test_requests_for_reserved_workers_do_not_end_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queued or at the reserved worker; the loop counts the other one."""
    stage = Stage(monkeypatch, workers=2)
    stage.core.set_api(ApiRules(name="b", goal_s=9.0, workers=1))
    stage.settle(8)
    stage.submit(7)
    first = stage.start()
    stage.submit(1, api="b")
    stage.start()
    stage.submit(1, api="b")
    stage.done(first)
    stage.poll()
    loop = stage.loops[-1]
    assert loop is not None
    assert loop.workers == 1


@pytest.mark.parametrize(("workers", "follows"), [(8, True), (9, False)])
def test_of_many_workers_loops_are_not_followed(
    monkeypatch: pytest.MonkeyPatch, workers: int, follows: bool
) -> None:
    stage = Stage(monkeypatch, workers=workers)
    stage.settle(8)

    assert (stage.loop_after(8) is not None) == follows


@pytest.mark.parametrize(("idempotent", "takes_ahead"), [(False, True), (True, False)])
def test_batches_are_not_sent_ahead(
    monkeypatch: pytest.MonkeyPatch, idempotent: bool, takes_ahead: bool
) -> None:
    """Of an API that may not run again, or to workers that run all their batches at once."""
    stage = Stage(monkeypatch, idempotent=idempotent, takes_ahead=takes_ahead)
    stage.settle(8)
    loop = stage.loop_after(8)

    assert loop is not None
    assert not loop.sends_ahead


def test_rows_whose_lengths_decide_who_shares_a_batch_are_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    for short_first in [True, False] * 20:
        for client in range(8):
            length = 1.0 if (client < 4) == short_first else 20.0
            stage.submit(1, first=client, rows=length, count=1, longest=length)
        while started := stage.poll():
            stage.done(started[0], took_s=0.01 * started[0].padded)
        stage.now += 1.0

    assert stage.loops[-1] is None


def test_clients_are_away_from_the_end_of_the_batch_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver may report the end after it has answered them: that is part of the time."""
    stage = Stage(monkeypatch)
    for _ in range(20):
        stage.submit(8)
        stage.done(stage.start(), late_s=0.5)
        stage.poll()
        stage.now += 0.25

    loop = stage.loop_after(8)
    assert loop is not None
    assert loop.returns.group_times.whole_and_half(8) == pytest.approx((0.75, 0.75))


def test_a_complete_batch_is_sent_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, complete=6)
    for _ in range(6):
        stage.submit(5)
        start = stage.start()
        stage.now += 0.25
        stage.core.batch_done(start.number, status="worked", now=stage.now, chunks=[(5, 0.2)])
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
    assert ahead.is_ahead


def test_an_odd_number_of_clients_takes_turns_too() -> None:
    """The one that is left over goes with the next group."""
    cell = Cell(intercept_ms=1, slope_ms=0.02, clients=65, goal_ms=1e6, request_ms=0.03, transport_ms=0.4)
    run = measure(cell, "cork", 1, requests=4_000)

    assert run.batch_rows == pytest.approx(65 / 2, rel=0.1)
    assert run.utilisation > 0.8
