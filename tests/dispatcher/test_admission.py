"""The rules at the door, without the core around them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatcher.driver import entry, next_worker, running
from uncork_dispatcher.admission import Admission, backlog_finish
from uncork_dispatcher.api import Api
from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.workers.slots import Slots

LINE = Estimate(intercept_s=1.0, slope_s=0.25)


def api(*, batches: int = 5, queued: int = 0, policy: str = "cork", **limits: float) -> Api:
    """An API that has seen batches of one row of 1 s each, and queues requests of one row and one byte."""
    made = Api(ApiRules(name="a", policy=policy, **limits))  # type: ignore[arg-type]
    for _ in range(batches):
        made.learn(running(), (), 1.0)
    for number in range(queued):
        made.backlog.add(entry(number, size_bytes=1))
    return made


def slots(*, idle: int = 0, busy: int = 0) -> Slots:
    """Busy workers have just started a batch of 1 s, at time 0."""
    made = Slots()
    for worker in range(busy + idle):
        made.add(worker)
    for worker in range(busy):
        made.occupy(running(batch=worker, worker=next_worker(made), predicted_s=1.0))
    return made


def ask(
    api: Api, workers: Slots, *, rows: int = 1, size_bytes: int = 1, expires_at: float = math.inf
) -> str | None:
    """The reason for which a request at time 0 is shed; None if it is queued."""
    request = entry(1000, rows=rows, size_bytes=size_bytes, deadline=api.due_at(0.0, expires_at))
    request.expires_at = expires_at
    return Admission(api, workers).admit(request)


def test_no_worker_comes_before_everything_else() -> None:
    """The client may as well try again elsewhere."""
    assert ask(api(), slots(), expires_at=-1.0) == "no_worker"


def test_a_client_that_has_given_up() -> None:
    """Even on an idle gateway; not a moment before."""
    assert ask(api(), slots(idle=1), expires_at=0.0) == "client_deadline"
    assert ask(api(), slots(idle=1), expires_at=1e-9) is None


def test_idle_and_empty_takes_anything() -> None:
    tiny = api(goal_s=1.0, max_queue_rows=1, max_queue_bytes=1)

    assert ask(tiny, slots(idle=1), rows=10**6, size_bytes=2**50) is None


def test_an_idle_worker_does_not_help_behind_a_backlog() -> None:
    """The policy holds them, or they come all at once: the limits count."""
    assert ask(api(queued=5, max_queue_rows=5, goal_s=100.0), slots(idle=1)) == "queue_full"
    assert ask(api(queued=5, max_batch_rows=1, goal_s=5.0), slots(idle=1)) == "deadline"


@pytest.mark.parametrize(("queued", "reason"), [(0, None), (1, "queue_full")])
def test_an_empty_queue_takes_any_request(queued: int, reason: str | None) -> None:
    """Also while all workers are busy; the next one finds it full."""
    small = api(queued=queued, batches=0, max_queue_rows=5, max_queue_bytes=5)

    assert ask(small, slots(busy=1), rows=50) == reason
    assert ask(small, slots(busy=1), size_bytes=50) == reason


@pytest.mark.parametrize(("extra", "reason"), [(2, None), (3, "queue_full")])
def test_the_limits_of_the_queue_are_inclusive(extra: int, reason: str | None) -> None:
    """Three of five are queued: two more fit, in rows as in bytes."""
    by_rows = api(queued=3, batches=0, max_queue_rows=5)
    by_bytes = api(queued=3, batches=0, max_queue_bytes=5)

    assert ask(by_rows, slots(busy=1), rows=extra) == reason
    assert ask(by_bytes, slots(busy=1), size_bytes=extra) == reason


def test_requests_are_limited_where_they_cost_little() -> None:
    """Three of three are queued; their cost would leave room."""
    cheap = api(queued=3, batches=0, max_queue_requests=3)

    assert ask(cheap, slots(busy=1)) == "queue_full"


@pytest.mark.parametrize(("goal_s", "reason"), [(3.001, None), (2.999, "deadline")])
def test_a_backlog_beyond_the_goal(goal_s: float, reason: str | None) -> None:
    """1 s of the running batch, one queued request, then this one: done at 3 s."""
    assert ask(api(queued=1, max_batch_rows=1, goal_s=goal_s), slots(busy=1)) == reason


@pytest.mark.parametrize(("expires_at", "reason"), [(3.001, None), (2.999, "deadline")])
def test_a_backlog_beyond_the_clients_patience(expires_at: float, reason: str | None) -> None:
    queue = api(queued=1, max_batch_rows=1, goal_s=9.0)

    assert ask(queue, slots(busy=1), expires_at=expires_at) == reason


def test_four_batches_are_not_enough_to_refuse() -> None:
    assert ask(api(batches=4, queued=9, max_batch_rows=1, goal_s=2.0), slots(busy=1)) is None
    assert ask(api(batches=5, queued=9, max_batch_rows=1, goal_s=2.0), slots(busy=1)) == "deadline"


def test_a_batch_far_larger_than_any_seen_is_not_predicted() -> None:
    """Batches of one row were seen: two rows may be refused on the strength of that, three not."""
    assert ask(api(queued=1, goal_s=1.5), slots(busy=1)) == "deadline"
    assert ask(api(queued=2, goal_s=1.5), slots(busy=1)) is None


def test_a_larger_batch_than_the_policy_makes_is_not_asked_about() -> None:
    """Without batching nine queued requests of one row are ten batches of one row, and refuse the next."""
    assert ask(api(queued=9, policy="none", goal_s=5.0), slots(busy=1)) == "deadline"


def test_a_request_that_cannot_be_cut_is_a_batch_of_its_own() -> None:
    """50 rows in one request are one batch, and larger than any seen."""
    assert ask(api(queued=1, policy="none", goal_s=1.5), slots(busy=1), rows=50) is None


def test_a_request_above_the_limit_is_run_in_chunks_of_the_limit() -> None:
    """So it may be refused once batches of the limit are known."""
    assert ask(api(queued=1, max_batch_rows=2, goal_s=1.5), slots(busy=1), rows=50) == "deadline"
    assert ask(api(queued=1, max_batch_rows=3, goal_s=1.5), slots(busy=1), rows=50) is None


def test_a_goal_that_no_batch_can_meet_refuses_nobody() -> None:
    """One row takes 1 s; a goal of exactly that still refuses."""
    assert ask(api(queued=9, max_batch_rows=1, goal_s=0.99), slots(busy=1)) is None
    assert ask(api(queued=9, max_batch_rows=1, goal_s=1.01), slots(busy=1)) == "deadline"


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

    assert Admission(queue, workers).retry_after_s(rows=1, now=0.0) == pytest.approx(expected)


def test_those_who_are_refused_together_are_told_to_come_back_one_by_one() -> None:
    """Two workers carry 2 rows a second; a tenth is a row every 5 s. The spread doubles it at most."""
    admission = Admission(api(queued=4, max_batch_rows=1), slots(busy=2))
    told = [admission.retry_after_s(rows=1, now=0.0) for _ in range(40)]

    assert told[0] == pytest.approx(3.0)
    for place, wait in enumerate(told):
        turn = min(3.0 + 5.0 * place, 60.0)
        assert turn <= wait < 2 * turn or (place == 0 and wait == turn)
    assert len({round(wait) for wait in told[-20:]}) == 20
    assert admission.retry_after_s(rows=1, now=1000.0) >= 3.0, "the line is over"


def test_retry_after_is_a_second_where_batches_take_no_time() -> None:
    """A clock of low resolution measures short batches so. Nobody has to wait for anybody else."""
    model = Api(ApiRules(name="a"))
    model.model.observe_profile(0, [(1, 0.0)] * 5)
    assert model.model.estimate.earned_rows > 0
    for _ in range(3):
        assert Admission(model, slots(busy=1)).retry_after_s(rows=1, now=1.0) == 1.0


def test_retry_after_is_a_second_while_nothing_is_known() -> None:
    assert Admission(api(queued=500, batches=0), slots(busy=1)).retry_after_s(rows=1, now=0.0) == 1.0


@pytest.mark.parametrize(
    ("free_at", "rows", "requests", "limit_rows", "finish"),
    [
        ([5.0], 4, 4, 4, 5.0 + 2.0),  # one batch
        ([5.0], 5, 5, 4, 5.0 + 2 * 1.625),  # two, of 2.5 rows each
        ([5.0], 40, 1, 4, 5.0 + 11.0),  # one request cannot be cut
        ([5.0, 6.0], 8, 8, 4, 6.0 + 2.0),  # one on each of two workers
        ([5.0, 6.0], 12, 12, 4, 5.0 + 2 * 2.0),  # the third goes to the first again
        ([5.0, 6.0], 16, 16, 4, 6.0 + 2 * 2.0),
    ],
)
def test_a_backlog_is_dealt_to_the_workers_in_turn(
    free_at: list[float], rows: int, requests: int, limit_rows: int, finish: float
) -> None:
    """1 s and a quarter for each row; the last of the batches counts."""
    got = backlog_finish(free_at, rows=rows, requests=requests, limit_rows=limit_rows, estimate=LINE)

    assert got == pytest.approx(finish)


@given(
    free_at=st.lists(st.floats(0, 10), min_size=1, max_size=4).map(sorted),
    requests=st.integers(1, 50),
    limit_rows=st.integers(1, 10),
)
def test_a_backlog_is_never_done_before_a_worker_is_free(
    free_at: list[float], requests: int, limit_rows: int
) -> None:
    """Nor later than one request after another on one worker."""
    got = backlog_finish(free_at, rows=requests, requests=requests, limit_rows=limit_rows, estimate=LINE)

    assert got >= free_at[0] + LINE.seconds(1)
    assert got <= free_at[-1] + requests * LINE.seconds(1) + 1e-9
