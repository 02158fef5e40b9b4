"""The core: batches that are sent to a worker while it runs another one."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.dispatcher.driver import poll_all, starts
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules

SECONDS = 0.25
"""At the worker, whatever the size of the batch."""
TRANSPORT_S = 0.05
"""There and back."""


def api(**changes: object) -> ApiRules:
    """An API ``a`` with at most two rows in a batch."""
    return ApiRules(**{"name": "a", "max_batch_rows": 2, "goal_s": 9.0, **changes})  # type: ignore[arg-type]


class Stage:
    """A core that knows how long batches take and that has just started one, with request 0.

    Of the time at the worker, ``prepare_s`` may overlap with the batch before.
    """

    def __init__(
        self,
        rules: ApiRules | None = None,
        *,
        takes_ahead: bool = True,
        workers: int = 1,
        prepare_s: float | None = None,
    ) -> None:
        self.prepare_s = prepare_s
        self.core = Dispatcher()
        self.core.set_api(rules or api())
        self.now = 0.0
        for worker in range(workers):
            self.core.worker_ready(worker, now=0.0, takes_ahead=takes_ahead)
        for number in range(200):
            self.submit(-1 - number)
            [start] = self.poll()
            self.now += SECONDS + TRANSPORT_S
            self.done(start)
            self.poll()
        self.submit(0)
        [self.first] = self.poll()
        self.transport_s = self.core.sample("a").transport_s
        assert self.transport_s == pytest.approx(TRANSPORT_S)

    @property
    def due(self) -> float:
        """When the batch that runs should end at its worker."""
        since = self.first.started
        assert since is not None
        return since + self.first.predicted_s

    def submit(self, *numbers: int, rows: int = 1, api: str = "a") -> None:
        for number in numbers:
            assert self.core.submit(number, api=api, rows=rows, now=self.now) is None

    def poll(self, now: float | None = None) -> list[Batch[Any]]:
        """The batches that start now, or at ``now``."""
        self.now = self.now if now is None else now
        return starts(poll_all(self.core, self.now))

    def done(self, start: Batch[Any], *, seconds: float = SECONDS) -> None:
        assert self.core.batch_done(
            start.number,
            status="worked",
            now=self.now,
            chunks=[(start.rows, seconds - (self.prepare_s or 0.0))],
            prepare_s=self.prepare_s,
        )

    def ahead(self) -> Batch[Any]:
        """The batch that is sent ahead: requests 1 and 2."""
        self.submit(1, 2)
        assert self.poll() == []
        [ahead] = self.poll(self.core.next_wakeup())
        return ahead


def test_a_full_batch_is_sent_while_another_one_runs() -> None:
    """Twice the usual transport before its worker should be done."""
    stage = Stage()
    stage.submit(1, 2)
    assert stage.poll() == []
    at = stage.core.next_wakeup()
    assert at == pytest.approx(stage.due - 2 * stage.transport_s)

    [ahead] = stage.poll(at)
    assert (ahead.worker, ahead.requests, ahead.reason) == (0, (1, 2), "full")
    assert not stage.first.is_ahead
    assert ahead.started - ahead.released == pytest.approx(2 * stage.transport_s)
    assert ahead.started == pytest.approx(stage.due)
    stage.submit(3, 4)
    assert stage.poll() == [], "one batch is ahead already"


def test_it_is_sent_at_once_to_a_worker_that_prepares_it_while_the_other_runs() -> None:
    stage = Stage(api(max_batch_rows=1), prepare_s=0.1)
    assert stage.first.predicted_s == pytest.approx(SECONDS)
    stage.submit(1)

    [ahead] = stage.poll()
    assert ahead.started == pytest.approx(stage.due)
    assert ahead.predicted_s == pytest.approx(SECONDS - 0.1), "it is prepared by then"

    stage.now = stage.due + stage.transport_s
    stage.done(stage.first)
    stage.now += SECONDS - 0.1
    stage.done(ahead)
    stage.submit(2)
    [stage.first] = stage.poll()
    assert stage.first.predicted_s == pytest.approx(SECONDS)


def test_an_incomplete_batch_is_sent_in_time_to_be_prepared() -> None:
    """Each request that comes makes its preparation longer, so it is sent earlier."""
    stage = Stage(api(max_batch_rows=8), prepare_s=0.1)
    stage.submit(1)
    assert stage.poll() == []
    at = stage.core.next_wakeup()
    assert at == pytest.approx(stage.due - 2 * stage.transport_s - 0.1)

    [ahead] = stage.poll(at)
    assert (ahead.requests, ahead.reason) == ((1,), "idle")
    assert ahead.started == pytest.approx(stage.due)


def test_a_batch_that_comes_too_late_to_be_prepared_starts_later() -> None:
    stage = Stage(api(max_batch_rows=8), prepare_s=0.1)
    stage.poll()
    stage.now = stage.due - 0.01
    stage.submit(1)

    [ahead] = stage.poll()
    assert ahead.started == pytest.approx(stage.now + 0.1)


def test_an_incomplete_batch_that_its_policy_would_hold_is_not_sent() -> None:
    stage = Stage(api(max_batch_rows=8), prepare_s=0.1)
    stage.core.set_api(api(max_batch_rows=8, policy="fixed:1000"))
    stage.submit(1)

    assert stage.poll(stage.due) == []


def test_workers_that_prepare_get_batches_though_their_ends_are_uncertain() -> None:
    """Another worker may be idle first, but seldom by as long as the preparation takes."""
    stage = Stage(api(max_batch_rows=1), workers=2, prepare_s=0.1)
    stage.submit(1)
    stage.poll()
    uncertain = 0.05 + 3 * stage.transport_s
    for batch in stage.core._slots:
        batch.spread_s = uncertain
    stage.submit(2)

    assert [start.requests for start in stage.poll()] == [(2,)]


def test_deadlines_allow_for_what_batches_ahead_do_not_take() -> None:
    without, overlapping = Stage(api(goal_s=1.0)), Stage(api(goal_s=1.0), prepare_s=0.1)
    [model, other] = [stage.core._apis["a"].model for stage in (without, overlapping)]
    assert other.allowance_s - model.allowance_s == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("stage", "rows"),
    [
        (lambda: Stage(), 1),
        (lambda: Stage(api(idempotent=False)), 2),
        (lambda: Stage(takes_ahead=False), 2),
        (lambda: Stage(api(policy="fixed:0:1")), 2),
    ],
    ids=["it is not full", "it may not run again", "the worker takes none", "the policy may grow"],
)
def test_a_batch_waits_for_its_worker(stage: object, rows: int) -> None:
    on = stage()  # type: ignore[operator]
    on.submit(1, rows=rows)
    for _ in range(3):
        if (at := on.core.next_wakeup()) < on.due + on.transport_s:
            assert on.poll(at) == []

    on.now = on.due + on.transport_s
    on.done(on.first)
    assert [start.requests for start in on.poll()] == [(1,)]


def test_nothing_is_sent_behind_what_may_not_run_again() -> None:
    """Streams are among it, and should be easy to cancel."""
    stage = Stage()
    stage.core.set_api(api(idempotent=False))
    stage.core.set_api(api(name="b"))
    for number in (1, 2, 3, 4, 5):
        stage.now = stage.due + stage.transport_s
        stage.done(stage.first)
        stage.core.submit(number, api="b", now=stage.now)
        [stage.first] = stage.poll()
    stage.now = stage.due + stage.transport_s
    stage.done(stage.first)
    stage.core.submit(6, api="a", now=stage.now)
    [stage.first] = stage.poll()
    stage.submit(7, 8, api="b")
    assert stage.poll(stage.due) == []


def test_the_batch_ahead_starts_when_the_reply_has_come() -> None:
    """From then its time counts; what it waited at the worker teaches nothing, about transport either."""
    stage = Stage()
    ahead = stage.ahead()
    stage.now = stage.due + stage.transport_s
    stage.done(stage.first)
    assert stage.poll() == []
    began = stage.now
    assert ahead.started == began
    before = stage.core.sample("a")

    stage.now += SECONDS
    stage.done(ahead)
    after = stage.core.sample("a")
    assert after.transport_s == before.transport_s
    assert after.estimate.seconds(2) == pytest.approx(SECONDS, rel=0.01)
    assert stage.core.is_empty


@pytest.mark.parametrize(("margin", "expected"), [(-0.5, (2,)), (0.5, (2,)), (1.5, (2, 3))])
def test_its_size_is_what_can_be_done_in_time_from_its_start(
    margin: float, expected: tuple[int, ...]
) -> None:
    """Also if the batch before it takes a standard deviation longer than predicted.

    Two rows behind it would be too late for request 2 unless there is this margin, one is not; 3 can wait.
    """
    core = Dispatcher()
    core.set_api(api(goal_s=0.9))
    core.worker_ready(0, now=0.0, takes_ahead=True)
    now = 0.0
    for rows, seconds in [(1, 0.09), (2, 0.22), (1, 0.11), (2, 0.18)] * 50:
        core.submit(1, api="a", rows=rows, now=now)
        [start] = starts(poll_all(core, now))
        now += seconds + 0.01
        core.batch_done(start.number, status="worked", now=now, chunks=[(rows, seconds)])
        poll_all(core, now)
    core.submit(1, api="a", rows=2, now=now)
    [first] = starts(poll_all(core, now))
    estimate, transport_s = core.sample("a")[:2]
    done_s = first.predicted_s + estimate.upper(2) + margin * estimate.spread * first.predicted_s
    core.submit(2, api="a", now=now, expires_at=now + done_s + transport_s)
    core.submit(3, api="a", now=now, expires_at=now + 0.8)
    poll_all(core, now)

    [ahead] = starts(poll_all(core, core.next_wakeup()))
    assert ahead.requests == expected
    assert core.next_wakeup() < math.inf


def test_full_batches_ahead_leave_bulk_its_share() -> None:
    """Bulk needs a worker that is idle, and the room left for it in batches ahead would stay empty."""
    stage = Stage(api(bulk_goal_s=math.inf))
    began, running = stage.now, stage.first
    batches: list[Batch[Any]] = []
    assert stage.core.submit("bulk", api="a", now=began, bulk=True) is None
    for number in range(1, 61, 2):
        stage.submit(number, number + 1)
        assert stage.poll() == []
        ahead = stage.poll(running.finish - stage.transport_s)
        stage.now = running.finish + stage.transport_s
        stage.done(running)
        [running] = ahead + stage.poll()
        batches.append(running)

    assert batches[0].is_ahead
    assert [batch.rows for batch in batches] == [2] * 30
    [with_bulk] = [batch for batch in batches if batch.bulk_rows]
    assert with_bulk.requests[-1] == "bulk"
    assert with_bulk.released - began < 5.0


def test_a_batch_that_took_long_to_prepare_does_not_shorten_deadlines_for_ever() -> None:
    """A row is prepared in 10 ms; after 200 rows, which take longer than the goal, single ones are usual."""
    stage = Stage(api(goal_s=1.0, max_batch_rows=200), prepare_s=0.01)
    stage.now = stage.due + stage.transport_s
    stage.done(stage.first)
    for number, rows in enumerate([*[1, 10] * 20, 200, *[1] * 200]):
        stage.submit(number, rows=rows)
        [batch] = stage.poll()
        stage.prepare_s = 0.01 * rows
        seconds = SECONDS + stage.prepare_s
        stage.now += seconds + TRANSPORT_S
        stage.done(batch, seconds=seconds)
        stage.poll()

    stage.submit(1000)
    assert len(stage.poll()) == 1
    stage.submit(1001)  # is accepted
