"""The recorder of the recent past."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatcher.batches import batch_of, submitted
from uncork_dispatcher import ApiSample, BatchStatus, Estimate
from uncork_dispatcher.actions import Shed
from uncork_dispatcher.requests.batch import Batch
from uncork_gateway.telemetry.finished_batches import FinishedBatches
from uncork_gateway.telemetry.metrics import Metrics
from uncork_gateway.telemetry.recent import WINDOW_S, Recent
from uncork_gateway.telemetry.recorder import Recorded, Recorder, calibrated


class Told:
    """A recorder and metrics with a clock and batches that the test controls."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.metrics = Metrics()
        self.sample = ApiSample(Estimate(), 0.0, 0.0, 0.0)
        self.finished = FinishedBatches(clock=lambda: self.now)
        self.recorder = Recorder(
            self.metrics,
            sample=lambda api: self.sample,
            index_of=lambda worker: worker - 10,
            batches=self.finished,
            clock=lambda: self.now,
        )
        self.batches = 0

    def recent(self, api: str = "a") -> Recent:
        return self.recorder.recent(api, self.now)

    def queue(self, rows: float) -> None:
        arrived, queued = self.sample.arrived_rows + rows, self.sample.queued_rows + rows
        self.sample = self.sample._replace(arrived_rows=arrived, queued_rows=queued)

    def start(self, requests: int = 2, *, api: str = "a") -> Batch[Any]:
        """Release a batch of queued rows, or of rows that arrive now if too few are queued."""
        self.batches += 1
        if self.sample.queued_rows < 3 * requests:
            self.queue(3 * requests)
        self.sample = self.sample._replace(queued_rows=self.sample.queued_rows - 3 * requests)
        batch = batch_of(
            *(submitted(arrival=self.now - 0.001) for _ in range(requests)),
            number=self.batches,
            worker=10,
            api=api,
            rows=3 * requests,
            predicted_s=0.004,
            started=self.now,
        )
        for observer in (self.recorder, self.metrics):
            observer.batch_started(batch)
        return batch

    def end(self, start: Batch[Any], *, after_s: float = 0.005, status: BatchStatus = "worked") -> None:
        self.now += after_s
        start.started, start.seconds = self.now - after_s, after_s
        for observer in (self.recorder, self.metrics):
            observer.batch_ended(start, status)
        for _ in start.requests:
            self.metrics.api(start.api).answered(200, 0.001 + after_s)

    def batch(self, requests: int = 2, *, api: str = "a") -> None:
        self.end(self.start(requests, api=api))

    def shed(self) -> None:
        for observer in (self.recorder, self.metrics):
            observer.request_shed(Shed(submitted(), "a", "deadline", 1.0))
        self.metrics.api("a").answered(503, 0.0, refusal="deadline")


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_batch_is_kept_as_it_ended(told: Told) -> None:
    told.end(told.start(), status="failed")

    [batch] = told.finished.after(0)
    assert (batch.number, batch.api, batch.rows, batch.cost, batch.requests) == (1, "a", 6, 6.0, 2)
    assert (batch.reason, batch.worked, batch.worker) == ("idle", False, 0)
    assert (batch.waited_ms, batch.predicted_ms, batch.actual_ms) == pytest.approx((1, 4, 5))


def test_batches_are_numbered_as_they_end(told: Told) -> None:
    """Numbers follow the order of completion, so no batch is missed."""
    slow, quick = told.start(1), told.start(2)
    told.end(quick)
    [first] = told.finished.after(0)
    told.end(slow)

    assert first.requests == 2
    assert [(one.number, one.requests) for one in told.finished.after(first.number)] == [(2, 1)]
    assert told.finished.after(2) == told.finished.after(99) == []
    assert [one.number for one in told.finished.after(-5)] == [1, 2]


def test_only_the_last_batches_are_kept(told: Told) -> None:
    """Memory is bounded."""
    for _ in range(2100):
        told.batch(1)

    kept = told.finished.after(0)
    assert [kept[0].number, kept[-1].number, len(kept)] == [101, 2100, 2000]
    assert [one.number for one in told.finished.after(2098)] == [2099, 2100]


def test_what_is_recent_is_what_metrics_count(told: Told) -> None:
    """This holds while nothing is older than the window."""
    for requests in (1, 2, 3):
        told.batch(requests)
        told.now += 1
    told.shed()

    recent, tally = told.recent(), told.metrics.api("a")
    counts = recent.counts
    assert counts.statuses == tally.statuses == {200: 6, 503: 1}
    assert counts.releases == tally.releases == {"idle": 3}
    assert counts.sheds == tally.sheds == {"deadline": 1}
    assert (counts.released_rows, recent.arrived_rows) == (18, 18)
    assert (counts.duration.count, counts.queue_wait.count, counts.batch_duration.count) == (7, 6, 3)
    assert counts.ran == 6
    assert counts.ran_s == pytest.approx(6 * 0.005)


