"""What belongs to an api rather than to one of its queues."""

from __future__ import annotations

import math

import pytest

from tests.dispatcher.driver import entry, next_worker, running
from uncork_dispatcher.api import Api
from uncork_dispatcher.policies.base import Hold
from uncork_dispatcher.requests.queue import RequestQueue
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.workers.share import Share
from uncork_dispatcher.workers.slots import Slots

RULES = ApiRules(name="a", goal_s=0.5, max_batch_rows=8, max_batch_bytes=100)


def queue(*sizes: tuple[int, int]) -> RequestQueue:
    """Requests of so many rows and bytes, that came at 1.0, 2.0, ... and are due in reverse order."""
    made = RequestQueue("a", None)
    for number, (rows, size_bytes) in enumerate(sizes, 1):
        made.append(
            entry(number, arrival=float(number), rows=rows, size_bytes=size_bytes, deadline=20.0 - number)
        )
    return made


def slots() -> Slots:
    """Two idle workers, and one that is busy until 9.0."""
    made = Slots()
    for worker in range(3):
        made.add(worker)
    made.occupy(running(worker=next_worker(made), started=1.0, predicted_s=8.0))
    return made


def test_the_view_of_a_queue() -> None:
    """Sums and extremes of the queue, the slots, the estimate and the rates."""
    api = Api(RULES)
    api.learn(running(rows=1, started=0.0), (), 0.25)
    api.traffic.arrived((None, None), None, 3, 5.0)
    queued = queue((2, 10), (3, 10))
    view = api.view(queued, slots(), 5.0)

    assert (view.now, view.rows, view.requests) == (5.0, 5, 2)
    assert (view.oldest, view.newest, view.deadline) == (1.0, 2.0, 18.0)
    assert (view.goal_s, view.patience_s, view.slowdown) == (RULES.goal_s, RULES.goal_s, 1.0)
    assert (view.idle_workers, view.busy_until, view.running_rows(0)) == (2, [9.0], 1)
    assert view.estimate.seconds(1) == pytest.approx(0.25)
    assert view.new_client_rate == pytest.approx(60.0)
    assert view.load_rate == pytest.approx(60.0)
    assert not view.full

    queued.most_urgent.expires_at = 2.25  # it arrived at 2.0
    assert api.view(queued, slots(), 5.0).patience_s == 0.25


@pytest.mark.parametrize(
    ("size", "full"), [((7, 99), False), ((8, 0), True), ((1, 100), True), ((9, 200), True)]
)
def test_full_by_rows_or_by_bytes(size: tuple[int, int], full: bool) -> None:
    """At the limit, where one more row or byte could not go along."""
    api = Api(RULES)
    assert api.view(queue(size), slots(), 5.0).full is full
    assert api.fills_batch(queue(size), math.inf) is full


def test_urgency_is_the_oldest_arrival_plus_the_goal() -> None:
    """Or plus twice the time of one row, if that is more."""
    api = Api(RULES)
    assert api.urgency(queue((1, 0), (1, 0))) == 1.5

    api.learn(running(), (), 0.5)
    assert api.urgency(queue((1, 0))) == pytest.approx(2.0)


def test_a_goal_around_its_reach_is_told_once() -> None:
    """It counts as within reach again only below 0.9 of the goal."""
    api = Api(RULES)
    told = []
    for seconds in [0.51] * 10 + [0.49] * 20 + [0.51] * 20 + [0.40] * 30 + [0.55] * 20:
        told.append(api.learn(running(), (), seconds) is not None)

    assert told.index(True) == 4
    assert sum(told[:50]) == 1
    assert sum(told[50:]) == 1


def test_a_batch_teaches_the_policy_how_long_its_oldest_was_held() -> None:
    """``cork-classic`` then holds 0.95 times as long, less its tick and its slope."""
    api = Api(ApiRules(name="a", policy="cork-classic"))
    api.batch_ended(running(started=2.0, arrivals=[1.0, 0.5]), "worked", 2.05, 0.05)
    decision = api.policy.decide(api.view(queue((1, 0)), slots(), 1.0))

    # Two requests in 50 ms: the least-norm line through that gives each of them 2 / 5 of it.
    assert isinstance(decision, Hold)
    assert decision.until == pytest.approx(1.0 + 0.95 * 1.5 - 0.001 - 0.02)


def test_changed_rules_come_with_their_policy() -> None:
    """Another goal, or the same rules again, keep the policy and what it has learned."""
    api = Api(RULES)
    policy = api.policy
    api.change(ApiRules(name="a", goal_s=0.5, max_batch_rows=8, max_batch_bytes=100))
    assert api.policy is policy

    api.change(ApiRules(name="a", goal_s=0.7, max_batch_rows=8))
    assert api.policy is policy
    assert api.rules.goal_s == 0.7

    api.change(ApiRules(name="a", policy="none"))
    assert api.policy.limit_rows == 1
    assert api.rules.goal_s == 0.3


