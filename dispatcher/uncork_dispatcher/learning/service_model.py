"""Predicts how long batches of one API take: in an average worker, in each worker, and in transport."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import lt

from uncork_dispatcher.learning.estimator import MEMORY, BatchTimeEstimator
from uncork_dispatcher.learning.measures import BatchSize, Measures, Rows
from uncork_dispatcher.learning.speed_factors import SpeedFactors


class ServiceModel:
    """Predicts the batch times of one API, and whether its goal can be met."""

    def __init__(self, *, goal_s: float, limit_rows: float) -> None:
        self._smallest = BatchSize(math.inf, math.inf, math.inf)
        """The size of the smallest request that was answered; infinity before the first."""
        self.smallest_s = 0.0
        """Predicted seconds of a batch of the smallest request."""
        self._transports = 0
        """How many batches have shown their transport."""
        self.transport_s = 0.0
        """Average seconds that a batch spends on the way to the worker and back."""
        self.responses_s = 0.0
        """Average seconds from the end of a batch until its responses are written."""
        self.allowance_s = 0.0
        """Seconds that deadlines allow for all that is not the worker's time."""
        self._goal_s = goal_s
        self._limit_rows = limit_rows
        self.measures = Measures()
        """The estimates of the batch time by each measure."""
        self._prepares = BatchTimeEstimator()
        self._prepared_rows = 0.0
        """About the most rows of the last hundred batches that were prepared while another ran."""
        self.overlaps = False
        """Whether a worker prepares a batch while it runs another, by the last batch."""
        self._speeds = SpeedFactors()
        self.slowdown = self._speeds.slowdown
        self.forget_worker = self._speeds.forget
        self.estimate = self.measures.of_cost
        """The batch time of an average worker, by the cost of a batch."""
        self.alone = self.estimate
        """The same for a batch on an idle worker, with the time to prepare it."""
        self._trusted_size = -1.0
        self._out_of_reach = False

    @property
    def smallest_rows(self) -> float:
        """Rows or cost of the smallest request that was answered; infinity before the first."""
        return self._smallest.rows

    @property
    def _limit_size(self) -> float:
        """The largest size of a batch by the current measure."""
        return self._limit_rows * self.measures.ratio / self.measures.limit_ratio

    @property
    def slowdowns(self) -> Callable[[int], float] | None:
        """A function from a worker to its factor on batch times; None if all factors are 1."""
        return self.slowdown if self._speeds.differ else None

    def change(self, *, goal_s: float, limit_rows: float) -> None:
        self._goal_s, self._limit_rows = goal_s, limit_rows
        self._out_of_reach = False
        self._update_trust()

    def can_predict(self, rows: float) -> bool:
        """Return True if the prediction for a batch of ``rows`` rows is good enough to shed a request.

        False until enough batches have run, and while even the smallest request misses the goal.
        """
        return min(rows * self.measures.ratio, self._limit_size) <= self._trusted_size

    def prepare_s(self, rows: float) -> float:
        """Return how long a worker prepares a batch while it runs another; 0 s if it does not."""
        return self._prepares.estimate.seconds(rows) if self.overlaps else 0.0

    def least_s(self, size: BatchSize) -> float:
        """Return the least seconds that a batch of this size takes."""
        rows, estimate = size[self.measures.in_force], self.measures.estimate
        if min(rows, self._limit_size) > self._trusted_size:
            # A batch above the earned size takes at least as long as one of the earned size.
            rows = estimate.earned_rows
        return estimate.seconds(rows)

    def expect_costs(self, has_costs: bool) -> None:
        self.measures.expect_costs(has_costs)
        self._update_estimate()

    def observe(
        self,
        worker: int,
        size: BatchSize,
        *,
        seconds: float,
        chunks: Sequence[tuple[float, float]],
        smallest: tuple[float, float, float],
        rows: Rows | None,
        was_ahead: bool = False,
        prepare_s: float | None = None,
    ) -> None:
        """Learn from a batch of this size that took ``seconds``.

        ``chunks`` gives (rows, seconds) of each call at the worker, if known: the rest of the time is
        transport. ``smallest`` is the size of the smallest request in the batch. A batch that ``was_ahead``
        shows no transport, because ``seconds`` excludes most of its way to the worker. ``prepare_s`` is how
        long the worker prepared the batch, if it can do so while it runs another; ``chunks`` exclude it.
        """
        self.overlaps = prepare_s is not None
        if prepare_s is not None:
            self._prepares.observe(size.rows, prepare_s)
            # One large batch must not count for ever, nor deadlines move with every small one.
            self._prepared_rows = max(size.rows, 0.98 * self._prepared_rows)
        if any(map(lt, smallest, self._smallest)):
            self._smallest = BatchSize(*map(min, self._smallest, smallest))
        transport_s = seconds
        for chunk_rows, chunk_s in chunks or [(size.rows, seconds)]:
            # The lengths in a part of the batch are unknown; assume the same.
            part = size if chunk_rows == size.rows else size.part(chunk_rows)
            self._observe_speed(worker, part[self.measures.in_force], chunk_s)
            slowdown = self.slowdown(worker) if self._speeds.differ else 1.0
            self.measures.observe(part, chunk_s / slowdown, rows if part is size else None)
            transport_s -= chunk_s
        if not was_ahead:
            self._transports += 1
            # The first few count equally: under load most batches may soon go ahead, and show nothing.
            share = max(MEMORY, 1 / self._transports)
            self.transport_s = _followed(self.transport_s, transport_s - (prepare_s or 0.0), share)
        self._update_allowance()
        self._update_estimate()

    def observe_responses(self, seconds: float) -> None:
        """Learn that the responses of a batch were written ``seconds`` after its end."""
        self.responses_s = _followed(self.responses_s, seconds, MEMORY)
        self._update_allowance()

    def observe_profile(self, worker: int, chunks: Sequence[tuple[float, float]]) -> None:
        """Learn from (rows, seconds) of batches that warmed a worker up; ignore batches above the limit."""
        chunks = [(rows, seconds) for rows, seconds in chunks if rows <= self._limit_rows]
        is_first = self.estimate.seconds(1.0) == 0
        if is_first:
            self.measures.observe_profile(chunks)
        for rows, seconds in chunks:
            self._observe_speed(worker, rows, seconds)
        if not is_first:
            slowdown = self.slowdown(worker)
            self.measures.observe_profile([(rows, seconds / slowdown) for rows, seconds in chunks])
        self._update_estimate()

    def goal_lost(self) -> float | None:
        """Return the seconds of the smallest request if the goal has just gone out of reach, else None."""
        needed_s = self.smallest_s + self.transport_s + self.responses_s
        if self._out_of_reach:
            # Within reach again once the smallest request takes less than 90 % of the goal.
            self._out_of_reach = needed_s > 0.9 * self._goal_s
            return None
        self._out_of_reach = needed_s > self._goal_s and self.estimate.earned_rows > 0
        return needed_s if self._out_of_reach else None

    def _update_allowance(self) -> None:
        # The time for responses counts twice: requests that arrive meanwhile are read late.
        allowance_s = self.transport_s + 2 * self.responses_s + self.prepare_s(self._prepared_rows)
        # In steps: deadlines that move with every batch would not come in the order of arrival. With a long
        # goal, clients may still set short deadlines.
        if abs(allowance_s - self.allowance_s) > 0.002 * min(self._goal_s, 1.0):
            self.allowance_s = allowance_s

    def _observe_speed(self, worker: int, size: float, seconds: float) -> None:
        estimate = self.measures.estimate
        # A wrong prediction would show in the factors for many batches.
        if estimate.earned_rows:
            average_s = estimate.seconds(size)
            self._speeds.observe(worker, seconds=seconds, average_s=average_s, spread=estimate.spread)

    def _update_estimate(self) -> None:
        self.estimate = self.alone = self.measures.of_cost
        if self.overlaps:
            intercept_s, slope_s = self._prepares.estimate[:2]
            self.alone = self.estimate._replace(
                intercept_s=self.estimate.intercept_s + intercept_s,
                slope_s=self.estimate.slope_s + slope_s,
            )
        if self._smallest.rows < math.inf:
            self.smallest_s = self.measures.estimate.seconds(self._smallest[self.measures.in_force])
        self._update_trust()

    def _update_trust(self) -> None:
        """Update the largest size for which a prediction may shed a request."""
        earned = self.measures.estimate.earned_rows
        # Before the first batch the size of requests is unknown, whatever a profile says.
        answered = self._smallest.rows < math.inf
        reachable = answered and self.smallest_s + self.transport_s + self.responses_s <= self._goal_s
        self._trusted_size = earned if earned > 0 and reachable else -1.0


def _followed(average_s: float, seconds: float, share: float) -> float:
    """Return an average that follows the latest time."""
    # A stall of this process must not count for long. A time of up to 1 ms is never an outlier.
    return average_s + share * (max(0.0, min(seconds, 4 * average_s + 0.001)) - average_s)
