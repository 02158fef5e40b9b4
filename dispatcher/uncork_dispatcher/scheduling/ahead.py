"""Which batch to send to a worker that still runs another, and when.

A batch is *complete* if it is full or its policy would not add to it. It is sent a little before its worker
should be idle, so that the worker need not wait for it. A worker that prepares a batch while it runs another
gets complete batches at once. It gets an incomplete batch just in time to have prepared it when it is idle,
unless most clients wait for answers: those of the batch that runs would miss it. Times are seconds on the
core's clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from uncork_dispatcher.api import Api
from uncork_dispatcher.policies.base import Release
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.requests.queue import RequestQueue
from uncork_dispatcher.scheduling.bulk import BulkRoom
from uncork_dispatcher.scheduling.closed_loop import has_independent_requests
from uncork_dispatcher.workers.slots import Slots

# A batch ahead is sent this many times the usual transport before its worker should be idle. That is an
# average, so once would be too late for every other batch.
_LEAD = 2.0


class AheadPlanner:
    """Decides about the batches ahead of all APIs, from the state of the core."""

    def __init__(self, apis: Mapping[str, Api], slots: Slots, room: BulkRoom) -> None:
        self._apis = apis
        self._slots = slots
        self._room = room

    def next_at(self, queue: RequestQueue, now: float) -> tuple[float, Batch[Any] | None]:
        """Return when a batch of this queue may be sent ahead, and behind which; infinity, None if never.

        The APIs of both batches must be idempotent: if the worker dies, it is unknown which batches had
        started.
        """
        api = self._apis[queue.api]
        prepare_s = api.model.prepare_s(min(queue.rows, api.limit_rows))
        behind = self._slots.next_ahead(now, queue.api, prepare_s)
        if behind is None or not (
            not (queue.retry or queue.bulk)
            and api.has_earned
            and api.rules.idempotent
            and self._apis[behind.api].rules.idempotent
        ):
            return math.inf, None
        at = behind.finish - _LEAD * behind.transport_s
        if self._is_complete(queue, behind):
            at = now if api.model.overlaps else at  # its first stage can begin at once
        elif api.model.overlaps and has_independent_requests(api, queue, now):
            at -= prepare_s
        else:
            return math.inf, None
        share = self._slots.shares.of[queue.api]
        if self._room.neighbors_wait_s(queue, share, now) < math.inf:
            return math.inf, None
        # Bulk runs and rides only in batches that start on an idle worker.
        if self._room.unreserved(queue, now) < api.limit_rows or self._room.owed(share, now) is not None:
            return math.inf, None
        return max(now, at), behind

    def release(self, queue: RequestQueue, behind: Batch[Any], now: float) -> Release | None:
        """Return the release of a batch that may be sent ahead now; None if its policy would hold it."""
        api = self._apis[queue.api]
        if not self._is_complete(queue, behind):
            decision = api.policy.decide(api.view(queue, self._slots, now, behind))
            return decision if isinstance(decision, Release) else None
        if api.policy.complete_rows <= queue.rows:
            return Release(api.policy.complete_rows, "not_worth_waiting")
        return Release(api.policy.limit_rows, "full")

    def _is_complete(self, queue: RequestQueue, behind: Batch[Any]) -> bool:
        return self._apis[queue.api].fills_batch(queue, self._slots.memory.of(behind.worker, queue.api))
