"""The figures on one api that words are made from, and what follows from them. No clock, no I/O."""

from __future__ import annotations

import math
from dataclasses import dataclass

from uncork_dispatcher import ApiStats, WorkStats
from uncork_gateway.status.recorder import Recent

# Where more arrives than this share of what the workers can do, queues grow beyond all bounds in bursts.
_FULL_LOAD = 0.95
# What workers that were added should have left, for bursts.
_HEADROOM = 0.8
# Times of batches of more than so many times the rows of the largest that was seen are mere guesses.
_FORESIGHT = 4
# So many of the requests may be refused or late by chance.
_A_FEW = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """One api at one moment. Rows are their cost, where the api gives one.

    Attributes:
        stats: what the dispatcher says of it.
        recent: what was counted lately.
        work: which workers there are, and what they run.
        goal_s: None if there is none.
        weighs: whether the api gives a cost, so that rows are units of it.
        streams: whether answers are streamed, so that nothing can be merged.
        others_share: share of the workers' time that batches of other apis took lately.
        busiest_other: the api that took most of that; None if there is none.
        draining: whether new requests are refused.
        trouble: why no worker is ready, if none is.
    """

    stats: ApiStats
    recent: Recent
    work: WorkStats
    goal_s: float | None
    weighs: bool = False
    streams: bool = False
    others_share: float = 0.0
    busiest_other: str | None = None
    draining: bool = False
    trouble: str = ""

    # Traffic

    @property
    def rate(self) -> float:
        """Rows that arrive per second, over about five seconds."""
        return self.stats.lasting_rate

    @property
    def rows_per_request(self) -> float:
        """Recent mean; 1 if there was no request."""
        requests = self.recent.batch_requests.sum
        return self.recent.batch_rows.sum / requests if requests else 1.0

    @property
    def batches(self) -> int:
        """Released lately."""
        return self.recent.batch_rows.count

    @property
    def mean_requests(self) -> float:
        """In a recent batch; 0 without one."""
        return self.recent.batch_requests.mean

    @property
    def mean_rows(self) -> float:
        """In a recent batch; 0 without one."""
        return self.recent.batch_rows.mean

    @property
    def asked(self) -> int:
        """Requests that came lately and were released or refused."""
        return round(self.recent.batch_requests.sum) + self.recent.sheds.total()

    def share_of_releases(self, reason: str) -> float:
        """Share of the recent releases that had a reason."""
        total = self.recent.releases.total()
        return self.recent.releases[reason] / total if total else 0.0

    @property
    def refused_for_load(self) -> float:
        """Share of the recent requests that were refused because too much came."""
        sheds = self.recent.sheds
        return (sheds["deadline"] + sheds["queue_full"]) / self.asked if self.asked else 0.0

    # Time

    @property
    def p99_s(self) -> float:
        """From request to reply, recent; 0 without one."""
        return self.recent.duration.quantile(0.99)

    @property
    def run_s(self) -> float:
        """How long a recent request ran with its batch, on average."""
        return self.recent.run_s / self.recent.ran if self.recent.ran else 0.0

    @property
    def transport_s(self) -> float:
        """What is left of the recent mean from request to reply."""
        return max(0.0, self.recent.duration.mean - self.recent.queue_wait.mean - self.run_s)

    @property
    def is_late(self) -> bool:
        """Whether more than a few of the recent requests were answered after the goal."""
        return self.goal_s is not None and bool(self.batches) and self.p99_s > self.goal_s

    # Capacity

    @property
    def is_estimated(self) -> bool:
        """Whether anything is known about batch time."""
        return self.seconds(1.0) > 0

    def seconds(self, rows: float) -> float:
        """Predicted time of a batch."""
        return self.stats.estimate.seconds(rows)

    @property
    def is_out_of_reach(self) -> bool:
        """Whether not even the smallest request can be answered within the goal."""
        return self.goal_s is not None and self.stats.needed_s > self.goal_s

    @property
    def goal_rows(self) -> float:
        """Rows of the largest batch that is all but surely done within the goal; below 1 if none is."""
        return self.rows_within(self.goal_s)

    def rows_within(self, goal_s: float | None) -> float:
        """The same for another goal."""
        estimate = self.stats.estimate
        if goal_s is None:
            return math.inf
        allowed_s = goal_s / (1 + 2 * estimate.spread) - estimate.intercept_s
        if estimate.slope_s > 0:
            return max(0.0, allowed_s / estimate.slope_s)
        return math.inf if allowed_s >= 0 else 0.0

    @property
    def cap(self) -> float:
        """The most rows in a batch, as things are set."""
        return min(self.stats.limit_rows, self.stats.rules.max_batch_rows)

    @property
    def best_rows(self) -> float:
        """Rows of the largest batch that is allowed; the cap if the goal cannot be met anyway."""
        return self.best_of(self.cap, self.goal_s)

    @property
    def whole_rows(self) -> int:
        """The same in whole rows."""
        return math.floor(self.best_rows + 1e-9)

    def best_of(self, cap: float, goal_s: float | None) -> float:
        """The same for another cap and goal."""
        fits = self.rows_within(goal_s)
        return max(1.0, min(cap, fits if fits >= 1 else cap))

    def throughput(self, rows: float) -> float:
        """Rows per second that one worker can do in batches of ``rows`` rows."""
        seconds = self.seconds(rows)
        return rows / seconds if seconds > 0 else 0.0

    @property
    def capacity(self) -> float | None:
        """Rows per second that all workers together can answer within the goal; None if not known.

        It counts on no batches that are much larger than any so far.
        """
        if not self.is_estimated:
            return None
        return self.work.workers * self.throughput(min(self.best_rows, self._foreseen_rows))

    @property
    def capacity_is_least(self) -> bool:
        """Whether larger batches than those that the capacity counts on are allowed."""
        return self.best_rows > self._foreseen_rows

    @property
    def _foreseen_rows(self) -> float:
        known = self.stats.known_rows
        return math.inf if known is None else max(1.0, _FORESIGHT * known[1])

    @property
    def usable_capacity(self) -> float | None:
        """What other apis leave of what could be answered in the largest batches that are allowed."""
        if not self.is_estimated:
            return None
        return self.work.workers * self.throughput(self.best_rows) * (1 - min(1.0, self.others_share))

    @property
    def balanced_rows(self) -> float | None:
        """Rows in a batch with which workers just keep up; None if there are none, or nothing arrives."""
        estimate, workers, rate = self.stats.estimate, self.work.workers, self.stats.rate_rows
        left = workers - rate * estimate.slope_s
        if not self.is_estimated or rate <= 0 or left <= 0:
            return None
        rows = max(1.0, rate * estimate.intercept_s / left)
        return rows if rows < math.inf else None

    @property
    def is_overloaded(self) -> bool:
        """Whether more arrives than the workers can do."""
        if self.refused_for_load > _A_FEW:
            return True
        capacity = self.usable_capacity
        return capacity is not None and self.batches > 0 and self.rate > _FULL_LOAD * capacity

    @property
    def missing_workers(self) -> int:
        """How many workers more could answer all that arrives; at least 1."""
        each = self.throughput(self.best_rows)
        if each <= 0:
            return 1
        needed = self.rate / (_HEADROOM * each) + min(1.0, self.others_share) * self.work.workers
        return max(1, math.ceil(needed) - self.work.workers)

    @property
    def gain_of_cap(self) -> float:
        """How many times as much could be done with twice the cap."""
        return self._gain(self.best_of(2 * self.cap, self.goal_s))

    @property
    def gain_of_goal(self) -> float:
        """How many times as much could be done with twice the goal."""
        return self._gain(self.best_of(self.cap, None if self.goal_s is None else 2 * self.goal_s))

    @property
    def gain_of_batches(self) -> float:
        """How many times as much can be done in the largest batches as one request at a time."""
        alone = self.throughput(min(self.rows_per_request, self.best_rows))
        return self.throughput(self.best_rows) / alone if alone > 0 else 1.0

    def _gain(self, rows: float) -> float:
        now = self.throughput(self.best_rows)
        return self.throughput(rows) / now if now > 0 else 1.0

    # Workers

    @property
    def next_free_s(self) -> float:
        """Seconds until a worker should be idle; 0 or less if one is, or is late."""
        if self.work.idle or not self.work.running:
            return 0.0
        return min(batch.left_s for batch in self.work.running)
