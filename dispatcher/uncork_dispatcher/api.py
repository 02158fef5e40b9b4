"""The state of one API, apart from its queues: rules, policy, totals, and learned estimates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from uncork_dispatcher.actions import BatchStatus, GoalOutOfReach
from uncork_dispatcher.learning.arrivals import ApiTraffic
from uncork_dispatcher.learning.measures import BatchSize, Rows
from uncork_dispatcher.learning.service_model import ServiceModel
from uncork_dispatcher.policies.base import View
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.requests.fill import Fill
from uncork_dispatcher.requests.lengths import Lengths, padded_count
from uncork_dispatcher.requests.mixable_lengths import SAMPLE, mixable_lengths
from uncork_dispatcher.requests.queue import Entry, RequestQueue
from uncork_dispatcher.requests.queue_order import Backlog
from uncork_dispatcher.requests.states import RequestState
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.stats import ApiSample, ApiStats, ClassStats, Holding
from uncork_dispatcher.workers.share import Share
from uncork_dispatcher.workers.slots import Slots

# The padding in a batch may cost this share of the fixed part of another batch.
_SPARE = 0.5
_CANCELLED = RequestState.CANCELLED


class Api:
    """The state of one API inside the core."""

    def __init__(self, rules: ApiRules) -> None:
        self.rules = rules
        self.policy = rules.make_policy()
        self.backlog = Backlog()
        """The queued requests, except bulk."""
        self.bulk_backlog = Backlog()
        self._bulk_rows = 0.0
        """The rows of bulk that have arrived."""
        self.traffic = ApiTraffic()
        self.model = ServiceModel(goal_s=rules.goal_s, limit_rows=rules.max_batch_rows)
        self.has_lengths = False
        """True once lengths have decided which requests share a batch."""
        self._last_in_other_unit = 0
        """The number of the last request whose rows were counted in another unit."""

    def change(self, rules: ApiRules, *, requests: int = 0) -> None:
        """Change the rules; ``requests`` is the number of the latest request."""
        if rules.unit != self.rules.unit:
            fresh, self._last_in_other_unit = Api(rules), requests
            fresh.traffic.arrived_rows = self.traffic.arrived_rows
            self.policy, self.model, self.traffic = fresh.policy, fresh.model, fresh.traffic
            self.has_lengths = False
        elif (rules.policy, rules.max_batch_rows) != (self.rules.policy, self.rules.max_batch_rows):
            self.policy = rules.make_policy()
        self.rules = rules
        self.model.change(goal_s=rules.goal_s, limit_rows=rules.max_batch_rows)

    def view(self, queue: RequestQueue, slots: Slots, now: float, behind: Batch[Any] | None = None) -> View:
        """Return the policy's view of a queue: now, or when the batch ``behind`` should end."""
        rules, model, share = self.rules, self.model, slots.shares.of[queue.api]
        if behind is not None:
            share, now = share.freed(behind), max(now, behind.finish)
        traffic = self.traffic.of((queue.group, queue.key), now)
        slowdowns, slowdown, fits = model.slowdowns, 1.0, math.inf
        if slowdowns is not None or rules.name in slots.memory.by_api:
            worker = slots.shares.next_idle(slowdowns, now, queue.api) if behind is None else behind.worker
            slowdown, fits = model.slowdown(worker), slots.memory.of(worker, rules.name)
        urgent = queue.most_urgent
        patience_s = urgent.expires_at - urgent.arrival
        # By position, in the order of the class: keywords would cost a microsecond of each decision.
        return View(
            now,
            queue.rows,
            len(queue),
            queue.oldest.arrival,
            queue.newest,
            urgent.deadline,
            rules.goal_s,
            patience_s if patience_s < rules.goal_s else rules.goal_s,
            self.is_full(queue, fits),
            share.idle,
            share.finishes,
            partial(share.rows, rules.name),
            model.alone if behind is None else model.estimate,
            slowdown,
            traffic.new_clients.per_second(now=now),
            traffic.load_rate(now),
            traffic.returns,
            traffic.mean_rows or queue.rows / len(queue),
            self.mixable_rows(queue, queue.rows) if self.separates(queue) else queue.rows,
        )

    def is_full(self, queue: RequestQueue, fits: float) -> bool:
        """Return True if the rows or bytes of a queue reach the limit of a batch.

        ``fits`` is the size that fits into the memory of its worker.
        """
        size = queue.rows * self.model.measures.limit_ratio
        return queue.rows >= self.limit_rows or size >= fits or queue.size_bytes >= self.rules.max_batch_bytes

    def fills_batch(self, queue: RequestQueue, fits: float) -> bool:
        """Return True if a queue has a complete batch, by the policy's plan or by every limit.

        ``fits`` is as for :meth:`is_full`.
        """
        # Without a call, because busy gateways ask for each request.
        rules, policy = self.rules, self.policy
        if queue.rows >= policy.complete_rows:
            return True
        most = rules.max_batch_rows if fits == math.inf else min(fits, rules.max_batch_rows)
        return (
            queue.rows * self.model.measures.limit_ratio >= most or queue.size_bytes >= rules.max_batch_bytes
        ) and policy.limit_rows >= most

    @property
    def limit_rows(self) -> float:
        """The most rows in a batch: the limit of the policy or, less the usual padding, of the rules."""
        return min(self.policy.limit_rows, self.rules.max_batch_rows / self.model.measures.limit_ratio)

    def fill(
        self,
        queue: RequestQueue,
        rows: float,
        turns: Iterable[Entry] | None = None,
        fits: float = math.inf,
    ) -> Fill:
        """Return an empty batch for a queue, with room for ``rows`` rows with the usual padding.

        The batch must take requests in the order of ``turns``, by default the order of the queue. ``fits`` is
        the size that fits into the memory of its worker.
        """
        measures, rules = self.model.measures, self.rules
        size, most_rows = self._limits(rows, fits)
        lengths = None
        if self.separates(queue):
            self.has_lengths = True
            sample = list(islice(queue.turns() if turns is None else turns, SAMPLE))
            lengths = self._mixable(queue, sample, size, most_rows)
        return Fill(
            size=size,
            measure=measures.in_force,
            most_rows=most_rows,
            size_bytes=rules.max_batch_bytes,
            lengths=lengths,
            most_requests=self.policy.most_requests,
            allowed_batch_sizes=rules.allowed_batch_sizes,
        )

    def admit_riders(self, fill: Fill, rows: float, fits: float) -> None:
        """Let a batch of the first class take bulk as well, up to ``rows`` rows in all."""
        fill.admit_riders(*self._limits(rows, fits), same_length=self.model.measures.separates)

    def separates(self, queue: RequestQueue) -> bool:
        """Return True if lengths decide which requests of a queue share a batch."""
        return self.model.measures.separates and queue.has_lengths

    def mixable_rows(self, queue: RequestQueue, rows: float) -> float:
        """Return about how many of the ``rows`` most urgent rows may share a batch with the first row."""
        sample = list(islice(queue.turns(), SAMPLE))
        lengths = self._mixable(queue, sample, *self._limits(rows))
        mixable = sum([entry.rows for entry in sample if lengths.shortest <= entry.length <= lengths.longest])
        return min(rows, queue.rows * mixable / sum([entry.rows for entry in sample]))

    def _limits(self, rows: float, fits: float = math.inf) -> tuple[float, float]:
        """Return the largest size (by the current measure) and the most rows of a batch for ``rows`` rows."""
        measures, rules = self.model.measures, self.rules
        size, allowed = rows * measures.ratio, rules.allowed_batch_sizes
        # Of short rows, more than usual make a batch of this size, but never more than the limit.
        most = min(rules.max_batch_rows, self.policy.limit_rows, fits)
        if not measures.has_costs:
            return size if rows < rules.max_batch_rows else math.inf, most
        # The limit includes the padding, because a model that pads needs memory for it.
        return min(size, most), allowed[-1] if allowed else math.inf

    def _mixable(
        self, queue: RequestQueue, sample: Sequence[Entry], size: float, most_rows: float
    ) -> Lengths:
        measures = self.model.measures
        intercept_s, slope_s = measures.estimate[:2]
        # Before the first batch, nothing is known to be worth padding.
        another = intercept_s / slope_s if slope_s > 0 else math.inf if intercept_s > 0 else 0.0
        return mixable_lengths(
            sample,
            queued=len(queue),
            limit=size,
            spare=another * (1.0 if measures.probes else _SPARE),
            most_rows=most_rows,
            each=measures.probes,
        )

    def urgency(self, queue: RequestQueue) -> float:
        """Return the sort key of a queue: its oldest request's arrival + goal, or + a slow model's time."""
        return queue.oldest.arrival + max(self.rules.goal_s, 2 * self.model.smallest_s)

    def due_at(self, now: float, expires_at: float, *, bulk: bool = False) -> float:
        """Return when the worker should be done with a request that arrives ``now``."""
        rules = self.rules
        goal_s = rules.goal_s
        if bulk and rules.bulk_goal_s is not None:
            goal_s = rules.bulk_goal_s
        due_at = now + goal_s
        return (due_at if due_at < expires_at else expires_at) - self.model.allowance_s

    def bulk_arrived(self, rows: float, now: float) -> None:
        self._bulk_rows += rows
        if not self.bulk_backlog.requests:
            self.bulk_backlog.queued_since = now

    def counts_rows_of(self, batch: Batch[Any]) -> bool:
        """Return True if the rows of a batch that runs are counted in the current unit."""
        before = self._last_in_other_unit
        return not before or min([entry.number for entry in batch.entries]) > before

    def batch_ended(self, batch: Batch[Any], status: BatchStatus, now: float, seconds: float) -> None:
        """Expect the clients of a batch back, and let the policy observe the batch if it worked."""
        entries = batch.entries
        clients = [
            (entry.source, entry.rows)
            for entry in entries
            if not entry.bulk and entry.state is not _CANCELLED
        ]
        self.traffic.answered((batch.group, batch.key), clients, now=now)
        if status == "worked":
            queued_s = batch.started - min([entry.arrival for entry in entries])
            self.policy.observe(
                now=now, rows=batch.rows, requests=len(entries), queued_s=queued_s, seconds=seconds
            )

    def learn(
        self,
        batch: Batch[Any],
        chunks: Sequence[tuple[float, float]],
        seconds: float,
        prepare_s: float | None = None,
    ) -> GoalOutOfReach | None:
        """Learn the batch time from a batch that worked; return a warning if the goal is newly out of reach.

        See :meth:`Dispatcher.batch_done` for the other arguments.
        """
        entries = batch.entries
        rows, padded = [entry.rows for entry in entries], [entry.padded for entry in entries]
        sizes = [entry.size_bytes for entry in entries]
        self.model.observe(
            batch.worker,
            BatchSize(batch.rows, batch.padded, sum(sizes)),
            seconds=seconds,
            chunks=chunks,
            smallest=(min(rows), min(padded), min(sizes)),
            rows=self._rows(entries),
            was_ahead=batch.is_ahead,
            prepare_s=prepare_s,
        )
        self.model.measures.ran(mixed=batch.padded > 1.05 * sum(padded))
        needed_s = self.model.goal_lost()
        return None if needed_s is None else GoalOutOfReach(self.rules.name, self.rules.goal_s, needed_s)

    @property
    def has_earned(self) -> bool:
        """True if the estimate rests on enough batches to shed requests by it."""
        return self.model.estimate.earned_rows > 0

    def _rows(self, entries: Sequence[Entry]) -> Rows | None:
        """Return number and length of a batch's rows, to learn the limit of lengths; None if it cannot be."""
        if not self.model.measures.compares or self.rules.allowed_lengths:
            return None
        number = padded_count(sum([entry.count for entry in entries]), self.rules.allowed_batch_sizes)
        return Rows(number, max([entry.longest for entry in entries]))

    def sample(self) -> ApiSample:
        return ApiSample(
            self.model.estimate,
            self.model.transport_s,
            self.traffic.arrived_rows,
            self.backlog.rows + self.bulk_backlog.rows,
            self._bulk_rows,
        )

    def stats(
        self,
        now: float,
        share: Share,
        *,
        fits: float,
        oldest_s: float = 0.0,
        oldest_bulk_s: float = 0.0,
        holding: Holding | None = None,
    ) -> ApiStats:
        backlog, traffic, model, bulk = self.backlog, self.traffic, self.model, self.bulk_backlog
        return ApiStats(
            self.rules.name,
            backlog.requests,
            backlog.rows,
            backlog.size_bytes,
            traffic.all.rate(now),
            model.estimate,
            self.rules,
            self.policy.limit_rows,
            model.smallest_rows if model.smallest_rows < math.inf else 0.0,
            model.measures.known_rows,
            model.measures.slope_error_s,
            oldest_s,
            model.measures.padding,
            holding,
            None
            if self.rules.bulk_goal_s is None
            else ClassStats(bulk.requests, bulk.rows, bulk.size_bytes, oldest_bulk_s),
            share.workers,
            share.idle,
            fits,
        )