def test_what_is_older_than_the_window_is_forgotten(told: Told) -> None:
    told.batch(5)
    told.now += WINDOW_S / 2
    told.batch(1)
    told.now += WINDOW_S / 2 - 0.1
    assert told.recent().counts.ran == 6
    told.now += WINDOW_S / 10 + 0.2
    assert told.recent().counts.ran == 1
    assert told.metrics.api("a").batch_requests.sum == 6


def test_after_a_long_silence_nothing_is_recent(told: Told) -> None:
    told.batch(5)
    told.now += 3600
    assert told.recent().counts.releases == {}
    told.now += 3600
    told.batch(2)
    assert told.recent().counts.statuses == {200: 2}


def test_a_steady_load_is_seen_as_it_is(told: Told) -> None:
    """At one batch per second, the window always has 30 to 33."""
    seen = []
    for _ in range(200):
        told.batch(1)
        told.now += 0.995
        seen.append(told.recent().counts.ran)

    assert set(seen[40:]) <= set(range(30, 35))


def test_apis_do_not_mix(told: Told) -> None:
    told.batch(2)
    told.batch(3, api="b")

    assert told.recent().counts.ran == 2
    assert told.recent("b").counts.ran == 3
    assert told.recent("c").counts.ran == 0


def test_what_is_answered_without_a_batch_is_recent_too(told: Told) -> None:
    """A malformed request for example, even as the first one."""
    told.metrics.api("a").answered(400, 0.001)
    assert told.recent().counts.statuses == {400: 1}
    told.now += 3600
    told.metrics.api("a").answered(502, 0.001)
    assert (told.recent().counts.statuses, told.recent().counts.errors) == ({502: 1}, {502: 1})


def test_a_batch_longer_than_the_window_is_answered_in_it(told: Told) -> None:
    start = told.start(2)
    told.now += 3 * WINDOW_S
    for _ in start.requests:
        told.metrics.api("a").answered(200, 90.0)
    told.end(start)

    assert told.recent().counts.statuses == {200: 4}
    assert told.recent().counts.ran == 2


def test_arrivals_are_counted_from_the_first_after_a_silence(told: Told) -> None:
    """The window begins with the first arrival of a burst and counts all its rows."""
    told.batch(1)
    told.now += 100
    told.queue(300)
    first = told.now
    for _ in range(10):
        told.batch(2)
    told.now += 5

    recent = told.recent()
    assert recent.arrived_rows == 300
    assert recent.seconds == pytest.approx(told.now - first)


def test_arrivals_at_a_steady_load_are_those_of_the_window(told: Told) -> None:
    """Rows already queued at the start of the window are excluded, even with long batches."""
    for _ in range(20):
        start = told.start(2)
        told.now += 4.9
        told.queue(6)
        told.end(start, after_s=0.1)

        recent = told.recent()
        if told.now > 1040:
            assert recent.arrived_rows / recent.seconds == pytest.approx(6 / 5, rel=0.01)


def test_rows_are_their_cost_where_there_is_one(told: Told) -> None:
    """Limits, arrivals and the estimate count cost; only finished batches have both."""
    batch = batch_of(submitted(rows=2, cost=50.0), rows=50.0, count=2)
    for observer in (told.recorder, told.metrics):
        observer.batch_started(batch)

    assert told.recent().counts.released_rows == 50
    assert told.recent().mean_rows == 50


def test_who_asks_changes_nothing(told: Told) -> None:
    """Figures do not depend on how often they are read."""
    other = Told()
    for second in range(100):
        for one in (told, other):
            one.now = 1000.0 + second
            if second < 20 or second > 70:
                one.batch(2)
        told.recent()

    seen, fresh = told.recent(), other.recent()
    assert (seen.seconds, seen.counts.ran, seen.arrived_rows) == (
        fresh.seconds,
        fresh.counts.ran,
        fresh.arrived_rows,
    )
    assert seen.estimate == fresh.estimate


QUICK = Estimate(0.010, 0.002, 0.1, earned_rows=64)
SLOW = Estimate(0.020, 0.001, 0.2, earned_rows=64)


