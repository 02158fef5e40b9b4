"""The core of the dispatcher, which decides about queues and batches. A driver executes its decisions.

Inputs are methods that take the time as an argument. After every input, the driver polls: it executes the
actions that :meth:`Dispatcher.poll` returns, and polls again until there are none. Then nothing changes
before the next input or :meth:`Dispatcher.next_wakeup`. The core imports no clock and no event loop; the
gateway and the simulator run the same object. Times are seconds on any clock that never goes back.

The outbound semaphore is the set of idle workers: a release takes a worker, and :meth:`Dispatcher.batch_done`
or :meth:`Dispatcher.worker_ready` returns it. A batch ahead takes no idle worker: it is sent to a busy
worker, which runs it next. An API that has reserved workers never uses more, and leaves the others to the
other APIs. An API with ``concurrency`` uses slots of its own at each worker, and no worker as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from typing import Any

from uncork_dispatcher.actions import (
    Abandon,
    Action,
    BatchStatus,
    GoalOutOfReach,
    Lost,
    Shed,
    ShedReason,
    WorkerWanted,
)
from uncork_dispatcher.api import Api
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.requests.lengths import row_lengths
from uncork_dispatcher.requests.queue import Entry
from uncork_dispatcher.requests.states import RequestState
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.scheduling.admission import Admission
from uncork_dispatcher.scheduling.bulk import BulkRoom
from uncork_dispatcher.scheduling.closed_loop import plan_loop
from uncork_dispatcher.scheduling.dividing import bulk_parts, parts_in_turn
from uncork_dispatcher.scheduling.queues import RequestQueues
from uncork_dispatcher.scheduling.scheduler import Scheduler
from uncork_dispatcher.stats import ApiSample, ApiStats, WorkStats
from uncork_dispatcher.workers.slots import Slots


class Dispatcher:
    """Queues requests and releases them as batches. See the top of this file for how to drive it."""

    def __init__(self) -> None:
        self._apis: dict[str, Api] = {}
        self._admissions: dict[str, Admission] = {}
        self._queues = RequestQueues(self._apis)
        self._slots = Slots()
        self._room = BulkRoom(self._apis, self._queues, self._slots)
        self._scheduler = Scheduler(self._apis, self._admissions, self._queues, self._slots, self._room)
        self._pending_actions: list[Shed | Lost | GoalOutOfReach | WorkerWanted] = []
        self._requests = 0
        self._now = -math.inf
        self._wakeup = math.inf

    def __repr__(self) -> str:
        queued = sum(api.backlog.requests + api.bulk_backlog.requests for api in self._apis.values())
        return f"<Dispatcher queued={queued} running={self._slots.running} idle={self._slots.idle}>"

    # Inputs

    def set_api(self, rules: ApiRules) -> None:
        """Add an API, or change its rules; keep its queued requests and, in the same unit, its estimates."""
        self._wakeup = self._now
        if rules.name in self._apis:
            api = self._apis[rules.name]
            was_fair = api.rules.fair
            if (api.rules.workers, api.rules.concurrency) != (rules.workers, rules.concurrency):
                self._slots.reserve(rules.name, rules.workers, rules.concurrency)
            api.change(rules, requests=self._requests)
            if api.rules.fair != was_fair:
                self._queues.regroup(rules.name)
            self._queues.end_holds()
            self._admissions[rules.name].rules_changed()
        else:
            api = self._apis[rules.name] = Api(rules)
            self._slots.reserve(rules.name, rules.workers, rules.concurrency)
            self._admissions[rules.name] = Admission(api, self._queues, self._slots, self._room)

    def remove_api(self, name: str) -> bool:
        """Remove an API and its estimates; return False, and do nothing, while it has requests."""
        runs = any(batch.api == name for batch in self._slots)
        api = self._apis[name]
        queued = any(each.requests or each.size_bytes for each in (api.backlog, api.bulk_backlog))
        if queued or self._pending_actions or runs:
            return False
        del self._apis[name], self._admissions[name]
        self._queues.remove_api(name)
        self._slots.forget(name)
        return True

    def submit(
        self,
        request: Any,
        *,
        api: str,
        now: float,
        key: Hashable = None,
        group: Hashable = None,
        rows: float = 1,
        count: float | None = None,
        longest: float | None = None,
        size_bytes: int = 0,
        expires_at: float = math.inf,
        source: Hashable = None,
        flow: Hashable = None,
        bulk: bool = False,
        follows: bool = False,
    ) -> Shed | None:
        """Queue a request and return None, or refuse it and return its :class:`Shed`.

        ``request`` is any hashable object; actions refer to it. ``rows`` is the number of rows, or their
        total cost. With costs, ``count`` is the number of rows, and ``longest`` the largest cost of one row,
        by default the average. Without costs, rows are assumed to share ``size_bytes``, the size of the body,
        equally.

        Only requests with the same ``key`` and ``group`` share a batch. While requests of 1,000 groups of a
        class are queued, requests of its other groups are refused; None is no group.

        ``expires_at`` is when the client gives up; it can only make the deadline earlier. ``source``
        identifies the client. If the API is ``fair``, each ``flow`` gets an equal share. With ``bulk``, the
        request belongs to the API's second class, if it has one. One that ``follows`` is a later part of a
        request that was accepted: it is not refused on arrival, and later only if its client's time passes or
        there are no workers.
        """
        wakeup = self._wakeup
        self._advance(now)
        to, admission = self._apis[api], self._admissions[api]
        bulk = bulk and to.rules.bulk_goal_s is not None
        if not bulk:
            to.traffic.arrived((group, key), source, rows, now)
        else:
            to.bulk_arrived(rows, now)
        deadline = to.due_at(now, expires_at, bulk=bulk)
        queue = self._queues.queue(api, key, group, bulk=bulk)
        measures = to.model.measures
        if (count is not None) is not measures.has_costs:
            to.model.expect_costs(count is not None)
        allowed = to.rules.allowed_lengths
        lengths = row_lengths(rows, count, longest, size_bytes, allowed, measures.length_limit)
        self._requests += 1
        entry = Entry(
            self._requests,
            request,
            now,
            rows,
            size_bytes,
            deadline,
            expires_at,
            queue,
            lengths,
            source,
            flow,
            bulk,
            follows,
        )
        if self._slots.launches.on_demand and not self._slots.workers:
            self._pending_actions.append(WorkerWanted())
        reason = None if follows else "draining" if self._scheduler.draining else admission.admit(entry)
        if reason is not None:
            displaced = admission.find_displaced(entry) if reason == "queue_full" else []
            if not displaced:
                return admission.shed(entry, reason, now=now)
            for other in displaced:
                because: ShedReason = "displaced" if other.bulk and not bulk else reason
                self._pending_actions.append(self._scheduler.shed(other, because, now))
        if not self._queues.add(entry) and wakeup > now and not self._pending_actions:
            next_at = self._scheduler.next_at(entry, now)
            if next_at > now:
                self._wakeup = min(wakeup, expires_at, next_at)
        return None

    def bulk_parts(
        self, api: str, *, rows: float, size_bytes: int, now: float, expires_at: float = math.inf
    ) -> int:
        """Return into how many parts to divide a request of the second class before they are submitted.

        Parts of equal size then fit into the room that the goal of the first class leaves. ``expires_at`` is
        when the client gives up.
        """
        known, slots, room = self._apis[api], self._slots, self._room
        return bulk_parts(
            known, slots, room, rows=rows, size_bytes=size_bytes, now=now, expires_at=expires_at
        )

    def parts_in_turn(self, api: str, *, rows: float, now: float) -> tuple[int, int]:
        """Return into how many parts to divide a large request, and how many to submit at a time."""
        return parts_in_turn(self._apis[api], self._slots, rows=rows, now=now)

    def reserve(self, api: str, *, rows: float, size_bytes: int, bulk: bool = False) -> None:
        """Count parts that are not submitted yet against the queue's limits; negative numbers end that.

        Parts of ``bulk`` count for other bulk only.
        """
        self._admissions[api].reserve(rows, size_bytes, bulk=bulk)

    def cancel(self, request: Any, *, now: float) -> Batch[Any] | None:
        """Remove a request whose caller has left; ignore a request that is unknown or has ended.

        Return the batch that a worker runs, now or next, with the request; None if it does not run.
        """
        self._advance(now)
        return self._slots.batch(self._queues.cancel(request))

    def extend(self, request: Any, *, expires_at: float, now: float) -> None:
        """Set a new time for a request that has :class:`Expired`, because it runs for other clients too.

        Ignore a request that has ended.
        """
        self._advance(now)
        self._queues.extend(request, expires_at)

    def worker_expected(
        self, place: Hashable, *, now: float, delay_s: float = 0.0, failures: int | None = None
    ) -> None:
        """Expect a worker, whose process starts in ``delay_s`` seconds.

        While there are no workers, requests that the worker can still answer in time are queued. ``failures``
        is how often in a row the processes at this ``place`` have ended before they finished a batch; from
        two on, requests do not wait for the worker. A later call with ``failures`` for the same place
        replaces this one; :meth:`worker_ready` or :meth:`worker_not_expected` ends the wait.
        """
        self._advance(now)
        self._slots.launches.expect(place, at=now + delay_s, failures=failures)

    def worker_not_expected(self, place: Hashable, *, now: float) -> None:
        """Stop expecting a worker at ``place``; ignore a place where none is expected."""
        self._advance(now)
        self._slots.launches.forget(place)

    def workers_on_demand(self, *, now: float) -> None:
        """Promise to start a worker whenever requests have none: :class:`WorkerWanted`.

        Requests are then queued or refused as if a worker started now. The promise ends with the next
        :meth:`worker_expected`, which should follow the action at once.
        """
        self._advance(now)
        self._slots.launches.on_demand = True
        self._want_worker()

    @property
    def startup_s(self) -> float | None:
        """Seconds that an expected worker usually takes to be ready; None before the first is."""
        return self._slots.launches.startup_s

    def worker_ready(
        self,
        worker: int,
        *,
        now: float,
        place: Hashable = None,
        host: Hashable = None,
        takes_ahead: bool = False,
    ) -> None:
        """Add a worker that has started, or is usable again; ignore a known worker.

        If :meth:`worker_expected` was called for ``place``, the core learns how long a start takes. The
        workers of one ``host`` may be lost together. With ``takes_ahead``, the worker runs its batches in
        order, and may get the next batch while it still runs another.
        """
        self._advance(now)
        self._slots.launches.ready(place, now=now)
        self._slots.add(worker, host, takes_ahead=takes_ahead)

    def worker_retired(self, worker: int, *, now: float) -> None:
        """Give a worker no more batches; it finishes its own, and is then removed.

        If it dies before, call :meth:`worker_lost`.
        """
        self._advance(now)
        self._slots.retire(worker)
        self._forget_if_gone(worker)
        self._want_worker()

    def worker_lost(self, worker: int, *, now: float) -> list[Batch[Any]]:
        """Remove a worker and return its batches, whose requests run again.

        After a first loss, a batch runs again as a whole; after a second, each request runs alone. Requests
        that may not run again fail: :class:`Lost`. Workers on the same host are avoided for a while, unless
        the lost worker was retired.
        """
        self._advance(now)
        lost = self._slots.lose(worker, now=now)
        self._retry(lost, now, is_suspect=True)
        self._forget_if_gone(worker)
        self._want_worker()
        return lost

    def batch_done(
        self,
        batch: int,
        *,
        status: BatchStatus,
        now: float,
        seconds: float | None = None,
        chunks: Sequence[tuple[float, float]] = (),
        prepare_s: float | None = None,
    ) -> bool:
        """End a batch; its worker is idle again, or starts the batch ahead.

        ``seconds`` is how long the batch took, if it ended before ``now``. ``chunks`` gives (rows, seconds)
        of each call at the worker, if known: the rest of the time is transport. ``prepare_s`` is how long the
        worker prepared the batch, if it can do so while it runs another; then ``chunks`` exclude it.
        Returns False, and does nothing, if the core has given up the batch or its worker.
        """
        self._advance(now)
        ran = self._slots.finish(batch, now=now)
        if ran is None:
            return False
        self._queues.end(ran.entries, RequestState.ANSWERED)
        ended = now
        if seconds is None:
            seconds = max(0.0, now - ran.started)
        else:
            # The driver may report the end later; clients are away from the end of the batch on.
            ended = min(now, ran.started + seconds)
        api = self._apis[ran.api]
        if api.counts_rows_of(ran):
            api.batch_ended(ran, status, ended, seconds)
            if status == "worked" and api.rules.predicts:
                warning = api.learn(ran, chunks, seconds, prepare_s)
                self._pending_actions += [] if warning is None else [warning]
        plan_loop(api, ran, self._queues, self._slots, now)
        ran.entries = []
        self._forget_if_gone(ran.worker)
        if not (self._queues or self._pending_actions):
            leaving = self._queues.next_to_expire
            next_timeout = self._slots.next_timeout
            self._wakeup = next_timeout if leaving is None else min(next_timeout, leaving.expires_at)
        return True

    def responses_written(self, api: str, seconds: float, *, now: float) -> None:
        """Learn that the responses of a batch were written ``seconds`` after its end; no poll is needed.

        Deadlines allow for this time. Without such calls it counts as 0 s.
        """
        self._tick(now)
        if api in self._apis:
            self._apis[api].model.observe_responses(seconds)

    def profile(self, api: str, worker: int, chunks: Sequence[tuple[float, float]], *, now: float) -> None:
        """Learn from (rows, seconds) of batches that a worker ran as its warm-up, without requests."""
        self._advance(now)
        self._apis[api].model.observe_profile(worker, chunks)

    def limit_batches(self, worker: int, api: str, fits: float, *, now: float) -> None:
        """Limit the size of an API's batches on one worker, where more rows or cost do not fit into memory.

        Infinity ends the limit, as does the loss of the worker. No effect if the worker gets no batches.
        """
        self._advance(now)
        self._queues.end_holds()
        self._slots.limit_batches(worker, api, fits)

    def learned(self, api: str) -> list[tuple[float, float]]:
        """Return (rows, seconds) of batches as learned so far, for :meth:`recall`; empty if too little is."""
        return self._apis[api].model.measures.learned()

    def recall(self, api: str, learned: Sequence[tuple[float, float]]) -> None:
        """Use the batch times that an earlier run has :meth:`learned`, once one of the first batches fits.

        Raises:
            ValueError: if sizes are not positive, or times negative or not finite.
        """
        self._apis[api].model.measures.recall(learned)

    def drain(self, *, now: float) -> None:
        """Shed new requests, and release the queued ones as soon as workers are idle."""
        self._advance(now)
        self._scheduler.draining = True
        self._queues.end_holds()

    # Outputs

    def poll(self, now: float) -> list[Action]:
        """Return the actions to execute at ``now``, in order. Drivers call this until the list is empty."""
        self._tick(now)
        if now < self._wakeup:
            return []
        actions: list[Action] = [*self._pending_actions]
        self._pending_actions.clear()
        if now >= self._slots.next_timeout:
            actions += self._give_up_overdue(now)
            # Requests that may not run again are lost with the abandoned worker.
            actions += self._pending_actions
            self._pending_actions.clear()
        self._wakeup = min(self._scheduler.schedule(actions, now), self._slots.next_timeout)
        return actions

    def next_wakeup(self) -> float:
        """Return when to poll next if no input comes before; infinity if only an input can change anything.

        After an input, this is the time of the input until the next poll, unless the input needs no action
        yet: a request that must wait, or the end of a batch while nothing is queued.
        """
        return self._wakeup

    def stats(self, *, now: float) -> list[ApiStats]:
        self._tick(now)
        return self._scheduler.stats(now)

    def sample(self, api: str) -> ApiSample:
        return self._apis[api].sample()

    def work(self, *, now: float) -> WorkStats:
        self._tick(now)
        return self._slots.stats(now)

    def runs(self, batch: int) -> bool:
        """Return True while the batch with this number runs, or is ahead on its worker."""
        return self._slots.batch(batch) is not None

    @property
    def unanswered(self) -> Collection[Any]:
        """The requests that are queued or running, as they were submitted."""
        return self._queues.unanswered

    @property
    def has_queued(self) -> bool:
        return bool(self._queues)

    def has_waiting(self, api: str) -> bool:
        """Return True while requests to an API are queued, or parts of an accepted one will follow."""
        backlogs = (self._apis[api].backlog, self._apis[api].bulk_backlog)
        return any(each.requests or each.waiting_rows for each in backlogs)

    @property
    def is_empty(self) -> bool:
        """True if no request is queued or running, and no action is pending."""
        return not self._queues.unanswered and not self._slots.running and not self._pending_actions

    # Bookkeeping

    def _advance(self, now: float) -> None:
        """Begin an input: set the time, and the next wakeup, to ``now``."""
        if now < self._now:
            raise _time_went_back(self._now, now)
        self._now = self._wakeup = now

    def _give_up_overdue(self, now: float) -> list[Abandon]:
        """Abandon batches that ran past their timeout, and retry the other batches of their workers."""
        abandoned = []
        for overdue, others in self._slots.give_up_overdue(now):
            for batch in overdue:
                self._queues.end(batch.entries, RequestState.TIMED_OUT)
                batch.entries = []
                abandoned.append(Abandon(batch, others if batch is overdue[0] else []))
            self._forget_if_gone(overdue[0].worker)
            self._retry(others, now, is_suspect=False)
        self._want_worker()
        return abandoned

    def _retry(self, batches: Sequence[Batch[Any]], now: float, *, is_suspect: bool) -> None:
        """Queue the requests of lost batches again; fail the requests that may not run again."""
        for batch in batches:
            idempotent = self._apis[batch.api].rules.idempotent
            lost = self._queues.retry(
                batch.number, batch.entries, idempotent=idempotent, now=now, is_suspect=is_suspect
            )
            batch.entries = []
            self._pending_actions += [Lost(entry.request) for entry in lost]

    def _want_worker(self) -> None:
        """Ask for the promised worker if requests are queued, and the last worker has left."""
        if self._queues and self._slots.launches.on_demand and not self._slots.workers:
            self._pending_actions.append(WorkerWanted())

    def _forget_if_gone(self, worker: int) -> None:
        """Drop the speed factors of a worker that gets no more batches and has none."""
        if self._slots.is_gone(worker):
            for api in self._apis.values():
                api.model.forget_worker(worker)

    def _tick(self, now: float) -> None:
        if now < self._now:
            raise _time_went_back(self._now, now)
        self._now = now


def _time_went_back(before: float, now: float) -> ValueError:
    return ValueError(f"time went back from {before} to {now}")