def test_another_unit_ends_what_was_learned() -> None:
    """What was learned counts rows in the old unit. The total of arrivals stays, because metrics read it."""
    api = Api(ApiRules(name="a", unit="bytes"))
    policy = api.policy
    api.learn(running(rows=4), (), 0.25)
    api.traffic.arrived((None, None), None, 400, 5.0)
    api.change(ApiRules(name="a", unit="bytes", goal_s=0.2))
    assert api.model.estimate.seconds(4) == pytest.approx(0.25)
    assert api.policy is policy

    api.change(ApiRules(name="a", unit="rows"))
    assert api.model.estimate.seconds(4) == 0
    assert api.policy is not policy
    assert api.traffic.all.mean_rows == 0
    assert api.sample().arrived_rows == 400


def test_transport_brings_deadlines_forward() -> None:
    """Transport is not the worker's time, but it delays the answers."""
    api = Api(ApiRules(name="a", goal_s=1.0))
    for batch in range(200):
        started = 10.0 * batch
        api.learn(running(rows=4, started=started), [(4, 0.25)], 0.375)

    assert api.model.estimate.seconds(4) == pytest.approx(0.25)
    assert api.due_at(5.0, math.inf) == pytest.approx(5.875, abs=0.002)
    assert api.due_at(5.0, 5.5) == pytest.approx(5.375, abs=0.002)


def test_responses_bring_deadlines_forward_twice() -> None:
    """A request waits for its own response and, if it comes as others are written, until it is read."""
    api = Api(ApiRules(name="a", goal_s=1.0))
    for _ in range(200):
        api.model.observe_responses(0.125)

    assert api.due_at(5.0, math.inf) == pytest.approx(5.75, abs=0.002)


def test_a_stall_while_responses_are_written_counts_little() -> None:
    api = Api(ApiRules(name="a", goal_s=1.0))
    for _ in range(200):
        api.model.observe_responses(0.01)
    api.model.observe_responses(5.0)

    assert api.due_at(5.0, math.inf) == pytest.approx(5.98, abs=0.008)


def test_a_goal_is_out_of_reach_if_the_responses_take_too_long() -> None:
    """Otherwise every request would be refused."""
    api = Api(RULES)
    for _ in range(200):
        api.model.observe_responses(0.4)
    told = [api.learn(running(), (), 0.2) is not None for _ in range(6)]

    assert told.index(True) == 4
    assert not api.model.can_predict(1)


def test_deadlines_do_not_move_with_every_batch() -> None:
    api = Api(ApiRules(name="a", goal_s=1.0))
    allowed = []
    for batch in range(100):
        started = 10.0 * batch
        api.learn(running(started=started), [(1, 0.25)], 0.26 + 0.0005 * (batch % 2))
        allowed.append(api.due_at(0.0, math.inf))

    assert len(set(allowed[50:])) == 1
    assert 0.985 < allowed[-1] < 0.995


PROFILE = [(rows, 0.05 + 0.01 * rows) for rows in (1, 2, 4, 6, 7, 8)]


def test_a_profile_is_what_batches_take() -> None:
    """Beyond the limit in force it is of no use; nobody has come, and nobody was answered."""
    api = Api(RULES)
    api.model.observe_profile(3, [*PROFILE, (9, 70.0)])

    assert api.model.estimate.intercept_s == pytest.approx(0.05)
    assert api.model.estimate.slope_s == pytest.approx(0.01)
    assert api.model.slowdown(3) == 1.0
    assert (api.stats(1.0, Share(), fits=math.inf).rate_rows, api.backlog.requests) == (0, 0)


def test_a_profile_alone_refuses_nobody() -> None:
    """Requests may all be larger than the goal allows; the first batch tells how small they are."""
    api = Api(RULES)
    api.model.observe_profile(0, PROFILE)
    assert api.model.estimate.earned_rows == 16
    assert not api.model.can_predict(1)

    api.learn(running(rows=4), (), 0.09)
    assert api.model.can_predict(4)


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_profiles_tell_workers_apart(factor: float) -> None:
    """The estimate is that of the average; one that takes as long as the other is no other."""
    api = Api(RULES)
    api.model.observe_profile(0, PROFILE)
    api.model.observe_profile(1, [(rows, factor * seconds) for rows, seconds in PROFILE])

    assert api.model.slowdown(1) / api.model.slowdown(0) == pytest.approx(factor)
    for worker, seconds in ((0, 0.1), (1, factor * 0.1)):
        assert api.model.estimate.seconds(5) * api.model.slowdown(worker) == pytest.approx(seconds, rel=0.35)
