"""Groups: requests of different groups never share a batch, and few groups may be queued at once."""

from __future__ import annotations

from tests.dispatcher.driver import core_with, poll_all, starts, teach
from uncork_dispatcher.actions import Shed
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.rules import ApiRules

MOST = 1000


def busy(fair: bool = False) -> tuple[Dispatcher, int, float]:
    """Return a core whose only worker runs a batch, with that batch, and the time."""
    core = core_with(ApiRules(name="a", goal_s=1e6, timeout_s=1e9, fair=fair))
    now = teach(core, 0.01)
    core.submit("first", api="a", now=now)
    [start] = starts(poll_all(core, now))
    return core, start.number, now


def fill(core: Dispatcher, now: float) -> None:
    """Queue a request of as many groups as may be queued."""
    for group in range(MOST):
        assert core.submit(group, api="a", group=group, now=now) is None


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


def test_groups_are_counted_by_api() -> None:
    core, _, now = busy()
    fill(core, now)
    core.set_api(ApiRules(name="b"))
    assert core.submit("new", api="b", group="new", now=now) is None


def test_requests_that_run_again_keep_their_group() -> None:
    core = core_with(ApiRules(name="a", goal_s=1e6, timeout_s=1e9))
    core.submit(1, api="a", group="x", key=1, now=0.0)
    [start] = starts(poll_all(core, 0.0))
    fill(core, 0.0)
    core.worker_lost(start.worker, now=0.1)
    # The request is queued again, in addition to a thousand groups.
    core.cancel(5, now=0.1)
    assert core.submit("new", api="a", group="new", now=0.1) is not None
    core.worker_ready(9, now=0.1)
    [again] = starts(poll_all(core, 0.1))
    assert (again.requests, again.group, again.key) == ((1,), "x", 1)


def test_changing_to_fair_queues_keeps_groups() -> None:
    core, running, now = busy()
    core.submit(1, api="a", group="x", now=now)
    core.submit(2, api="a", group="y", now=now)
    core.set_api(ApiRules(name="a", goal_s=1e6, timeout_s=1e9, fair=True))
    core.batch_done(running, status="worked", now=now + 0.01)
    [start] = starts(poll_all(core, now + 0.01))
    assert (start.requests, start.group) == ((1,), "x")
