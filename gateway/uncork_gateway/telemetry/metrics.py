"""The gateway's counters and histograms, for Prometheus."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from mypy_extensions import mypyc_attr
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from uncork_dispatcher import Batch, BatchStatus, Reason
from uncork_dispatcher.actions import Shed
from uncork_gateway.errors import RefusalReason
from uncork_gateway.telemetry.distribution import Distribution

Transport = Literal["http", "grpc"]

SECONDS_BOUNDS = np.array(
    [
        *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
        *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0),
        *(120.0, 300.0, 600.0, 1800.0, 3600.0),
    ]
)
_SIZES = np.array([2.0**power for power in range(13)])
_MEASURED = ("worked", "failed")
FIRST_CLIENT_ERROR, FIRST_SERVER_ERROR = 400, 500
# Clients choose the rows of a request, and so the number of batch sizes.
_MOST_SIZES = 1000


class InferenceTally:
    """Counts that Triton's statistics need and ``/metrics`` lacks. Times are in seconds.

    Attributes:
        last_release: the time of the latest release, since the epoch; 0 before the first.
        rows, succeeded_s: the rows and total durations of requests without an error.
        failed_s: the total durations of all other requests.
        ran, run_s: the number of requests in batches that succeeded, and their total batch times.
        batches, batches_s: the number of batches that succeeded, and their execution times, by rows; for the
            first 1000 sizes only.
    """

    def __init__(self) -> None:
        self.last_release = 0.0
        self.rows = 0
        self.succeeded_s = 0.0
        self.failed_s = 0.0
        self.ran = 0
        self.run_s = 0.0
        self.batches: Counter[int] = Counter()
        self.batches_s: defaultdict[int, float] = defaultdict(float)

    def worked(self, batch: Batch[Any]) -> None:
        requests, rows = len(batch.requests), batch.count
        self.ran += requests
        self.run_s += requests * batch.seconds
        if rows in self.batches or len(self.batches) < _MOST_SIZES:
            self.batches[rows] += 1
            self.batches_s[rows] += batch.seconds


@mypyc_attr(allow_interpreted_subclasses=True)
class ApiTally:
    """The counts of one API. ``before_answer`` is called before a response is counted.

    Attributes:
        statuses: the responses by HTTP status; ``grpc_statuses``: those over gRPC.
        ahead: the number of batches released to a worker that still ran another.
        coalesced: the number of requests that got the response to an identical one.
        released_rows: the rows of all released batches, in units of cost if the API defines one.
        ran, ran_s: the number of requests in batches that ended, and their total batch times.
        worked_rows, worked_s: the rows (or cost) and times of the batches that succeeded.
        removed: True once the API is gone. Requests to it may still arrive on routes that existed before.
    """

    def __init__(self, before_answer: Callable[[], object] = lambda: None) -> None:
        self._before_answer = before_answer
        self.statuses: Counter[int] = Counter()
        self.grpc_statuses: Counter[int] = Counter()
        self.errors: Counter[int] = Counter()
        self.releases: Counter[Reason] = Counter()
        self.endings: Counter[str] = Counter()
        self.sheds: Counter[RefusalReason] = Counter()
        self.duration = Distribution(SECONDS_BOUNDS)
        self.queue_wait = Distribution(SECONDS_BOUNDS)
        self.batch_rows = Distribution(_SIZES)
        self.batch_requests = Distribution(_SIZES)
        self.batch_duration = Distribution(SECONDS_BOUNDS)
        self.ahead = 0
        self.coalesced = 0
        self.released_rows = 0.0
        self.ran = 0
        self.ran_s = 0.0
        self.worked_rows = 0.0
        self.worked_s = 0.0
        self.inference = InferenceTally()
        self.removed = False

    def remove(self) -> None:
        """Mark the API as gone: nothing watches its responses any more."""
        self.removed, self._before_answer = True, lambda: None

    def since(self, earlier: ApiTally) -> ApiTally:
        """Return the counts since ``earlier``, without ``inference``, whose tables may be long."""
        later = ApiTally()
        for name in _COUNTS:
            setattr(later, name, getattr(self, name) - getattr(earlier, name))
        return later

    def copy(self) -> ApiTally:
        return self.since(ApiTally())

    @property
    def statuses_by_protocol(self) -> dict[Transport, Counter[int]]:
        """The responses by status, for each protocol."""
        return {"http": self.statuses - self.grpc_statuses, "grpc": self.grpc_statuses}

    def answered(
        self,
        status: int,
        seconds: float,
        rows: int = 0,
        *,
        refusal: RefusalReason | None = None,
        protocol: Transport = "http",
    ) -> None:
        """Count the response to a request, ``seconds`` after its arrival; 499 if the client had disconnected.

        ``rows`` is 0 if the body was not read. ``refusal`` is why the gateway refused the request; any other
        5xx counts as an error.
        """
        self._before_answer()
        self.statuses[status] += 1
        if protocol == "grpc":
            self.grpc_statuses[status] += 1
        self.duration.observe(seconds)
        inference = self.inference
        if status < FIRST_CLIENT_ERROR:
            inference.succeeded_s += seconds
            inference.rows += rows
            return
        inference.failed_s += seconds
        if refusal is not None:
            self.sheds[refusal] += 1
        elif status >= FIRST_SERVER_ERROR:
            self.errors[status] += 1


class Metrics(Collector):
    """The counts of all APIs of a service. Observes the service's dispatcher.

    ``wall_clock`` returns seconds since the epoch.
    """

    def __init__(self, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._apis: dict[str, ApiTally] = {}
        self._classes: dict[str, tuple[str, str]] = {}
        """The names of the classes of APIs that have two."""
        self._bulk: dict[str, ApiTally] = {}
        """The counts of the second class of these APIs; ``_apis`` has those of the first."""
        self._bulk_rows: defaultdict[str, float] = defaultdict(float)
        self._before_answer: Callable[[str], object] = lambda api: None

    def watch_answers(self, before: Callable[[str], object]) -> None:
        """For APIs created from now on, call ``before`` with the API's name before counting a response."""
        self._before_answer = before

    def api(self, name: str) -> ApiTally:
        """Return the counts of an API, without requests of a second class; changes of the API keep them."""
        return self._tally(self._apis, name)

    def bulk(self, name: str) -> ApiTally:
        """Return the counts of the requests of an API's second class; changes of the API keep them."""
        return self._tally(self._bulk, name)

    def of_classes(self, name: str) -> Sequence[ApiTally]:
        """Return the counts of an API for each of its classes; one if it has none."""
        return (self.api(name), self.bulk(name)) if name in self._classes else (self.api(name),)

    def set_classes(self, api: str, names: tuple[str, str] | None) -> None:
        """Name the classes of an API; None if it has one."""
        if names is None:
            self._classes.pop(api, None)
        else:
            self._classes[api] = names

    def classes(self, api: str) -> tuple[str, str] | None:
        """Return the names of an API's classes; None if it has one."""
        return self._classes.get(api)

    def _tally(self, tallies: dict[str, ApiTally], name: str) -> ApiTally:
        tally = tallies.get(name)
        if tally is None:
            tally = tallies[name] = ApiTally(partial(self._before_answer, name))
        return tally

    def withdraw(self) -> None:
        """Mark all APIs as removed; their accepted requests still count."""
        for tally in [*self._apis.values(), *self._bulk.values()]:
            tally.removed = True

    def forget(self, name: str) -> None:
        """Drop the counts of an API, which is no longer exposed."""
        for tally in (self._apis.pop(name, None), self._bulk.pop(name, None)):
            if tally is not None:
                tally.remove()
        self._bulk_rows.pop(name, None)
        self.set_classes(name, None)

    # The dispatcher's observer

    def batch_started(self, batch: Batch[Any]) -> None:
        tally, released = self._apis.get(batch.api) or self.api(batch.api), batch.released
        tally.releases[batch.reason] += 1
        tally.ahead += batch.is_ahead
        tally.released_rows += batch.rows
        tally.batch_rows.observe(batch.count)
        tally.batch_requests.observe(len(batch.requests))
        if not batch.bulk_rows:
            tally.queue_wait.observe_all([released - request.arrival for request in batch.requests])
        else:
            self._bulk_rows[batch.api] += batch.bulk_rows
            for request in batch.requests:
                waited = self.bulk(batch.api) if request.bulk else tally
                waited.queue_wait.observe(released - request.arrival)
        tally.inference.last_release = self._wall_clock()

    def batch_ended(self, batch: Batch[Any], status: BatchStatus) -> None:
        seconds = batch.seconds
        tally = self._apis.get(batch.api) or self.api(batch.api)
        tally.endings[status] += 1
        tally.ran += len(batch.requests)
        tally.ran_s += len(batch.requests) * seconds
        if status in _MEASURED:
            tally.batch_duration.observe(seconds)
        if status == "worked":
            tally.worked_rows += batch.rows
            tally.worked_s += seconds
            tally.inference.worked(batch)

    def request_shed(self, shed: Shed) -> None:
        """Do nothing: the response is counted."""

    # The collector

    def collect(self) -> Iterable[Metric]:
        yield self._requests()
        yield self._rows_of_bulk()
        for name, text, total in _TOTALS:
            counter = CounterMetricFamily(name, text, labels=["api", "class"])
            for api, tally, of_class in self._tallies(name):
                counter.add_metric([api, *of_class], total(tally))
            yield counter
        for name, text, label, counts in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=["api", label, "class"])
            for api, tally, of_class in self._tallies(name):
                for value, count in counts(tally).items():
                    counter.add_metric([api, str(value), *of_class], count)
            yield counter
        for name, text, distribution in _DISTRIBUTIONS:
            histogram = HistogramMetricFamily(name, text, labels=["api", "class"])
            for api, tally, of_class in self._tallies(name):
                distribution(tally).add_to(histogram, [api, *of_class])
            yield histogram

    def _tallies(self, metric: str) -> Iterable[tuple[str, ApiTally, Sequence[str]]]:
        """Yield each API with its counts and the value of the label ``class``, if it has classes.

        A metric of batches has no classes.
        """
        for api, tally in self._apis.items():
            names = self._classes.get(api) if metric in _BY_CLASS else None
            yield api, tally, () if names is None else names[:1]
            if names is not None:
                yield api, self.bulk(api), names[1:]

    def _requests(self) -> Metric:
        text = "Requests finished, by status and protocol; 499 if the client disconnected."
        requests = CounterMetricFamily("uncork_requests", text, labels=["api", "protocol", "status", "class"])
        for api, tally, of_class in self._tallies("uncork_requests"):
            for protocol, statuses in tally.statuses_by_protocol.items():
                for status, count in statuses.items():
                    requests.add_metric([api, protocol, str(status), *of_class], count)
        return requests

    def _rows_of_bulk(self) -> Metric:
        text = "Rows of the second class in batches released; their cost, if the API defines one."
        rows = CounterMetricFamily("uncork_bulk_rows", text, labels=["api"])
        for api in self._classes:
            rows.add_metric([api], self._bulk_rows[api])
        return rows


