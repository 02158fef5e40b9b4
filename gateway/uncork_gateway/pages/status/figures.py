"""The measurements of one API, for sentences and advice. No clock, no I/O."""

import math
from dataclasses import dataclass

from uncork_dispatcher import ApiStats, Estimate, WorkStats
from uncork_dispatcher.advice import WORTH
from uncork_dispatcher.learning.estimator import EARNED_REACH
from uncork_gateway.pages.status.document import ApiState, Failure, Limit
from uncork_gateway.telemetry.recent import Recent

# Above this share of the capacity, bursts make queues grow without bound.
_FULL_LOAD = 0.95
# The load that added workers should have, to leave room for bursts.
_HEADROOM = 0.8
# Sizes that differ by less than this factor count as one.
_SIMILAR = 1.1
# Up to this share of a batch's time, the error of the slope does not matter.
_SURE = 0.15
# Below this load, with requests run one at a time, the next request usually finds an idle worker.
_THIN = 0.7
# Below this share of busy time, workers limit nothing but bursts.
_BUSY = 0.8
# A smaller share of the workers' time is not mentioned.
_SOME_TIME = 0.1

A_FEW = 0.01
"""Up to this share of requests may be refused or late by chance."""

MOSTLY = 0.5
"""From this share on, something counts as the rule."""

