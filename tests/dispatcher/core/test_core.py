"""The core, one literal situation at a time. ``test_core_machine.py`` does everything in any order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatcher.driver import core_with, poll_all, start_one, starts
from uncork_dispatcher.actions import Action
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules


def api(policy: str = "cork", /, **limits: float) -> ApiRules:
    """An api called ``a``."""
    return ApiRules(name="a", policy=policy, **limits)  # type: ignore[arg-type]


def requests(core: Dispatcher, now: float) -> list[tuple[int, ...]]:
    """Which requests go together in the batches that start now."""
    return [start.requests for start in starts(poll_all(core, now))]


def busy(rules: ApiRules) -> tuple[Dispatcher, Batch[Any]]:
    """A core whose only worker runs request 0 since time 0."""
    core = core_with(rules)
    return core, start_one(core, 0, now=0.0)


def test_a_lone_request_starts_at_once() -> None:
    """With everything that the driver must know."""
    core = core_with(api())
    assert core.submit(5, api="a", key="k", rows=3, now=1.0) is None

    [batch] = starts(core.poll(1.0))
    assert (batch.number, batch.worker, batch.api, batch.key, batch.requests) == (1, 0, "a", "k", (5,))
    assert (batch.rows, batch.padded, batch.count, batch.deadlines) == (3, 3, 3, [1.3])
    assert (batch.reason, batch.predicted_s, batch.released, batch.started) == ("idle", 0.0, 1.0, 1.0)
    assert not batch.is_ahead
    assert repr(batch) == "<Batch 1 of a on 0: (5,)>"
    assert core.poll(1.0) == []


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_batch_rows": 6}, [(1, 2), (3,)]),
        ({"max_batch_rows": 5}, [(1,), (2,), (3,)]),
        ({"max_batch_bytes": 20}, [(1, 2), (3,)]),
        ({"max_batch_bytes": 19}, [(1,), (2,), (3,)]),
        ({"max_batch_rows": 1, "max_batch_bytes": 1}, [(1,), (2,), (3,)]),
    ],
)
def test_a_batch_keeps_to_its_limits(limits: dict[str, float], expected: list[tuple[int, ...]]) -> None:
    """Three requests of 3 rows and 10 bytes: rows and bytes up to the limit; a larger request goes alone."""
    core = core_with(api(**limits), workers=3)
    for number in (1, 2, 3):
        core.submit(number, api="a", rows=3, size_bytes=10, now=0.0)

    assert requests(core, 0.0) == expected


@pytest.mark.parametrize(("max_hold_s", "ends"), [(1.0, 1.05), (0.02, 1.02)])
def test_a_hold_ends_by_itself(max_hold_s: float, ends: float) -> None:
    """When the policy says, or the user if that is earlier; what comes meanwhile joins it."""
    core = core_with(api("fixed:50", max_hold_s=max_hold_s))
    core.submit(1, api="a", now=1.0)
    assert core.poll(1.0) == []
    assert core.next_wakeup() == pytest.approx(ends)
    core.submit(2, api="a", now=ends - 0.001)
    assert core.poll(ends - 0.001) == []

    [start] = starts(core.poll(core.next_wakeup()))
    assert (start.requests, start.reason) == ((1, 2), "deadline")


def test_an_empty_core_wants_no_wakeup() -> None:
    """Nor does one whose workers are all idle; a running batch has a timeout."""
    core = core_with(api(timeout_s=7.0))
    core.poll(0.0)
    assert core.next_wakeup() == math.inf

    start = start_one(core, 1, now=2.0)
    assert core.next_wakeup() == 9.0
    assert repr(core) == "<Dispatcher queued=0 running=1 idle=0>"

    core.batch_done(start.number, status="worked", now=3.0)
    core.poll(3.0)
    assert core.next_wakeup() == math.inf


def test_a_request_behind_others_needs_no_poll_while_no_worker_is_idle() -> None:
    """Unless its client gives up earlier than anything else happens, or it is more urgent."""
    core, _ = busy(api(timeout_s=7.0, goal_s=5.0))
    core.submit(1, api="a", now=1.0)
    assert core.next_wakeup() == 1.0
    core.poll(1.0)
    assert core.next_wakeup() == 7.0

    core.submit(2, api="a", now=2.0)
    assert core.next_wakeup() == 7.0

    core.submit(3, api="a", now=2.0, expires_at=6.5)
    assert core.next_wakeup() == 6.5

    core.submit(4, api="a", now=2.0, expires_at=5.5)
    assert core.next_wakeup() == 2.0
    core.poll(2.0)
    assert core.next_wakeup() == 5.5


def test_a_request_needs_no_poll_while_the_hold_stands() -> None:
    """The one that fills the batch does."""
    core = core_with(api("fixed:50", max_batch_rows=3))
    core.submit(1, api="a", now=1.0)
    core.poll(1.0)
    held_until = core.next_wakeup()

    core.submit(2, api="a", now=1.02)
    assert core.next_wakeup() == held_until

    core.submit(3, api="a", now=1.03)
    assert core.next_wakeup() == 1.03
    assert requests(core, 1.03) == [(1, 2, 3)]


@given(
    policy=st.sampled_from(["fixed:0", "fixed:20", "fixed:20:4", "cork-classic", "none"]),
    steps=st.lists(
        st.tuples(
            st.integers(0, 20_000_000).map(lambda nanoseconds: nanoseconds / 1e9),
            st.integers(1, 3),
            st.sampled_from([math.inf, 0.05, 0.2]),
            st.booleans(),
        ),
        max_size=40,
    ),
)
def test_polls_that_are_saved_would_have_changed_nothing(
    policy: str, steps: list[tuple[float, int, float, bool]]
) -> None:
    """A core that is polled after each arrival and one that is polled when it asks start the same batches."""
    cores = [core_with(api(policy, max_batch_rows=8, goal_s=0.1), workers=2) for _ in range(2)]
    history: list[list[tuple[float, object]]] = [[], []]

    now = 0.0
    for number, (passed, rows, patience_s, ends) in enumerate(steps):
        now += passed
        for core, done in zip(cores, history, strict=True):
            done += poll_due(core, now)
            core.submit(number, api="a", rows=rows, now=now, expires_at=now + patience_s)
            if core is cores[0]:
                core.cancel(-1, now=now)
            done += poll_due(core, now)
            running = [batch for batch in range(1, len(done) + 1) if core.runs(batch)]
            if ends and running:
                core.batch_done(running[0], status="worked", now=now)
                done += poll_due(core, now)

    assert history[0] == history[1]


def poll_due(core: Dispatcher, now: float) -> list[tuple[float, object]]:
    """What a core does at its wake-ups up to ``now``."""
    actions: list[tuple[float, object]] = []
    while (at := core.next_wakeup()) <= now:
        actions += [(at, values_of(action)) for action in poll_all(core, at)]
    return actions


def values_of(action: Action) -> object:
    """Return what an action says, which can be compared."""
    if not isinstance(action, Batch):
        return action
    return [getattr(action, name) for name in Batch.__slots__ if name != "entries"]


INPUTS: dict[str, Callable[[Dispatcher, float], object]] = {
    "submit": lambda core, now: core.submit(1, api="a", now=now),
    "cancel": lambda core, now: core.cancel(1, now=now),
    "worker_ready": lambda core, now: core.worker_ready(1, now=now),
    "worker_lost": lambda core, now: core.worker_lost(1, now=now),
    "batch_done": lambda core, now: core.batch_done(1, status="worked", now=now),
    "profile": lambda core, now: core.profile("a", 0, [(1, 0.1)], now=now),
    "drain": lambda core, now: core.drain(now=now),
    "poll": lambda core, now: core.poll(now),
}


@pytest.mark.parametrize("name", INPUTS)
def test_time_does_not_go_back(name: str) -> None:
    """Each input says so, and each moves time on; the same time twice is fine."""
    core = core_with(api())
    INPUTS[name](core, 2.0)
    with pytest.raises(ValueError, match=r"time went back from 2\.0 to 1\.9"):
        core.poll(1.9)

    core.poll(2.0)
    with pytest.raises(ValueError, match=r"time went back from 2\.0 to 1\.9"):
        INPUTS[name](core, 1.9)


def test_a_batch_that_worked_teaches_and_one_that_failed_does_not() -> None:
    """A handler that raises at once would else be taken for a fast model."""
    core, first = busy(api())
    core.batch_done(first.number, status="failed", now=0.1)
    assert core.stats(now=0.1)[0].estimate.seconds(1) == 0.0

    second = start_one(core, 1, now=0.2)
    core.batch_done(second.number, status="worked", now=0.5)
    assert core.stats(now=0.5)[0].estimate.seconds(1) == pytest.approx(0.3)
    assert start_one(core, 2, now=0.6).predicted_s == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("policy", "rows", "fits", "calls"),
    [
        ("cork", 35, math.inf, 4),
        ("cork", 35, 5.0, 7),
        ("none", 35, math.inf, 4),
        ("none", 8, math.inf, 1),
        ("aimd", 8, math.inf, 1),
        ("fixed:0:3", 8, math.inf, 1),
    ],
)
def test_a_request_above_the_limit_takes_several_calls(
    policy: str, rows: int, fits: float, calls: int
) -> None:
    """Above the limit of the API or the worker, not of the policy, of which the worker knows nothing."""
    core = core_with(ApiRules(name="a", max_batch_rows=10, policy=policy))
    core.profile("a", 0, [(size, 0.1 + 0.01 * size) for size in (1, 5, 10)] * 10, now=0.0)
    core.limit_batches(0, "a", fits, now=0.0)
    core.submit("large", api="a", rows=rows, now=0.0)
    [start] = starts(poll_all(core, 0.0))
    assert start.predicted_s == pytest.approx(calls * 0.1 + rows * 0.01, rel=0.01)


def test_a_batch_run_in_chunks_teaches_each_chunk() -> None:
    core = core_with(api())
    core.submit(1, api="a", rows=30, now=0.0)
    [start] = starts(core.poll(0.0))
    core.batch_done(start.number, status="worked", now=1.0, chunks=[(20, 0.3), (10, 0.2)])

    estimate = core.stats(now=1.0)[0].estimate
    assert (estimate.seconds(20), estimate.seconds(10)) == pytest.approx((0.3, 0.2))


@pytest.mark.parametrize("predicts", [True, False])
def test_batches_of_an_api_that_predicts_nothing_teach_nothing(predicts: bool) -> None:
    core, batch = busy(ApiRules(name="a", policy="none", predicts=predicts))
    assert core.batch_done(batch.number, status="worked", now=2.0)
    assert core.sample("a").estimate.seconds(1) == (2.0 if predicts else 0.0)


RULES = ApiRules(name="a", policy="none", timeout_s=1.0)


def two_speeds() -> tuple[Dispatcher, float]:
    """Return a core whose worker 1 takes four times as long as worker 0, and the present time."""
    core, now = core_with(RULES, workers=2), 0.0
    for number in range(0, 40, 2):
        core.submit(number, api="a", key=0, now=now)
        core.submit(number + 1, api="a", key=1, now=now)
        for start in sorted(starts(poll_all(core, now)), key=lambda start: start.worker):
            core.batch_done(start.number, status="worked", now=now + 0.1, seconds=0.1 * 4**start.worker)
        now += 0.1
    poll_all(core, now)
    return core, now


@pytest.mark.parametrize(
    "how", ["lost", "retired", "retired after its batch", "retired and lost", "timed out"]
)
def test_a_worker_that_leaves_is_forgotten(how: str) -> None:
    """However it leaves: the other one is the average, and a new worker with its number is, too."""
    core, now = two_speeds()
    core.submit(100, api="a", key=0, now=now)
    core.submit(101, api="a", key=1, now=now)
    batches = {start.worker: start for start in starts(poll_all(core, now))}
    seconds = core.stats(now=now)[0].estimate.seconds(1)
    assert batches[1].predicted_s > 1.5 * seconds
    core.batch_done(batches[0].number, status="failed", now=now)
    if how == "retired":
        core.batch_done(batches[1].number, status="failed", now=now)
    if how.startswith("retired"):
        core.worker_retired(1, now=now)
    if how == "retired after its batch":
        core.batch_done(batches[1].number, status="worked", now=now + 0.1, seconds=0.4)
    if how.endswith("lost"):
        core.worker_lost(1, now=now)
    if how == "timed out":
        now += 1.0
    now += 0.1
    poll_all(core, now)
    core.cancel(101, now=now)
    core.worker_ready(1, now=now)
    poll_all(core, now)
    core.submit(102, api="a", key=0, now=now)
    core.submit(103, api="a", key=1, now=now)
    average = core.stats(now=now)[0].estimate.seconds(1)
    ran = starts(poll_all(core, now))
    assert [start.predicted_s for start in ran] == [average] * len(ran)
    assert {start.worker for start in ran} >= {1}
