"""Groups: requests of different groups never share a batch, and few groups may be queued at once."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import pytest

from tests.dispatcher.driver import core_with, poll_all, starts, teach
from uncork_dispatcher.actions import Shed
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.simulator import Cell
from uncork_dispatcher.simulator.measure import measure

MOST = 1000


def busy(**rules: Any) -> tuple[Dispatcher, int, float]:
    """Return a core whose only worker runs a batch, with that batch, and the time."""
    core = core_with(ApiRules(name="a", goal_s=1e6, timeout_s=1e9, **rules))
    now = teach(core, 0.01)
    core.submit("first", api="a", now=now)
    [start] = starts(poll_all(core, now))
    return core, start.number, now


def fill(core: Dispatcher, now: float, *, bulk: bool = False) -> None:
    """Queue a request of as many groups as may be queued."""
    for group in range(MOST):
        assert core.submit(group, api="a", group=group, now=now, bulk=bulk) is None


def test_a_batch_has_one_group_and_one_key() -> None:
    core, running, now = busy()
    submitted = [("x", 1), ("x", 1), ("x", None), (None, 1), (1, 1), ("1", 1), (None, ("x", 1))]
    for number, (group, key) in enumerate(submitted):
        core.submit(number, api="a", group=group, key=key, now=now)
    batches = []
    while core.has_queued:
        now += 0.01
        core.batch_done(running, status="worked", now=now)
        [start] = starts(poll_all(core, now))
        batches.append((start.requests, start.group, start.key))
        running = start.number
    assert batches == [((0, 1), "x", 1), *[((at,), *submitted[at]) for at in range(2, 7)]]


def test_a_thousand_groups_may_be_queued() -> None:
    core, _, now = busy()
    fill(core, now)
    refused = core.submit("new", api="a", group="new", now=now)
    assert isinstance(refused, Shed)
    assert refused.reason == "too_many_groups"
    assert refused.retry_after_s >= 1
    # Known groups and requests without a group are welcome, whatever their key.
    assert core.submit("known", api="a", group=3, key="other", now=now) is None
    assert core.submit("no group", api="a", key="other", now=now) is None


def test_a_group_ends_with_its_last_queue() -> None:
    core, _, now = busy()
    fill(core, now)
    core.submit("other key", api="a", group=3, key="k", now=now)
    core.cancel(3, now=now)
    assert core.submit("new", api="a", group="new", now=now) is not None
    core.cancel("other key", now=now)
    assert core.submit("new", api="a", group="new", now=now) is None


def test_groups_of_bulk_leave_room_for_those_of_the_first_class() -> None:
    core, _, now = busy(bulk_goal_s=math.inf)
    fill(core, now, bulk=True)
    refused = core.submit("bulk", api="a", group="new", now=now, bulk=True)
    assert isinstance(refused, Shed)
    assert refused.reason == "too_many_groups"
    assert core.submit("first class", api="a", group="new", now=now) is None


@pytest.mark.parametrize("load", [{"load": 0.05, "workers": 4}, {"load": 0.4}, {"clients": 16}])
def test_no_group_is_held_if_none_has_most_of_the_arrivals(load: dict[str, Any]) -> None:
    """Every request is answered when it would be if batches were released as soon as a worker is free."""
    cell = Cell(intercept_ms=5, slope_ms=0.5, noise_cv=0.1, groups=8, **load)
    assert measure(cell, "cork", 1, requests=600) == measure(cell, "fixed:0", 1, requests=600)


def first_batch(ages_s: list[float], rows: list[int], *, wait_s: float = 0.0) -> Hashable:
    """Return the group that gets the worker, of groups whose oldest requests are of these ages.

    A batch takes 20 ms and 0.2 ms for each row, the goal is 300 ms, and ``wait_s`` passes before the worker
    is free.
    """
    core = core_with(ApiRules(name="a", goal_s=0.3, max_batch_rows=64))
    now = teach(core, 0.02)
    core.profile("a", 0, [(rows, 0.02 + 0.0002 * rows) for rows in (1, 16, 32, 64)] * 10, now=now)
    core.submit("first", api="a", rows=64, now=now)
    [running] = starts(poll_all(core, now))
    number = 0
    for at, group in sorted((max(ages_s) - age_s, group) for group, age_s in enumerate(ages_s)):
        for _ in range(rows[group]):
            number += 1
            core.submit(number, api="a", group=group, now=now + at)
    now += max(ages_s) + wait_s
    core.batch_done(running.number, status="worked", seconds=0.0328, now=now)
    return starts(poll_all(core, now))[0].group


def test_the_oldest_group_goes_first_while_there_is_time() -> None:
    assert first_batch([0.1, 0.05, 0.0], [1, 40, 60]) == 0


def test_of_groups_at_risk_the_one_with_the_most_rows_goes_first() -> None:
    """The smaller ones would take as long, and not all can be in time; the youngest can wait."""
    assert first_batch([0.1, 0.09, 0.0], [1, 40, 60], wait_s=0.15) == 1
    assert first_batch([0.1, 0.09, 0.09], [1, 40, 60], wait_s=0.15) == 2


def test_a_policy_may_hold_groups_at_risk() -> None:
    core = core_with(ApiRules(name="a", goal_s=0.03))
    now = teach(core, 0.02)
    core.set_api(ApiRules(name="a", goal_s=0.03, policy="fixed:100"))
    for group in (1, 2):
        core.submit(group, api="a", group=group, now=now)
    assert poll_all(core, now) == []
    assert [start.group for start in starts(poll_all(core, now + 0.1))] == [1]


@pytest.mark.parametrize(("goal_s", "follows"), [(0.01, False), (0.05, True)])
def test_late_requests_that_no_prediction_refuses_do_not_wait_for_ever(goal_s: float, follows: bool) -> None:
    """The goal is out of reach, or it is a part of an accepted request: the oldest group goes first."""
    core = core_with(ApiRules(name="a"))
    now = teach(core, 0.02)
    core.set_api(ApiRules(name="a", goal_s=goal_s))
    core.submit("running", api="a", group="large", now=now)
    [running] = starts(poll_all(core, now))
    core.submit("small", api="a", group="small", now=now, follows=follows)
    groups = []
    for number in range(2):
        for each in range(3):
            assert core.submit((number, each), api="a", group="large", now=now) is None
        now += 0.02
        core.batch_done(running.number, status="worked", now=now)
        [running] = starts(poll_all(core, now))
        groups.append(running.group)
    assert groups[0] == "small"
