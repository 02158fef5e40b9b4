"""What the gateway counts and measures, for Prometheus. Names are those of DESIGN 4.4."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from uncork_dispatcher import ApiStats, BatchFacts, ShedReason, Start

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0),
)
_SIZES = tuple(2**power for power in range(13))


class Metrics:
    """All metrics of one gateway, in a registry of their own. It is the dispatcher's observer."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: Sequence[float]) -> Histogram:
            return Histogram(name, text, ("api",), buckets=buckets, registry=registry)

        self._requests = counter("uncork_requests_total", "Requests answered.", "api", "status")
        self._releases = counter("uncork_releases_total", "Batches released.", "api", "reason")
        self._sheds = counter("uncork_shed_total", "Requests refused.", "api", "reason")
        self._duration = histogram("uncork_request_duration_seconds", "From request to reply.", _SECONDS)
        self._queue_wait = histogram("uncork_queue_wait_seconds", "Time that a request was held.", _SECONDS)
        self._batch_rows = histogram("uncork_batch_rows", "Rows in a batch.", _SIZES)
        self._batch_requests = histogram("uncork_batch_requests", "Requests in a batch.", _SIZES)
        self._batch_duration = histogram(
            "uncork_batch_duration_seconds", "From release to the worker's reply.", _SECONDS
        )

        # Looking a child up by its labels costs more than counting.
        self._answered: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def request_answered(self, api: str, status: int, seconds: float) -> None:
        """A client got its reply ``seconds`` after its request came; 499 if it had left."""
        counted = self._answered.get((api, status))
        if counted is None:
            counted = self._requests.labels(api, status), self._duration.labels(api)
            self._answered[api, status] = counted
        counted[0].inc()
        counted[1].observe(seconds)

    def render(self) -> bytes:
        """The exposition, as Prometheus scrapes it."""
        return generate_latest(self.registry)

    # The dispatcher's observer

    def batch_started(self, start: Start, rows: int, held_s: Sequence[float]) -> None:
        """Count a release."""
        self._releases.labels(start.api, start.reason).inc()
        self._batch_rows.labels(start.api).observe(rows)
        self._batch_requests.labels(start.api).observe(len(start.requests))
        observe = self._queue_wait.labels(start.api).observe
        for seconds in held_s:
            observe(seconds)

    def batch_ended(self, batch: BatchFacts, outcome: str) -> None:
        """Measure a batch."""
        self._batch_duration.labels(batch.start.api).observe(batch.seconds)

    def request_shed(self, api: str, reason: ShedReason) -> None:
        """Count a refusal."""
        self._sheds.labels(api, reason).inc()


class LiveState(Collector):
    """Gauges that are read when somebody asks: queues, estimates, workers."""

    def __init__(
        self,
        *,
        apis: Callable[[], list[ApiStats]],
        workers: Callable[[], Iterable[str]],
        restarts: Callable[[], int],
    ) -> None:
        self._apis = apis
        self._workers = workers
        self._restarts = restarts

    def collect(self) -> Iterable[Metric]:
        """Read everything once."""
        yield from self._collect_apis()
        workers = GaugeMetricFamily("uncork_workers", "Workers by state.", labels=["state"])
        for state, count in {
            **dict.fromkeys(("starting", "idle", "busy"), 0),
            **Tally(self._workers()),
        }.items():
            workers.add_metric([state], count)
        yield workers
        restarts = CounterMetricFamily("uncork_worker_restarts", "Workers started again.")
        restarts.add_metric([], self._restarts())
        yield restarts

    def _collect_apis(self) -> Iterable[Metric]:
        readings: dict[str, tuple[str, Callable[[ApiStats], float]]] = {
            "uncork_queue_rows": (
                "Rows held; their cost, if the api gives one.",
                lambda api: api.queued_rows,
            ),
            "uncork_queue_bytes": ("Bytes of bodies held.", lambda api: api.queued_bytes),
            "uncork_estimate_intercept_seconds": (
                "Estimated fixed time of a batch.",
                lambda api: api.estimate.intercept_s,
            ),
            "uncork_estimate_slope_seconds": (
                "Estimated time per row; per unit of cost, if the api gives one.",
                lambda api: api.estimate.slope_s,
            ),
            "uncork_estimate_error_ratio": (
                "Relative standard deviation of batch time around the estimate.",
                lambda api: api.estimate.spread,
            ),
            "uncork_arrival_rate_rows": (
                "Arrivals in rows per second; in cost per second, if the api gives one.",
                lambda api: api.rate_rows,
            ),
        }
        apis = self._apis()
        for name, (text, read) in readings.items():
            gauge = GaugeMetricFamily(name, text, labels=["api"])
            for api in apis:
                gauge.add_metric([api.name], read(api))
            yield gauge
