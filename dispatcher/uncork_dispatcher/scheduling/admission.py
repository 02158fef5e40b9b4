"""Decides which requests are shed: on arrival for lack of room or time, and later when time runs out."""

from __future__ import annotations

import math

from uncork_dispatcher.actions import SHORTEST_RETRY_S, Shed, ShedReason
from uncork_dispatcher.api import Api
from uncork_dispatcher.learning.estimator import EARNED_REACH, Estimate
from uncork_dispatcher.requests.fair_queue import FairQueue, Load
from uncork_dispatcher.requests.largest_feasible_batch import largest_feasible_batch, largest_mixed_batch
from uncork_dispatcher.requests.queue import Entry, RequestQueue
from uncork_dispatcher.scheduling.bulk import BulkRoom
from uncork_dispatcher.scheduling.queues import RequestQueues
from uncork_dispatcher.scheduling.retry_schedule import RetrySchedule
from uncork_dispatcher.workers.share import Share
from uncork_dispatcher.workers.slots import Slots

# Each group needs a batch of its own: with more, hardly any batch would have more than one request.
MOST_GROUPS = 1000


class Admission:
    """Decides which requests of one API are shed, and when their clients should retry."""

    def __init__(self, api: Api, queues: RequestQueues, slots: Slots, room: BulkRoom) -> None:
        self._api = api
        self._queues = queues
        self._slots = slots
        self._budget = 0.0, 0
        """The rows and requests that may be queued so that the last row meets the goal, within the limits."""
        self._budget_changes = -1
        """The :attr:`Slots.changes` for which it holds: as time passes, the same backlog takes no longer."""
        self._room = room
        self._retries = RetrySchedule()
        self._bulk_retries = RetrySchedule()
        self._others_rows = 0.0
        """The rows that wait of other requests than that whose first part comes next; else 0."""

    def rules_changed(self) -> None:
        """Discard the values that were computed from the rules."""
        self._budget_changes = -1

    def admit(self, entry: Entry) -> ShedReason | None:
        """Return None if a new request may be queued, otherwise the reason to shed it.

        If nothing is queued, limits on size do not apply, unless it is the first part of a request and parts
        of others wait; if a worker is idle as well, predictions do not either. While there are no workers, a
        request is admitted if a worker is due that can answer it in time.
        """
        slots, rules, backlog = self._slots, self._api.rules, self._api.backlog
        bulk, group = self._api.bulk_backlog, entry.queue.group
        others_rows, self._others_rows = self._others_rows, 0.0
        groups = bulk.groups if entry.bulk else backlog.groups
        if group is not None and len(groups) >= MOST_GROUPS and group not in groups:
            return "too_many_groups"
        patient = entry.expires_at == math.inf
        rows, requests = backlog.rows + entry.rows, backlog.requests + 1
        if self._budget_changes == slots.changes and patient and not (bulk.requests or entry.bulk):
            bytes_fit = backlog.size_bytes + entry.size_bytes <= rules.max_queue_bytes
            most_rows, most_requests = self._budget
            if bytes_fit and rows <= most_rows and requests <= most_requests:
                return None
        now = entry.arrival
        if not (slots.workers or self._outlook(now).places):
            return "no_worker"
        if entry.expires_at <= now:
            return "client_deadline"
        queued = backlog.requests + bulk.requests
        is_limited = queued or 0 < others_rows < self._waiting_rows(bulk=entry.bulk)
        if is_limited and not self._fits(entry, rows, requests):
            return "queue_full"
        if not queued and slots.shares.of[rules.name].idle:
            return None
        if not slots.workers:
            return "no_worker" if self._is_late(entry) else None
        if patient and not entry.bulk and self._extend_budget(rows=rows, requests=requests, now=now):
            return None
        return "deadline" if self._is_late(entry) else None

    def find_displaced(self, entry: Entry) -> list[Entry]:
        """Return the queued requests to shed to make room for a new one; empty if none may be shed for it."""
        queue = entry.queue
        rules, backlog, bulk = self._api.rules, self._api.backlog, self._api.bulk_backlog
        displaces_bulk = bulk.requests and not entry.bulk
        if not (displaces_bulk or isinstance(queue, FairQueue)) or self._is_late(entry):
            return []
        more = Load(entry.rows, 1, entry.size_bytes)
        limits = Load(rules.max_queue_rows, rules.max_queue_requests, rules.max_queue_bytes)
        queued = Load(backlog.rows + backlog.waiting_rows, backlog.requests, backlog.size_bytes)
        after = queued.plus(self._of_bulk(entry)).plus(more)
        # Not the whole excess: the queue may be over limits that were lowered since.
        over = after.plus(limits, -1).least(more)
        displaced: list[Entry] = []
        if displaces_bulk:
            displaced, over = self._newest_bulk(over)
        if max(over) <= 0:
            return displaced
        if not isinstance(queue, FairQueue):
            return []
        newest = queue.displaced(entry.flow, more, over=over, limits=limits)
        return displaced + newest if newest else []

    def _fits(self, entry: Entry, rows: float, requests: int) -> bool:
        """Return True if the limits on size allow a new request, with which its class has so many."""
        rules, backlog, bulk = self._api.rules, self._api.backlog, self._of_bulk(entry)
        return (
            backlog.size_bytes + bulk.size_bytes + entry.size_bytes <= rules.max_queue_bytes
            and rows + backlog.waiting_rows + bulk.rows <= rules.max_queue_rows
            and requests + bulk.requests <= rules.max_queue_requests
        )

    def _of_bulk(self, entry: Entry) -> Load:
        """Return the bulk that counts against the limits for a new request.

        For the first class, that is without the parts that are not queued yet: they cannot make room for it.
        """
        bulk = self._api.bulk_backlog
        if entry.bulk:
            return Load(bulk.rows + bulk.waiting_rows, bulk.requests, bulk.size_bytes)
        return Load(bulk.rows, bulk.requests, bulk.size_bytes - bulk.waiting_bytes)

    def _newest_bulk(self, over: Load) -> tuple[list[Entry], Load]:
        """Return the newest requests of bulk that make room for ``over``, and what they leave of it."""
        displaced: list[Entry] = []
        for queue in self._queues.newest_bulk(self._api.rules.name):
            for entry in queue.newest_first():
                if max(over) <= 0:
                    return displaced, over
                displaced.append(entry)
                over = over.plus(Load(entry.rows, 1, entry.size_bytes), -1)
        return displaced, over

    def size_batch(
        self, queue: RequestQueue, *, limit: float, estimate: Estimate, now: float
    ) -> tuple[float, list[Entry]]:
        """Return the rows of a batch that starts ``now``, ``limit`` at most, and the requests to shed for it.

        The requests to shed would keep the batch small, and cannot wait for the next batch. While another
        worker is idle, there is capacity, so there are none.
        """
        slots, api = self._slots, self._api
        rows = min(queue.rows, limit)
        late = queue.most_urgent.deadline < now + estimate.upper(rows)
        if not late or slots.shares.of[queue.api].idle > 1:
            return limit, []
        mixes = api.separates(queue)
        most = api.mixable_rows(queue, rows) if mixes else limit
        if not api.model.can_predict(min(rows, most)):
            return limit, []
        entries = queue.by_urgency()
        most_skipped = queue.skippable(entries, rows=most, goal_s=api.rules.goal_s)
        if mixes:
            choice = largest_mixed_batch(
                entries,
                limit_rows=limit,
                now=now,
                estimate=estimate,
                most_skipped=most_skipped,
                begin=lambda turns, rows: api.fill(queue, rows, turns),
            )
        else:
            share = self._outlook(now)
            choice = largest_feasible_batch(
                entries,
                limit_rows=limit,
                now=now,
                next_start=(
                    share.free_at(1, now) if share.places > 1 else now + api.model.estimate.seconds(limit)
                ),
                estimate=estimate,
                most_skipped=most_skipped,
            )
        return choice.rows, entries[: choice.skipped]

    def hopeless_at(self, entry: Entry, *, now: float, no_workers_since: float) -> float:
        """Return when to shed a request if it is still queued then; infinity if it may wait.

        Without workers, no request waits longer than a batch may run, or than a worker counts as due. Only
        requests whose worker was lost wait past their deadline, because they may have run on the last worker.
        If it is known when a worker is due, requests that it cannot answer in time are shed at once.

        No prediction sheds requests whose worker was lost, or later parts of a request: they were accepted,
        and are late without fault.
        """
        slots, retry = self._slots, entry.queue.retry
        if slots.workers:
            predicts = retry is None and not entry.follows and self._api.model.can_predict(0)
            return self._last_start(entry) if predicts else math.inf
        # A start may take longer than a batch may run.
        at = max(no_workers_since + self._api.rules.timeout_s, slots.launches.due_until(now))
        if retry is not None:
            return at
        last_start, due = self._last_start(entry), self._outlook(now)
        if not due.places:
            return min(at, entry.deadline)
        return min(at, last_start if due.free_at(0, now) <= last_start else now)

    def shed(self, entry: Entry, reason: ShedReason, *, now: float) -> Shed:
        """Return the action that sheds a request, with the seconds after which its client should retry."""
        if reason == "client_deadline":
            # This client has given up: it takes no turn among the clients that will retry.
            retry_after_s = SHORTEST_RETRY_S
        else:
            retry_after_s = self.retry_after_s(rows=entry.rows, now=now, entry=entry)
        return Shed(entry.request, self._api.rules.name, reason, retry_after_s)

    def retry_after_s(self, *, rows: float, now: float, entry: Entry | None = None) -> float:
        """Return in how many seconds a client refused now should retry, at least 1.

        By then, the backlog is done, or the part of it before the refused ``entry``, and earlier refused
        clients have retried: at most two minutes or, without workers, twice the time until one is due. Before
        any worker can be predicted to be free, it is when the next one is due, however long that takes. A
        refused client counts as one large batch at most, so that no huge request puts off all others.
        """
        api, slots, estimate = self._api, self._slots, self._api.model.estimate
        share = self._outlook(now)
        finish = share.free_at(0, now) if share.places else -math.inf
        due = finish if not slots.workers else -math.inf
        if entry is not None and entry.bulk and share.places:
            rate = self._room.rate(api, workers=share.places, now=now)
            finish += api.bulk_backlog.rows / rate
            seconds = min(rows, api.rules.max_batch_rows) / rate
            wait_s = self._bulk_retries.next_after_s(now=now, due=due, earliest=finish, seconds=seconds)
            return max(SHORTEST_RETRY_S, wait_s)
        batch_rows = min(api.limit_rows, largest := estimate.earned_rows / EARNED_REACH)
        if not share.places or batch_rows == 0:
            return max(SHORTEST_RETRY_S, 0.0 if slots.workers else slots.launches.soonest(now) - now)
        backlog_rows, requests = api.backlog.rows, api.backlog.requests
        if entry is not None and entry.expires_at < math.inf:
            backlog_rows, requests = self._before(entry)
            backlog_rows, requests = backlog_rows - entry.rows, requests - 1
        if requests:
            finish = self._finish(share, now, rows=backlog_rows, requests=requests)
        seconds = min(rows, largest) * (estimate.seconds(batch_rows) / (share.places * batch_rows))
        wait_s = self._retries.next_after_s(now=now, due=due, earliest=finish, seconds=seconds)
        return max(SHORTEST_RETRY_S, wait_s)

    def reserve(self, rows: float, size_bytes: int, *, bulk: bool) -> None:
        """See :meth:`Dispatcher.reserve`."""
        backlog = self._api.bulk_backlog if bulk else self._api.backlog
        if rows > 0:
            self._others_rows = self._waiting_rows(bulk=bulk)
        backlog.waiting_rows += rows
        backlog.waiting_bytes += size_bytes
        backlog.size_bytes += size_bytes
        self.rules_changed()

    def _waiting_rows(self, *, bulk: bool) -> float:
        """Return the rows of parts that are not queued yet, as far as they count for a class."""
        return self._api.backlog.waiting_rows + (self._api.bulk_backlog.waiting_rows if bulk else 0.0)

    def _outlook(self, now: float) -> Share:
        return self._slots.outlook(now, self._api.rules.name)

    def _is_late(self, entry: Entry) -> bool:
        """Return True if a new request would miss its deadline, because of the requests before it."""
        api, slots = self._api, self._slots
        if entry.bulk:
            return self._is_late_bulk(entry)
        rows, requests = self._before(entry)
        likely_rows = max(entry.rows, min(rows, api.limit_rows))
        if slots.workers and not api.model.can_predict(likely_rows):
            return False
        now = entry.arrival
        return self._finish(self._outlook(now), now, rows=rows, requests=requests) > entry.deadline

    def _is_late_bulk(self, entry: Entry) -> bool:
        api, now = self._api, entry.arrival
        if self._slots.workers and not api.model.can_predict(min(entry.rows, api.limit_rows)):
            return False
        rows, share = api.bulk_backlog.rows + entry.rows, self._outlook(now)
        rate = self._room.rate(api, workers=share.places, now=now)
        return share.free_at(0, now) + rows / rate > entry.deadline

    def _before(self, entry: Entry) -> tuple[float, int]:
        """Return the rows and the number of requests of the API that run before a new request or with it.

        In the request's own queue, only requests that are ahead of it count. The queues of other batch keys
        take turns by their oldest request; all requests are assumed to have arrived evenly since the oldest.
        """
        backlog, queue, now = self._api.backlog, entry.queue, entry.arrival
        rows, requests = queue.before(entry, goal_s=self._api.rules.goal_s)
        others = backlog.requests - len(queue)
        if not others:
            return rows, requests
        first, share = backlog.oldest(now), 1.0
        if queue:
            share = rows / (queue.rows + entry.rows)
            if first < now:
                own = min(queue.oldest.arrival, now)
                share = (own + share * (now - own) - first) / (now - first)
        return rows + share * (backlog.rows - queue.rows), requests + math.ceil(share * others)

    def _extend_budget(self, *, rows: float, requests: int, now: float) -> bool:
        """Set the budget to twice this backlog if that meets the goal; return False if it does not."""
        rows, requests = 2 * rows, 2 * requests
        finish = self._finish(self._outlook(now), now, rows=rows, requests=requests)
        if finish > self._api.due_at(now, math.inf):
            return False
        rules = self._api.rules
        most_rows = rules.max_queue_rows - self._api.backlog.waiting_rows
        self._budget = min(rows, most_rows), min(requests, rules.max_queue_requests)
        self._budget_changes = self._slots.changes
        return True

    def _last_start(self, entry: Entry) -> float:
        """Return the latest start with which a request meets its deadline; the deadline if unpredictable."""
        model = self._api.model
        return entry.deadline - (model.least_s(entry.size) if model.can_predict(0) else 0.0)

    def _finish(self, share: Share, now: float, *, rows: float, requests: int) -> float:
        """Return when the last of ``rows`` rows in ``requests`` requests is done; there must be workers.

        The rows are assumed to go in full batches, dealt to the workers in turn.
        """
        # Sums of costs may round to 0 rows.
        batches = max(1, min(requests, math.ceil(rows / self._api.limit_rows)))
        each_s = self._api.model.estimate.seconds(rows / batches)
        full_rounds, last_worker = divmod(batches - 1, share.places)
        return share.free_at(last_worker, now) + (full_rounds + 1) * each_s
