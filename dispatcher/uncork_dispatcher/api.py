"""What belongs to an api rather than to one of its queues: rules, policy, what was learned, totals."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from uncork_dispatcher.actions import GoalOutOfReach
from uncork_dispatcher.learning.arrivals import ArrivalRate
from uncork_dispatcher.learning.estimator import BatchTimeEstimator, Estimate
from uncork_dispatcher.learning.returns import Returns
from uncork_dispatcher.learning.speed_factors import WorkerPaces
from uncork_dispatcher.policies import make_policy
from uncork_dispatcher.policies.base import BatchDone, View
from uncork_dispatcher.requests.queue import Entry, RequestQueue
from uncork_dispatcher.requests.slots import Running, Slots
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.stats import ApiSample, ApiStats, Holding

# Capacity is judged by the higher of the rates over a short and this longer time.
_LASTING_S = 5.0
# Transport is averaged over about the last ten batches; so much is never too long to be believed.
_FRESH_TRANSPORT = 0.1
_SHORT_TRANSPORT_S = 0.001
# What deadlines allow for transport changes by this share of the goal at least.
_ALLOWANCE_STEP = 0.002
# A goal counts as within reach again when the smallest request takes this share of it.
_WITHIN_REACH = 0.9


class Room(NamedTuple):
    """How much may be held for its last row to be done within the goal, while the slots do not change.

    No more than the rules allow.
    """

    changes: int
    rows: float
    requests: int


class Api:
    """State of one api inside the core. Rate and estimate belong to the api, queues to the batch key."""

    def __init__(self, rules: ApiRules) -> None:
        self.rules = rules
        self.policy = make_policy(rules.policy, limit_rows=rules.max_batch_rows)
        self._arrivals = ArrivalRate()
        self._lasting = ArrivalRate(_LASTING_S)
        self._unexpected = ArrivalRate()
        self._returns = Returns()
        self.room = Room(-1, 0.0, 0)
        self.line_until = -math.inf
        """When the last of those who were refused is to come back."""
        self.refused = 0
        """How many were told when to come back."""
        self._arrived_rows = 0.0
        self.requests = 0
        self.rows = 0.0
        self.size_bytes = 0
        self._estimator = BatchTimeEstimator()
        self._paces = WorkerPaces()
        self._smallest_rows = math.inf
        self._smallest_s = 0.0
        self._transport_s = 0.0
        self._allowance_s = 0.0
        self._trusted_rows = -1.0
        self._out_of_reach = False

    @property
    def estimate(self) -> Estimate:
        """What is believed about batch time now."""
        return self._estimator.estimate

    def pace(self, worker: int) -> float:
        """How many times as long as predicted a worker takes."""
        return self._paces.of(worker)

    def worker_lost(self, worker: int) -> None:
        """Forget how fast a worker is."""
        self._paces.forget(worker)

    def may_shed(self, rows: float) -> bool:
        """Whether what is predicted for a batch of ``rows`` rows may refuse a request.

        Not before that has been earned, nor when even the smallest request on an idle worker misses the goal.
        """
        return min(rows, self.rules.max_batch_rows) <= self._trusted_rows

    def check_goal(self) -> GoalOutOfReach | None:
        """What to tell if the goal has gone out of reach since the last time that it was within it."""
        needed_s, goal_s = self._smallest_s + self._transport_s, self.rules.goal_s
        if self._out_of_reach:
            self._out_of_reach = needed_s > _WITHIN_REACH * goal_s
            return None
        self._out_of_reach = needed_s > goal_s and self.estimate.earned_rows > 0
        return GoalOutOfReach(self.rules.name, goal_s, needed_s) if self._out_of_reach else None

    def _judge(self) -> None:
        """Keep what follows from estimate and goal: every request asks for it."""
        earned = self.estimate.earned_rows
        # Before the first batch it is not known how small requests are, whatever a profile says.
        answered = self._smallest_rows < math.inf
        reachable = answered and self._smallest_s + self._transport_s <= self.rules.goal_s
        self._trusted_rows = earned if earned > 0 and reachable else -1.0

    def change(self, rules: ApiRules) -> None:
        """Put other rules in force; what is held and what was learned stay."""
        if (rules.policy, rules.max_batch_rows) != (self.rules.policy, self.rules.max_batch_rows):
            self.policy = make_policy(rules.policy, limit_rows=rules.max_batch_rows)
        self.rules = rules
        self.room = Room(-1, 0.0, 0)
        self._out_of_reach = False
        self._judge()

    def arrived(self, source: Hashable, rows: float, now: float) -> None:
        """A request has come, whether it is taken in or not."""
        self._arrived_rows += rows
        self._arrivals.arrived(rows, now=now)
        self._lasting.arrived(rows, now=now)
        if not self._returns.arrived(source, now=now):
            self._unexpected.arrived(rows, now=now)

    def answered(self, running: Running, now: float) -> None:
        """A batch has ended: its clients have their answers."""
        self._returns.answered(((entry.source, entry.rows) for entry in running.entries), now=now)

    def count(self, entry: Entry, sign: int) -> None:
        """Add a request to the totals of what is held (1), or take it off them (-1)."""
        self.requests += sign
        self.rows += sign * entry.rows
        self.size_bytes += sign * entry.size_bytes

    def released(self, entries: Sequence[Entry], rows: float) -> None:
        """Take a batch of ``rows`` rows off the totals."""
        self.requests -= len(entries)
        self.rows -= rows
        self.size_bytes -= sum([entry.size_bytes for entry in entries])

    def view(self, queue: RequestQueue, slots: Slots, now: float) -> View:
        """What the policy is shown of one of the api's queues."""
        rules, name = self.rules, self.rules.name
        outlook = slots.outlook(now)
        rate, lasting = self._arrivals.per_second(now=now), self._lasting.per_second(now=now)
        # By position: names would cost a microsecond of each decision.
        return View(
            now,
            queue.rows,
            len(queue),
            queue.oldest.arrival,
            queue.newest,
            queue.most_urgent.deadline,
            rules.goal_s,
            queue.rows >= self.policy.limit_rows or queue.size_bytes >= rules.max_batch_bytes,
            slots.idle,
            tuple([finish for finish, _ in outlook]),
            tuple([start.rows if start.api == name else 0.0 for _, start in outlook]),
            self.estimate,
            self.pace(slots.next_idle(self.pace)),
            self._unexpected.per_second(now=now),
            rate if rate > lasting else lasting,
            self._returns,
        )

    def fills_batch(self, queue: RequestQueue) -> bool:
        """Whether a queue holds as much as the user allows for a batch, and the policy allows as much."""
        rules = self.rules
        full = queue.rows >= rules.max_batch_rows or queue.size_bytes >= rules.max_batch_bytes
        return full and self.policy.limit_rows >= rules.max_batch_rows

    def urgency(self, queue: RequestQueue) -> float:
        """Sorts queues: the oldest request first, where a loose goal or a slow model counts as younger."""
        return queue.oldest.arrival + max(self.rules.goal_s, 2 * self._smallest_s)

    def due_at(self, now: float, expires_at: float) -> float:
        """When a request that comes ``now`` must be done at its worker, for its answer to be in time."""
        return min(now + self.rules.goal_s, expires_at) - self._allowance_s

    def learn(
        self,
        running: Running,
        chunks: Sequence[tuple[float, float]],
        now: float,
        *,
        seconds: float | None = None,
    ) -> None:
        """Learn from a batch that worked; arguments as for :meth:`Dispatcher.batch_done`."""
        if seconds is None:
            seconds = now - running.started
        rows, worker = running.start.rows, running.start.worker
        self._smallest_rows = min(self._smallest_rows, *[entry.rows for entry in running.entries])
        transport_s = seconds
        for chunk_rows, chunk_s in chunks or [(rows, seconds)]:
            estimate = self.estimate
            average_s = estimate.seconds(chunk_rows)
            self._paces.observe(worker, seconds=chunk_s, average_s=average_s, spread=estimate.spread)
            self._estimator.observe(chunk_rows, chunk_s / self.pace(worker))
            transport_s -= chunk_s
        # A stall of this process must not count for long.
        transport_s = max(0.0, min(transport_s, 4 * self._transport_s + _SHORT_TRANSPORT_S))
        self._transport_s += _FRESH_TRANSPORT * (transport_s - self._transport_s)
        # In steps: deadlines that move with every batch would not come in the order of arrival.
        if abs(self._transport_s - self._allowance_s) > _ALLOWANCE_STEP * self.rules.goal_s:
            self._allowance_s = self._transport_s
        self._smallest_s = self.estimate.seconds(self._smallest_rows)
        self._judge()
        held_s = running.started - min([entry.arrival for entry in running.entries])
        self.policy.observe(BatchDone(now, rows, len(running.entries), held_s, seconds))

    def learn_profile(self, worker: int, chunks: Sequence[tuple[float, float]]) -> None:
        """Learn from batches that were nobody's; arguments as for :meth:`Dispatcher.profile`."""
        chunks = [(rows, seconds) for rows, seconds in chunks if rows <= self.rules.max_batch_rows]
        is_first = self.estimate.seconds(1.0) == 0
        if is_first:
            self._estimator.observe_profile(chunks)
        estimate = self.estimate
        for rows, seconds in chunks:
            average_s = estimate.seconds(rows)
            self._paces.observe(worker, seconds=seconds, average_s=average_s, spread=estimate.spread)
        if not is_first:
            pace = self.pace(worker)
            self._estimator.observe_profile([(rows, seconds / pace) for rows, seconds in chunks])
        if self._smallest_rows < math.inf:
            self._smallest_s = self.estimate.seconds(self._smallest_rows)
        self._judge()

    def sample(self) -> ApiSample:
        """Totals and beliefs, for figures over time."""
        return ApiSample(self.estimate, self._transport_s, self._arrived_rows, self.rows)

    def stats(
        self, now: float, *, running: int = 0, oldest_s: float = 0.0, holding: Holding | None = None
    ) -> ApiStats:
        """What the api holds and what is known about it; ``running`` is how many of its requests run."""
        rate = self._arrivals.per_second(now=now)
        unexpected = self._unexpected.per_second(now=now)
        return ApiStats(
            self.rules.name,
            self.requests,
            self.rows,
            self.size_bytes,
            rate,
            self.estimate,
            self.rules,
            self.policy.limit_rows,
            max(0.0, 1.0 - unexpected / rate) if rate > 0 else 0.0,
            self.requests + running + self._returns.clients,
            self._smallest_rows if self._smallest_rows < math.inf else 0.0,
            self._estimator.known_rows,
            oldest_s,
            holding,
        )
