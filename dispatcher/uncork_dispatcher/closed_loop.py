"""What a policy sees of the clients that wait for their answers."""

from __future__ import annotations

from uncork_dispatcher.api import Api
from uncork_dispatcher.policies.base import ClosedLoop
from uncork_dispatcher.requests.queues import RequestQueues
from uncork_dispatcher.requests.slots import Slots

# With more, summing up what all of them run would cost more than clients that take turns gain.
_MOST_WORKERS = 8


def closed_loop(api: Api, queues: RequestQueues, slots: Slots, now: float) -> ClosedLoop | None:
    """Return what a policy sees when a batch of its API has ended.

    None if its clients return so soon that workers are hardly idle, if requests of other APIs use the workers
    too, if lengths decide which requests share a batch, and for more than eight workers.
    """
    model, returns = api.model, api.traffic.returns
    # At most twice the last group may be away together. This comes first because most traffic ends here.
    if 2 * returns.group_times.latest_s + model.transport_s < model.estimate.intercept_s:
        return None
    name, workers = api.rules.name, slots.workers
    if not 0 < workers <= _MOST_WORKERS or model.measures.separates:
        return None
    rows = api.backlog.rows
    for running in slots:
        if running.start.api != name:
            return None
        rows += running.start.rows
    for queue in queues:
        if queue.api != name:
            return None
    forecast = returns.forecast(now=now)
    return ClosedLoop(
        rows + forecast.away_rows(),
        workers,
        model.estimate,
        model.transport_s,
        slots.takes_ahead and api.rules.idempotent,
        api.traffic.new_clients.per_second(now=now),
        api.traffic.load_rate(now),
        forecast,
    )
