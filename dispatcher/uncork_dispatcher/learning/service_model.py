"""How long batches of one API take: in an average worker, in each worker, and on the way there and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from uncork_dispatcher.learning.measures import BatchSize, Measures, Rows
from uncork_dispatcher.learning.speed_factors import SpeedFactors

# Transport is averaged over about the last ten batches; this much is always plausible.
_FRESH_TRANSPORT = 0.1
_SHORT_TRANSPORT_S = 0.001
# The allowance for transport in deadlines changes by this share of the goal at least.
_ALLOWANCE_STEP = 0.002
# A goal counts as within reach again when the smallest request takes this share of it.
_WITHIN_REACH = 0.9


class ServiceModel:
    """Predicts batches of one API, and judges whether its goal can be met."""

    def __init__(self, *, goal_s: float, limit_rows: float) -> None:
        self._smallest = BatchSize(math.inf, math.inf, math.inf)
        """The size of the smallest request that was answered; infinity before the first."""
        self.smallest_s = 0.0
        """Predicted seconds of a batch of that request."""
        self._transports = 0
        """How many batches have shown their transport."""
        self.transport_s = 0.0
        """Average seconds on the way to the worker and back."""
        self.allowance_s = 0.0
        """Seconds that deadlines allow for transport."""
        self._goal_s = goal_s
        self._limit_rows = limit_rows
        self.measures = Measures()
        """The estimates of the batch time."""
        self._speeds = SpeedFactors()
        self.slowdown = self._speeds.slowdown
        self.forget_worker = self._speeds.forget
        self.estimate = self.measures.of_cost
        """The batch time of an average worker, by the cost of a batch."""
        self._trusted_size = -1.0
        self._out_of_reach = False

    @property
    def smallest_rows(self) -> float:
        """Rows or cost of the smallest request that was answered; infinity before the first."""
        return self._smallest.rows

    @property
    def _limit_size(self) -> float:
        """The limit of a batch by the measure in force."""
        return self._limit_rows * self.measures.ratio / self.measures.limit_ratio

    @property
    def slowdowns(self) -> Callable[[int], float] | None:
        """The factor on the batch time of each worker; None if it is 1 for all of them."""
        return self.slowdown if self._speeds.differ else None

    def change(self, *, goal_s: float, limit_rows: float) -> None:
        """Set other limits; what was learned stays."""
        self._goal_s, self._limit_rows = goal_s, limit_rows
        self._out_of_reach = False
        self._update_trust()

    def can_predict(self, rows: float) -> bool:
        """Whether the prediction for a batch of ``rows`` rows is good enough to shed a request.

        Not before it has been earned, nor while even the smallest request on an idle worker misses the goal.
        """
        return min(rows * self.measures.ratio, self._limit_size) <= self._trusted_size

    def least_s(self, size: BatchSize) -> float:
        """Return the least time in seconds of a batch of this size."""
        rows, estimate = self.measures.size(size), self.measures.estimate
        if min(rows, self._limit_size) > self._trusted_size:
            # A batch above the earned size takes at least as long as one of the earned size.
            rows = estimate.earned_rows
        return estimate.seconds(rows)

    def expect_costs(self, has_costs: bool) -> None:
        """Say whether requests have costs; see :meth:`Measures.expect_costs`."""
        self.measures.expect_costs(has_costs)
        self._update_estimate()

    def observe(
        self,
        worker: int,
        size: BatchSize,
        *,
        seconds: float,
        chunks: Sequence[tuple[float, float]],
        smallest: BatchSize,
        rows: Rows | None,
        was_ahead: bool = False,
    ) -> None:
        """Learn from a batch of this size that took ``seconds``.

        ``chunks`` gives (rows, seconds) of each call at the worker, if known: the rest is transport.
        ``smallest`` is the size of the smallest request in the batch. For a batch that ``was_ahead``,
        ``seconds`` does not include most of its way to the worker, so it shows no transport.
        """
        self._smallest = BatchSize(*map(min, self._smallest, smallest))
        transport_s = seconds
        for chunk_rows, chunk_s in chunks or [(size.rows, seconds)]:
            # The lengths in a part of the batch are unknown; assume the same.
            part = size if chunk_rows == size.rows else size.part(chunk_rows)
            self._observe_speed(worker, self.measures.size(part), chunk_s)
            self.measures.observe(part, chunk_s / self.slowdown(worker), rows if part is size else None)
            transport_s -= chunk_s
        if not was_ahead:
            self._observe_transport(transport_s)
        # In steps: deadlines that move with every batch would not come in the order of arrival.
        if abs(self.transport_s - self.allowance_s) > _ALLOWANCE_STEP * self._goal_s:
            self.allowance_s = self.transport_s
        self._update_estimate()

    def observe_profile(self, worker: int, chunks: Sequence[tuple[float, float]]) -> None:
        """Learn from (rows, seconds) of batches that warmed a worker up; ignore those above the limit."""
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
        """Return the seconds that the smallest request needs, if the goal has just gone out of reach."""
        needed_s = self.smallest_s + self.transport_s
        if self._out_of_reach:
            self._out_of_reach = needed_s > _WITHIN_REACH * self._goal_s
            return None
        self._out_of_reach = needed_s > self._goal_s and self.estimate.earned_rows > 0
        return needed_s if self._out_of_reach else None

    def _observe_transport(self, seconds: float) -> None:
        """Learn from a batch that was on the way for so long."""
        # A stall of this process must not count for long.
        seconds = max(0.0, min(seconds, 4 * self.transport_s + _SHORT_TRANSPORT_S))
        self._transports += 1
        # The first few count equally: under load most batches may soon go ahead, and show nothing.
        self.transport_s += max(_FRESH_TRANSPORT, 1 / self._transports) * (seconds - self.transport_s)

    def _observe_speed(self, worker: int, size: float, seconds: float) -> None:
        estimate = self.measures.estimate
        average_s = estimate.seconds(size)
        self._speeds.observe(worker, seconds=seconds, average_s=average_s, spread=estimate.spread)

    def _update_estimate(self) -> None:
        """Store the new estimate, and the values that follow from it."""
        self.estimate = self.measures.of_cost
        if self._smallest.rows < math.inf:
            self.smallest_s = self.measures.estimate.seconds(self.measures.size(self._smallest))
        self._update_trust()

    def _update_trust(self) -> None:
        """Store what follows from estimate and goal: every request asks for it."""
        earned = self.measures.estimate.earned_rows
        # Before the first batch the size of requests is unknown, whatever a profile says.
        answered = self.smallest_rows < math.inf
        reachable = answered and self.smallest_s + self.transport_s <= self._goal_s
        self._trusted_size = earned if earned > 0 and reachable else -1.0
