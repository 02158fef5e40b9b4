"""Who is refused: at the door for want of room or of time, and later when time has run out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uncork_dispatcher.actions import ShedReason
from uncork_dispatcher.api import Api, Room
from uncork_dispatcher.estimator import Estimate
from uncork_dispatcher.queue import Entry, RequestQueue
from uncork_dispatcher.slots import Slots

# What a refused client is told at the least, and when nothing is known to compute a better number from.
_SHORTEST_RETRY_S = 1.0


def refusal(
    api: Api, slots: Slots, *, rows: float, size_bytes: int, expires_at: float, now: float
) -> ShedReason | None:
    """Why a request of ``rows`` rows is not taken in, or None if it is.

    An empty queue takes any request, however large; and while a worker is idle and nothing is held,
    any request, whatever the prediction says.
    """
    rules = api.rules
    held_rows, held = api.rows + rows, api.requests + 1
    fits = held_rows <= rules.max_queue_rows and api.size_bytes + size_bytes <= rules.max_queue_bytes
    room = api.room
    known = expires_at == math.inf and room.changes == slots.changes
    if known and fits and held_rows <= room.rows and held <= room.requests:
        return None
    if slots.workers == 0:
        return "no_worker"
    if expires_at <= now:
        return "client_deadline"
    if api.requests == 0 and slots.idle:
        return None
    if api.requests and not fits:
        return "queue_full"
    if expires_at == math.inf and _find_room(api, slots, rows=held_rows, requests=held, now=now):
        return None
    if api.may_shed(max(rows, min(held_rows, api.policy.limit_rows))):
        finish = _finish(api, slots, rows=held_rows, requests=held, now=now)
        if finish > api.due_at(now, expires_at):
            return "deadline"
    return None


def _find_room(api: Api, slots: Slots, *, rows: float, requests: int, now: float) -> bool:
    """Whether even twice as much as is held would be done within the goal.

    Every request asks, so the answer is kept while no batch starts or ends: the time that a backlog takes
    from now does not grow as time passes.
    """
    rows, requests = 2 * rows, 2 * requests
    if _finish(api, slots, rows=rows, requests=requests, now=now) > api.due_at(now, math.inf):
        return False
    api.room = Room(slots.changes, rows, requests)
    return True


def next_refusal(
    queue: RequestQueue, api: Api, slots: Slots, *, draining: bool, deserted: float = math.inf
) -> tuple[float, Entry]:
    """When one of the requests in a queue is to be refused if it is still held, and which.

    ``deserted`` is since when there are no workers: nobody waits for one longer than a batch may run.

    While a worker is idle there is capacity, and a late answer is better than none; except for a client
    that has said when it gives up. Suspects wait for each other: no prediction says how long.
    """
    entry = queue.most_urgent
    at = math.inf
    if not slots.workers:
        at = min(entry.deadline, deserted + api.rules.timeout_s)
    elif not (slots.idle or draining or queue.suspects) and api.may_shed(0):
        # Of more rows than have been earned it is known that they take no less than the earned ones.
        rows = entry.rows if api.may_shed(entry.rows) else api.estimate.earned_rows
        at = entry.deadline - api.estimate.seconds(rows)
    leaving = queue.soonest_to_leave
    if leaving is not None and leaving.expires_at <= at:
        return leaving.expires_at, leaving
    return at, entry


def retry_after_s(api: Api, slots: Slots, *, now: float) -> float:
    """How long a refused client should wait: until what is held now is done, at least a second."""
    if slots.workers == 0 or api.requests == 0:
        return _SHORTEST_RETRY_S
    finish = _finish(api, slots, rows=api.rows, requests=api.requests, now=now)
    return max(_SHORTEST_RETRY_S, finish - now)


def _finish(api: Api, slots: Slots, *, rows: float, requests: int, now: float) -> float:
    return backlog_finish(
        slots.free_at(now),
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
