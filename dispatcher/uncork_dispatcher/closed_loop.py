"""The view of a closed loop of clients with which a policy plans."""

from __future__ import annotations

import math
from collections.abc import Hashable

from uncork_dispatcher.api import Api
from uncork_dispatcher.policies.base import ClosedLoop
from uncork_dispatcher.requests.queues import RequestQueues
from uncork_dispatcher.requests.slots import Slots

# The rows at workers are added up after every batch, so the number of workers must be small.
_MOST_WORKERS = 8
# New clients do not wait for answers: they may be no more than this share of the traffic. And clients do not
# return together if the squared coefficient of variation of their time away is above this.
_NEW_CLIENTS = 0.05
_IRREGULAR = 0.5


def closed_loop(
    api: Api, key: Hashable, queues: RequestQueues, slots: Slots, now: float
) -> ClosedLoop | None:
    """Return what the policy sees after a batch of an API with this batch key.

    None if

    * the clients return so soon that workers are hardly idle;
    * new clients, other APIs, or other batch keys have requests too;
    * answered clients do not return together;
    * lengths decide which requests share a batch;
    * there are more than eight workers, or none.
    """
    model, traffic = api.model, api.traffic
    # Most traffic ends here. At most twice the last group may be away together.
    takes_turns = api.policy.complete_rows < math.inf
    most_idle_s = 2 * traffic.returns.group_times.latest_s + model.transport_s
    if not takes_turns and most_idle_s < model.estimate.intercept_s:
        return None
    if not 0 < slots.workers <= _MOST_WORKERS or model.measures.separates:
        return None
    rows = api.backlog.rows
    for running in slots:
        if (running.start.api, running.start.key) != (api.rules.name, key):
            return None
        rows += running.start.rows
    for queue in queues:
        if (queue.api, queue.key) != (api.rules.name, key):
            return None
    returns = traffic.returns.forecast(now=now)
    if (
        traffic.new_clients.per_second(now=now) > _NEW_CLIENTS * traffic.load_rate(now)
        or returns.squared_variation() > _IRREGULAR
    ):
        return None
    return ClosedLoop(
        rows + returns.away_rows(),
        traffic.mean_rows,
        slots.workers,
        model.estimate,
        model.transport_s,
        slots.takes_ahead and api.rules.idempotent,
        returns,
    )
