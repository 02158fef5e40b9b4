"""Two classes: bulk rides in the room that the goal of the first class leaves, and displaces nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.dispatcher.driver import core_with, poll_all, starts
from uncork_dispatcher.actions import BatchStatus, Lost, Shed
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules, SettingError
from uncork_dispatcher.scheduling.bulk import first_hole_s, longest_wait_s, most_cycles_s
from uncork_dispatcher.simulator import Clients, Loss, Run, Scenario, ServiceTime, simulate
from uncork_dispatcher.stats import ClassStats

RULES: dict[str, Any] = {"name": "a", "goal_s": 0.1, "max_batch_rows": 64, "bulk_goal_s": math.inf}
INTERCEPT_S, SLOPE_S = 0.02, 0.0002


def taught(*, workers: int = 1, intercept_s: float = INTERCEPT_S, **rules: Any) -> Dispatcher:
    """Return a core that knows batch times: 20 ms, unless told otherwise, and 0.2 ms for each row."""
    core = Dispatcher()
    core.set_api(ApiRules(**{**RULES, **rules}))
    for worker in range(workers):
        core.worker_ready(worker, now=-2.0)
        times = [(rows, intercept_s + SLOPE_S * rows) for rows in (1, 16, 32, 64)]
        core.profile("a", worker, times * 10, now=-2.0)
    core.submit("first", api="a", now=-2.0)
    core.batch_done(only_start(core, -2.0).number, status="worked", seconds=intercept_s + SLOPE_S, now=-1.0)
    return core


def only_start(core: Dispatcher, now: float) -> Batch[Any]:
    [start] = starts(poll_all(core, now))
    return start


def upper(core: Dispatcher) -> float:
    """Return the factor from the batch times that the core predicts to those that are rarely exceeded."""
    [stats] = core.stats(now=2.0)
    return 1 + 2 * stats.estimate.spread


def arrivals(per_s: float, seconds: float) -> list[float]:
    """Return the times of steady arrivals."""
    return [number / per_s for number in range(int(per_s * seconds))]


def mixed(
    *, goal_s: float = 0.1, per_s: float = 400, workers: int = 1, bulk_rows: float = 4.0, **scenario: Any
) -> Run:
    """Run steady requests of the first class beside clients of bulk, with 256 rows in all, for 4 s."""
    return simulate(
        Scenario(
            service=ServiceTime(intercept_s=INTERCEPT_S, slope_s=SLOPE_S),
            arrivals=arrivals(per_s, 4.0),
            workers=workers,
            limit_rows=256,
            goal_s=goal_s,
            bulk=Clients(count=round(256 / bulk_rows)),
            bulk_rows=bulk_rows,
            **scenario,
        )
    )


def late(run: Run, goal_s: float) -> float:
    """Return the share of the requests of the first class that were late or refused."""
    first = [one for one in run.answered if not one.bulk]
    refused = len([shed for _, shed in run.shed if shed.request > 0])
    return (sum(one.finish - one.arrival > goal_s for one in first) + refused) / (len(first) + refused)


def bulk_per_s(run: Run) -> float:
    """Return the rows per second of bulk, without the first second and what is left at the end."""
    return sum(one.length for one in run.answered if one.bulk and 1.0 <= one.finish <= 4.0) / 3.0


@given(
    goal_s=st.floats(0.001, 10),
    rate=st.floats(0, 1e4),
    intercept_s=st.floats(0, 1),
    slope_s=st.floats(0, 0.1),
    spread=st.floats(0, 0.5),
)
def test_after_the_longest_wait_the_batch_just_meets_the_goal(
    goal_s: float, rate: float, intercept_s: float, slope_s: float, spread: float
) -> None:
    estimate = Estimate(intercept_s, slope_s, spread, 0.0)
    wait_s = longest_wait_s(goal_s, rate, estimate)
    upper = 1 + 2 * spread
    assert upper * (wait_s + estimate.seconds(rate * wait_s)) == pytest.approx(0.98 * goal_s)


@pytest.mark.parametrize(
    ("free_in_s", "hole_s"),
    [
        ([], 1.0),
        ([-3.0], 1.0),
        ([0.5], 1.5),
        ([0.5, 1.5, 2.5], 3.5),
        ([0.5, 1.6], 1.5),
        ([1.1], 1.0),
        ([0.0, 0.9, 3.0], 1.9),
    ],
)
def test_the_first_hole_begins_a_wait_after_the_last_worker_before_it(
    free_in_s: list[float], hole_s: float
) -> None:
    assert first_hole_s(free_in_s, 1.0, 99.0) == pytest.approx(hole_s)


@pytest.mark.parametrize(
    ("rate", "seconds"), [(0.0, math.inf), (1.0, math.inf), (400, 10 * 0.021 / 0.92), (5000, math.inf)]
)
def test_ten_cycles(rate: float, seconds: float) -> None:
    """Unlimited with hardly any requests of the first class, and if it needs all workers anyway."""
    estimate = Estimate(0.02, 0.0002, 0.1, 0.0)
    found = most_cycles_s(rate, estimate, workers=1, transport_s=0.001, limit_rows=64)
    assert found == pytest.approx(seconds)


def test_the_goal_of_bulk_is_longer() -> None:
    with pytest.raises(SettingError, match=r"bulk_goal_s must be more than goal_s \(0.1\), got 0.1"):
        ApiRules(**{**RULES, "bulk_goal_s": 0.1})


@pytest.mark.parametrize(("per_s", "workers"), [(400, 1), (900, 1), (1600, 2)])
def test_the_first_class_keeps_its_goal_beside_bulk(per_s: float, workers: int) -> None:
    run = mixed(per_s=per_s, workers=workers)
    assert late(run, 0.1) < 0.02
    assert bulk_per_s(run) > 300


def test_bulk_alone_is_limited_by_nothing() -> None:
    core = taught()
    for number in range(80):
        core.submit(number, api="a", now=0.0, bulk=True)
    start = only_start(core, 0.0)
    assert (start.rows, start.bulk_rows) == (64, 64)


def test_without_classes_all_requests_are_of_one() -> None:
    core = taught(bulk_goal_s=None)
    core.submit(1, api="a", now=0.0, bulk=True)
    start = only_start(core, 0.0)
    assert (start.rows, start.bulk_rows) == (1, 0)
    [stats] = core.stats(now=0.0)
    assert (stats.bulk, core.sample("a").bulk_rows, core.sample("a").arrived_rows) == (None, 0, 2)


def busy_then(core: Dispatcher, *, first: int, bulk: int, rows: int = 1, key: Any = None) -> Batch[Any]:
    """Queue requests while a batch runs; return the batch after it."""
    core.submit("running", api="a", now=0.0)
    running = only_start(core, 0.0)
    for number in range(bulk):
        core.submit(("bulk", number), api="a", now=0.0, bulk=True, rows=rows, key=key)
    for number in range(first):
        core.submit(number, api="a", now=0.01)
    core.batch_done(running.number, status="worked", now=0.0202)
    return only_start(core, 0.0202)


def test_bulk_rides_behind_the_first_class() -> None:
    start = busy_then(taught(), first=3, bulk=5)
    assert start.requests == (0, 1, 2, *[("bulk", number) for number in range(5)])
    assert (start.rows, start.bulk_rows) == (8, 5)


def test_riders_leave_the_goal_of_the_batch() -> None:
    """Goal 100 ms, of which 10 ms have passed: not all of 1,000 rows fit."""
    start = busy_then(taught(max_batch_rows=1000), first=1, bulk=1000)
    assert 100 < start.bulk_rows < 400
    assert start.released + start.predicted_s < 0.11


def test_riders_leave_the_goal_also_after_a_large_request() -> None:
    """The average request then has more rows than a batch, but a batch of one row is not full of them."""
    core = taught(max_batch_rows=256, goal_s=0.06)
    core.submit("large", api="a", rows=100_000, now=-0.9)
    core.batch_done(only_start(core, -0.9).number, status="failed", now=-0.8)
    start = busy_then(core, first=1, bulk=300)
    assert start.requests[0] == 0
    assert start.bulk_rows > 0
    assert start.released + start.predicted_s < 0.07


def test_all_bulk_rides_while_the_gateway_drains() -> None:
    core = taught(max_batch_rows=256, goal_s=0.06)
    core.submit("running", api="a", now=0.0)
    running = only_start(core, 0.0)
    core.submit("first", api="a", now=0.01)
    for number in range(200):
        core.submit(("bulk", number), api="a", now=0.01, bulk=True)
    core.drain(now=0.01)
    core.batch_done(running.number, status="worked", seconds=0.0202, now=0.0202)
    assert only_start(core, 0.0202).bulk_rows == 200


def test_bulk_alone_leaves_time_for_the_transport_of_two_batches() -> None:
    """Of its own, before arrivals get the worker, and of theirs."""
    rows, divided = [], []
    for transport_s in (0.0, 0.01):
        core = taught(max_batch_rows=1000)
        for number in range(40):
            now = number / 20
            core.submit(number, api="a", now=now)
            start = only_start(core, now)
            now += 0.0202 + transport_s
            core.batch_done(start.number, status="worked", chunks=[(1, 0.0202)], now=now)
        divided.append(16 * 10_000 / parts(core, 10_000, now=2.0))
        for number in range(1000):
            core.submit(("bulk", number), api="a", now=2.0, bulk=True)
        rows.append(only_start(core, 2.0).rows)
    assert rows[0] - rows[1] == pytest.approx(0.01 * (1 + 1 / upper(core)) / SLOPE_S, abs=4)
    assert divided == pytest.approx(rows, rel=0.02)


def test_riders_leave_time_to_write_responses() -> None:
    rows = []
    for seconds in (0.0, 0.01):
        core = taught(max_batch_rows=1000)
        for _ in range(200):
            core.responses_written("a", seconds, now=-1.0)
        rows.append(busy_then(core, first=1, bulk=1000).bulk_rows)
    assert rows[0] - rows[1] == pytest.approx(2 * 0.01 / upper(core) / SLOPE_S, abs=4)


@pytest.mark.parametrize("busy_gateway", [{"transport_s": 0.004}, {"response_s": 0.0001}])
def test_a_busy_gateway_costs_bulk_instead_of_the_first_class(busy_gateway: dict[str, Any]) -> None:
    idle, busy = [mixed(per_s=800, **cost) for cost in (dict[str, Any](), busy_gateway)]
    assert late(busy, 0.1) < 0.01
    assert 0.7 < bulk_per_s(busy) / bulk_per_s(idle) < 0.99


def test_bulk_rides_with_short_deadlines_of_a_long_goal() -> None:
    """2 % of 100 s would leave no time of a deadline of 1 s."""
    core = busy(goal_s=100.0, max_batch_rows=1000)
    core.submit("bulk", api="a", now=0.0, rows=20, bulk=True)
    core.submit("short", api="a", now=0.01, expires_at=1.01)
    core.batch_done(2, status="worked", seconds=INTERCEPT_S + SLOPE_S, now=0.02)
    assert only_start(core, 0.02).requests == ("short", "bulk")


def test_a_batch_that_runs_again_keeps_its_classes() -> None:
    """Handlers, metrics and the share of bulk count them."""
    core = taught()
    before = busy_then(core, first=3, bulk=5, rows=2)
    core.worker_lost(0, now=0.03)
    core.worker_ready(1, now=0.03)
    again = only_start(core, 0.03)
    assert {*again.requests} == {*before.requests}
    assert (again.rows, again.bulk_rows) == (before.rows, before.bulk_rows) == (13, 10)


def test_bulk_with_another_batch_key_does_not_ride() -> None:
    start = busy_then(taught(), first=3, bulk=5, key="other")
    assert start.requests == (0, 1, 2)


def parts(core: Dispatcher, rows: float = 60, size_bytes: int = 0, now: float = 0.0) -> int:
    return core.bulk_parts("a", rows=rows, size_bytes=size_bytes, now=now)


def test_large_bulk_requests_are_divided_to_fit() -> None:
    """Into sixteenths of what fits: here at most 64 rows, the limit, or some 110 after the longest wait."""
    assert [parts(taught(), rows) for rows in (1, 4, 5, 64)] == [1, 1, 2, 16]
    assert 30 <= parts(taught(max_batch_rows=1000), 256) <= 40
    assert parts(taught(max_batch_rows=1000), 10**4) == 1000


def test_parts_are_small_before_batch_times_are_known() -> None:
    core = core_with(ApiRules(**{**RULES, "max_batch_rows": 1024}))
    assert parts(core, 64) == 16


def test_without_room_only_full_batches_are_cut() -> None:
    assert parts(taught(goal_s=0.02), 150) == 3


@pytest.mark.parametrize(
    "rules",
    [
        {"bulk_goal_s": None},
        {"idempotent": False},
        {"max_queue_rows": 59},
        {"max_queue_requests": 10},
        {"max_queue_bytes": 99},
        {"bulk_goal_s": 0.101, "max_batch_rows": 1},
    ],
)
def test_what_would_be_refused_in_parts_is_not_divided(rules: dict[str, Any]) -> None:
    assert parts(taught(**rules), size_bytes=100) == 1


def test_what_ends_after_its_client_has_left_is_not_divided() -> None:
    """60 rows take about 30 ms."""
    core = taught()
    times = [0.01, 10.0]
    assert [core.bulk_parts("a", rows=60, size_bytes=0, now=0.0, expires_at=at) for at in times] == [1, 15]


def test_nothing_is_divided_without_workers() -> None:
    core = Dispatcher()
    core.set_api(ApiRules(**RULES))
    assert parts(core) == 1


def test_a_full_batch_of_the_first_class_has_no_room_at_first() -> None:
    start = busy_then(taught(), first=70, bulk=5, rows=4)
    assert (start.rows, start.bulk_rows) == (64, 0)


def test_bulk_is_divided_among_the_workers() -> None:
    core = taught(workers=4)
    for number in range(40):
        core.submit(number, api="a", now=0.0, bulk=True)
    assert [start.bulk_rows for start in starts(poll_all(core, 0.0))] == [10, 10, 10, 10]


def busy(**rules: Any) -> Dispatcher:
    """Return a core whose only worker has been busy since 0 s."""
    core = taught(**rules)
    core.submit("running", api="a", now=0.0)
    only_start(core, 0.0)
    return core


def full(**rules: Any) -> Dispatcher:
    """Return a core whose worker is busy and whose queue is full of bulk."""
    core = busy(max_queue_requests=10, **rules)
    for number in range(10):
        assert core.submit(("bulk", number), api="a", now=0.001 * number, bulk=True) is None
    return core


@pytest.mark.parametrize("fair", [False, True])
def test_a_queue_full_of_bulk_refuses_no_request_of_the_first_class(fair: bool) -> None:
    core = full(fair=fair)
    assert core.submit(1, api="a", now=0.01) is None
    [shed] = [action for action in core.poll(0.01) if isinstance(action, Shed)]
    assert (shed.request, shed.reason) == (("bulk", 9), "displaced")
    assert shed.retry_after_s >= 1


@pytest.mark.parametrize(("fair", "shed"), [(True, {("bulk", 0): "displaced", 7: "queue_full"}), (False, {})])
def test_a_little_bulk_does_not_keep_flows_from_their_share(fair: bool, shed: dict[Any, str]) -> None:
    """It makes room first, and the largest flow for the rest; without flows, nothing is gained by that."""
    core = busy(max_queue_rows=17, fair=fair)
    core.submit(("bulk", 0), api="a", now=0.0, bulk=True)
    for number in range(8):
        assert core.submit(number, api="a", rows=2, now=0.0, flow="noisy") is None
    refused = core.submit("quiet", api="a", rows=3, now=0.0, flow="quiet")
    assert (refused is None) is fair
    actions = core.poll(0.0)
    assert {action.request: action.reason for action in actions if isinstance(action, Shed)} == shed


def test_the_newest_bulk_makes_room_also_if_no_two_of_it_share_a_batch() -> None:
    """A policy is asked about sixteen of these queues at once, but each of them makes room."""
    core = busy(max_queue_rows=40)
    for number in range(40):
        assert core.submit(number, api="a", key=number, now=0.001 * number, bulk=True) is None
    assert core.submit("first class", api="a", rows=30, now=0.05) is None
    shed = [action.request for action in core.poll(0.05) if isinstance(action, Shed)]
    assert shed == list(range(39, 9, -1))


def test_bulk_makes_room_also_beside_parts_that_wait() -> None:
    """Of a large request, parts of which are queued later: its rows count against the limit too."""
    core = busy(max_queue_rows=20)
    for number in range(10):
        assert core.submit(("bulk", number), api="a", now=0.0, bulk=True) is None
    core.reserve("a", rows=15, size_bytes=0)
    assert core.submit(1, api="a", now=0.0) is None
    [shed] = [action for action in core.poll(0.0) if isinstance(action, Shed)]
    assert (shed.request, shed.reason) == (("bulk", 9), "displaced")


def test_a_known_budget_of_the_first_class_does_not_hide_bulk() -> None:
    """Bulk has filled the queue since the core found that more requests can be in time."""
    core = busy(max_queue_requests=10)
    core.submit(1, api="a", now=0.0)
    for number in range(9):
        assert core.submit(("bulk", number), api="a", now=0.0, bulk=True) is None
    assert core.submit(2, api="a", now=0.0) is None
    [shed] = [action for action in core.poll(0.0) if isinstance(action, Shed)]
    assert shed.request == ("bulk", 8)


def test_a_known_budget_of_the_first_class_is_not_for_bulk() -> None:
    """62 rows of the first class are in time, but while it is overloaded, bulk has 100 rows/s."""
    core = busy(bulk_goal_s=0.2)
    assert core.submit("overload", api="a", rows=5000, now=0.0) is not None
    for number in range(31):
        assert core.submit(number, api="a", now=0.0) is None
    refused = core.submit("bulk", api="a", rows=31, now=0.0, bulk=True)
    assert refused is not None
    assert refused.reason == "deadline"


def test_bulk_that_would_be_late_is_refused() -> None:
    """In one second, a worker has time for some 2,000 rows."""
    core = busy(bulk_goal_s=1.0)
    refused = [core.submit(number, api="a", rows=10, now=0.0, bulk=True) for number in range(300)]
    reasons = [shed and shed.reason for shed in refused]
    assert reasons == [None] * reasons.index("deadline") + ["deadline"] * (300 - reasons.index("deadline"))
    assert 150 < reasons.index("deadline") < 200
    last = refused[-1]
    assert last is not None
    assert 1 <= last.retry_after_s <= 120


def test_refused_bulk_of_many_rows_does_not_put_off_others() -> None:
    """It takes a turn as long as a full batch: a third of a second at a tenth of what the worker carries."""
    core = busy(bulk_goal_s=1.0)
    huge = core.submit("huge", api="a", rows=1_000_000, now=0.0, bulk=True)
    others = [core.submit(number, api="a", rows=10, now=0.0, bulk=True) for number in range(300)]
    refused = [shed for shed in others if shed is not None]
    assert huge is not None
    assert huge.retry_after_s == 1.0
    assert refused[0].retry_after_s < 5.0


def test_nothing_is_refused_by_an_estimate_that_is_not_earned() -> None:
    core = core_with(ApiRules(**{**RULES, "bulk_goal_s": 0.2}))
    core.submit("running", api="a", now=0.0)
    only_start(core, 0.0)
    for number in range(300):
        assert core.submit(number, api="a", rows=10, now=0.0, bulk=True) is None


def test_statistics_by_class() -> None:
    core = full()
    core.submit(1, api="a", rows=2, size_bytes=5, now=0.02)
    core.poll(0.02)
    [stats] = core.stats(now=0.05)
    assert (stats.queued_requests, stats.queued_rows, stats.queued_bytes) == (1, 2, 5)
    assert stats.bulk == ClassStats(9, 9, 0, 0.05)
    sample = core.sample("a")
    assert (sample.arrived_rows, sample.queued_rows, sample.bulk_rows) == (4, 11, 10)


def test_bulk_that_fits_nowhere_runs_when_it_is_owed_the_time() -> None:
    """At this goal, no hole is long enough for 64 rows, and a request of the first class always waits."""
    core, now, number = taught(goal_s=0.06), 0.0, 0
    core.submit(number, api="a", now=now)
    running = only_start(core, now)
    core.submit("bulk", api="a", rows=64, now=now, bulk=True)
    while not running.bulk_rows and now < 3.0:
        number += 1
        core.submit(number, api="a", now=now)
        now += 0.0202
        core.batch_done(running.number, status="worked", now=now)
        running = only_start(core, now)
    assert running.requests == ("bulk",)
    assert now > 0.3


def test_bulk_of_a_batch_key_that_is_passed_over_is_owed_time_next() -> None:
    """A request of the first class always waits, with other bulk of its own key, which rides."""
    core, now, number = taught(goal_s=0.06), 0.0, 0
    core.submit(number, api="a", now=now)
    running = only_start(core, now)
    core.submit("passed over", api="a", key="other", now=now, bulk=True)
    while running.requests != ("passed over",) and now < 10.0:
        number += 1
        core.submit(number, api="a", now=now)
        core.submit(("rider", number), api="a", now=now, bulk=True)
        now += 0.0204
        core.batch_done(running.number, status="worked", now=now)
        running = only_start(core, now)
    assert running.requests == ("passed over",)
    assert now > 5.0


def test_bulk_that_is_owed_nothing_yet_waits_until_it_is() -> None:
    core, now = taught(goal_s=0.03), 0.0
    for number in range(20):
        core.submit(number, api="a", now=now)
        start = only_start(core, now)
        now += 0.0202
        core.batch_done(start.number, status="worked", now=now)
    core.submit("bulk", api="a", rows=60, now=now, bulk=True)
    assert poll_all(core, now) == []
    [stats] = core.stats(now=now)
    assert stats.holding is not None
    assert stats.holding.reason == "class"
    assert only_start(core, core.next_wakeup()).requests == ("bulk",)


@pytest.mark.parametrize("now", [0.0, 600.0])
def test_bulk_that_fits_nowhere_runs_when_the_first_class_has_gone(now: float) -> None:
    """Its goal leaves no time to wait, but nobody is expected. One request of bulk runs at a time.

    At 600 s, what is left of the wait at its end is too short to change the time.
    """
    core = taught(goal_s=2.05, intercept_s=2.0)
    for number in range(5):
        core.submit(number, api="a", now=now)
        start = only_start(core, now)
        now += 2.0002
        core.batch_done(start.number, status="worked", now=now)
    for number in range(2):
        core.submit(("bulk", number), api="a", rows=1, now=now, bulk=True)
    assert poll_all(core, now) == []
    assert now + 5.0 < core.next_wakeup() < now + 15.0
    now = core.next_wakeup()
    for number in range(2):
        start = only_start(core, now)
        assert start.requests == (("bulk", number),)
        now += 2.0002
        core.batch_done(start.number, status="worked", now=now)


def test_bulk_does_not_wait_for_a_goal_that_is_out_of_reach() -> None:
    """The first class is late on a free worker too."""
    core = taught(goal_s=0.015)
    for number in range(20):
        now = number * 0.1
        core.submit(number, api="a", now=now)
        [start] = starts(poll_all(core, now))
        core.batch_done(start.number, status="worked", now=now + 0.0202)
    core.submit("bulk", api="a", rows=60, now=2.0, bulk=True)
    assert only_start(core, 2.0).requests == ("bulk",)


def test_bulk_of_another_api_is_owed_time_too() -> None:
    """One API has no bulk queued, another nothing else."""
    core = taught()
    core.set_api(ApiRules(**{**RULES, "name": "b"}))
    core.submit("running", api="a", now=0.0)
    running = only_start(core, 0.0)
    core.submit("bulk", api="b", now=0.0, bulk=True)
    core.submit(1, api="a", now=0.0)
    core.batch_done(running.number, status="worked", now=2.0)
    assert only_start(core, 2.0).requests == ("bulk",)


def test_longer_rows_do_not_ride_with_a_model_that_pads() -> None:
    """They would make the whole batch longer."""
    core = taught(max_batch_rows=10**6)
    for batch in range(40):
        now = 0.1 * batch
        for number, length in enumerate((1, 100 if batch % 2 else 1)):
            core.submit((batch, number), api="a", rows=length, count=1, longest=length, now=now)
        for start in starts(poll_all(core, now)):
            core.batch_done(start.number, status="worked", seconds=0.01 + 1e-4 * start.padded, now=now + 0.05)
        for start in starts(poll_all(core, now + 0.05)):
            core.batch_done(start.number, status="worked", seconds=0.01 + 1e-4 * start.padded, now=now + 0.09)
    core.submit("running", api="a", rows=5, count=1, now=9.0)
    running = only_start(core, 9.0)
    for number, length in enumerate((5, 500, 4)):
        core.submit(number, api="a", rows=length, count=1, longest=length, bulk=True, now=9.0)
    core.submit("first", api="a", rows=5, count=1, now=9.0)
    core.batch_done(running.number, status="worked", now=9.011)
    start = only_start(core, 9.011)
    assert start.requests == ("first", 0, 2)


def test_refused_bulk_comes_back() -> None:
    """In the simulator, the clients of bulk send again when a worker is there."""
    run = simulate(
        Scenario(
            service=ServiceTime(intercept_s=0.02, slope_s=0.0002),
            arrivals=arrivals(50, 1.0),
            bulk=Clients(count=9, round_trip_s=0.2),
            losses=(Loss(0, 0.2, 0.5),),
        )
    )
    assert {shed.reason for _, shed in run.shed if shed.request < 0} == {"no_worker"}
    assert any(one.bulk for one in run.answered if one.finish > 0.5)


class Facts(NamedTuple):
    """A request as it was submitted."""

    bulk: bool
    rows: int
    key: str | None


@settings(stateful_step_count=40)
class TwoClasses(RuleBasedStateMachine):
    """Each request of either class ends once; a batch has one key, and rows up to the limit."""

    @initialize(
        goals=st.sampled_from([(0.1, math.inf), (0.1, 1.0), (10.0, 20.0)]),
        idempotent=st.booleans(),
        fair=st.booleans(),
    )
    def begin(self, goals: tuple[float, float], idempotent: bool, fair: bool) -> None:
        rules: dict[str, Any] = {"max_queue_rows": 60, "goal_s": goals[0], "bulk_goal_s": goals[1]}
        self.core = taught(workers=2, max_batch_rows=16, idempotent=idempotent, fair=fair, **rules)
        self.now = 0.0
        self.workers = 2
        self.facts: dict[int, Facts] = {}
        self.running: dict[int, Batch[Any]] = {}
        self.ended: set[int] = set()
        self.poll()

    def poll(self) -> None:
        while actions := self.core.poll(self.now):
            for action in actions:
                match action:
                    case Batch():
                        self.start(action)
                    case Shed(request, _, reason, _):
                        assert self.facts[request].bulk or reason != "displaced"
                        self.end([request])
                    case Lost(request):
                        self.end([request])

    def start(self, batch: Batch[Any]) -> None:
        self.running[batch.number] = batch
        facts = [self.facts[request] for request in batch.requests]
        assert len({one.key for one in facts}) == 1
        assert batch.rows == sum(one.rows for one in facts)
        assert batch.rows <= 16 or len(facts) == 1

    def end(self, requests: Iterable[int]) -> None:
        for request in requests:
            assert request not in self.ended
            self.ended.add(request)

    def finish(self, number: int, status: BatchStatus) -> None:
        batch = self.running.pop(number)
        requests = [request for request in batch.requests if request not in self.ended]
        assert self.core.batch_done(number, status=status, seconds=0.02, now=self.now)
        self.end(requests)

    @rule(
        bulk=st.booleans(),
        rows=st.integers(1, 12),
        key=st.sampled_from([None, None, "key"]),
        patience_s=st.sampled_from([math.inf, math.inf, 0.05]),
    )
    def submit(self, bulk: bool, rows: int, key: str | None, patience_s: float) -> None:
        number = len(self.facts) + 1
        self.facts[number] = Facts(bulk, rows, key)
        arguments: dict[str, Any] = {"api": "a", "rows": rows, "key": key, "bulk": bulk, "flow": rows}
        refused = self.core.submit(number, now=self.now, expires_at=self.now + patience_s, **arguments)
        if refused is not None:
            assert refused.reason != "displaced"
            self.end([number])
        self.poll()

    @precondition(lambda self: self.facts)
    @rule(place=st.integers(0, 60))
    def cancel(self, place: int) -> None:
        number = place % len(self.facts) + 1
        self.core.cancel(number, now=self.now)
        self.ended.add(number)
        self.poll()

    @precondition(lambda self: self.running)
    @rule(place=st.integers(0, 3), status=st.sampled_from(["worked", "worked", "failed"]))
    def batch_ends(self, place: int, status: BatchStatus) -> None:
        batch = list(self.running.values())[place % len(self.running)]
        if not batch.is_ahead or batch.started <= self.now:
            self.finish(batch.number, status)
        self.poll()

    @precondition(lambda self: self.running)
    @rule(place=st.integers(0, 3))
    def worker_dies(self, place: int) -> None:
        worker = list(self.running.values())[place % len(self.running)].worker
        for lost in self.core.worker_lost(worker, now=self.now):
            del self.running[lost.number]
        self.workers += 1
        self.core.worker_ready(self.workers, now=self.now)
        self.poll()

    @rule(seconds=st.sampled_from([0.001, 0.02, 0.3]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.poll()

    @rule()
    def drain(self) -> None:
        self.core.drain(now=self.now)
        self.poll()

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        for _ in range(400):
            self.now += 0.5
            self.poll()
            for number in list(self.running):
                self.finish(number, "worked")
            self.poll()
        assert self.core.is_empty
        assert self.ended == set(self.facts)


TestTwoClasses = TwoClasses.TestCase