_COUNTS = (
    *("statuses", "grpc_statuses", "errors", "releases", "endings", "sheds"),
    *("duration", "queue_wait", "batch_rows", "batch_requests", "batch_duration"),
    *("ahead", "coalesced", "released_rows", "ran", "ran_s", "worked_rows", "worked_s"),
)
_BY_CLASS = frozenset(
    {
        *("uncork_requests", "uncork_errors", "uncork_shed", "uncork_coalesced_requests"),
        *("uncork_request_duration_seconds", "uncork_queue_wait_seconds"),
    }
)
_TOTALS: tuple[tuple[str, str, Callable[[ApiTally], float]], ...] = (
    ("uncork_batches_ahead", "Batches released to a worker while it ran another one.", lambda api: api.ahead),
    (
        "uncork_coalesced_requests",
        "Requests that got the response to an identical one, instead of running.",
        lambda api: api.coalesced,
    ),
)
_COUNTERS: tuple[tuple[str, str, str, Callable[[ApiTally], Counter[Any]]], ...] = (
    ("uncork_errors", "5xx responses, without shed requests, by status.", "status", lambda api: api.errors),
    ("uncork_releases", "Batches released, by reason.", "reason", lambda api: api.releases),
    ("uncork_batches", "Batches finished, by outcome.", "outcome", lambda api: api.endings),
    ("uncork_shed", "Requests shed, by reason.", "reason", lambda api: api.sheds),
)
_DISTRIBUTIONS: tuple[tuple[str, str, Callable[[ApiTally], Distribution]], ...] = (
    ("uncork_request_duration_seconds", "Time from request to response.", lambda api: api.duration),
    ("uncork_queue_wait_seconds", "Time that a request spent in the queue.", lambda api: api.queue_wait),
    ("uncork_batch_rows", "Rows in a batch.", lambda api: api.batch_rows),
    ("uncork_batch_requests", "Requests in a batch.", lambda api: api.batch_requests),
    (
        "uncork_batch_duration_seconds",
        "Time from release to the worker's response.",
        lambda api: api.batch_duration,
    ),
)
