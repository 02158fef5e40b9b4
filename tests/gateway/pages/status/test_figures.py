"""Figures derived from the state of an API."""

import math
from typing import Any

import pytest

from tests.gateway.pages.status.staged import ESTIMATE, figures, recent, stats, work
from uncork_dispatcher.learning.estimator import BatchTimeEstimator
from uncork_dispatcher.learning.measures import Padding
from uncork_dispatcher.stats import ClassStats
from uncork_gateway.pages.status.advise import goal_with_room_s
from uncork_gateway.pages.status.api_status import bulk_limited_by
from uncork_gateway.pages.status.figures import Figures


def test_balanced_batches_are_those_with_which_workers_just_keep_up() -> None:
    """``s(n) * rate / workers = n``."""
    made = figures(recent=recent(batches=30, rate=400), work=work(2))

    balanced = made.balanced_rows
    assert balanced is not None
    assert made.seconds(balanced) * 400 / 2 == pytest.approx(balanced)


@pytest.mark.parametrize("rate", [0.0, 500.0, 1000.0])
def test_there_is_no_balance_without_arrivals_or_beyond_all_capacity(rate: float) -> None:
    """At 500 rows/s, the slope alone takes all of one worker's time."""
    assert figures(recent=recent(batches=30, rate=rate)).balanced_rows is None


def test_capacity_is_that_of_the_largest_batch_that_is_allowed() -> None:
    """The cap or the goal, with a margin for the spread, limits the batch."""
    assert figures(work=work(3)).capacity == pytest.approx(3 * 32 / 0.074)
    tight = figures(goal_s=0.060)
    assert tight.best_rows == pytest.approx((0.060 / 1.2 - 0.010) / 0.002)
    assert tight.capacity == pytest.approx(20 / 0.050)


LARGE = {"max_batch_rows": 1000}


@pytest.mark.parametrize("true", [(0.010, 0.002), (0.0002, 0.002), (0.018, 0.00008)])
@pytest.mark.parametrize("sizes", [[64] * 5, [60, 64] * 3, [1, 63, *[64] * 6], [1, *[30, 33] * 12]])
@pytest.mark.parametrize("first_s", [0.0, 0.14, 1.0])
def test_the_capacity_is_not_more_than_batches_have_shown(
    true: tuple[float, float], sizes: list[int], first_s: float
) -> None:
    """Few batches, of similar sizes or with a slow first one, give an estimate that is too flat."""
    estimator = BatchTimeEstimator()
    for number, rows in enumerate(sizes):
        estimator.observe(rows, true[0] + true[1] * rows + (0.0 if number else first_s))
    api = stats(LARGE, known_rows=estimator.known_rows, slope_error_s=estimator.slope_error_s)
    made = figures(api, recent=recent(estimate=estimator.estimate), goal_s=None)

    shown = max(rows / (true[0] + true[1] * rows) for rows in sizes)
    assert made.capacity is None or made.capacity <= 1.05 * shown


def test_times_that_vary_leave_a_capacity_that_agrees_with_the_utilization() -> None:
    """With a slope too uncertain to use, the batches of the window show what busy workers serve."""
    estimator = BatchTimeEstimator()
    for number in range(200):
        estimator.observe(64 if number % 2 else 128, 0.03 * (1 + number % 5))
    api = stats(LARGE, known_rows=estimator.known_rows, slope_error_s=estimator.slope_error_s)
    busy = recent(batches=1000, each=83, ran_s=0.057, estimate=estimator.estimate)
    made = figures(api, recent=busy, work=work(2))

    assert not made.slope_is_known
    assert made.capacity is not None
    assert made.recent.rate / made.capacity == pytest.approx(made.utilization)
    assert (made.capacity_is_least, made.is_busy_below_capacity, made.limited_by) == (True, True, "nothing")


def test_the_capacity_is_that_of_recent_batches_while_all_are_of_about_one_size() -> None:
    """Unless they are as large as allowed. Without recent batches, it is unknown."""
    few = ESTIMATE._replace(earned_rows=14)
    assert figures(stats(known_rows=(4.0, 7.0)), recent=recent(estimate=few)).capacity is None
    fives = recent(batches=30, each=5, ran_s=0.020, estimate=few)
    assert figures(stats(known_rows=(4.0, 7.0)), recent=fives).capacity == pytest.approx(5 / 0.020)
    assert figures(stats(known_rows=(3.0, 7.0)), recent=recent(estimate=few)).capacity == pytest.approx(
        7 / 0.024
    )
    full = stats({"max_batch_rows": 7}, known_rows=(7.0, 7.0))
    assert figures(full, recent=recent(estimate=few)).capacity == pytest.approx(7 / 0.024)


def test_the_capacity_is_at_least_that_of_the_batches_so_far() -> None:
    few = ESTIMATE._replace(earned_rows=14)
    made = figures(stats(known_rows=(1.0, 7.0)), recent=recent(batches=30, each=6, rate=290, estimate=few))

    # Clients that wait for answers may keep a worker busy with small batches: that is no overload.
    assert (made.capacity_is_least, made.is_overloaded) == (True, False)
    late = recent(batches=30, each=6, rate=290, estimate=few, took_s=0.4)
    made = figures(stats(known_rows=(1.0, 7.0)), recent=late)
    assert (made.capacity_is_least, made.is_overloaded) == (False, True)
    assert not figures().capacity_is_least