MANY_REQUESTS = 2
"""From this many requests on, a mean batch does not count as small."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """The measurements of one API at one moment. If the API defines a cost, "rows" are units of cost.

    Workers and other APIs are those that share workers with it.

    Attributes:
        weighs: True if the API defines a cost.
        streams: True if responses are streamed, without batching.
        others_share: the share of recent worker time that other APIs took.
        busiest_other: the other API that took most time; None without one.
        longest_other: the other API whose mean batch takes longest, and its seconds; None without one.
        not_ready_reason: why no worker is ready; empty if one is, or if the next request starts one.
        failure: the handler's latest exception, if within the window.
    """

    stats: ApiStats
    recent: Recent
    work: WorkStats
    goal_s: float | None
    weighs: bool = False
    streams: bool = False
    others_share: float = 0.0
    busiest_other: str | None = None
    longest_other: tuple[str, float] | None = None
    draining: bool = False
    not_ready_reason: str = ""
    failure: Failure | None = None

    @property
    def state(self) -> ApiState:
        """The state, by the shares of errors and refusals among the responses."""
        share = self.recent.error_share + self.recent.refused_share
        if share >= MOSTLY:
            return "failing"
        return "degraded" if share > A_FEW else "ok"

    @property
    def is_late(self) -> bool:
        """True if more than a few recent requests exceeded the goal."""
        return self.goal_s is not None and not self.recent.is_few and self.recent.p99_s > self.goal_s

    # Capacity

    @property
    def estimate(self) -> Estimate | None:
        """The displayed estimate of batch times; None if too few batches have run."""
        return self.recent.estimate if self.stats.known_rows is not None else None

    def seconds(self, rows: float) -> float:
        """Return the predicted seconds of a batch; 0 if unknown."""
        return 0.0 if self.estimate is None else self.estimate.seconds(rows)

    @property
    def needed_s(self) -> float:
        """The predicted seconds of the smallest request alone; 0 if unknown."""
        return self.alone_s(self.stats.smallest_rows) if self.stats.smallest_rows else 0.0

    def alone_s(self, rows: float) -> float:
        """Return the predicted seconds of a request that runs alone; 0 if no batch that small has run."""
        known = self.stats.known_rows
        if not self.slope_is_known and (known is None or rows < known[0] / _SIMILAR):
            return 0.0
        return self.seconds(rows)

    @property
    def is_out_of_reach(self) -> bool:
        """True if even the smallest request would miss the goal."""
        return self.goal_s is not None and self.needed_s > self.goal_s

    def rows_within(self, goal_s: float | None) -> float:
        """Return the rows of the largest batch that almost surely meets a goal; below 1 if none does."""
        if goal_s is None or self.estimate is None:
            return math.inf
        return max(0.0, self.estimate.rows_within(goal_s))

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
        """The most rows in a batch. If the limit counts padding, less the usual padding."""
        padding, most = self.stats.padding, self.stats.rules.max_batch_rows
        if padding is None or padding.measure != "longest":
            return self.cap
        return min(self.stats.limit_rows, most * (1 - padding.share))

    @property
    def best_rows(self) -> float:
        """The rows of the largest batch within cap and goal; the cap if no batch meets the goal."""
        return self.best_of(self.cap_less_padding, self.goal_s)

    @property
    def whole_rows(self) -> int:
        return math.floor(self.best_rows + 1e-9)

    def best_of(self, cap: float, goal_s: float | None) -> float:
        """Return the rows of the largest batch within cap and goal; the cap if no batch meets the goal."""
        fits = self.rows_within(goal_s)
        return max(1.0, min(cap, fits if fits >= 1 else cap))

    def throughput(self, rows: float) -> float:
        """Return the rows per second of one worker in batches of ``rows`` rows; 0 if unknown."""
        seconds = self.seconds(rows)
        return rows / seconds if seconds > 0 else 0.0

    @property
    def throughput_of_worker(self) -> float:
        """The rows per second of one worker that is always busy; 0 if unknown.

        It assumes the largest allowed batches that have run, because the estimate may be too flat.
        """
        requested = max(self.recent.rows_per_request, self.stats.smallest_rows)
        return self.throughput(max(requested, min(self.best_rows, self._largest_rows)))

    @property
    def capacity(self) -> float | None:
        """The rows per second of all workers when always busy; None before the estimate.

        While batches may grow and the slope is unknown, it is the throughput of the window's batches; None
        without any.
        """
        each = self.throughput_of_worker
        if each > 0 and self.capacity_is_least and not self.slope_is_known:
            counts = self.recent.counts
            each = counts.worked_rows / counts.worked_s if counts.worked_s > 0 else 0.0
        return self.work.workers * each if each > 0 else None

    @property
    def capacity_is_least(self) -> bool:
        """True if larger batches than have run may serve more."""
        return self._may_grow and not self.is_overloaded

    @property
    def is_busy_below_capacity(self) -> bool:
        """True if the workers are nearly always busy, although larger batches may serve more."""
        return self.merges and self.capacity_is_least and self.utilization >= _BUSY

    @property
    def has_headroom(self) -> bool:
        """True if the workers have enough spare capacity to absorb bursts."""
        return self.capacity is not None and self.recent.rate <= _HEADROOM * self.capacity

    @property
    def slope_is_known(self) -> bool:
        """True if batches of different sizes have shown how their time depends on the size.

        If nearly all had one size, the estimate says nothing about larger or smaller ones.
        """
        known = self.stats.known_rows
        if known is None:
            return False
        return self.stats.slope_error_s * known[1] <= _SURE * self.seconds(known[1])

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
        """The smallest batch, in rows, with which workers keep up; None if unknown or impossible."""
        if self.estimate is None or not self.slope_is_known or self.recent.rate <= 0:
            return None
        rows = self.estimate.keep_up_rows(self.recent.rate, workers=self.work.workers)
        return max(1.0, rows) if rows < math.inf else None

    @property
    def utilization(self) -> float:
        """The share of worker time spent on the batches of all APIs; 0 without workers."""
        worker_s = self.work.workers * self.recent.seconds
        if worker_s <= 0:
            return 0.0
        return min(1.0, self.recent.counts.batch_duration.sum / worker_s + self.others_share)

    @property
    def is_overloaded(self) -> bool:
        """True if more rows arrive than busy workers can execute in the time that other APIs leave."""
        if self.recent.is_few or self.utilization < _BUSY:
            return False
        if self.recent.refused_for_load > A_FEW or self.waits_for_workers:
            return True
        each = self.throughput_of_worker
        if each <= 0 or not self.recent.batches or (self._may_grow and not self.is_late):
            return False
        return self.recent.rate > _FULL_LOAD * each * self.work.workers * (1 - min(1.0, self.others_share))

    @property
    def waits_for_workers(self) -> bool:
        """True if requests are queued longer than they run, although the policy never holds."""
        return not self.merges and self.recent.queue_s > self.recent.run_s > 0

    @property
    def missing_workers(self) -> int:
        """The number of additional workers needed to serve all arrivals; at least 1."""
        each = self.throughput_of_worker
        if each <= 0:
            return 1
        needed = self.recent.rate / (_HEADROOM * each) + min(1.0, self.others_share) * self.work.workers
        return max(1, math.ceil(needed) - self.work.workers)

    @property
    def rows_of_twice_the_cap(self) -> float:
        """The rows per batch if the cap were doubled, with as many requests queued and running as now."""
        most = self.best_of(2 * self.cap_less_padding, self.goal_s)
        waiting = self.requests_at_a_time * self.recent.rows_per_request / max(1, self.work.workers)
        return max(self.best_rows, min(most, waiting))

    @property
    def rows_under_load(self) -> int:
        """The rows of the largest batch that meets the goal after waiting for another batch of that size."""
        if self.goal_s is None or self.is_out_of_reach:
            return self.whole_rows
        return max(1, math.floor(min(self.cap_less_padding, self.rows_within(self.goal_s / 2)) + 1e-9))

    def gains(self, rows: float, *, than: float) -> bool:
        """Return True if batches of ``rows`` rows surely serve clearly more than batches of ``than``."""
        now = self.throughput(than)
        return self.slope_is_known and now > 0 and self.throughput(rows) >= WORTH * now

    @property
    def gain_of_batches(self) -> float:
        """The throughput of the largest batches divided by the throughput of single requests."""
        alone = self.throughput(min(self.recent.rows_per_request, self.best_rows))
        return self.throughput(self.best_rows) / alone if alone > 0 else 1.0

    # Traffic and limits

    @property
    def is_thin(self) -> bool:
        """True if a request usually completes before the next arrives."""
        if not self.recent.batches or not self.work.workers:
            return False
        taken = self.alone_s(self.recent.rows_per_request) / self.recent.gap_s
        return 0 < taken / self.work.workers < _THIN

    @property
    def requests_at_a_time(self) -> float:
        """The mean number of requests that are queued or running: rate times duration (Little's law)."""
        return self.recent.counts.duration.mean / self.recent.gap_s

    @property
    def is_full_of_bytes(self) -> bool:
        """True if most batches reach the limit in bytes, with clearly fewer rows than cap and goal allow."""
        recent = self.recent
        full = recent.share_of_releases("full") >= MOSTLY
        return full and recent.mean_rows + recent.rows_per_request < MOSTLY * self.rows_under_load

    @property
    def is_shared(self) -> bool:
        """True if other APIs take a considerable share of the workers' time."""
        return self.busiest_other is not None and self.others_share >= _SOME_TIME

    @property
    def waits_for_others(self) -> bool:
        """True if requests are queued longer than they run, for workers that mostly run other APIs."""
        if self.busiest_other is None or self.others_share < MOSTLY:
            return False
        return self.recent.queue_s > self.recent.run_s

    @property
    def misses_behind_others(self) -> bool:
        """True if requests are late or refused, and would meet the goal but for a batch of another API."""
        if self.longest_other is None or self.goal_s is None or self.is_out_of_reach:
            return False
        is_missed = self.is_late or self.recent.refused_for_load > A_FEW
        return is_missed and self.longest_other[1] + self.needed_s > self.goal_s

    @property
    def _caps_batches(self) -> bool:
        """True if most batches reach the cap, and larger ones would serve clearly more."""
        full = self.recent.share_of_releases("full") >= MOSTLY and not self.is_full_of_bytes
        return full and self.gains(self.rows_of_twice_the_cap, than=self.best_rows)

    @property
    def _goal_limits_batches(self) -> bool:
        """True if batches are as large as the goal allows, and larger ones would serve clearly more."""
        near = self.recent.mean_rows >= MOSTLY * self.rows_under_load
        return near and self.gains(self.best_rows, than=self.rows_under_load)

    @property
    def limited_by(self) -> Limit:
        """The bottleneck; "nothing" if the measurements show none."""
        if not self.work.workers:
            return "workers" if self.not_ready_reason else "nothing"
        if self.is_out_of_reach and self.recent.batches:
            return "goal"
        if not self.is_overloaded:
            return "nothing"
        if self.merges and not self.waits_for_others:
            if self._caps_batches:
                return "cap"
            if self._goal_limits_batches:
                return "goal"
        return "workers"

    @property
    def next_free_s(self) -> float:
        """The seconds until a worker should be idle; 0 if one is idle, negative if all are late."""
        if self.work.idle or not self.work.running:
            return 0.0
        return min(batch.left_s for batch in self.work.running)
