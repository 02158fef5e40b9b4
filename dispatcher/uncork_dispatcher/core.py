"""The core of the dispatcher: queues, deadlines, slots and running batches. It decides; it does nothing.

Inputs are methods with the time as an argument; after every input the driver calls :meth:`Dispatcher.poll`,
carries out the actions it returns, and calls again at :meth:`Dispatcher.next_wakeup` at the latest. The
core knows requests, workers and batches by number, imports no clock and no event loop, and the same object
runs in the gateway and in simulations. Times are seconds on any clock that never goes back.

The outbound semaphore is the set of idle workers: a release takes one, and it comes back with
:meth:`Dispatcher.batch_done` or :meth:`Dispatcher.worker_ready`.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from uncork_dispatcher.actions import Abandon, Action, GoalOutOfReach, Lost, Outcome, Shed, ShedReason, Start
from uncork_dispatcher.admission import (
    SHORTEST_RETRY_S,
    find_displaced,
    make_room,
    next_refusal,
    refusal,
    retry_after_s,
)
from uncork_dispatcher.api import Api
from uncork_dispatcher.policies.base import Hold, Release
from uncork_dispatcher.requests.queue import Entry, RequestQueue
from uncork_dispatcher.requests.queues import Held
from uncork_dispatcher.requests.slots import Running, Slots
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.stats import ApiSample, ApiStats, Holding, RunningBatch, WorkStats


class _Ended(NamedTuple):
    """A batch that has ended; arguments as for :meth:`Dispatcher.batch_done`."""

    running: Running
    outcome: Outcome
    at: float
    seconds: float | None
    chunks: Sequence[tuple[float, float]]


class Dispatcher:
    """Holds requests and releases them as batches. See the top of this file for how to drive it."""

    def __init__(self) -> None:
        self._apis: dict[str, Api] = {}
        self._held = Held(self._apis)
        self._slots = Slots()
        self._batch_numbers = itertools.count(1)
        self._news: list[Shed | Lost | GoalOutOfReach] = []
        self._ended: _Ended | None = None
        """A batch that nothing has been learned from yet."""
        self._draining = False
        self._deserted = math.inf
        self._now = -math.inf
        self._wakeup = math.inf

    def __repr__(self) -> str:
        held = sum(api.requests for api in self._apis.values())
        return f"<Dispatcher held={held} running={self._slots.running} idle={self._slots.idle}>"

    # Inputs

    def set_api(self, rules: ApiRules) -> None:
        """Add an api, or change its rules; what it holds and what is known of it stay."""
        self._learn()
        self._wakeup = self._now
        if rules.name in self._apis:
            self._apis[rules.name].change(rules)
        else:
            self._apis[rules.name] = Api(rules)

    def remove_api(self, name: str) -> bool:
        """Forget an API and what is known of it; returns False, and does nothing, while it has requests."""
        self._learn()
        if self._apis[name].requests or self._news or any(batch.start.api == name for batch in self._slots):
            return False
        del self._apis[name]
        return True

    def submit(
        self,
        request: int,
        *,
        api: str,
        now: float,
        key: Hashable = None,
        rows: float = 1,
        size_bytes: int = 0,
        expires_at: float = math.inf,
        source: Hashable = None,
        flow: Hashable = None,
    ) -> Shed | None:
        """Take in a request, or refuse it at the door; returns None when it was taken.

        Only requests of one ``key`` share a batch. ``expires_at`` is when the client gives up, if it
        said so; it can only bring the deadline forward. Where the api is ``fair``, ``flow`` names those who
        share equally with others.
        """
        self._advance(now)
        to = self._apis[api]
        to.arrived(source, rows, now)
        deadline = to.due_at(now, expires_at)
        queue = self._held.queue(api, key)
        entry = Entry(request, now, rows, size_bytes, deadline, expires_at, queue, source, flow)
        reason = "draining" if self._draining else refusal(to, self._slots, entry)
        if reason == "queue_full":
            displaced = find_displaced(to, self._slots, entry)
            self._news.extend([self._refuse(other, reason) for other in displaced])
            reason = None if displaced else reason
        if reason is not None:
            return self._shed(request, to, reason, rows)
        self._held.add(entry, to)
        return None

    def cancel(self, request: int, *, now: float) -> None:
        """Forget a request whose caller has left. Unknown and finished requests are ignored."""
        self._advance(now)
        self._held.cancel(request)

    def worker_expected(
        self, launch: Hashable, *, now: float, delay_s: float = 0.0, failures: int = 0
    ) -> None:
        """A worker process is being launched, or will be in ``delay_s`` seconds.

        While there are no workers, requests that it can still answer in time are queued. ``failures`` is how
        often in a row this worker has ended before it finished a batch; from two on, requests do not wait for
        it. A later call for the same ``launch`` replaces this one, and :meth:`worker_ready` ends it.
        """
        self._advance(now)
        self._slots.launches.expect(launch, at=now + delay_s, failures=failures)

    def worker_ready(self, worker: int, *, now: float, launch: Hashable = None) -> None:
        """A worker has started, or is usable again: it may be given batches.

        If :meth:`worker_expected` was called for ``launch``, the dispatcher learns how long a start takes.
        """
        self._advance(now)
        self._slots.launches.ready(launch, now=now)
        self._slots.add(worker)

    def worker_lost(self, worker: int, *, now: float) -> None:
        """A worker is gone. The requests that it was running are suspects: each is tried once more, alone.

        One that may not be, or was already, is :class:`Lost`.
        """
        self._advance(now)
        for api in self._apis.values():
            api.worker_lost(worker)
        running = self._slots.lose(worker)
        if running is not None:
            self._try_again(running)

    def batch_done(
        self,
        batch: int,
        *,
        outcome: Outcome,
        now: float,
        seconds: float | None = None,
        chunks: Sequence[tuple[float, float]] = (),
    ) -> bool:
        """A batch has ended and its worker is idle again.

        ``seconds`` is how long it took, if it ended before ``now``. ``chunks`` gives (rows, seconds) of each
        call at the worker, if that is known: the rest of the time is transport. Returns False, and does
        nothing, if the core has given the batch or its worker up in the meantime.
        """
        self._advance(now)
        running = self._slots.finish(batch)
        if running is None:
            return False
        self._held.forget(running.entries)
        self._ended = _Ended(running, outcome, now, seconds, chunks)
        return True

    def profile(self, api: str, worker: int, chunks: Sequence[tuple[float, float]], *, now: float) -> None:
        """Learn from (rows, seconds) of batches that a worker has run for nobody, to warm up.

        Those of more rows than a batch may have are passed over.
        """
        self._advance(now)
        self._apis[api].learn_profile(worker, chunks)

    def drain(self, *, now: float) -> None:
        """Refuse what comes from now on, and release what is held as soon as workers are idle."""
        self._advance(now)
        self._draining = True

    # Outputs

    def poll(self, now: float) -> list[Action]:
        """Return what to do at ``now``, in order. Drivers call it until it returns nothing.

        When a batch has ended and others are full, the first call starts those and the next one learns from
        the batch: nothing that it teaches would change the start, and the worker would be idle meanwhile.
        """
        self._tick(now)
        if now < self._wakeup:
            return []
        actions: list[Action] = [*self._news]
        self._news.clear()
        self._abandon_overdue(actions)
        if self._ended is not None:
            if self._start_full(actions):
                return actions
            self._learn()
            actions += self._news
            self._news.clear()
        refusal_at = self._shed_hopeless(actions)
        before = len(actions)
        held_until = self._release(actions)
        if len(actions) > before:
            # Once more: what was left behind by the release may be hopeless now that nobody is idle.
            refusal_at = self._shed_hopeless(actions)
        self._wakeup = min(held_until, refusal_at, self._slots.next_timeout())
        return actions

    def next_wakeup(self) -> float:
        """When to poll next if no input comes before; infinity if only an input can change anything.

        After an input, and until the next poll, that is the time of the input.
        """
        return self._wakeup

    def stats(self, *, now: float) -> list[ApiStats]:
        """What each api holds and what is known about it."""
        self._tick(now)
        self._learn()
        queues: dict[str, list[RequestQueue]] = {name: [] for name in self._apis}
        for queue in self._held.by_urgency():
            queues[queue.api].append(queue)
        running: Counter[str] = Counter()
        for batch in self._slots:
            running[batch.start.api] += len(batch.entries)
        return [self._api_stats(api, queues[name], running[name]) for name, api in self._apis.items()]

    def _api_stats(self, api: Api, queues: Sequence[RequestQueue], running: int) -> ApiStats:
        """Of an api with its queues, the most urgent first, and the number of its requests that run."""
        holding = None
        if queues and self._slots.idle:
            decision = self._decide(queues[0])
            if isinstance(decision, Hold):
                holding = Holding(decision.until - self._now, decision.reason)
        oldest = min((queue.oldest.arrival for queue in queues), default=self._now)
        return api.stats(self._now, running=running, oldest_s=self._now - oldest, holding=holding)

    def sample(self, api: str) -> ApiSample:
        """Totals and beliefs of one api.

        Raises:
            KeyError: if there is no such api.
        """
        self._learn()
        return self._apis[api].sample()

    def work(self, *, now: float) -> WorkStats:
        """Which workers there are, and what they run."""
        self._tick(now)
        running = [
            RunningBatch(
                batch.start.worker,
                batch.start.api,
                batch.start.rows,
                len(batch.entries),
                now - batch.started,
                batch.started + batch.start.predicted_s - now,
            )
            for batch in self._slots
        ]
        return WorkStats(self._slots.workers, self._slots.idle, running)

    def runs(self, batch: int) -> bool:
        """Whether a worker runs this batch, as far as the core knows."""
        return self._slots.runs(batch)

    @property
    def is_holding(self) -> bool:
        """Whether any request is held."""
        return bool(self._held)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held, nothing runs, and nobody is yet to be told of anything."""
        return self._held.nobody_waits and not self._slots.running and not self._news

    # What poll does

    def _abandon_overdue(self, actions: list[Action]) -> None:
        for running in self._slots.give_up_overdue(self._now):
            self._held.forget(running.entries)
            actions.append(Abandon(running.start.batch, running.start.worker, running.start.requests))

    def _shed_hopeless(self, actions: list[Action]) -> float:
        """Refuse held requests that can no longer be answered in time, most urgent first.

        Returns when the next one will be hopeless if nothing else happens.
        """
        next_at = math.inf
        self._deserted = math.inf if self._slots.workers else min(self._deserted, self._now)
        for queue in self._held:
            while queue:
                at, entry = next_refusal(
                    queue,
                    self._apis[queue.api],
                    self._slots,
                    now=self._now,
                    draining=self._draining,
                    deserted=self._deserted,
                )
                if at > self._now:
                    next_at = min(next_at, at)
                    break
                reason: ShedReason = "deadline"
                if entry.expires_at <= self._now:
                    reason = "client_deadline"
                elif not self._slots.workers:
                    reason = "no_worker"
                actions.append(self._refuse(entry, reason))
        return next_at

    def _start_full(self, actions: list[Action]) -> bool:
        """Start full batches, as long as they are the most urgent; returns whether there was one."""
        started = False
        self._shed_hopeless(actions)
        while self._slots.idle and self._held and not self._draining:
            queue = self._held.by_urgency()[0]
            api = self._apis[queue.api]
            if queue.suspects or not api.fills_batch(queue) or not api.estimate.earned_rows:
                break
            self._start(queue, Release(api.policy.limit_rows, "full"), actions)
            started = True
        return started

    def _learn(self) -> None:
        """Learn from the batch that has ended."""
        ended, self._ended = self._ended, None
        if ended is None:
            return
        api = self._apis[ended.running.start.api]
        api.answered(ended.running, ended.at)
        if ended.outcome == "worked":
            api.learn(ended.running, ended.chunks, ended.at, seconds=ended.seconds)
            out_of_reach = api.check_goal()
            if out_of_reach is not None:
                self._news.append(out_of_reach)

    def _release(self, actions: list[Action]) -> float:
        """Start batches on idle workers; returns until when the queues that are left want to be held.

        Queues are asked in order of urgency; the first release takes the slot, a hold blocks nobody.
        """
        while self._slots.idle and self._held:
            held_until = math.inf
            for queue in self._held.by_urgency():
                decision = self._decide(queue)
                if isinstance(decision, Release):
                    self._start(queue, decision, actions)
                    break
                held_until = min(held_until, decision.until)
            else:
                return held_until
        return math.inf

    def _decide(self, queue: RequestQueue) -> Release | Hold:
        if queue.suspects:
            return self._decide_suspects(queue)
        api = self._apis[queue.api]
        if self._draining:
            return Release(api.policy.limit_rows, "drain")
        decision = api.policy.decide(api.view(queue, self._slots, self._now))
        if isinstance(decision, Release):
            return decision
        if decision.until <= self._now:
            return Release(api.policy.limit_rows, "not_worth_waiting")
        longest = queue.oldest.arrival + api.rules.max_hold_s
        if longest <= self._now:
            return Release(api.policy.limit_rows, "deadline")
        return Hold(longest, "window") if longest < decision.until else decision

    def _decide_suspects(self, queue: RequestQueue) -> Release | Hold:
        """One by one, whatever the policy says: those that kill their worker must not take all at once."""
        if self._slots.tries_suspect(queue.api):
            return Hold(math.inf, "suspect")
        return Release(0, "drain" if self._draining else "not_worth_waiting")

    def _start(self, queue: RequestQueue, release: Release, actions: list[Action]) -> None:
        """Start a batch, and refuse those that cannot be answered in time if it is to be a large one."""
        api = self._apis[queue.api]
        worker = self._slots.next_idle(api.pace)
        estimate = api.estimate.at_pace(api.pace(worker))
        limit = min(release.rows, api.rules.max_batch_rows)
        if not (queue.suspects or self._draining):
            limit, left = make_room(queue, api, self._slots, limit=limit, estimate=estimate, now=self._now)
            actions.extend([self._refuse(entry, "deadline") for entry in left])
        entries = self._held.take(queue, rows=limit, size_bytes=api.rules.max_batch_bytes)
        rows = sum([entry.rows for entry in entries])
        api.released(entries, rows)
        start = Start(
            batch=next(self._batch_numbers),
            worker=worker,
            api=queue.api,
            key=queue.key,
            requests=tuple([entry.request for entry in entries]),
            rows=rows,
            reason=release.reason,
            predicted_s=estimate.seconds(rows),
            deadlines=tuple([entry.deadline for entry in entries]),
        )
        self._slots.take(worker)
        self._slots.occupy(Running(start, entries, self._now, self._now + api.rules.timeout_s))
        actions.append(start)

    # Bookkeeping

    def _advance(self, now: float) -> None:
        """Something happens at ``now``. What was learned before counts for it."""
        self._tick(now)
        self._learn()
        self._wakeup = self._now

    def _tick(self, now: float) -> None:
        if now < self._now:
            raise ValueError(f"time went back from {self._now} to {now}")
        self._now = now

    def _shed(self, request: int, api: Api, reason: ShedReason, rows: float) -> Shed:
        if reason == "client_deadline":
            # This client has given up: it takes no turn among the clients that will retry.
            return Shed(request, api.rules.name, reason, SHORTEST_RETRY_S)
        return Shed(
            request, api.rules.name, reason, retry_after_s(api, self._slots, rows=rows, now=self._now)
        )

    def _refuse(self, entry: Entry, reason: ShedReason) -> Shed:
        """Refuse a request that is held."""
        self._held.remove(entry)
        return self._shed(entry.request, self._apis[entry.queue.api], reason, entry.rows)

    def _try_again(self, running: Running) -> None:
        """Hold the requests of a lost batch again, those that may be run once more."""
        idempotent = self._apis[running.start.api].rules.idempotent
        for entry in running.entries:
            if entry.cancelled:
                continue
            if idempotent and not entry.suspect:
                self._held.suspect(entry, now=self._now)
            else:
                self._held.forget([entry])
                self._news.append(Lost(entry.request))
