"""Gauges that are computed at each scrape: queues, estimates, workers."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from uncork_dispatcher import ApiRules, ApiStats, ClassStats

_GOAL = "uncork_goal_seconds"


def live_state(
    apis: Sequence[ApiStats],
    *,
    workers: Iterable[str],
    restarts: int,
    startup_s: float | None = None,
    classes: Callable[[str], tuple[str, str] | None] = lambda api: None,
    has_goal: bool = True,
) -> Iterator[Metric]:
    """Yield the gauges of APIs and workers.

    Args:
        workers: the state of each worker.
        startup_s: the seconds that launched workers usually take until ready; None before the first launch.
        classes: returns the names of an API's classes; None if it has one.
        has_goal: True if the APIs have a latency goal.
    """
    for name, (text, read) in _READINGS.items():
        if name == _GOAL and not has_goal:
            continue
        gauge = GaugeMetricFamily(name, text, labels=["api", "class"])
        for api in apis:
            names, of_bulk = classes(api.name), _OF_BULK.get(name)
            if names is None or of_bulk is None or api.bulk is None:
                gauge.add_metric([api.name], read(api))
            else:
                gauge.add_metric([api.name, names[0]], read(api))
                gauge.add_metric([api.name, names[1]], of_bulk(api.rules, api.bulk))
        yield gauge
    by_state = GaugeMetricFamily("uncork_workers", "Workers by state.", labels=["state"])
    states = {**dict.fromkeys(("starting", "idle", "busy"), 0), **Counter(workers)}
    for state, count in states.items():
        by_state.add_metric([state], count)
    yield by_state
    if startup_s is not None:
        text = "Usual time from the launch of a worker until it is ready."
        yield GaugeMetricFamily("uncork_worker_start_seconds", text, value=startup_s)
    counter = CounterMetricFamily("uncork_worker_restarts", "Worker restarts.")
    counter.add_metric([], restarts)
    yield counter


_OF_BULK: dict[str, Callable[[ApiRules, ClassStats], float]] = {
    _GOAL: lambda rules, bulk: math.inf if rules.bulk_goal_s is None else rules.bulk_goal_s,
    "uncork_queue_rows": lambda rules, bulk: bulk.queued_rows,
    "uncork_queue_bytes": lambda rules, bulk: bulk.queued_bytes,
}
_READINGS: dict[str, tuple[str, Callable[[ApiStats], float]]] = {
    _GOAL: ("Latency goal.", lambda api: api.rules.goal_s),
    "uncork_max_batch_rows": (
        "Most rows in a batch; their cost, if the API defines one.",
        lambda api: api.rules.max_batch_rows,
    ),
    "uncork_queue_rows": ("Rows queued; their cost, if the API defines one.", lambda api: api.queued_rows),
    "uncork_queue_bytes": ("Bytes of queued request bodies.", lambda api: api.queued_bytes),
    "uncork_estimate_intercept_seconds": (
        "Estimated fixed time per batch.",
        lambda api: api.estimate.intercept_s,
    ),
    "uncork_estimate_slope_seconds": (
        "Estimated time per row; per unit of cost, if the API defines one.",
        lambda api: api.estimate.slope_s,
    ),
    "uncork_estimate_error_ratio": (
        "Relative standard deviation of batch time around the estimate.",
        lambda api: api.estimate.spread,
    ),
    "uncork_batch_padding_ratio": (
        "Share of the work of about the last 20 batches that was padding; 0 if none is known.",
        lambda api: api.padding.share if api.padding else 0.0,
    ),
    "uncork_arrival_rate_rows": (
        "Rows arriving per second; cost per second, if the API defines one.",
        lambda api: api.rate_rows,
    ),
}
