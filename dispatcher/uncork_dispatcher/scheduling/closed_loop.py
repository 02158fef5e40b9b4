"""Finds the clients of an API that wait for their answers, for a policy that plans by them."""

from __future__ import annotations

import math
from typing import Any

from uncork_dispatcher.api import Api
from uncork_dispatcher.learning.arrivals import Traffic
from uncork_dispatcher.loop_plan import ClosedLoop
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.requests.queue import RequestQueue
from uncork_dispatcher.scheduling.queues import RequestQueues
from uncork_dispatcher.workers.slots import Slots

# A policy plans again after batches of this many requests: for a lone client, plans would cost too much.
_SEVERAL = 4
# The rows at workers are added up for each plan, so the number of workers must be small.
_MOST_WORKERS = 8
# New clients do not wait for answers: they may be no more than this share of the traffic. And clients do not
# return together if the squared coefficient of variation of their time away is above this.
_NEW_CLIENTS = 0.05
_IRREGULAR = 0.5


def has_independent_requests(api: Api, queue: RequestQueue, now: float) -> bool:
    """Return True if the requests of a queue hardly depend on the answers to others."""
    return _is_open(api.traffic.of((queue.group, queue.key), now), now)


def plan_loop(api: Api, ended: Batch[Any], queues: RequestQueues, slots: Slots, now: float) -> None:
    """Let the policy set ``complete_rows`` after a batch; a small batch counts only while it is set."""
    policy = api.policy
    if policy.plans and (len(ended.entries) >= _SEVERAL or policy.complete_rows < math.inf):
        policy.plan(_closed_loop(api, ended, queues, slots, now))


def _closed_loop(
    api: Api, ended: Batch[Any], queues: RequestQueues, slots: Slots, now: float
) -> ClosedLoop | None:
    """Return the closed loop that the policy may plan for after a batch, if there is one.

    Return None if

    * there is no plan yet, and the clients return so soon that workers are hardly idle;
    * these workers have bulk, or requests of another API, group or batch key;
    * most of the latest arrivals had other groups or batch keys;
    * many rows come from new clients, or answered clients do not return together;
    * lengths decide which requests share a batch;
    * there are more than eight workers, or none.
    """
    model, shared, share = api.model, (ended.api, ended.group, ended.key), slots.shares.of[ended.api]
    traffic = api.traffic.of((ended.group, ended.key), now)
    # Most traffic ends here. At most twice the last group may be away together.
    most_away_s = 2 * traffic.returns.group_times.latest_s
    most_idle_s = most_away_s + model.transport_s + model.prepare_s(ended.rows)
    if api.policy.complete_rows == math.inf and most_idle_s < model.estimate.intercept_s:
        return None
    separates = model.measures.separates and api.has_lengths
    if not (0 < share.workers <= _MOST_WORKERS and traffic.mean_rows) or separates:
        return None
    rows = api.backlog.rows
    for running in slots:
        if running.api not in share.apis:
            continue
        if running.bulk_rows or (running.api, running.group, running.key) != shared:
            return None
        rows += running.rows
    for order in queues.orders:  # clients can choose keys: the oldest queues are enough to know
        others = order.front if order.api in share.apis else ()
        if any(queue.bulk or (queue.api, queue.group, queue.key) != shared for queue in others):
            return None
    if _is_open(traffic, now):
        return None
    return ClosedLoop(
        rows + traffic.returns.away_rows(now=now),
        traffic.mean_rows,
        share.workers,
        model.estimate,
        model.alone,
        model.transport_s,
        slots.takes_ahead and api.rules.idempotent,
        traffic.returns,
    )


def _is_open(traffic: Traffic, now: float) -> bool:
    """Return True if many rows come from new clients, or answered clients do not return together."""
    is_new = traffic.new_clients.per_second(now=now) > _NEW_CLIENTS * traffic.load_rate(now)
    return is_new or traffic.returns.delays.squared_variation() > _IRREGULAR
