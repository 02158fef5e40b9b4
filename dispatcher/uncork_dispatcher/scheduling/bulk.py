"""How much bulk a batch may have: as much as the latency goals of the first class leave room for.

A long batch leaves the last idle worker to other APIs with shorter goals by the same formulas. An API that
others would starve is owed time, as bulk is.

An API may have a second class of requests, *bulk*, with a looser goal or none. Bulk goes last: it rides in
batches of the first class, or runs alone on idle workers. A batch with bulk may take::

    T = min((deadline - now - margin) / U     its own requests of the first class keep their deadlines
            end of the first hole - now       arrivals find a free worker in time
            10 * (a + t) / (1 - rho))         more would gain bulk less than a tenth

where a batch of ``n`` rows takes ``a + b * n`` and its transport ``t``, ``U`` is one plus twice the relative
deviation of batch times, the first class brings ``rate`` rows per second, and ``rho = rate * b / W`` with
``W`` workers. Arrivals of a whole wait ``H`` and their batch meet the goal ``g``, less what deadlines allow
for transport and responses, if::

    U * (H + a + b * rate * H) = g - margin

*Hole*: a time longer than ``H - t`` in which no worker becomes free. The batch may end ``H - t`` after the
worker before the first hole is free. Without bulk, ``(a + t) / (1 - rho)`` is the shortest time between two
batches of a worker with which it keeps up with the first class. Source: ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from operator import attrgetter

from uncork_dispatcher.api import Api
from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.policies.base import MARGIN, Hold, Release
from uncork_dispatcher.requests.fill import Fill
from uncork_dispatcher.requests.queue import RequestQueue
from uncork_dispatcher.scheduling.queues import RequestQueues
from uncork_dispatcher.workers.share import Share
from uncork_dispatcher.workers.slots import Slots

# Bulk gets at least this share of the workers' time while it is queued, and so does an API that would starve.
_SHARE = 0.05
# A batch with bulk takes no longer than so many batches of the first class alone.
_CYCLES = 10.0
# Rows that arrive during a full batch; with fewer, bulk gets full batches.
_FEW_ARRIVALS = 0.1
# A queue of bulk that has waited for so long, or for half of its goal, without a batch is owed the next one.
_PATIENCE_S = 5.0


def longest_wait_s(goal_s: float, rate: float, estimate: Estimate) -> float:
    """Return ``H``, how many seconds arrivals may wait for a free worker; negative if they may not wait."""
    upper = 1 + 2 * estimate.spread
    after_wait_s = (1 - MARGIN) * goal_s - upper * estimate.intercept_s
    return after_wait_s / (upper * (1 + rate * estimate.slope_s))


def first_hole_s(free_in_s: Iterable[float], wait_s: float, enough_s: float) -> float:
    """Return in how many seconds the first hole ends; at least ``enough_s`` if it ends later.

    ``free_in_s`` has the seconds until each other worker is free, ascending.
    """
    last_s = 0.0
    for free_s in free_in_s:
        if last_s + wait_s >= enough_s or free_s - last_s > wait_s:
            break
        last_s = max(last_s, free_s)
    return last_s + wait_s


def most_cycles_s(
    rate: float, estimate: Estimate, *, workers: int, transport_s: float, limit_rows: float
) -> float:
    """Return the batch time beyond which more rows gain bulk less than a tenth."""
    rho = rate * estimate.slope_s / workers
    if rate * estimate.seconds(limit_rows) <= _FEW_ARRIVALS or rho >= 1:
        return math.inf
    return _CYCLES * (estimate.intercept_s + transport_s) / (1 - rho)


class BulkRoom:
    """The room for bulk in the next batch. Batch times are estimated for an average worker."""

    def __init__(self, apis: Mapping[str, Api], queues: RequestQueues, slots: Slots) -> None:
        self._apis = apis
        self._queues = queues
        self._slots = slots

    def decide(self, queue: RequestQueue, now: float) -> Release | Hold:
        """Decide about a batch of bulk only.

        It runs in a hole while nothing else waits, or if owed time. If a hole is shorter than one request of
        bulk, one runs when hardly any request of a first class will arrive meanwhile.
        """
        api, first = self._apis[queue.api], next(queue.turns()).rows
        worker = self._slots.shares.next_idle(api.model.slowdowns, now, queue.api)
        estimate = api.model.estimate.slowed(api.model.slowdown(worker))
        if self._queues.other_class(queue) is None:
            rows = estimate.rows_within(self._seconds(api, estimate, now), z=0)
            if rows >= min(first, api.limit_rows):
                return Release(min(rows, max(first, self._even_rows(api))), "not_worth_waiting")
        is_next = self.passed_over(api, now) in (None, queue)
        wait_s = self._owed_in_s(api, first, now) if is_next else math.inf
        if self._queues.other_class(queue) is None:
            wait_s = min(wait_s, self._quiet_in_s(queue.api, estimate.seconds(first), now))
        until = now + wait_s
        return Hold(until, "class") if until > now else Release(first, "not_worth_waiting")

    def owed(self, share: Share, now: float) -> RequestQueue | None:
        """Return the queue of this share that goes before more urgent ones; None if there is none.

        This is bulk that is owed the time for its first request, or a queue that would starve.
        """
        for name in share.apis:
            api = self._apis[name]
            if not (api.bulk_backlog.requests and (queues := self._queues.front(name, bulk=True))):
                continue
            passed_over = self.passed_over(api, now)
            queue = queues[0] if passed_over is None else passed_over
            if self._owed_in_s(api, next(queue.turns()).rows, now) <= 0:
                return queue
        return self._starves(share, now) if len(share.apis) > 1 else None

    def _starves(self, share: Share, now: float) -> RequestQueue | None:
        """Return a queue that would be late after another API's batch, if its own API has long had none.

        The order of deadlines passes over long batches: they are too late before they are the most urgent.
        """
        urgent = self._queues.most_urgent(share.apis)
        if urgent is None or urgent.retry is not None:
            return None
        first = self._apis[urgent.api]
        free_at = now + first.model.estimate.seconds(min(urgent.rows, first.limit_rows))
        for name in share.apis:
            api = self._apis[name]
            if api is first or api.backlog.order is None or not api.model.can_predict(0):
                continue
            top = api.backlog.order.by_deadline.top()
            if top is None:
                continue
            estimate, rows = api.model.estimate, min(top[1].rows, api.limit_rows)
            # All such APIs together get at most half of the time.
            waits_s = estimate.seconds(rows) / (min(_SHARE, 0.5 / len(share.apis)) * share.workers)
            if top[0] < free_at + estimate.upper(rows) and now - api.backlog.ran_at > waits_s:
                return top[1]
        return None

    def passed_over(self, api: Api, now: float) -> RequestQueue | None:
        """Return the oldest queue of bulk of which nothing has run for long; None if there is none.

        While there is one, bulk of other batch keys is owed nothing, and is not charged: it may ride with
        the first class all the time, and this queue would never be owed a batch.
        """
        patience_s = min(_PATIENCE_S, (api.rules.bulk_goal_s or math.inf) / 2)
        for queue in self._queues.front(api.rules.name, bulk=True):
            if now - queue.oldest.arrival <= patience_s:
                break  # the oldest come first
            if now - queue.ran_at > patience_s:
                return queue
        return None

    def ride(
        self,
        queue: RequestQueue,
        fill: Fill,
        estimate: Estimate,
        now: float,
        fits: float,
        *,
        draining: bool,
    ) -> float:
        """Add bulk with the same batch key to a batch of the first class; return the rows added."""
        api, bulk = self._apis[queue.api], self._queues.other_class(queue)
        if bulk is None:
            return 0.0
        rows = math.inf
        if not draining:
            urgent = min(fill.entries, key=attrgetter("deadline"))
            margin_s = MARGIN * min(api.rules.goal_s, urgent.expires_at - urgent.arrival)
            in_time = estimate.rows_within(urgent.deadline - now - margin_s)
            even = fill.taken.rows + self._even_rows(api)
            rows = min(in_time, estimate.rows_within(self._seconds(api, estimate, now), z=0), even)
            unreserved = self.unreserved(queue, now)
            if fill.taken.rows + api.traffic.all.mean_rows > unreserved:
                # It is full, so bulk gets the room that is reserved for it, but no more.
                rows = max(rows, fill.taken.rows + api.limit_rows - unreserved)
        api.admit_riders(fill, min(rows, api.limit_rows), fits)
        return sum([entry.rows for entry in self._queues.take(bulk, fill)])

    def unreserved(self, queue: RequestQueue, now: float) -> float:
        """Return the rows of a full batch that are not reserved for bulk that is owed time."""
        api, bulk = self._apis[queue.api], None if queue.bulk else self._queues.other_class(queue)
        limit, most_s = api.limit_rows, self._most_s(api)
        if bulk is None or not most_s or self.passed_over(api, now) not in (None, bulk):
            return limit
        owed = self._owed_s(api, now) / most_s * limit
        return limit if owed < next(bulk.turns()).rows else max(1.0, limit - owed)

    def most_rows(self, api: Api, *, workers: int, now: float) -> float:
        """Return the rows of the largest batch with bulk that arrivals of the first class can wait for."""
        estimate, rate = api.model.estimate, api.traffic.all.load_rate(now)
        seconds = min(
            _wait_s(api, rate),
            self._cycles_s(api, estimate, workers=workers, now=now),
        )
        return min(api.limit_rows, estimate.rows_within(seconds, z=0))

    def spares_last_until(self, queue: RequestQueue, share: Share, now: float) -> float:
        """Return until when to leave the last idle worker to APIs with shorter goals; ``now`` if not at all.

        The queue waits for another worker instead, for half of the time that its deadline leaves. The other
        half is for when all workers are busy.
        """
        wait_s = self.neighbors_wait_s(queue, share, now)
        if not share.finishes or share.finishes[0] - now <= wait_s:
            return now
        api, first = self._apis[queue.api], queue.most_urgent
        upper_s = api.model.estimate.upper(min(queue.rows, api.limit_rows))
        return first.arrival + (first.deadline - upper_s - first.arrival) / 2

    def neighbors_wait_s(self, queue: RequestQueue, share: Share, now: float) -> float:
        """Return how long requests of APIs with goals shorter than the next batch may wait for a worker.

        Infinity if there are no such APIs, or hardly any of their requests arrive during the batch.
        """
        wait_s = math.inf
        if len(share.apis) == 1:
            return wait_s
        api = self._apis[queue.api]
        seconds = api.model.estimate.seconds(min(queue.rows, api.limit_rows))
        for name in share.apis:
            other = self._apis[name]
            goal_s = other.rules.goal_s
            if other is api or goal_s >= seconds:
                continue
            rate = other.traffic.all.load_rate(now)
            if rate * seconds > _FEW_ARRIVALS:
                other_s = _wait_s(other, rate)
                wait_s = min(wait_s, other_s) if other_s > 0 else wait_s
        return wait_s

    def _seconds(self, api: Api, estimate: Estimate, now: float) -> float:
        """Return how long a batch with bulk may take, with respect to future requests of the first classes.

        ``estimate`` predicts the batch time of the worker that runs the batch, which must be idle.
        """
        wait_s, share = math.inf, self._slots.shares.of[api.rules.name]
        for name in share.apis:
            other = self._apis[name]
            rate = other.traffic.all.load_rate(now)
            if rate and other.model.estimate.intercept_s < other.rules.goal_s:
                wait_s = min(wait_s, _wait_s(other, rate))
        free_in_s = [until - now for until in share.finishes]
        if share.idle > 1:
            free_in_s.insert(0, 0.0)
        return min(
            first_hole_s(free_in_s, wait_s, estimate.seconds(api.limit_rows)),
            self._cycles_s(api, estimate, workers=share.workers, now=now),
        )

    def _quiet_in_s(self, api: str, seconds: float, now: float) -> float:
        """Return after how many seconds without arrivals hardly any is expected during a batch."""
        rate = _FEW_ARRIVALS / seconds if seconds else math.inf
        return max(
            self._apis[name].traffic.all.fades_in_s(rate, now) for name in self._slots.shares.of[api].apis
        )

    def _cycles_s(self, api: Api, estimate: Estimate, *, workers: int, now: float) -> float:
        return most_cycles_s(
            api.traffic.all.load_rate(now),
            estimate,
            workers=workers,
            transport_s=api.model.transport_s,
            limit_rows=api.limit_rows,
        )

    def _even_rows(self, api: Api) -> float:
        """Return the rows of bulk, queued and running, divided by the number of workers."""
        running = sum([batch.bulk_rows for batch in self._slots if batch.api == api.rules.name])
        return math.ceil((api.bulk_backlog.rows + running) / self._slots.shares.of[api.rules.name].workers)

    def _owed_in_s(self, api: Api, rows: float, now: float) -> float:
        """Return in how many seconds bulk will be owed a batch of ``rows`` rows; 0 if it is now."""
        most_s = self._most_s(api)
        missing_s = min(api.model.estimate.seconds(rows), most_s) - self._owed_s(api, now)
        return max(0.0, missing_s / (_SHARE * self._slots.shares.of[api.rules.name].workers))

    def got(
        self, queue: RequestQueue, seconds: float, now: float, *, passed_over: RequestQueue | None
    ) -> None:
        """Charge bulk from ``queue`` for its part of a batch; its debt is half a full batch at most.

        ``passed_over`` is the result of :meth:`passed_over` before the batch.
        """
        queue.ran_at = now
        if passed_over in (None, queue):
            api = self._apis[queue.api]
            api.bulk_backlog.owed_s = max(-self._most_s(api) / 2, api.bulk_backlog.owed_s - seconds)

    def rate(self, api: Api, *, workers: int, now: float) -> float:
        """Return the rows per second that the workers have for bulk, in full batches."""
        seconds = self._most_s(api)
        most = workers * api.limit_rows / seconds if seconds > 0 else math.inf
        return max(_SHARE * most, most - api.traffic.all.load_rate(now))

    def _most_s(self, api: Api) -> float:
        return api.model.estimate.seconds(api.limit_rows)

    def _owed_s(self, api: Api, now: float) -> float:
        bulk = api.bulk_backlog
        bulk.owed_s += _SHARE * self._slots.shares.of[api.rules.name].workers * (now - bulk.queued_since)
        bulk.owed_s, bulk.queued_since = min(bulk.owed_s, self._most_s(api)), now
        return bulk.owed_s


def _wait_s(api: Api, rate: float) -> float:
    """Return the longest time until the end of a batch after which responses to arrivals are in time."""
    model = api.model
    return longest_wait_s(api.rules.goal_s - model.allowance_s, rate, model.estimate) - model.transport_s
