"""Metrics for OpenTelemetry's collector: what is sent, when, and what prevents it."""

import threading
from collections.abc import Iterator, Mapping
from importlib import metadata

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from tests.gateway.running import turns
from tests.uncork.server.test_tracing import Collector
from uncork.server.otlp_metrics import sending_metrics


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        # The exporter reads the environment of the process itself.
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{made.server_port}")
        yield made
        made.shutdown()
        thread.join()


def environment_of(collector: Collector, **more: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}", **more}


def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    requests = Counter("requests", "Responses.", ["status"], registry=made)
    requests.labels("200").inc(3)
    requests.labels("503").inc()
    Gauge("workers", "Workers.", registry=made).set(2)
    seconds = Histogram("seconds", "Times.", ["api"], buckets=(1, 2), registry=made)
    for value in (0.5, 1.5, 1.75, 9):
        seconds.labels("predict").observe(value)
    Info("build", "Version.", registry=made).info({"version": "1"})
    return made


async def test_all_kinds_are_sent_at_the_end(collector: Collector) -> None:
    async with sending_metrics(registry(), environment_of(collector, OTEL_SERVICE_NAME="mine")):
        pass

    [(path, body)] = collector.bodies
    assert path == "/v1/metrics"
    [of_resource] = ExportMetricsServiceRequest.FromString(body).resource_metrics
    assert "mine" in str(of_resource.resource)
    found = {metric.name: metric for metric in of_resource.scope_metrics[0].metrics}
    assert set(found) == {"requests", "workers", "seconds", "build_info"}
    sums = found["requests"].sum
    assert sums.is_monotonic
    assert sums.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    values = {point.attributes[0].value.string_value: point.as_double for point in sums.data_points}
    assert values == {"200": 3, "503": 1}
    assert [point.as_double for point in found["workers"].gauge.data_points] == [2]
    [point] = found["seconds"].histogram.data_points
    assert (list(point.explicit_bounds), list(point.bucket_counts)) == ([1, 2], [1, 2, 1])
    assert (point.count, point.sum) == (4, 12.75)
    assert not point.HasField("min")
    assert point.attributes[0].value.string_value == "predict"


async def test_they_are_sent_at_intervals(collector: Collector) -> None:
    environment = environment_of(collector, OTEL_METRIC_EXPORT_INTERVAL="1")
    async with sending_metrics(registry(), environment):
        while len(collector.bodies) < 3:
            await turns()


async def test_they_are_sent_while_the_package_is_upgraded(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version cannot be looked up then."""
    found = metadata.distribution

    def without_uncork(name: str) -> metadata.Distribution:
        return found("no such package" if name == "uncork" else name)

    async with sending_metrics(registry(), environment_of(collector)):
        monkeypatch.setattr(metadata, "distribution", without_uncork)

    assert len(collector.bodies) == 1


async def test_a_collector_that_hangs_is_not_asked_again_at_the_end(collector: Collector) -> None:
    collector.gate.clear()
    async with sending_metrics(registry(), environment_of(collector, OTEL_METRIC_EXPORT_INTERVAL="1")):
        while not collector.bodies:
            await turns()
        # Otherwise, the end would wait for the collector.
        collector.gate.set()

    assert len(collector.bodies) == 1


@pytest.mark.parametrize(
    "more", [{"OTEL_METRICS_EXPORTER": "none"}, {"OTEL_SDK_DISABLED": "true"}], ids=["none", "disabled"]
)
async def test_nothing_is_sent_where_that_is_said(collector: Collector, more: dict[str, str]) -> None:
    async with sending_metrics(registry(), environment_of(collector, **more)):
        pass
    assert collector.bodies == []


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"OTEL_METRICS_EXPORTER": "statsd"}, "OTEL_METRICS_EXPORTER must be otlp or none, got 'statsd'"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "must be http/protobuf, got 'grpc'"),
        ({"OTEL_METRIC_EXPORT_INTERVAL": "soon"}, "must be a number of milliseconds above 0, got 'soon'"),
        ({"OTEL_METRIC_EXPORT_INTERVAL": "0"}, "must be a number of milliseconds above 0, got '0'"),
    ],
    ids=["exporter", "protocol", "interval", "zero"],
)
async def test_what_cannot_be_is_a_line_of_the_log(
    collector: Collector, more: Mapping[str, str], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with sending_metrics(registry(), environment_of(collector, **more)):
        pass
    assert collector.bodies == []
    assert says in caplog.text


async def test_a_collector_that_is_gone_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Collector() as gone:
        environment = environment_of(gone)
    for name, value in (*environment.items(), ("OTEL_EXPORTER_OTLP_TIMEOUT", "1")):
        monkeypatch.setenv(name, value)
    async with sending_metrics(registry(), environment):
        pass
