"""The metrics that handlers record with ``context().count`` and ``context().observe``."""

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from uncork_gateway.telemetry.distribution import Distribution
from uncork_workers.wire.messages import Reply

log = logging.getLogger("uncork.gateway")

_MOST_NAMES = 20
_MOST_SERIES = 100
_BOUNDS = np.array([2.0**power for power in range(-10, 21)])

Series = tuple[str, tuple[tuple[str, str], ...]]
"""An API and the labels of a count."""


class HandlerMetrics(Collector):
    """Adds up what the handlers of a service record, and bounds the number of series of each API."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[Series, float]] = {}
        self._observed: dict[str, dict[str, Distribution]] = {}
        self._dropped: Counter[str] = Counter()
        self._former: set[str] = set()
        """The names that other code has used: each may become of the other kind once."""

    def add(self, api: str, reply: Reply) -> None:
        dropped = reply.dropped_metrics
        for name, labels, amount in reply.counts:
            self._renew(name, self._observed)
            key = api, tuple(sorted(labels.items()))
            series = self._counts.get(name, {})
            if key in series or (name not in self._observed and self._has_room(api, name)):
                self._counts.setdefault(name, series)[key] = series.get(key, 0.0) + amount
            else:
                dropped += 1
        for name, values in reply.observed.items():
            self._renew(name, self._counts)
            distributions = self._observed.get(name, {})
            if api in distributions or (name not in self._counts and self._has_room(api, name)):
                self._observed.setdefault(name, distributions).setdefault(api, Distribution(_BOUNDS))
                distributions[api].observe_all(values)
            else:
                dropped += len(values)
        if dropped:
            if not self._dropped[api]:
                log.warning(
                    "metrics that the handler of API %s records are dropped: an API may have %d names and %d "
                    "combinations of labels, a batch 1,000 observed values; each name is counted or "
                    "observed",
                    *(api, _MOST_NAMES, _MOST_SERIES),
                )
            self._dropped[api] += dropped

    def code_changed(self) -> None:
        """Let the first use of each name decide anew whether it is counted or observed."""
        self._former = {*self._counts, *self._observed}

    def _renew(self, name: str, others: dict[str, Any]) -> None:
        """Drop what former code recorded under a name that is of the other kind now."""
        if name in self._former and others.pop(name, None) is not None:
            self._former.discard(name)

    def _has_room(self, api: str, name: str) -> bool:
        """Return True if an API may have one more series of this name."""
        own = [each for each, series in self._counts.items() for of, _ in series if of == api]
        own += [each for each, distributions in self._observed.items() if api in distributions]
        return len(own) < _MOST_SERIES and len({*own, name}) <= _MOST_NAMES

    def forget(self, api: str) -> None:
        """Drop the metrics of an API, which is no longer exposed."""
        for series in self._counts.values():
            for key in [key for key in series if key[0] == api]:
                del series[key]
        for distributions in self._observed.values():
            distributions.pop(api, None)
        self._counts = {name: series for name, series in self._counts.items() if series}
        self._observed = {name: of for name, of in self._observed.items() if of}
        self._dropped.pop(api, None)

    def collect(self) -> Iterable[Metric]:
        for name, series in self._counts.items():
            counter = Metric(f"app_{name}", "Counted by handlers.", "counter")
            for (api, labels), total in series.items():
                counter.add_sample(f"app_{name}_total", {"api": api, **dict(labels)}, total)
            yield counter
        for name, distributions in self._observed.items():
            histogram = HistogramMetricFamily(f"app_{name}", "Observed by handlers.", labels=["api"])
            for api, distribution in distributions.items():
                distribution.add_to(histogram, [api])
            yield histogram
        text = "Values that handlers recorded beyond the limits, or under a name of another kind."
        dropped = CounterMetricFamily("uncork_app_metrics_dropped", text, labels=["api"])
        for api, count in self._dropped.items():
            dropped.add_metric([api], count)
        yield dropped
