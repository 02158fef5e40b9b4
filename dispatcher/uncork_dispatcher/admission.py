"""Who is refused: at the door for want of room or of time, and later when time runs out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uncork_dispatcher.actions import ShedReason
from uncork_dispatcher.api import Api, Room
from uncork_dispatcher.learning.estimator import EARNED_REACH, Estimate
from uncork_dispatcher.requests.fair_queue import FairQueue, Load
from uncork_dispatcher.requests.feasible import choose
from uncork_dispatcher.requests.queue import Entry, RequestQueue
from uncork_dispatcher.requests.slots import Slots

# What a refused client is told at the least, and when nothing is known to compute a better number from; and
# at the most, but for the spread: nobody can say how things will be in a minute.
SHORTEST_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0
# Multiples of the golden ratio fall evenly between whole numbers, however many there are.
_GOLDEN = 0.618034
# Clients that come back after a refusal may take this share of what the workers carry.
_RETURNING_SHARE = 0.1


def refusal(api: Api, slots: Slots, entry: Entry) -> ShedReason | None:
    """Why a request that comes now is not taken in, or None if it is.

    An empty queue takes any request, however large; and while a worker is idle and nothing is held,
    any request, whatever the prediction says. While there are no workers, a request is queued if one is due
    that can answer it in time.
    """
    rules, now, patient = api.rules, entry.arrival, entry.expires_at == math.inf
    held_rows, held = api.rows + entry.rows, api.requests + 1
    room = api.room
    bytes_fit = api.size_bytes + entry.size_bytes <= rules.max_queue_bytes
    known = patient and room.changes == slots.changes
    if known and bytes_fit and held_rows <= room.rows and held <= room.requests:
        return None
    fits = bytes_fit and held_rows <= rules.max_queue_rows and held <= rules.max_queue_requests
    if not (slots.workers or slots.free_at(now)):
        return "no_worker"
    if entry.expires_at <= now:
        return "client_deadline"
    if api.requests == 0 and slots.idle:
        return None
    if api.requests and not fits:
        return "queue_full"
    if not slots.workers:
        return "no_worker" if _is_late(api, slots, entry) else None
    if patient and _find_room(api, slots, rows=held_rows, requests=held, now=now):
        return None
    return "deadline" if _is_late(api, slots, entry) else None


def _is_late(api: Api, slots: Slots, entry: Entry) -> bool:
    """Whether a request that comes now would miss its deadline behind what goes before it."""
    queue, rows = entry.queue, entry.rows
    if slots.workers and not api.may_shed(max(rows, min(api.rows + rows, api.policy.limit_rows))):
        return False
    before, requests = queue.before(entry.flow, rows)
    held_rows, held = api.rows - queue.rows + before, api.requests - len(queue) + requests
    return _finish(api, slots.free_at(entry.arrival), rows=held_rows, requests=held) > entry.deadline


def find_displaced(api: Api, slots: Slots, entry: Entry) -> list[Entry]:
    """The held requests to refuse so that another fits into a full queue; none if it is to be refused."""
    queue = entry.queue
    if not isinstance(queue, FairQueue) or _is_late(api, slots, entry):
        return []
    rules, more = api.rules, Load(entry.rows, 1, entry.size_bytes)
    limits = Load(rules.max_queue_rows, rules.max_queue_requests, rules.max_queue_bytes)
    over = Load(api.rows, api.requests, api.size_bytes).plus(more).plus(limits, -1)
    return queue.displaced(entry.flow, more, over=over, limits=limits)


def make_room(
    queue: RequestQueue, api: Api, slots: Slots, *, limit: float, estimate: Estimate, now: float
) -> tuple[float, list[Entry]]:
    """Rows of a batch that starts now, ``limit`` at most, and whom to refuse.

    Those who would keep it small, and cannot wait for the next. Nobody is refused while another worker is
    idle, for then there is capacity.
    """
    rows = min(queue.rows, limit)
    late = queue.most_urgent.deadline < now + estimate.upper(rows)
    if not (late and slots.idle == 1 and api.may_shed(rows)):
        return limit, []
    free_at = slots.free_at(now)
    entries = queue.by_urgency()
    choice = choose(
        entries,
        limit_rows=limit,
        now=now,
        next_start=free_at[1] if len(free_at) > 1 else now + api.estimate.seconds(limit),
        estimate=estimate,
        most_skipped=queue.skippable(entries, rows=limit, goal_s=api.rules.goal_s),
    )
    return choice.rows, entries[: choice.skipped]


def _find_room(api: Api, slots: Slots, *, rows: float, requests: int, now: float) -> bool:
    """Whether even twice as much as is held would be done within the goal.

    Every request asks, so the answer is kept while no batch starts or ends: the time that a backlog takes
    from now does not grow as time passes.
    """
    rows, requests = 2 * rows, 2 * requests
    if _finish(api, slots.free_at(now), rows=rows, requests=requests) > api.due_at(now, math.inf):
        return False
    rules = api.rules
    api.room = Room(slots.changes, min(rows, rules.max_queue_rows), min(requests, rules.max_queue_requests))
    return True


def next_refusal(
    queue: RequestQueue, api: Api, slots: Slots, *, now: float, draining: bool, deserted: float = math.inf
) -> tuple[float, Entry]:
    """When one of the requests in a queue is to be refused if it is still held, and which.

    ``deserted`` is since when there are no workers: nobody waits for one longer than a batch may run, and
    only suspects wait past their deadline, of whom one may have killed the last worker. If it is known when
    a worker is due, requests that it cannot answer in time are refused at once.

    While a worker is idle there is capacity, and a late answer is better than none; except for a client
    that has said when it gives up. Suspects wait for each other: no prediction says how long.
    """
    entry = queue.most_urgent
    at = math.inf
    if not slots.workers:
        at = deserted + api.rules.timeout_s
        if not queue.suspects:
            last_start, due = _last_start(api, entry), slots.free_at(now)
            hopeless_at = entry.deadline if not due else last_start if due[0] <= last_start else now
            at = min(at, hopeless_at)
    elif not (slots.idle or draining or queue.suspects) and api.may_shed(0):
        at = _last_start(api, entry)
    leaving = queue.soonest_to_leave
    if leaving is not None and leaving.expires_at <= at:
        return leaving.expires_at, leaving
    return at, entry


def _last_start(api: Api, entry: Entry) -> float:
    """When the batch of a request must start at the latest; its deadline while no prediction is trusted."""
    if not api.may_shed(0):
        return entry.deadline
    # Of more rows than have been earned it is known that they take no less than the earned ones.
    rows = entry.rows if api.may_shed(entry.rows) else api.estimate.earned_rows
    return entry.deadline - api.estimate.seconds(rows)


def retry_after_s(api: Api, slots: Slots, *, rows: float, now: float) -> float:
    """How long a client that is refused now should wait: from one second to two minutes.

    Until the backlog is done and earlier retries are back. While there are no workers, the backlog starts
    when the next one is due. Were all to come back at once, most would be refused again. So they are spread
    such that they are a tenth of what the workers carry: those who come anew take the rest. And they are
    told up to twice as long, each another time: in whole seconds, those who are refused at one moment would
    meet again.
    """
    estimate = api.estimate
    batch_rows = min(api.policy.limit_rows, estimate.earned_rows / EARNED_REACH)
    free_at = slots.free_at(now)
    if not free_at or batch_rows == 0:
        return max(SHORTEST_RETRY_S, 0.0 if slots.workers else slots.launches.soonest(now) - now)
    finish = free_at[0]
    if api.requests:
        finish = _finish(api, free_at, rows=api.rows, requests=api.requests)
    turn = min(max(api.line_until, finish), now + _LONGEST_RETRY_S)
    seconds_per_row = estimate.seconds(batch_rows) / (len(free_at) * batch_rows)
    api.line_until = turn + rows * seconds_per_row / _RETURNING_SHARE
    spread = api.refused * _GOLDEN % 1
    api.refused += 1
    return max(SHORTEST_RETRY_S, (turn - now) * (1 + spread))


def _finish(api: Api, free_at: Sequence[float], *, rows: float, requests: int) -> float:
    return backlog_finish(
        free_at,
        rows=rows,
        requests=requests,
        limit_rows=api.policy.limit_rows,
        estimate=api.estimate,
    )


def backlog_finish(
    free_at: Sequence[float], *, rows: float, requests: int, limit_rows: float, estimate: Estimate
) -> float:
    """When the last of ``rows`` rows in ``requests`` requests is done, in seconds on the core's clock.

    ``free_at`` holds for each worker when it is free, soonest first; it must not be empty. The rows
    are taken to go in batches of ``limit_rows``, dealt to the workers in turn.
    """
    batches = min(requests, math.ceil(rows / limit_rows))
    each_s = estimate.seconds(rows / batches)
    full_rounds, last_worker = divmod(batches - 1, len(free_at))
    return free_at[last_worker] + (full_rounds + 1) * each_s
