"""The metrics of all batched functions of a process, for Prometheus."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from uncork.batched_functions.queues import BatchedStats, Queues, live, tallies
from uncork.batched_functions.tally import Histogram, Tally

_COUNTERS: tuple[tuple[str, str, str, Callable[[Tally], Counter[str]]], ...] = (
    ("uncork_releases", "Batches released, by reason.", "reason", lambda tally: tally.releases),
    ("uncork_batches", "Batches finished, by outcome.", "outcome", lambda tally: tally.endings),
    ("uncork_shed", "Calls shed, by reason.", "reason", lambda tally: tally.sheds),
)
_HISTOGRAMS: tuple[tuple[str, str, Callable[[Tally], Histogram]], ...] = (
    ("uncork_request_duration_seconds", "Time from call to result.", lambda tally: tally.duration),
    ("uncork_queue_wait_seconds", "Time that a call spent in the queue.", lambda tally: tally.queue_wait),
    ("uncork_batch_rows", "Items in a batch.", lambda tally: tally.sizes),
    ("uncork_batch_duration_seconds", "Time that a batch ran.", lambda tally: tally.batch_duration),
)
_GAUGES: tuple[tuple[str, str, Callable[[BatchedStats], float], Callable[[list[float]], float]], ...] = (
    ("uncork_queue_rows", "Items queued; their cost, if the function has one.", lambda one: one.queued, sum),
    (
        "uncork_estimate_intercept_seconds",
        "Estimated fixed time per batch.",
        lambda one: one.intercept_s,
        max,
    ),
    (
        "uncork_estimate_slope_seconds",
        "Estimated time per item, or per unit of cost.",
        lambda one: one.slope_s,
        max,
    ),
)


class BatchedCollector(Collector):
    """The metrics of all ``@batched`` functions of this process, for a registry of ``prometheus_client``.

    ::

        prometheus_client.REGISTRY.register(uncork.BatchedCollector())

    The label ``function`` is the module and the qualified name of a function. Instances of a class count
    together. Register it once in each registry.
    """

    def collect(self) -> Iterable[Metric]:
        """Return the metrics; any thread may call this."""
        counted = tallies()
        for name, text, label, counts in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=["function", label])
            for function, tally in counted.items():
                with tally.lock:
                    for value, count in counts(tally).items():
                        counter.add_metric([function, value], count)
            yield counter
        text = "Calls of functions that ran out of memory."
        failures = CounterMetricFamily("uncork_memory_failures", text, labels=["function"])
        for function, tally in counted.items():
            failures.add_metric([function], tally.memory_failures)
        yield failures
        for name, text, histogram in _HISTOGRAMS:
            family = HistogramMetricFamily(name, text, labels=["function"])
            for function, tally in counted.items():
                with tally.lock:
                    _add(family, function, histogram(tally))
            yield family
        yield from _gauges()


def _gauges() -> Iterable[Metric]:
    named: dict[str, list[Queues]] = {}
    for queues in live():
        named.setdefault(queues.definition.label, []).append(queues)
    goals = GaugeMetricFamily("uncork_goal_seconds", "Latency goal.", labels=["function"])
    text = "Most items in a batch; their cost, if the function has one."
    most = GaugeMetricFamily("uncork_max_batch_rows", text, labels=["function"])
    text = "Most items in a batch, or their cost, because more did not fit into memory."
    limits = GaugeMetricFamily("uncork_batch_limit", text, labels=["function"])
    stats = {label: [queues.stats() for queues in several] for label, several in named.items()}
    for label, several in named.items():
        rules, limit = several[0].definition.rules, min(one.limit for one in stats[label])
        goals.add_metric([label], rules.goal_s)
        most.add_metric([label], rules.max_batch_rows)
        if limit < rules.max_batch_rows:
            limits.add_metric([label], limit)
    yield from (goals, most, limits)
    for name, text, read, merge in _GAUGES:
        gauge = GaugeMetricFamily(name, text, labels=["function"])
        for label, all_stats in stats.items():
            gauge.add_metric([label], merge([read(one) for one in all_stats]))
        yield gauge


def _add(family: HistogramMetricFamily, function: str, histogram: Histogram) -> None:
    bounds = map(floatToGoString, (*histogram.bounds, math.inf))
    buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
    family.add_metric([function], buckets, histogram.sum)
