"""Decides which batches to start and which requests to shed, by queues, idle workers and policies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from operator import attrgetter, itemgetter
from typing import Any

from uncork_dispatcher.actions import Action, Expired, Shed, ShedReason
from uncork_dispatcher.api import Api
from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.policies.base import Hold, Reason, Release
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.requests.fill import Fill
from uncork_dispatcher.requests.queue import Entry, RequestQueue
from uncork_dispatcher.scheduling.admission import Admission
from uncork_dispatcher.scheduling.ahead import AheadPlanner
from uncork_dispatcher.scheduling.bulk import BulkRoom
from uncork_dispatcher.scheduling.queues import RequestQueues
from uncork_dispatcher.stats import ApiStats, Holding
from uncork_dispatcher.workers.share import Share
from uncork_dispatcher.workers.slots import Slots


class Scheduler:
    """The part of the core that turns queued requests into actions. Methods append these to ``actions``."""

    def __init__(
        self,
        apis: Mapping[str, Api],
        admissions: Mapping[str, Admission],
        queues: RequestQueues,
        slots: Slots,
        room: BulkRoom,
    ) -> None:
        self.draining = False
        """If True, policies are ignored: every idle worker gets a batch."""
        self._apis = apis
        self._admissions = admissions
        self._queues = queues
        self._slots = slots
        self._batch_numbers = itertools.count(1)
        self._room = room
        self._ahead = AheadPlanner(apis, slots, room)
        self._no_workers_since = math.inf

    def schedule(self, actions: list[Action], now: float) -> float:
        """Shed requests and start batches that are due; return when the next will be due without an input."""
        expires_at = self._shed_expired(actions, now)
        before, next_at, shares = len(actions), math.inf, self._slots.shares.all
        if len(shares) > 1 and self._slots.idle:
            # After a loss they have workers in common, of which the first could take all: they take turns.
            shares = sorted(shares, key=attrgetter("started"))
        for share in shares:
            next_at = min(next_at, self._release(share, actions, now), self._send_ahead(share, actions, now))
        if len(actions) > before:
            # Once more: with no worker idle, other requests may be hopeless.
            expires_at = self._shed_expired(actions, now)
        return min(next_at, expires_at)

    def next_at(self, entry: Entry, now: float) -> float:
        """Return when to call :meth:`schedule` after a request was queued, if nothing else happens.

        This is ``now`` if the request may change an earlier decision. Not for the most urgent request of its
        queue, which always may: call :meth:`schedule` at once.
        """
        queue, slots, api = entry.queue, self._slots, self._apis[entry.queue.api]
        # Without a call, because busy gateways ask for each request.
        fits = slots.memory.least(queue.api) if slots.memory.by_api else math.inf
        if not slots.shares.of[queue.api].idle:
            may_go_ahead = api.model.overlaps or api.fills_batch(queue, fits)
            return self._ahead.next_at(queue, now)[0] if may_go_ahead else math.inf
        return math.inf if queue.stays_held(now) and not api.is_full(queue, fits) else now

    def shed(self, entry: Entry, reason: ShedReason, now: float) -> Shed:
        self._queues.shed(entry)
        return self._admissions[entry.queue.api].shed(entry, reason, now=now)

    def stats(self, now: float) -> list[ApiStats]:
        """Return the state of each API: queued totals, estimates, and why its queue is held."""
        return [
            api.stats(
                now,
                self._slots.shares.of[name],
                fits=self._slots.memory.least(name),
                oldest_s=now - self._queues.oldest(name, now),
                oldest_bulk_s=now - self._queues.oldest(name, now, bulk=True),
                holding=self._holding(self._queues.most_urgent((name,)), now),
            )
            for name, api in self._apis.items()
        ]

    def _holding(self, queue: RequestQueue | None, now: float) -> Holding | None:
        """Return how long and why ``queue``, an API's most urgent one, is held; None if it is not."""
        if queue is None or not self._slots.shares.of[queue.api].idle:
            return None
        decision = self.decide(queue, now)
        return Holding(decision.until - now, decision.reason) if isinstance(decision, Hold) else None

    def _shed_expired(self, actions: list[Action], now: float) -> float:
        """Shed queued requests that cannot be answered in time; return when the next may have to be shed.

        Running requests only expire: their worker is busy until the batch ends.
        """
        leaving = self._queues.next_to_expire
        while leaving is not None and leaving.expires_at <= now:
            if self._queues.is_queued(leaving):
                actions.append(self.shed(leaving, "client_deadline", now))
            else:
                self._queues.expired(leaving)
                actions.append(Expired(leaving.request))
            leaving = self._queues.next_to_expire
        has_workers = self._slots.workers or self._slots.launches.on_demand
        self._no_workers_since = math.inf if has_workers else min(self._no_workers_since, now)
        if not self._queues:
            return math.inf if leaving is None else leaving.expires_at
        # While a worker is idle there is capacity, and a late answer is better than none.
        next_at = math.inf
        if not (self._slots.workers and self.draining):
            for share in self._slots.shares.all:
                if not share.idle:
                    next_at = min(next_at, self._shed_hopeless(share, actions, now))
                    leaving = self._queues.next_to_expire
        return next_at if leaving is None else min(next_at, leaving.expires_at)

    def _shed_hopeless(self, share: Share, actions: list[Action], now: float) -> float:
        """Shed queued requests that cannot start in time; return when the next will have to be shed."""
        next_at = math.inf
        reason: ShedReason = "deadline" if self._slots.workers else "no_worker"
        for order in self._queues.orders:
            if order.api not in share.apis:
                continue
            admission = self._admissions[order.api]
            while (top := order.by_deadline.top()) is not None:
                entry = top[1].most_urgent
                at = admission.hopeless_at(entry, now=now, no_workers_since=self._no_workers_since)
                if at > now:
                    next_at = min(next_at, at)
                    break
                actions.append(self.shed(entry, reason, now))
        return next_at

    def _release(self, share: Share, actions: list[Action], now: float) -> float:
        """Start batches on idle workers of a share; return when the first hold of the other queues ends.

        Policies decide about queues in order of urgency. The first release takes the slot; a hold blocks no
        other queue.
        """
        while share.idle:
            held_until = math.inf
            for queue in self._to_ask(share, now):
                decision = self.decide(queue, now)
                if isinstance(decision, Release):
                    self._start(queue, decision, actions, now)
                    break
                queue.hold(decision, now)
                held_until = min(held_until, decision.until)
            else:
                return min(held_until, self._queues.held_until())
        return math.inf

    def _to_ask(self, share: Share, now: float) -> Iterator[RequestQueue]:
        """Iterate over the queues about which the policies must decide, the first to get a worker first.

        Bulk that is owed time goes first, then the oldest queue. But if another batch, as large as the
        largest queue, would make some of this API's queues late, the largest of these goes before it: not
        every queue can be in time then, and small batches would make more requests late.
        """
        first = None
        if len(self._queues) > 1 and not self.draining:
            first = self._room.owed(share, now)
            oldest = self._queues.most_urgent(share.apis) if first is None else None
            if oldest is not None and oldest.retry is None and not oldest.bulk:
                # Late requests that no prediction sheds would otherwise wait for ever behind larger queues.
                sheds = not oldest.most_urgent.follows and self._apis[oldest.api].model.can_predict(0)
                first = self._largest_at_risk(oldest.api, now) if sheds else None
        if first is not None:
            yield first
        for queue in self._queues.to_ask(share.apis, now):
            if queue is not first:
                yield queue

    def _largest_at_risk(self, api: str, now: float) -> RequestQueue | None:
        """Return the largest queue that would be late after another batch, if any; see :meth:`_to_ask`."""
        queues, estimate = self._queues.front(api), self._apis[api].model.estimate
        rows = [min(queue.rows, self._apis[api].limit_rows) for queue in queues]
        free_at = now + estimate.seconds(max(rows))
        at_risk = [
            (queue_rows, queue)
            for queue_rows, queue in zip(rows, queues, strict=True)
            if queue.most_urgent.deadline < free_at + estimate.upper(queue_rows)
        ]
        return max(at_risk, key=itemgetter(0), default=(0.0, None))[1]

    def _send_ahead(self, share: Share, actions: list[Action], now: float) -> float:
        """Send batches ahead to workers that will soon be idle; return when the next may be sent."""
        while not (share.idle or self.draining):
            queue = self._queues.most_urgent(share.apis)
            if queue is None:
                break
            at, behind = self._ahead.next_at(queue, now)
            if behind is None or at > now:
                return at
            release = self._ahead.release(queue, behind, now)
            if release is None:
                break
            self._slots.put_ahead(
                self._take(queue, release, actions, now, worker=behind.worker, behind=behind)
            )
        return math.inf

    def decide(self, queue: RequestQueue, now: float) -> Release | Hold:
        if queue.retry is not None:
            return self._decide_retry(queue, now)
        api = self._apis[queue.api]
        if self.draining:
            return Release(api.policy.limit_rows, "drain")
        if queue.bulk:
            return self._room.decide(queue, now)
        share = self._slots.shares.of[queue.api]
        if share.idle == 1 and len(share.apis) > 1:
            until = self._room.spares_last_until(queue, share, now)
            if until > now:
                return Hold(until, "neighbor")
        view = api.view(queue, self._slots, now)
        decision = api.policy.decide(view)
        if isinstance(decision, Release):
            return decision
        if decision.until <= now or (api.bulk_backlog.requests and self._queues.other_class(queue)):
            # Bulk would take the worker; so it may as well share the batch.
            return Release(api.policy.limit_rows, "not_worth_waiting")
        longest = view.oldest + api.rules.max_hold_s
        if longest <= now:
            return Release(api.policy.limit_rows, "deadline")
        return Hold(longest, "window", decision.rows) if longest < decision.until else decision

    def _decide_retry(self, queue: RequestQueue, now: float) -> Release | Hold:
        """Decide about requests whose worker was lost: no policy holds them."""
        reason: Reason = "drain" if self.draining else "not_worth_waiting"
        # Not longer than without workers: others that die meanwhile would prolong the wait again and again.
        at_most = queue.oldest.arrival + self._apis[queue.api].rules.timeout_s
        spared_until = now if self.draining else self._slots.spares_one_until(now, at_most)
        if spared_until > now:
            return Hold(spared_until, "quarantine")
        if queue.retry == "batch":
            # The other workers of its host may be dead as well: a second loss there would prove nothing.
            until = self._slots.shares.avoids_idle_until(now, queue.api)
            return Hold(until, "host") if until > now else Release(math.inf, reason)
        # One at a time: requests that kill their worker must not take all workers at once.
        return Hold(math.inf, "quarantine") if self._slots.retries(queue.api) else Release(0, reason)

    def _start(self, queue: RequestQueue, release: Release, actions: list[Action], now: float) -> None:
        """Start a batch on an idle worker, and shed late requests that would keep the batch small."""
        worker = self._slots.shares.next_idle(self._apis[queue.api].model.slowdowns, now, queue.api)
        self._slots.occupy(self._take(queue, release, actions, now, worker=worker))
        self._slots.shares.of[queue.api].started = now

    def _take(
        self,
        queue: RequestQueue,
        release: Release,
        actions: list[Action],
        now: float,
        *,
        worker: int,
        behind: Batch[Any] | None = None,
    ) -> Batch[Any]:
        """Take the next batch of a queue for a worker; ``behind`` is the batch that the worker still runs."""
        api = self._apis[queue.api]
        starts = now if behind is None else max(now, behind.finish)
        slowdown, measures = api.model.slowdown(worker), api.model.measures
        fits = self._slots.memory.of(worker, queue.api)
        if queue.retry is None:
            latest = starts if behind is None else starts + behind.spread_s
            estimate = api.model.estimate.slowed(slowdown)
            fill = self._fill(queue, release.rows, estimate, actions, now, latest, fits)
        elif fits < math.inf:
            fill = api.fill(queue, min(release.rows, max(1.0, fits / measures.limit_ratio)), fits=fits)
        else:
            # A lost batch runs again whole, even if other limits are lower now.
            fill = Fill(size=release.rows)
        passed_over = self._room.passed_over(api, now) if api.bulk_backlog.requests else None
        self._queues.take(queue, fill)
        if not queue.bulk:
            api.backlog.ran_at = now
        bulk_rows = 0.0
        if queue.bulk or queue.retry is not None:  # a lost batch may have both classes
            bulk_rows = sum([entry.rows for entry in fill.entries if entry.bulk])
        elif behind is None and api.bulk_backlog.requests:
            bulk_rows = self._room.ride(queue, fill, estimate, now, fits, draining=self.draining)
        taken = fill.taken
        by_measure = measures.estimate.slowed(slowdown)
        predicted_s = by_measure.seconds(taken[measures.in_force])
        # As the worker counts, which knows no limit of the policy: padding alone needs no further call.
        size = min(taken.rows, taken.padded) if measures.has_costs else taken.rows
        most = min(api.rules.max_batch_rows, fits)
        if size > most:  # one large request, for which the worker makes several calls
            predicted_s += by_measure.intercept_s * (math.ceil(size / most) - 1)
        if behind is None:
            predicted_s += api.model.prepare_s(taken.rows)
        else:
            starts = max(starts, now + api.model.prepare_s(taken.rows))
        batch: Batch[Any] = Batch(
            next(self._batch_numbers),
            worker,
            queue,
            fill.entries,
            taken.rows,
            taken.padded,
            fill.count,
            reason=release.reason,
            predicted_s=predicted_s,
            released=now,
            started=starts,
            is_ahead=behind is not None,
            spread_s=measures.estimate.spread * predicted_s,
            timeout_s=api.rules.gives_up_after_s,
            transport_s=api.model.transport_s,
            bulk_rows=bulk_rows,
            pads=measures.pads and measures.has_costs,
        )
        if bulk_rows:  # riders come last
            seconds, last = predicted_s * bulk_rows / taken.rows, fill.entries[-1]
            self._room.got(last.queue, seconds, now, passed_over=passed_over)
        actions.append(batch)
        return batch

    def _fill(
        self,
        queue: RequestQueue,
        rows: float,
        estimate: Estimate,
        actions: list[Action],
        now: float,
        starts: float,
        fits: float,
    ) -> Fill:
        """Shed late requests that would keep a batch small; return an empty batch for the others."""
        api = self._apis[queue.api]
        rows = min(rows, api.limit_rows, max(1.0, fits / api.model.measures.limit_ratio))
        if not self.draining:
            if api.bulk_backlog.requests:
                rows = min(rows, self._room.unreserved(queue, now))
            admission = self._admissions[queue.api]
            rows, skipped = admission.size_batch(queue, limit=rows, estimate=estimate, now=starts)
            actions.extend([self.shed(entry, "deadline", now) for entry in skipped])
        return api.fill(queue, rows, fits=fits)
