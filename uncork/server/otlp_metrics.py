"""Sends all metrics to OpenTelemetry's collector, as its environment variables say."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric, Sample

from uncork.config.errors import WrongUsage
from uncork.server.tracing import check_exporters, exporters_of, resource_of
from uncork_workers.wire.dialing import VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import export

log = logging.getLogger("uncork.gateway")

_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
_DEFAULT_INTERVAL_MS = 60_000.0
# Until then, the collector may ask for retries of what is sent at the end.
_LAST_S = 2.0


@asynccontextmanager
async def sending_metrics(registry: CollectorRegistry, environment: Mapping[str, str]) -> AsyncIterator[None]:
    """Send the metrics of a registry at intervals until the block ends, and then once more.

    The last time is left out if the collector did not accept the metrics before. Does nothing unless the
    environment names an endpoint or an exporter; if sending is impossible, the log says why.
    """
    exporters = exporters_of("METRICS", environment)
    if not exporters:
        yield
        return
    try:
        check_exporters("METRICS", exporters, environment)
        interval_s = _interval_s(environment)
    except WrongUsage as error:
        log.warning("no metrics are sent, although the environment enables it: %s", error)
        yield
        return
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import MetricExportResult

    exporter, started_ns, is_reached = OTLPMetricExporter(), time.time_ns(), True

    async def send() -> None:
        nonlocal is_reached
        is_reached = False
        # The metrics belong to the event loop; only the network is left to a thread.
        data = as_otlp(registry.collect(), environment, started_ns=started_ns)
        try:
            result = await asyncio.to_thread(exporter.export, data)
        except OSError as error:  # of an exporter of an older version, where newer ones log it
            log.warning("metrics were not sent: %s", error)
        else:
            is_reached = result is MetricExportResult.SUCCESS

    async def send_forever() -> None:
        while True:
            await asyncio.sleep(interval_s)
            await send()

    sending = asyncio.create_task(send_forever())
    try:
        yield
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
        last = [asyncio.create_task(send())] if is_reached else []
        if last:
            await asyncio.wait(last, timeout=_LAST_S)
        exporter.shutdown()  # ends pauses before retries
        await asyncio.gather(*last)


def _interval_s(environment: Mapping[str, str]) -> float:
    text = environment.get(_INTERVAL) or str(_DEFAULT_INTERVAL_MS)
    try:
        interval_ms = float(text)
    except ValueError:
        interval_ms = 0.0
    if not 0 < interval_ms < float("inf"):
        raise WrongUsage(f"{_INTERVAL} must be a number of milliseconds above 0, got {text!r}")
    return interval_ms / 1000


def as_otlp(
    metrics: Iterable[Metric], environment: Mapping[str, str], *, started_ns: int
) -> export.MetricsData:
    """Return metrics in the form of OpenTelemetry's SDK.

    They have the names and labels of ``/metrics``, but counters no ``_total``.
    """
    from opentelemetry.sdk.metrics import export
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    times: dict[str, Any] = {"start_time_unix_nano": started_ns, "time_unix_nano": time.time_ns()}
    converted = [one for metric in metrics for one in _converted(metric, times)]
    scope = export.ScopeMetrics(
        scope=InstrumentationScope("uncork", VERSION), metrics=converted, schema_url=""
    )
    of_resource = export.ResourceMetrics(
        resource=resource_of(environment), scope_metrics=[scope], schema_url=""
    )
    return export.MetricsData(resource_metrics=[of_resource])


def _converted(metric: Metric, times: Mapping[str, Any]) -> Iterator[export.Metric]:
    from opentelemetry.sdk.metrics import export

    def points(samples: Iterable[Sample]) -> list[export.NumberDataPoint]:
        return [
            export.NumberDataPoint(attributes=sample.labels, value=sample.value, **times)
            for sample in samples
        ]

    def made(name: str, data: Any) -> export.Metric:
        return export.Metric(name=name, description=metric.documentation, unit="", data=data)

    cumulative = export.AggregationTemporality.CUMULATIVE
    if metric.type == "histogram":
        yield made(metric.name, export.Histogram(list(_histograms(metric.samples, times)), cumulative))
        return
    if metric.type == "counter":
        totals = [sample for sample in metric.samples if sample.name.endswith("_total")]
        yield made(metric.name, export.Sum(points(totals), cumulative, is_monotonic=True))
        return
    by_name: dict[str, list[Sample]] = defaultdict(list)
    for sample in metric.samples:
        by_name[sample.name].append(sample)
    for name, samples in by_name.items():
        yield made(name, export.Gauge(points(samples)))


def _histograms(samples: Iterable[Sample], times: Mapping[str, Any]) -> Iterator[export.HistogramDataPoint]:
    from opentelemetry.sdk.metrics import export

    buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = defaultdict(list)
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        key = tuple(labels.items())
        if sample.name.endswith("_bucket"):
            buckets[key].append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_sum"):
            sums[key] = sample.value
    for key, cumulated in buckets.items():
        counts = [0.0, *(count for _, count in cumulated)]
        yield export.HistogramDataPoint(
            attributes=dict(key),
            count=int(counts[-1]),
            sum=sums.get(key, 0.0),
            bucket_counts=[int(upper - lower) for lower, upper in pairwise(counts)],
            explicit_bounds=[bound for bound, _ in cumulated[:-1]],
            min=None,  # type: ignore[arg-type]  # /metrics does not have them, and OTLP does not need them
            max=None,  # type: ignore[arg-type]
            **times,
        )
