"""What the gateway counts and measures, for Prometheus. Names are those of DESIGN 4.4."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from uncork_dispatcher import ApiStats, BatchFacts, BatchStatus, ShedReason, Start
from uncork_gateway.telemetry.inference_tally import InferenceTally
from uncork_gateway.version import VERSION

FloatArray = npt.NDArray[np.float64]
CountArray = npt.NDArray[np.int64]

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = np.array(
    [
        *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
        *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0),
    ]
)
_SIZES = np.array([2.0**power for power in range(13)])
_MEASURED = ("worked", "failed")
_FIRST_SERVER_ERROR = 500
# Values that are counted together: enough for numpy to pay, few enough to take no time.
_MANY = 500


class Distribution:
    """Counts values by bucket. One event loop writes it: it needs no lock, as the library's own has.

    Values are put down first and counted many at a time, which costs a third as much as one by one.
    """

    __slots__ = ("_bounds", "_counts", "_new", "_sum")

    def __init__(self, bounds: FloatArray) -> None:
        self._bounds = bounds
        self._counts = np.zeros(len(bounds) + 1, np.int64)
        self._sum = 0.0
        self._new: list[float] = []

    def observe(self, value: float) -> None:
        """Count one value."""
        new = self._new
        new.append(value)
        if len(new) >= _MANY:
            self._count()

    def observe_all(self, values: Iterable[float]) -> None:
        """Count some values."""
        new = self._new
        new.extend(values)
        if len(new) >= _MANY:
            self._count()

    def _count(self) -> None:
        values = np.array(self._new)
        self._new.clear()
        self._counts += np.bincount(self._bounds.searchsorted(values), minlength=len(self._counts))
        self._sum += float(values.sum())

    def copy(self) -> Distribution:
        """One that does not change when this one counts on."""
        copied = Distribution(self._bounds)
        copied._sum, copied._counts = self.sum, self.counts.copy()
        return copied

    def since(self, earlier: Distribution) -> Distribution:
        """What was counted since ``earlier``, a copy of it."""
        later = Distribution(self._bounds)
        later._sum, later._counts = self.sum - earlier.sum, self.counts - earlier.counts
        return later

    @property
    def counts(self) -> CountArray:
        """Values by bucket: up to and with each bound, and beyond the last."""
        if self._new:
            self._count()
        return self._counts

    @property
    def count(self) -> int:
        """How many values there are."""
        return int(self.counts.sum())

    @property
    def sum(self) -> float:
        """Of all values."""
        if self._new:
            self._count()
        return self._sum

    @property
    def mean(self) -> float:
        """0 if there is no value."""
        return self.sum / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """The value that ``share`` of all do not exceed; 0 if there is none.

        Within a bucket values are taken to lie evenly, as Prometheus does. Those beyond the last bound count
        as that bound.
        """
        bounds, counts = self._bounds.tolist(), self.counts.tolist()
        wanted, below = share * sum(counts), 0
        for place, count in enumerate(counts[:-1]):
            if count and below + count >= wanted:
                low = bounds[place - 1] if place else 0.0
                return float(low + (bounds[place] - low) * max(0.0, wanted - below) / count)
            below += count
        return float(bounds[-1]) if below + counts[-1] else 0.0

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Add it to what is exposed."""
        cumulated = self.counts.cumsum().tolist()
        bounds = (*map(floatToGoString, self._bounds.tolist()), "+Inf")
        family.add_metric(labels, list(zip(bounds, cumulated, strict=True)), self._sum)


def _nothing() -> None:
    pass


class ApiTally:
    """The counts of one api.

    Args:
        before_answer: called before an answer is counted.
    """

    def __init__(self, before_answer: Callable[[], object] = _nothing) -> None:
        self._before_answer = before_answer
        self.statuses: Counter[int] = Counter()
        self.errors: Counter[int] = Counter()
        self.releases: Counter[str] = Counter()
        self.endings: Counter[str] = Counter()
        self.sheds: Counter[str] = Counter()
        self.duration = Distribution(_SECONDS)
        self.queue_wait = Distribution(_SECONDS)
        self.batch_rows = Distribution(_SIZES)
        self.batch_requests = Distribution(_SIZES)
        self.batch_duration = Distribution(_SECONDS)
        self.inference = InferenceTally()

    def copy(self) -> ApiTally:
        """One that does not change when this one counts on."""
        copied = ApiTally()
        for name in vars(copied).keys() - {"_before_answer"}:
            setattr(copied, name, getattr(self, name).copy())
        return copied

    def answered(self, status: int, seconds: float, rows: int = 0, *, is_refusal: bool = False) -> None:
        """Count the reply to a request, ``seconds`` after it came; 499 if its client had left.

        ``rows`` are those of the request, 0 if its body was not read. A 5xx is an error unless it
        ``is_refusal``: the gateway declined to execute the request.
        """
        self._before_answer()
        self.statuses[status] += 1
        if status >= _FIRST_SERVER_ERROR and not is_refusal:
            self.errors[status] += 1
        self.duration.observe(seconds)
        self.inference.answered(status, seconds, rows)