def test_a_request_of_many_rows_is_a_batch_of_them() -> None:
    """Whatever the cap."""
    none = stats({"policy": "none"}, limit_rows=1, known_rows=(10.0, 10.0), smallest_rows=10.0)
    estimate = ESTIMATE._replace(earned_rows=20)

    assert figures(none, recent=recent(estimate=estimate)).capacity == pytest.approx(10 / 0.030)
    busy = recent(batches=30, rows=20, estimate=ESTIMATE._replace(earned_rows=40))
    assert figures(none, recent=busy).capacity == pytest.approx(20 / 0.050)


def test_padding_leaves_less_of_the_cap_for_rows() -> None:
    """The cap counts padded costs, but rows without a cost. The policy's own limit counts costs."""
    known = figures(stats(padding=Padding("longest", 0.25)))
    assert (known.cap, known.best_rows) == (32, 24)
    assert known.capacity == pytest.approx(24 / 0.058)

    assert figures(stats(padding=Padding("longest_bytes", 0.25))).best_rows == 32
    own = figures(stats(padding=Padding("longest", 0.25), limit_rows=20))
    assert (own.cap, own.best_rows) == (20, 20)


@pytest.mark.parametrize(("rate", "workers"), [(300.0, 1), (1000.0, 2), (5000.0, 4)])
def test_the_missing_workers_carry_the_rate_with_a_fifth_to_spare(rate: float, workers: int) -> None:
    """One worker fewer would not suffice."""
    made = figures(recent=recent(batches=30, rate=rate), work=work(workers))

    each = made.throughput(made.best_rows)
    enough = workers + made.missing_workers
    assert 0.8 * each * enough >= rate
    assert made.missing_workers == 1 or 0.8 * each * (enough - 1) < rate


def test_overload_is_more_than_the_workers_can_do() -> None:
    def busy(rate: float, **changes: Any) -> Figures:
        return figures(recent=recent(batches=10, each=32, reason="full", rate=rate), **changes)

    assert not busy(300).is_overloaded
    assert busy(430).is_overloaded
    assert busy(300, others_share=0.5).is_overloaded
    assert figures(recent=recent(batches=10, each=32, rate=400, sheds={"deadline": 10})).is_overloaded
    assert not figures(recent=recent(batches=10, each=32, rate=250, sheds={"deadline": 10})).is_overloaded
    assert not figures(recent=recent(batches=10, each=32, sheds={"deadline": 1})).is_overloaded
    assert not figures(recent=recent(batches=1, sheds={"deadline": 10})).is_overloaded


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ({}, "ok"),
        ({"batches": 100}, "ok"),
        ({"batches": 99, "errors": {500: 1}}, "ok"),
        ({"batches": 98, "errors": {500: 2}}, "degraded"),
        ({"batches": 98, "sheds": {"deadline": 2}}, "degraded"),
        ({"batches": 98, "errors": {500: 1}, "sheds": {"deadline": 1}}, "degraded"),
        ({"batches": 51, "errors": {500: 49}}, "degraded"),
        ({"batches": 50, "errors": {500: 50}}, "failing"),
        ({"batches": 50, "errors": {502: 20}, "sheds": {"no_worker": 20, "client_deadline": 10}}, "failing"),
        ({"batches": 1, "errors": {503: 1}}, "failing"),
        ({"errors": {500: 1}}, "failing"),
        ({"batches": 1, "statuses": {422: 99, 499: 9}}, "ok"),
        ({"statuses": {422: 99}, "errors": {500: 1}}, "failing"),
    ],
)
def test_the_share_of_failed_requests_decides_the_state(counts: dict[str, Any], state: str) -> None:
    """The thresholds are 1 % and 50 %; 4xx answers do not count."""
    assert figures(recent=recent(**counts)).state == state


@pytest.mark.parametrize(
    ("goal_s", "limit_rows", "rate", "limited_by"),
    [
        (1.0, 32, 10, "cap"),
        (1.0, 1000, 10, "cycles"),
        (1.0, 1000, 0, "cap"),
        (0.05, 32, 10, "goal"),
        (0.02, 32, 10, "share"),
    ],
)
def test_what_limits_bulk_in_a_batch(goal_s: float, limit_rows: int, rate: float, limited_by: str) -> None:
    """A batch takes 10 ms, and 2 ms for each row."""
    api = stats({"goal_s": goal_s, "max_batch_rows": limit_rows, "bulk_goal_s": math.inf})
    assert bulk_limited_by(figures(api, recent=recent(batches=30, rate=rate))) == limited_by


@pytest.mark.parametrize(
    ("goal_s", "queued", "needed_s"), [(0.035, 3, 0.036), (0.037, 3, None), (0.035, 0, None)]
)
def test_a_goal_below_three_fixed_parts_has_no_room(
    goal_s: float, queued: int, needed_s: float | None
) -> None:
    api = stats({"goal_s": goal_s, "bulk_goal_s": math.inf}, bulk=ClassStats(queued, 1.0 * queued, 0, 0.0))
    assert goal_with_room_s(figures(api, recent=recent(batches=30))) == pytest.approx(needed_s)
    assert goal_with_room_s(figures(stats({"goal_s": goal_s}), recent=recent(batches=30))) is None
    assert goal_with_room_s(figures(api, recent=recent(batches=30, estimate=None))) is None


def test_what_limits_bulk_is_unknown_without_batches_or_workers() -> None:
    assert bulk_limited_by(figures(recent=recent(batches=30, estimate=None))) is None
    assert bulk_limited_by(figures(recent=recent(batches=30), work=work(0))) is None
