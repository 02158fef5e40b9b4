"""The figures of one API that sentences and advice use. No clock, no I/O."""

import math
from dataclasses import dataclass

from uncork_dispatcher import ApiStats, Estimate, WorkStats
from uncork_dispatcher.learning.estimator import EARNED_REACH
from uncork_gateway.pages.status.document import ApiState, Failure, Limit
from uncork_gateway.telemetry.recent import Recent

# Above this share of the capacity, bursts make queues grow without bound.
_FULL_LOAD = 0.95
# The load that added workers should have, to leave room for bursts.
_HEADROOM = 0.8
# Sizes that differ by less than this factor count as one.
_SIMILAR = 1.1
# Sizes that all differ by less than this factor say little about others.
_APART = 2
# From this gain on, larger batches are worth recommending.
_WORTH = 1.2
_SOME_GAIN = 1.1
# Below this load, with requests run one at a time, the next request usually finds an idle worker.
_THIN = 0.7
_CLOSED = 0.9
_HALF = 0.5

A_FEW = 0.01
"""Up to this share of requests may be refused or late by chance."""

MOSTLY = 0.5
"""From this share on, something counts as the rule."""

MANY_REQUESTS = 2
"""From this many requests on, a mean batch does not count as small."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """One API at one moment. Rows are units of cost where the API defines one.

    Attributes:
        weighs: whether the API defines a cost.
        streams: whether answers are streamed, so that nothing can be merged.
        others_share: share of the workers' recent time that other APIs took.
        busiest_other: the API that took most of that; None if there is none.
        not_ready_reason: empty if a worker is ready.
        failure: the last exception that the handler raised, if it is in the window.
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
    not_ready_reason: str = ""
    failure: Failure | None = None

    @property
    def state(self) -> ApiState:
        """The state by the share of errors and refusals among the answers."""
        share = self.recent.error_share + self.recent.refused_share
        if share >= _HALF:
            return "failing"
        return "degraded" if share > A_FEW else "ok"

    @property
    def is_late(self) -> bool:
        """True if more than a few recent requests were answered after the goal."""
        return self.goal_s is not None and not self.recent.is_few and self.recent.p99_s > self.goal_s

    # Capacity

    @property
    def estimate(self) -> Estimate | None:
        """The displayed estimate of batch times; None if too few batches have run."""
        return self.recent.estimate if self.stats.known_rows is not None else None

    def seconds(self, rows: float) -> float:
        """Return the predicted time of a batch; 0 if it is unknown."""
        return 0.0 if self.estimate is None else self.estimate.seconds(rows)

    @property
    def needed_s(self) -> float:
        """The predicted time of the smallest request alone; 0 if it is unknown."""
        return self.seconds(self.stats.smallest_rows) if self.stats.smallest_rows else 0.0

    @property
    def is_out_of_reach(self) -> bool:
        """True if not even the smallest request can be answered within the goal."""
        return self.goal_s is not None and self.needed_s > self.goal_s

    def rows_within(self, goal_s: float | None) -> float:
        """Return the rows of the largest batch that almost surely meets a goal; below 1 if none does."""
        if goal_s is None or self.estimate is None:
            return math.inf
        allowed_s = goal_s / (1 + 2 * self.estimate.spread) - self.estimate.intercept_s
        if self.estimate.slope_s > 0:
            return max(0.0, allowed_s / self.estimate.slope_s)
        return math.inf if allowed_s >= 0 else 0.0

    @property
    def merges(self) -> bool:
        """True if the policy puts several requests into a batch."""
        return not self.streams and self.stats.limit_rows > 1

    @property
    def cap(self) -> float:
        """The most rows in a batch under the settings."""
        return min(self.stats.limit_rows, self.stats.rules.max_batch_rows)

    @property
    def cap_less_padding(self) -> float:
        """The most rows in a batch with the usual padding, where the cap of the settings counts it too."""
        padding, most = self.stats.padding, self.stats.rules.max_batch_rows
        if padding is None or padding.measure != "longest":
            return self.cap
        return min(self.stats.limit_rows, most * (1 - padding.share))

    @property
    def best_rows(self) -> float:
        """The rows of the largest allowed batch; the cap if the goal cannot be met anyway."""
        return self.best_of(self.cap_less_padding, self.goal_s)

    @property
    def whole_rows(self) -> int:
        return math.floor(self.best_rows + 1e-9)

    def best_of(self, cap: float, goal_s: float | None) -> float:
        """Return the rows of the largest allowed batch for a cap and a goal."""
        fits = self.rows_within(goal_s)
        return max(1.0, min(cap, fits if fits >= 1 else cap))

    def throughput(self, rows: float) -> float:
        """Return the rows per second of one worker in batches of ``rows`` rows; 0 if unknown."""
        seconds = self.seconds(rows)
        return rows / seconds if seconds > 0 else 0.0

    @property
    def throughput_of_worker(self) -> float:
        """The rows per second of one worker that is always busy; 0 if unknown.

        It counts on batches as large as allowed, but no larger than have run: the estimate may be too flat.
        """
        requested = max(self.recent.rows_per_request, self.stats.smallest_rows)
        return self.throughput(max(requested, min(self.best_rows, self._largest_rows)))

    @property
    def capacity(self) -> float | None:
        """The rows per second of all workers when always busy.

        None if unknown: before the estimate, and while batches may grow but have all been of about one size.
        """
        each = self.throughput_of_worker
        if each <= 0 or (self.capacity_is_least and not self.sizes_differ):
            return None
        return self.work.workers * each

    @property
    def capacity_is_least(self) -> bool:
        """True if larger batches than have run may answer more."""
        return self._may_grow and not self.is_overloaded

    @property
    def has_headroom(self) -> bool:
        """True if the workers could absorb bursts on average."""
        return self.capacity is not None and self.recent.rate <= _HEADROOM * self.capacity

    @property
    def sizes_differ(self) -> bool:
        """True if the estimate rests on batches of clearly different sizes."""
        known = self.stats.known_rows
        return known is not None and known[1] >= _APART * known[0]

    @property
    def _largest_rows(self) -> float:
        """The rows of the largest batch behind the estimate; 0 if unknown."""
        return 0.0 if self.estimate is None else self.estimate.earned_rows / EARNED_REACH

    @property
    def _may_grow(self) -> bool:
        """True if clearly larger batches are allowed than have run."""
        return self.best_rows > _SIMILAR * self._largest_rows

    @property
    def balanced_rows(self) -> float | None:
        """The rows in a batch at which workers just keep up; None without such a size or arrivals."""
        if self.estimate is None or self.recent.rate <= 0:
            return None
        left = self.work.workers - self.recent.rate * self.estimate.slope_s
        if left <= 0:
            return None
        rows = max(1.0, self.recent.rate * self.estimate.intercept_s / left)
        return rows if rows < math.inf else None

    @property
    def is_overloaded(self) -> bool:
        """True if more arrives than the workers can answer in the time that other APIs leave."""
        if self.recent.is_few:
            return False
        if self.recent.refused_for_load > A_FEW or self.waits_for_workers:
            return True
        each = self.throughput_of_worker
        if each <= 0 or not self.recent.batches or (self._may_grow and not self.is_late):
            return False
        return self.recent.rate > _FULL_LOAD * each * self.work.workers * (1 - min(1.0, self.others_share))

    @property
    def waits_for_workers(self) -> bool:
        """True if requests wait longer than they run although the policy never holds."""
        return not self.merges and self.recent.queue_s > self.recent.run_s > 0

    @property
    def missing_workers(self) -> int:
        """The number of additional workers needed to answer everything; at least 1."""
        each = self.throughput_of_worker
        if each <= 0:
            return 1
        needed = self.recent.rate / (_HEADROOM * each) + min(1.0, self.others_share) * self.work.workers
        return max(1, math.ceil(needed) - self.work.workers)

    @property
    def gain_of_cap(self) -> float:
        """The factor by which twice the cap would increase throughput."""
        return self._gain(self.best_of(2 * self.cap_less_padding, self.goal_s))

    @property
    def gain_of_goal(self) -> float:
        """The factor by which twice the goal would increase throughput."""
        goal_s = None if self.goal_s is None else 2 * self.goal_s
        return self._gain(self.best_of(self.cap_less_padding, goal_s))

    @property
    def gain_of_batches(self) -> float:
        """The throughput of the largest batches relative to one request at a time."""
        alone = self.throughput(min(self.recent.rows_per_request, self.best_rows))
        return self.throughput(self.best_rows) / alone if alone > 0 else 1.0

    def _gain(self, rows: float) -> float:
        now = self.throughput(self.best_rows)
        return self.throughput(rows) / now if now > 0 else 1.0

    # Traffic and limits

    @property
    def is_thin(self) -> bool:
        """True if a request usually finishes before the next one arrives."""
        if not self.recent.batches or not self.work.workers:
            return False
        taken = self.seconds(self.recent.rows_per_request) / self.recent.gap_s
        return 0 < taken / self.work.workers < _THIN

    @property
    def is_closed_loop(self) -> bool:
        """True if nearly all requests come from clients that mostly wait for answers."""
        stats = self.stats
        if stats.returning_share < _CLOSED or not stats.clients:
            return False
        # Clients that wait at a time: arrival rate times the duration of an answer (Little's law).
        return self.recent.counts.duration.mean / self.recent.gap_s >= MOSTLY * stats.clients

    @property
    def caps_batches(self) -> bool:
        """True if most batches reach the cap, and larger ones would increase throughput."""
        if self.recent.is_few or not self.merges:
            return False
        return self.recent.share_of_releases("full") >= MOSTLY and self.gain_of_cap >= _SOME_GAIN

    @property
    def limited_by(self) -> Limit:
        if not self.work.workers:
            return "workers"
        if self.is_out_of_reach and self.recent.batches:
            return "goal"
        if self.is_overloaded or self.is_late:
            if self.gain_of_cap >= _WORTH and self.merges:
                return "cap"
            if self.gain_of_goal >= _WORTH and self.merges:
                return "goal"
            return "workers"
        return "cap" if self.caps_batches else "nothing"

    @property
    def next_free_s(self) -> float:
        """The seconds until a worker should be idle; 0 if one is, negative if it is late."""
        if self.work.idle or not self.work.running:
            return 0.0
        return min(batch.left_s for batch in self.work.running)