class Metrics(Collector):
    """All that one gateway counts, in a registry of its own. It is the dispatcher's observer.

    ``wall_clock`` gives seconds since the epoch.
    """

    def __init__(self, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._apis: dict[str, ApiTally] = {}
        self._before_answer: Callable[[str], object] = lambda api: None
        self.registry = CollectorRegistry()
        self.registry.register(self)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)

    def watch_answers(self, before: Callable[[str], object]) -> None:
        """Have ``before`` called with the name of an api before an answer of that api is counted.

        This holds for apis that are counted from now on.
        """
        self._before_answer = before

    def api(self, name: str) -> ApiTally:
        """The counts of an api; they stay when the api is changed."""
        tally = self._apis.get(name)
        if tally is None:
            tally = self._apis[name] = ApiTally(partial(self._before_answer, name))
        return tally

    def forget(self, name: str) -> None:
        """Drop the counts of an API; it is no longer exposed."""
        self._apis.pop(name, None)

    def render(self) -> bytes:
        """The exposition, as Prometheus scrapes it."""
        return generate_latest(self.registry)

    # The dispatcher's observer

    def batch_started(self, start: Start, rows: int, queued_s: Sequence[float]) -> None:
        """Count a release."""
        tally = self.api(start.api)
        tally.releases[start.reason] += 1
        tally.batch_rows.observe(rows)
        tally.batch_requests.observe(len(start.requests))
        tally.queue_wait.observe_all(queued_s)
        tally.inference.last_release = self._wall_clock()

    def batch_ended(self, batch: BatchFacts, ending: BatchStatus) -> None:
        """Count how it ended, and measure it if it came back."""
        tally = self.api(batch.start.api)
        tally.endings[ending] += 1
        if ending in _MEASURED:
            tally.batch_duration.observe(batch.seconds)
        if ending == "worked":
            tally.inference.worked(batch)

    def request_shed(self, api: str, reason: ShedReason) -> None:
        """Count a refusal."""
        self.api(api).sheds[reason] += 1

    # The registry's collector

    def collect(self) -> Iterable[Metric]:
        """Everything that was counted."""
        yield InfoMetricFamily("uncork_build", "What runs here.", {"version": VERSION})
        for name, text, label, counts in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=["api", label])
            for api, tally in self._apis.items():
                for value, count in counts(tally).items():
                    counter.add_metric([api, str(value)], count)
            yield counter
        for name, text, distribution in _DISTRIBUTIONS:
            histogram = HistogramMetricFamily(name, text, labels=["api"])
            for api, tally in self._apis.items():
                distribution(tally).add_to(histogram, [api])
            yield histogram


_COUNTERS: tuple[tuple[str, str, str, Callable[[ApiTally], Counter[Any]]], ...] = (
    ("uncork_requests", "Requests answered.", "status", lambda api: api.statuses),
    ("uncork_errors", "5xx answers, without refusals.", "status", lambda api: api.errors),
    ("uncork_releases", "Batches released.", "reason", lambda api: api.releases),
    ("uncork_batches", "Batches that ended.", "outcome", lambda api: api.endings),
    ("uncork_shed", "Requests refused.", "reason", lambda api: api.sheds),
)
_DISTRIBUTIONS: tuple[tuple[str, str, Callable[[ApiTally], Distribution]], ...] = (
    ("uncork_request_duration_seconds", "From request to reply.", lambda api: api.duration),
    ("uncork_queue_wait_seconds", "Time that a request was held.", lambda api: api.queue_wait),
    ("uncork_batch_rows", "Rows in a batch.", lambda api: api.batch_rows),
    ("uncork_batch_requests", "Requests in a batch.", lambda api: api.batch_requests),
    (
        "uncork_batch_duration_seconds",
        "From release to the worker's reply.",
        lambda api: api.batch_duration,
    ),
)


class LiveState(Collector):
    """Gauges that are read when somebody asks: queues, estimates, workers.

    Args:
        apis: gives those in force.
        workers: gives a state for each.
        restarts: how many workers have been started again.
        has_goal: whether the apis have a latency goal.
    """

    def __init__(
        self,
        *,
        apis: Callable[[], list[ApiStats]],
        workers: Callable[[], Iterable[str]],
        restarts: Callable[[], int],
        has_goal: bool = True,
    ) -> None:
        self._apis = apis
        self._workers = workers
        self._restarts = restarts
        self._readings = {name: reading for name, reading in _READINGS.items() if has_goal or name != _GOAL}

    def collect(self) -> Iterable[Metric]:
        """Read everything once."""
        yield from self._collect_apis()
        workers = GaugeMetricFamily("uncork_workers", "Workers by state.", labels=["state"])
        for state, count in {
            **dict.fromkeys(("starting", "idle", "busy"), 0),
            **Counter(self._workers()),
        }.items():
            workers.add_metric([state], count)
        yield workers
        restarts = CounterMetricFamily("uncork_worker_restarts", "Workers started again.")
        restarts.add_metric([], self._restarts())
        yield restarts

    def _collect_apis(self) -> Iterable[Metric]:
        apis = self._apis()
        for name, (text, read) in self._readings.items():
            gauge = GaugeMetricFamily(name, text, labels=["api"])
            for api in apis:
                gauge.add_metric([api.name], read(api))
            yield gauge


_GOAL = "uncork_goal_seconds"
_READINGS: dict[str, tuple[str, Callable[[ApiStats], float]]] = {
    _GOAL: ("Within which requests should be answered.", lambda api: api.rules.goal_s),
    "uncork_max_batch_rows": (
        "Most rows in a batch; their cost, if the api gives one.",
        lambda api: api.rules.max_batch_rows,
    ),
    "uncork_queue_rows": ("Rows held; their cost, if the api gives one.", lambda api: api.queued_rows),
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
