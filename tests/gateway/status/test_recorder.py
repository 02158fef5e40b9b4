"""The recent past."""

from __future__ import annotations

import pytest

from uncork_dispatcher import BatchFacts, Start
from uncork_gateway.metrics import Metrics
from uncork_gateway.status.recorder import WINDOW_S, Recorder


class Told:
    """A recorder and metrics that hear of batches, at times that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.metrics = Metrics()
        self.recorder = Recorder(self.metrics, index_of=lambda worker: worker - 10, clock=lambda: self.now)
        self.batches = 0

    def start(self, requests: int = 2, *, api: str = "a") -> Start:
        """A batch is released."""
        self.batches += 1
        numbers = tuple(range(requests))
        start = Start(self.batches, 10, api, None, numbers, 3.0 * requests, "idle", 0.004)
        for observer in (self.recorder, self.metrics):
            observer.batch_started(start, 3 * requests, [0.001] * requests)
        return start

    def end(self, start: Start, *, after_s: float = 0.005, outcome: str = "worked") -> None:
        """It comes back, and its requests are answered."""
        self.now += after_s
        rows = 3 * len(start.requests)
        for observer in (self.recorder, self.metrics):
            observer.batch_ended(BatchFacts(start, rows, 0.002, self.now - after_s, after_s), outcome)
        for _ in start.requests:
            self.metrics.api(start.api).answered(200, 0.001 + after_s)

    def batch(self, requests: int = 2, *, api: str = "a") -> None:
        """A batch, from release to end."""
        self.end(self.start(requests, api=api))

    def shed(self) -> None:
        """A request is refused."""
        for observer in (self.recorder, self.metrics):
            observer.request_shed("a", "deadline")


@pytest.fixture
def told() -> Told:
    """Nothing has been heard yet."""
    return Told()


def test_a_batch_is_kept_as_it_ended(told: Told) -> None:
    """With the index of its worker."""
    told.end(told.start(), outcome="failed")

    [batch] = told.recorder.batches_after(0)
    assert (batch.number, batch.api, batch.rows, batch.cost, batch.requests) == (1, "a", 6, 6.0, 2)
    assert (batch.reason, batch.worked, batch.worker) == ("idle", False, 0)
    assert (batch.waited_ms, batch.predicted_ms, batch.actual_ms) == pytest.approx((2, 4, 5))


def test_batches_are_numbered_as_they_end(told: Told) -> None:
    """Who asks for those after a number misses none, though they ended in another order than they began."""
    slow, quick = told.start(1), told.start(2)
    told.end(quick)
    [first] = told.recorder.batches_after(0)
    told.end(slow)

    assert first.requests == 2
    assert [(one.number, one.requests) for one in told.recorder.batches_after(first.number)] == [(2, 1)]
    assert told.recorder.batches_after(2) == told.recorder.batches_after(99) == []
    assert [one.number for one in told.recorder.batches_after(-5)] == [1, 2]


def test_only_the_last_batches_are_kept(told: Told) -> None:
    """A year of them would be too many."""
    for _ in range(2100):
        told.batch(1)

    kept = told.recorder.batches_after(0)
    assert [kept[0].number, kept[-1].number, len(kept)] == [101, 2100, 2000]
    assert [one.number for one in told.recorder.batches_after(2098)] == [2099, 2100]


def test_what_is_recent_is_what_metrics_count(told: Told) -> None:
    """While nothing is older than the window."""
    for requests in (1, 2, 3):
        told.batch(requests)
        told.now += 1
    told.shed()

    recent, tally = told.recorder.recent("a"), told.metrics.api("a")
    assert recent.statuses == tally.statuses == {200: 6}
    assert recent.releases == tally.releases == {"idle": 3}
    assert recent.sheds == tally.sheds == {"deadline": 1}
    assert (recent.batch_rows.count, recent.batch_rows.sum) == (3, 18)
    assert (recent.duration.count, recent.queue_wait.count, recent.batch_duration.count) == (6, 6, 3)
    assert recent.ran == 6
    assert recent.run_s == pytest.approx(6 * 0.005)


def test_what_is_older_than_the_window_is_forgotten(told: Told) -> None:
    """All of it within a tenth of the window, and nothing younger."""
    told.batch(5)
    told.now += WINDOW_S / 2
    told.batch(1)
    told.now += WINDOW_S / 2 - 0.1
    assert told.recorder.recent("a").ran == 6
    told.now += WINDOW_S / 10 + 0.2
    assert told.recorder.recent("a").ran == 1
    assert told.metrics.api("a").batch_requests.sum == 6


def test_after_a_long_silence_nothing_is_recent(told: Told) -> None:
    """And what comes then is all that is."""
    told.batch(5)
    told.now += 3600
    assert told.recorder.recent("a").releases == {}
    told.now += 3600
    told.batch(2)
    assert told.recorder.recent("a").statuses == {200: 2}


def test_a_steady_load_is_seen_as_it_is(told: Told) -> None:
    """One batch a second: the window has 30 to 33 of them, whenever one looks."""
    seen = []
    for _ in range(200):
        told.batch(1)
        told.now += 0.995
        seen.append(told.recorder.recent("a").ran)

    assert set(seen[40:]) <= set(range(30, 35))


def test_apis_do_not_mix(told: Told) -> None:
    """One that is unknown has had nothing."""
    told.batch(2)
    told.batch(3, api="b")

    assert told.recorder.recent("a").ran == 2
    assert told.recorder.recent("b").ran == 3
    assert told.recorder.recent("c").ran == 0
