"""Which batch to send to a worker that still runs another, and when.

A batch that is *complete*, because it is full or its policy would not add to it, is sent a little before its
worker should be idle: so no transport lies between the two. If the worker prepares a batch while it runs
another, a complete batch is sent at once. An incomplete batch is then sent just in time to be prepared when
the worker is idle, if the requests are independent of the answers: clients that wait for the batch that runs
would miss it. Times are seconds on the core's clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from uncork_dispatcher.api import Api
from uncork_dispatcher.bulk import BulkRoom
from uncork_dispatcher.policies.base import Release
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.requests.queue import RequestQueue
from uncork_dispatcher.workers.slots import Slots

# A batch ahead is sent this many times the usual transport before its worker should be idle. That is an
# average, so once would be too late for every other batch.
_LEAD = 2.0


class Ahead(NamedTuple):
    """A release to the worker of a batch that runs, ``behind`` it; not before ``at``."""

    at: float
    behind: Batch[Any]
    release: Release


class AheadPlanner:
    """Decides about the batches ahead of all APIs, from the state of the core."""

    def __init__(self, apis: Mapping[str, Api], slots: Slots, room: BulkRoom) -> None:
        self._apis = apis
        self._slots = slots
        self._room = room

    def plan(self, queue: RequestQueue, now: float) -> Ahead | None:
        """Return how a batch of a queue may be sent ahead; None if it may not, as things are.

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
            return None
        at = max(now, behind.finish - _LEAD * behind.transport_s)
        if api.fills_batch(queue, self._slots.memory.of(behind.worker, queue.api)):
            release = self._complete(api, queue)
            # The first stage of a batch can begin at once.
            at = now if api.model.overlaps else at
        elif api.model.overlaps and api.has_independent_requests(queue, now):
            decision = api.policy.decide(api.view(queue, self._slots, now, behind))
            if not isinstance(decision, Release):
                return None
            release, at = decision, max(now, at - prepare_s)
        else:
            return None
        waits = self._room.neighbors_wait_s(queue, self._slots.of(queue.api), now) < math.inf
        return None if waits else Ahead(at, behind, release)

    def _complete(self, api: Api, queue: RequestQueue) -> Release:
        if api.policy.complete_rows <= queue.rows:
            return Release(api.policy.complete_rows, "not_worth_waiting")
        return Release(api.policy.limit_rows, "full")
