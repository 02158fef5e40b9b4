"""Writes all metrics of a process in Prometheus's text format."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from uncork_workers.wire.dialing import VERSION

log = logging.getLogger("uncork.gateway")

CONTENT_TYPE = CONTENT_TYPE_LATEST
_OPEN_METRICS = "application/openmetrics-text"
_END_OF_OPEN_METRICS = b"# EOF\n"
_as_open_metrics: Callable[[Collector], bytes] = openmetrics.generate_latest


Collect = Callable[[], Iterable[Metric]]
"""Returns metrics at this moment."""


class _Collected(Collector):
    """One metric, as what writes all metrics of a registry takes it."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return [self._metric]


class Exposition(Collector):
    """The metrics of this process, and those of each service in it.

    Args:
        services: returns the label ``service`` of each service, empty for none, and what returns its metrics,
            which lack the label. A proxy's servers count as one service.

    Attributes:
        registry: collects all of them.
    """

    def __init__(self, services: Callable[[], Iterable[tuple[str, Sequence[Collect]]]]) -> None:
        self._services = services
        self._unlike: set[tuple[str, str]] = set()
        self.registry = CollectorRegistry()
        self.registry.register(self)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)

    async def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics in the format that a header ``Accept`` asks for, and its media type.

        That is OpenMetrics, which alone has exemplars, or else Prometheus's text format. All values are of
        one moment. Writing a line takes about 10 µs, so the event loop runs after each metric.
        """
        as_open_metrics = _OPEN_METRICS in accept
        written = []
        for metric in self.registry.collect():
            one = _Collected(metric)
            written.append(_as_open_metrics(one) if as_open_metrics else generate_latest(one))
            await asyncio.sleep(0)
        if not as_open_metrics:
            return b"".join(written), CONTENT_TYPE
        parts = [part.removesuffix(_END_OF_OPEN_METRICS) for part in written]
        return b"".join([*parts, _END_OF_OPEN_METRICS]), openmetrics.CONTENT_TYPE_LATEST

    def collect(self) -> Iterable[Metric]:
        yield InfoMetricFamily("uncork_build", "Version of the gateway.", {"version": VERSION})
        # A name may be exposed once only, with the samples of all services.
        merged: dict[str, Metric] = {}
        for name, collectors in self._services():
            label = {"service": name} if name else {}
            for collect in collectors:
                for metric in collect():
                    whole = merged.setdefault(
                        metric.name, Metric(metric.name, metric.documentation, metric.type)
                    )
                    if whole.type == metric.type:
                        whole.samples += [
                            one._replace(labels={**label, **one.labels}) for one in metric.samples
                        ]
                    elif metric.samples and (name, metric.name) not in self._unlike:
                        self._unlike.add((name, metric.name))
                        log.warning(
                            "service %s: the metric %s that its handlers record is not exposed, because "
                            "another service records a %s of this name; rename one of them",
                            *(name, metric.name, whole.type),
                        )
        yield from merged.values()
