"""Into how many parts a large request is divided, so that each is executed in good time."""

from __future__ import annotations

import math

from uncork_dispatcher.api import Api
from uncork_dispatcher.scheduling.bulk import BulkRoom
from uncork_dispatcher.workers.slots import Slots

# So many parts of a bulk request fill the room for bulk, so that little of it stays empty. Before batch times
# are known, so many parts make a full batch.
_PARTS_IN_ROOM = 16.0
_MOST_PARTS = 1000
# A part may take so many times the fixed time of a batch: smaller ones hardly take less, but are many.
_LEAST_PART = 1.25


def bulk_parts(
    api: Api, slots: Slots, room: BulkRoom, *, rows: float, size_bytes: int, now: float, expires_at: float
) -> int:
    """Return into how many parts to divide a request of bulk, so that they fit into the room for bulk.

    It is 1 if some of them would be refused: then the request is admitted or refused as a whole.
    """
    rules, bulk, backlog = api.rules, api.bulk_backlog, api.backlog
    share = slots.outlook(now, rules.name)
    if rules.bulk_goal_s is None or not rules.idempotent or not share.places:
        return 1
    # Before batch times are known, small parts do least harm.
    most = api.limit_rows / _PARTS_IN_ROOM
    if api.has_earned:
        most = room.most_rows(api, workers=share.places, now=now)
    each = max(1.0, most / _PARTS_IN_ROOM) if most >= 1 else api.limit_rows
    if api.policy.most_requests == 1:
        each = _full_rows(api)  # no part shares a batch: smaller ones would only be more calls
    parts = min(_MOST_PARTS, math.ceil(rows / each))
    queued = bulk.rows + rows
    fits = (
        queued + bulk.waiting_rows + backlog.rows + backlog.waiting_rows <= rules.max_queue_rows
        and bulk.requests + backlog.requests + parts <= rules.max_queue_requests
        and bulk.size_bytes + backlog.size_bytes + size_bytes <= rules.max_queue_bytes
    )
    if not fits:
        return 1
    if slots.workers and not api.model.can_predict(min(each, api.limit_rows)):
        return parts  # no prediction refuses them
    finish = share.free_at(0, now) + queued / room.rate(api, workers=share.places, now=now)
    return parts if finish <= api.due_at(now, expires_at, bulk=True) else 1


def parts_in_turn(api: Api, slots: Slots, *, rows: float, now: float) -> tuple[int, int]:
    """Return into how many parts to divide a request, and how many of them to submit at a time.

    A part takes at most half the goal, so that those behind it, and other requests, can meet theirs; or
    a quarter more than the fixed time of a batch, if that is longer, but no more than a goal in reach.
    """
    each = _full_rows(api)
    if api.has_earned:
        estimate = api.model.estimate
        least_s = _LEAST_PART * estimate.intercept_s
        left_s = api.rules.goal_s - api.model.allowance_s
        if estimate.seconds(1) < left_s:
            least_s = min(least_s, left_s)
        worth = estimate.rows_within(least_s, z=0)
        each = min(each, max(estimate.rows_within(api.rules.goal_s / 2), worth))
    else:
        each /= _PARTS_IN_ROOM
    return math.ceil(rows / max(1.0, each)), max(1, slots.outlook(now, api.rules.name).places)


def _full_rows(api: Api) -> float:
    """Return the rows of a full call of the handler: the limit of the rules, or the policy's if users set it.

    The limit of other policies is for merged requests only. It is 1, or begins there and is found by trial.
    """
    if api.policy.longest_hold_s < math.inf:
        return api.limit_rows
    return max(1.0, api.rules.max_batch_rows / api.model.measures.limit_ratio)