def test_the_estimate_does_not_move_much_within_a_second(told: Told) -> None:
    """The dispatcher's own estimate moves by half; the displayed one is smoothed and scaled."""
    seen = []
    for batch in range(600):
        told.sample = told.sample._replace(estimate=(QUICK, SLOW)[batch // 10 % 2], transport_s=0.001)
        told.end(told.start(2), after_s=0.025)
        told.now += 0.075
        estimate = told.recent().estimate
        assert estimate is not None
        if batch >= 20:
            assert estimate.seconds(6) == pytest.approx(0.025)
        if batch % 10 == 9:
            seen.append(estimate.seconds(32))

    moves = [later / earlier for earlier, later in pairwise(seen[5:])]
    assert 0.95 < min(moves) <= max(moves) < 1.05


def test_an_estimate_that_rests_on_too_few_batches_is_none(told: Told) -> None:
    """Once known, the estimate remains after traffic stops."""
    told.sample = told.sample._replace(estimate=QUICK._replace(earned_rows=0))
    told.batch()
    assert told.recent().estimate is None
    told.sample = told.sample._replace(estimate=QUICK, transport_s=0.004)
    told.now += 3600

    estimate = told.recent().estimate
    assert estimate is not None
    assert estimate[:2] == pytest.approx((0.014, 0.002))


# The displayed estimate

FAST = Estimate(intercept_s=0.010, slope_s=0.002, spread=0.1, earned_rows=64)
STEEP = Estimate(intercept_s=0.015, slope_s=0.003, spread=0.3, earned_rows=64)


def test_an_estimate_that_jumps_to_and_fro_is_shown_as_its_mean() -> None:
    """The input moves by half every second; from second 10 on the output moves by a few percent."""
    shown = Recorded()
    seen = []
    for second in range(120):
        shown.add_estimate((FAST, STEEP)[second % 2], now=1000.0 + second)
        assert shown.estimate is not None
        seen.append(shown.estimate.seconds(10))

    mean = (FAST.seconds(10) + STEEP.seconds(10)) / 2
    assert seen[0] == FAST.seconds(10)
    assert seen[10:] == pytest.approx([mean] * 110, rel=0.05)


def test_a_change_that_lasts_is_followed() -> None:
    """The mean moves two thirds of the way in one span, and nearly all of it in three."""
    shown = Recorded()
    for second in range(60):
        shown.add_estimate(FAST, now=float(second))
    way = []
    for second in range(60, 120):
        shown.add_estimate(STEEP, now=float(second))
        assert shown.estimate is not None
        way.append((shown.estimate.intercept_s - 0.010) / 0.005)

    assert way[15] == pytest.approx(0.66, abs=0.02)
    assert way[45] > 0.94
    assert shown.estimate == pytest.approx(STEEP, rel=0.05)


def test_after_a_long_silence_what_was_before_counts_for_nothing() -> None:
    """Conditions may have changed by then."""
    shown = Recorded()
    shown.add_estimate(FAST, now=0.0)
    shown.add_estimate(FAST, now=1.0)
    shown.add_estimate(STEEP, now=1000.0)

    assert shown.estimate == pytest.approx(STEEP)


def test_an_estimate_that_knows_larger_batches_replaces_what_was_before() -> None:
    """Batches of one row say little about larger ones."""
    shown = Recorded()
    for second in range(60):
        shown.add_estimate(FAST._replace(earned_rows=2), now=float(second))
    shown.add_estimate(STEEP._replace(earned_rows=2.9), now=60.0)
    assert shown.estimate is not None
    assert shown.estimate.slope_s < 0.0022
    shown.add_estimate(STEEP._replace(earned_rows=100), now=61.0)

    assert shown.estimate == pytest.approx(STEEP._replace(earned_rows=100))


positive = st.floats(1e-4, 1e3)


@given(intercept=positive, slope=positive, batches=st.integers(1, 1000), rows=positive, seconds=positive)
def test_a_calibrated_estimate_predicts_what_was_measured(
    intercept: float, slope: float, batches: int, rows: float, seconds: float
) -> None:
    """The scaled line matches the mean batch and keeps its shape."""
    made = calibrated(Estimate(intercept, slope, 0.1), batches=batches, rows=rows, seconds=seconds)

    assert made.seconds(rows / batches) == pytest.approx(seconds / batches)
    assert made.slope_s * intercept == pytest.approx(made.intercept_s * slope)


def test_what_is_nothing_stays_nothing() -> None:
    nothing = Estimate(0.0, 0.0, 0.1)

    assert calibrated(nothing, batches=9, rows=9.0, seconds=9.0) == nothing
