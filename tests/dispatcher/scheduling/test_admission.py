"""Whom admission lets in, and how it counts the requests that go before a new one."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.dispatcher.driver import core_with, entry, next_worker, poll_all, running, start_one, starts, teach
from uncork_dispatcher.api import Api
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.scheduling.admission import Admission
from uncork_dispatcher.scheduling.bulk import BulkRoom
from uncork_dispatcher.scheduling.queues import RequestQueues
from uncork_dispatcher.workers.slots import Slots


def api(*, batches: int = 5, queued: int = 0, **limits: Any) -> Api:
    """An API that has seen batches of one row of 1 s each, and queues requests of one row and one byte."""
    made = Api(ApiRules(name="a", **limits))
    for _ in range(batches):
        made.learn(running(), (), 1.0)
    made.backlog.requests = made.backlog.size_bytes = queued
    made.backlog.rows = float(queued)
    return made


def slots(*, idle: int = 0, busy: int = 0) -> Slots:
    """Busy workers have just started a batch of 1 s, at time 0."""
    made = Slots()
    for worker in range(busy + idle):
        made.add(worker)
    for worker in range(busy):
        made.occupy(running(batch=worker, worker=next_worker(made), predicted_s=1.0))
    return made


def admission_of(api: Api, workers: Slots) -> Admission:
    """The admission of an API whose workers are these."""
    queues = RequestQueues({})
    return Admission(api, queues, workers, BulkRoom({}, queues, workers))


def ask(
    api: Api, workers: Slots, *, rows: int = 1, size_bytes: int = 1, expires_at: float = math.inf
) -> str | None:
    """The reason for which a request at time 0 is shed; None if it is queued."""
    request = entry(1000, rows=rows, size_bytes=size_bytes, deadline=api.due_at(0.0, expires_at))
    request.expires_at = expires_at
    return admission_of(api, workers).admit(request)


NONE, IDLE, BUSY = slots(), slots(idle=1), slots(busy=1)
ALONE = {"max_batch_rows": 1}
"""A batch has one row, so a backlog takes a second for each."""
UNSEEN = {"batches": 0, "max_queue_rows": 5, "max_queue_bytes": 5}
"""Nothing can be predicted; the queue has room for five rows and bytes."""
CASES: dict[str, tuple[int, dict[str, Any], Slots, dict[str, Any], str | None]] = {
    "no worker, before all else": (0, {}, NONE, {"expires_at": -1.0}, "no_worker"),
    "client has given up": (0, {}, IDLE, {"expires_at": 0.0}, "client_deadline"),
    "client has not given up yet": (0, {}, IDLE, {"expires_at": 1e-9}, None),
    "idle and empty": (0, {"goal_s": 1.0, "max_queue_rows": 1}, IDLE, {"rows": 10**6}, None),
    "empty queue, many rows": (0, UNSEEN, BUSY, {"rows": 50}, None),
    "empty queue, many bytes": (0, UNSEEN, BUSY, {"size_bytes": 50}, None),
    "rows up to the limit": (3, UNSEEN, BUSY, {"rows": 2}, None),
    "a row too many": (3, UNSEEN, BUSY, {"rows": 3}, "queue_full"),
    "bytes up to the limit": (3, UNSEEN, BUSY, {"size_bytes": 2}, None),
    "a byte too many": (3, UNSEEN, BUSY, {"size_bytes": 3}, "queue_full"),
    "a request too many": (3, {"batches": 0, "max_queue_requests": 3}, BUSY, {}, "queue_full"),
    "full though a worker is idle": (5, UNSEEN, IDLE, {}, "queue_full"),
    # The running batch ends at 1 s, the queued request at 2 s, this one at 3 s.
    "within the goal": (1, {"goal_s": 3.001, **ALONE}, BUSY, {}, None),
    "beyond the goal": (1, {"goal_s": 2.999, **ALONE}, BUSY, {}, "deadline"),
    "within the patience": (1, {"goal_s": 9.0, **ALONE}, BUSY, {"expires_at": 3.001}, None),
    "beyond the patience": (1, {"goal_s": 9.0, **ALONE}, BUSY, {"expires_at": 2.999}, "deadline"),
    "late though a worker is idle": (5, {"goal_s": 5.0, **ALONE}, IDLE, {}, "deadline"),
    "four batches seen": (9, {"goal_s": 2.0, "batches": 4, **ALONE}, BUSY, {}, None),
    "five batches seen": (9, {"goal_s": 2.0, **ALONE}, BUSY, {}, "deadline"),
    "twice the largest seen": (1, {"goal_s": 1.5}, BUSY, {}, "deadline"),
    "more than twice the largest seen": (2, {"goal_s": 1.5}, BUSY, {}, None),
    "the policy does not batch": (9, {"goal_s": 5.0, "policy": "none"}, BUSY, {}, "deadline"),
    "a request cannot be cut": (1, {"goal_s": 1.5, "policy": "none"}, BUSY, {"rows": 50}, None),
    "chunks of a known size": (1, {"goal_s": 1.5, "max_batch_rows": 2}, BUSY, {"rows": 50}, "deadline"),
    "chunks of an unknown size": (1, {"goal_s": 1.5, "max_batch_rows": 3}, BUSY, {"rows": 50}, None),
    "no batch meets the goal": (9, {"goal_s": 0.99, **ALONE}, BUSY, {}, None),
    "a batch just meets the goal": (9, {"goal_s": 1.01, **ALONE}, BUSY, {}, "deadline"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_request_is_admitted_or_shed_for_a_reason(case: str) -> None:
    """Batches of one row were seen, and took 1 s; requests are queued with one row and one byte each."""
    queued, limits, workers, request, reason = CASES[case]

    assert ask(api(queued=queued, **limits), workers, **request) == reason


@pytest.mark.parametrize(
    ("workers", "queued", "expected"),
    [
        (slots(), 5, 1.0),
        (slots(busy=1), 0, 1.0),
        (slots(idle=1), 1, 1.0),
        (slots(busy=1), 1, 2.0),
        (slots(busy=1), 4, 5.0),
        (slots(busy=2), 4, 3.0),
        (slots(idle=1, busy=1), 4, 3.0),
    ],
)
def test_retry_after(workers: Slots, queued: int, expected: float) -> None:
    """Until all workers are done with the backlog, and at least a second."""
    queue = api(queued=queued, max_batch_rows=1)

    assert admission_of(queue, workers).retry_after_s(rows=1, now=0.0) == pytest.approx(expected)


def test_those_who_are_refused_together_are_told_to_come_back_one_by_one() -> None:
    """Two workers carry 2 rows a second; a tenth is a row every 5 s. The spread doubles it at most."""
    admission = admission_of(api(queued=4, max_batch_rows=1), slots(busy=2))
    told = [admission.retry_after_s(rows=1, now=0.0) for _ in range(40)]

    assert told[0] == pytest.approx(3.0)
    for place, wait in enumerate(told):
        turn = min(3.0 + 5.0 * place, 60.0)
        assert turn <= wait < 2 * turn or (place == 0 and wait == turn)
    assert len({round(wait) for wait in told[-20:]}) == 20
    assert admission.retry_after_s(rows=1, now=1000.0) >= 3.0, "the line is over"


def test_a_refused_request_of_many_rows_does_not_put_off_others() -> None:
    """It takes a turn as long as the largest batch so far: 1 s, at a tenth of what a worker carries."""
    admission = admission_of(api(queued=4, max_batch_rows=1), slots(busy=1))

    assert admission.retry_after_s(rows=1_000_000, now=0.0) == pytest.approx(5.0)
    assert admission.retry_after_s(rows=1, now=0.0) == pytest.approx(15.0 * 1.618034)


def test_retry_after_is_a_second_where_batches_take_no_time() -> None:
    """A clock of low resolution measures short batches so. Nobody has to wait for anybody else."""
    model = Api(ApiRules(name="a"))
    model.model.observe_profile(0, [(1, 0.0)] * 5)
    assert model.model.estimate.earned_rows > 0
    for _ in range(3):
        assert admission_of(model, slots(busy=1)).retry_after_s(rows=1, now=1.0) == 1.0


@pytest.mark.parametrize(
    ("free_at", "rows", "requests", "finish"),
    [
        ([5.0], 4, 4, 5.0 + 2.0),  # one batch
        ([5.0], 5, 5, 5.0 + 2 * 1.625),  # two, of 2.5 rows each
        ([5.0], 40, 1, 5.0 + 11.0),  # one request cannot be cut
        ([5.0, 6.0], 8, 8, 6.0 + 2.0),  # one on each of two workers
        ([5.0, 6.0], 12, 12, 5.0 + 2 * 2.0),  # the third goes to the first again
        ([5.0, 6.0], 16, 16, 6.0 + 2 * 2.0),
    ],
)
def test_a_backlog_is_dealt_to_the_workers_in_turn(
    free_at: list[float], rows: int, requests: int, finish: float
) -> None:
    """In batches of 4 rows, which take 1 s and a quarter for each row; the last of the batches counts."""
    workers, queued = Slots(), api(max_batch_rows=4)
    for worker, at in enumerate(free_at):
        workers.add(worker)
        workers.occupy(running(batch=worker, worker=worker, predicted_s=at))
    queued.model.estimate = Estimate(intercept_s=1.0, slope_s=0.25)

    share = workers.outlook(0.0, "a")
    got = admission_of(queued, workers)._finish(share, 0.0, rows=rows, requests=requests)

    assert got == pytest.approx(finish)


def busy(*, fair: bool = False, goal_s: float = 100.0) -> tuple[Dispatcher, float]:
    """A core whose only worker takes 0.1 s for each request and has just started one; and the time."""
    core = core_with(ApiRules(name="a", goal_s=goal_s, max_batch_rows=1, fair=fair))
    now = teach(core, 0.1, batches=8)
    start_one(core, 0, now=now)
    return core, now


def reasons(core: Dispatcher, numbers: range, *, now: float, in_s: float, key: str = "") -> list[str | None]:
    """Submit requests whose clients wait ``in_s`` seconds."""
    refused = [
        core.submit(number, api="a", key=key, flow=number, now=now, expires_at=now + in_s)
        for number in numbers
    ]
    return [shed and shed.reason for shed in refused]


@pytest.mark.parametrize("fair", [False, True])
def test_a_request_that_goes_before_a_long_backlog_is_admitted(fair: bool) -> None:
    """50 requests wait 5 s; one that is due in 0.25 s is next, if they share a flow or there are no flows."""
    core, now = busy(fair=fair)
    for number in range(1, 51):
        assert core.submit(number, api="a", now=now) is None
    assert core.submit(99, api="a", now=now, expires_at=now + 0.25) is None

    core.batch_done(9, status="worked", now=now + 0.1)
    [start] = starts(poll_all(core, now + 0.1))
    assert start.requests == (99,)


@pytest.mark.parametrize("patient", [0, 50])
def test_requests_that_are_due_earlier_count(patient: int) -> None:
    """Whatever is due later: 0.1 s of the running batch, then 0.1 s for each."""
    core, now = busy()
    for number in range(1, patient + 1):
        core.submit(number, api="a", key="", now=now)

    assert reasons(core, range(100, 106), now=now, in_s=0.45) == [None, None, None, *["deadline"] * 3]
    assert reasons(core, range(110, 112), now=now, in_s=0.25) == [None, "deadline"]
    # Those that are due later are counted after the urgent ones, and those before among them.
    assert reasons(core, range(120, 122), now=now, in_s=0.65) == [None, "deadline"]


@pytest.mark.parametrize("goal_s", [60.0, 86_400.0])
def test_patient_clients_do_not_count_before_hasty_ones_whatever_the_goal(goal_s: float) -> None:
    """200 requests take 20 s; those that are due in about a second go before them."""
    core, now = busy(goal_s=goal_s)

    assert reasons(core, range(1, 201), now=now, in_s=60.0) == [None] * 200
    assert reasons(core, range(300, 301), now=now, in_s=1.0) == [None]
    assert reasons(core, range(310, 311), now=now, in_s=1.5) == [None]
    assert reasons(core, range(320, 321), now=now, in_s=2.5) == [None]


def test_with_a_long_goal_short_deadlines_leave_time_for_transport() -> None:
    """A batch takes 0.1 s, and 0.1 s on its way: two of them are late for a client that waits 0.25 s."""
    core = core_with(ApiRules(name="a", goal_s=86_400.0))
    now = 0.0
    for number in range(300):
        start = start_one(core, number, now=now)
        now += 0.2
        core.batch_done(start.number, status="worked", now=now, chunks=[(1, 0.1)])
        poll_all(core, now)
    start_one(core, 300, now=now)

    assert reasons(core, range(301, 302), now=now, in_s=0.25) == ["deadline"]
    assert reasons(core, range(302, 303), now=now, in_s=0.35) == [None]


def test_a_key_waits_for_older_keys() -> None:
    """A key that is the oldest comes first; a new key comes after all that is queued."""
    core, now = busy()
    for number in range(1, 51):
        core.submit(number, api="a", key="old" if number < 40 else "newer", now=now + number / 1000)
    now += 0.05

    assert reasons(core, range(100, 102), now=now, in_s=0.4, key="old") == [None, None]
    assert reasons(core, range(110, 111), now=now, in_s=0.4, key="newer") == ["deadline"]
    assert reasons(core, range(120, 121), now=now, in_s=0.4, key="new") == ["deadline"]


def test_keys_that_came_at_one_moment_go_together() -> None:
    """0.1 s of the running batch, then 0.1 s for each request of both keys: 21 are answered in 2.2 s."""
    core, now = busy()
    told = [
        reasons(core, range(number, number + 1), now=now, in_s=2.25, key="xy"[number % 2])
        for number in range(1, 31)
    ]

    assert told == [[None]] * 21 + [["deadline"]] * 9


# Large requests in parts


def test_parts_take_at_most_half_the_goal() -> None:
    """Batches of 1 s and 0.25 s for each row. One part is submitted for each worker."""
    core = core_with(ApiRules(name="a", goal_s=8.0, max_batch_rows=64))
    assert core.parts_in_turn("a", rows=64, now=0.0) == (16, 1)  # nothing is known
    core.profile("a", 0, [(rows, 1.0 + 0.25 * rows) for rows in (4, 8, 16, 32) * 10], now=0.0)
    teach(core, 1.25)
    count, _ = core.parts_in_turn("a", rows=120, now=10.0)
    assert 10 < count <= 20
    core.worker_ready(1, now=10.0)
    assert core.parts_in_turn("a", rows=1, now=10.0) == (1, 2)


@pytest.mark.parametrize(("goal_s", "least", "most"), [(1.5, 11, 15), (0.5, 11, 15), (1.1, 28, 40)])
def test_parts_are_worth_the_fixed_time_of_a_batch(goal_s: float, least: int, most: int) -> None:
    """1 s, and 25 ms for each row: ten rows take a quarter more, unless a goal in reach allows fewer."""
    core = core_with(ApiRules(name="a", goal_s=9.0, max_batch_rows=64))
    core.profile("a", 0, [(rows, 1.0 + 0.025 * rows) for rows in (4, 8, 16, 32) * 10], now=0.0)
    teach(core, 1.025)
    core.set_api(ApiRules(name="a", goal_s=goal_s, max_batch_rows=64))
    count, _ = core.parts_in_turn("a", rows=120, now=10.0)
    assert least <= count <= most


def test_parts_are_worth_the_fixed_time_if_responses_take_the_rest_of_the_goal() -> None:
    """The goal is then out of reach; 1000 parts of one row would take about ten times the time."""
    core = core_with(ApiRules(name="a", goal_s=0.1, max_batch_rows=64))
    core.profile("a", 0, [(rows, 0.06 + 0.001 * rows) for rows in (4, 8, 16, 32) * 10], now=0.0)
    now = teach(core, 0.061)
    for _ in range(100):
        core.responses_written("a", 0.05, now=now)
    count, _ = core.parts_in_turn("a", rows=1000, now=now)
    assert 50 < count < 100


def test_a_policy_that_merges_no_requests_divides_into_full_calls() -> None:
    """The worker executes the rows of one request together; smaller parts would only be more calls."""
    core = core_with(ApiRules(name="a", policy="none", bulk_goal_s=math.inf, max_batch_rows=64))
    core.profile("a", 0, [(rows, 0.01 + 0.001 * rows) for rows in (4, 8, 16, 32) * 10], now=0.0)
    now = teach(core, 0.011)
    assert core.parts_in_turn("a", rows=1000, now=now) == (16, 1)
    assert core.bulk_parts("a", rows=1000, size_bytes=0, now=now) == 16


def test_a_policy_that_finds_its_limit_by_trial_divides_into_full_calls() -> None:
    """Its limit begins at one row, and parts that are submitted in turn share no batch."""
    for policy, parts in [("aimd", 250), ("cork", 250), ("fixed:10:32", 500)]:
        core = core_with(ApiRules(name="a", policy=policy, max_batch_rows=64))
        assert core.parts_in_turn("a", rows=1000, now=0.0) == (parts, 1)


def test_costs_of_very_different_size_may_cancel_out() -> None:
    """5e11 + 2**-16 - 5e11 is 0: a queued request without rows."""
    core = core_with(ApiRules(name="a", max_queue_rows=10**6))
    now = teach(core, 0.01)
    start_one(core, 1, now=now)
    core.submit("tiny", api="a", rows=2**-16, count=1, key="other", now=now)
    shed = core.submit("huge", api="a", rows=5e11, count=500, now=now, expires_at=now + 60)
    assert shed is not None
    assert (shed.reason, shed.retry_after_s >= 1) == ("queue_full", True)


def test_parts_that_wait_count_until_they_follow() -> None:
    core = core_with(ApiRules(name="a", max_queue_rows=10, max_queue_bytes=10))
    start_one(core, 1, now=0.0)
    core.reserve("a", rows=6, size_bytes=6)
    assert core.submit("first", api="a", now=0.0) is None
    assert core.submit("too many rows", api="a", rows=4, now=0.0) is not None
    assert core.submit("too many bytes", api="a", size_bytes=5, now=0.0) is not None
    assert not core.remove_api("a")
    core.reserve("a", rows=-6, size_bytes=-6)
    assert core.submit("follows", api="a", rows=6, size_bytes=6, follows=True, now=0.0) is None


def test_what_follows_is_accepted_while_draining() -> None:
    core = core_with(ApiRules(name="a"))
    core.drain(now=0.0)
    assert core.submit("new", api="a", now=0.0) is not None
    assert core.submit("follows", api="a", follows=True, now=0.0) is None


def test_no_prediction_sheds_what_follows() -> None:
    """Batches of 1 s, one row each; the goal is 2 s. A new request is shed, an accepted one waits."""
    core = core_with(ApiRules(name="a", goal_s=2.0, max_batch_rows=1))
    now = teach(core, 1.0)
    for request in range(5):
        assert core.submit(request, api="a", follows=True, now=now) is None
    assert core.submit("new", api="a", now=now) is not None
    ran: list[object] = []
    while len(ran) < 5:
        [start] = core.poll(now)
        assert isinstance(start, Batch)
        assert core.poll(now) == []
        ran += start.requests
        now += 1.0
        core.batch_done(start.number, status="worked", now=now)
    assert ran == [0, 1, 2, 3, 4]


def test_what_follows_is_not_shed_to_make_a_batch_larger() -> None:
    """A batch takes 3 s instead of 1 s, so the part behind it is late, and keeps a batch of others small."""
    core = core_with(ApiRules(name="a", goal_s=2.2, max_batch_rows=8))
    core.profile("a", 0, [(rows, 1.0) for rows in (1, 4, 8)] * 10, now=0.0)
    now = teach(core, 1.0)
    slow = start_one(core, 0, now=now)
    assert core.submit("part", api="a", follows=True, now=now) is None
    for other in range(1, 8):
        assert core.submit(other, api="a", now=now + 2.9) is None
    core.batch_done(slow.number, status="worked", now=now + 3.0)
    ran = [request for start in starts(poll_all(core, now + 3.0)) for request in start.requests]
    assert "part" in ran
