"""The gateway's metrics."""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.dispatcher.batches import batch_of, submitted
from tests.gateway.exposed import Measured, exposition_of
from tests.gateway.running import turns
from uncork_dispatcher import (
    ApiRules,
    AsyncDispatcher,
    BatchResult,
    BatchStatus,
    Estimate,
    RequestShed,
    TaskRunner,
)
from uncork_dispatcher.api import Api
from uncork_dispatcher.jobs import payloads_of
from uncork_dispatcher.learning.measures import Padding
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.workers.share import Share
from uncork_gateway.telemetry.distribution import Distribution
from uncork_gateway.telemetry.exposition import Collect
from uncork_gateway.telemetry.live_state import live_state
from uncork_gateway.telemetry.metrics import _COUNTS, SECONDS_BOUNDS, ApiTally, Metrics

API = {"api": "echo"}
PAGE = Path(__file__).parents[3] / "docs/reference/observability.md"
OF_OTHERS = {
    *("uncork_memory_failures_total", "uncork_batch_limit", "uncork_gpu_utilization_ratio"),
    *("uncork_gpu_memory_used_bytes", "uncork_gpu_memory_total_bytes", "uncork_gpu_worker_memory_bytes"),
    *("uncork_bulk_rows_total", "uncork_workers_wanted", "uncork_worker_connections_refused_total"),
    *("uncork_app_metrics_dropped_total", "uncork_shadow_answers_total", "uncork_shadow_duration_seconds"),
}


class Series(NamedTuple):
    """One line of the exposition."""

    name: str
    labels: frozenset[tuple[str, str]]


Reading = dict[Series, float]


def read(*collectors: Collect) -> Reading:
    """Return the metrics of a service as Prometheus parses them."""
    text = generate_latest(exposition_of(Measured(*collectors)).registry).decode()
    families = text_string_to_metric_families(text)
    return {
        Series(sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(reading: Reading, name: str, **labels: str) -> float | None:
    return reading.get(Series(name, frozenset(labels.items())))


@pytest.mark.parametrize(
    ("accept", "write", "last"),
    [
        ("text/plain", generate_latest, b""),
        ("application/openmetrics-text", openmetrics.generate_latest, b"# EOF\n"),
    ],
)
async def test_requests_are_served_while_metrics_are_written(
    accept: str, write: Callable[[Any], bytes], last: bytes
) -> None:
    """The text is the library's, with the counts of the moment at which it was asked for."""
    metrics = Metrics()
    metrics.api("echo").answered(200, 0.1)
    exposition = exposition_of(Measured(metrics.collect))

    def of_apis(text: bytes) -> list[bytes]:
        return [line for line in text.splitlines() if b"uncork_" in line]

    expected = of_apis(write(exposition.registry))

    writing = asyncio.ensure_future(exposition.render(accept))
    await turns()
    assert not writing.done()
    metrics.api("echo").answered(200, 0.1)
    text, _ = await writing

    assert of_apis(text) == expected
    assert text.endswith(last)
    assert text.count(b"# EOF") == bool(last)


async def traffic() -> Reading:
    """Produce one refusal, batches of 1 and 2 + 3 rows, one running batch, and 4 queued rows."""
    metrics = Metrics()
    gate = asyncio.Semaphore(2)

    async def echo(job: Batch[Any]) -> BatchResult[bytes]:
        await gate.acquire()
        rows = job.rows
        return BatchResult(payloads_of(job), chunks=[(rows, 0.010 + 0.001 * rows)])

    dispatcher = AsyncDispatcher(TaskRunner(echo), observers=(metrics,))
    dispatcher.set_api(ApiRules(name="echo", goal_s=50, max_batch_rows=5))
    dispatcher.set_api(ApiRules(name="quiet"))
    with pytest.raises(RequestShed):
        await dispatcher.call("echo", b"")
    dispatcher.worker_ready(1)
    await dispatcher.call("echo", b"1")
    await asyncio.gather(*(dispatcher.call("echo", b"", rows=rows) for rows in (2, 3)))
    running = asyncio.create_task(dispatcher.call("echo", b""))
    await turns()
    held = asyncio.create_task(dispatcher.call("echo", b"", rows=4, size_bytes=40))
    await turns()
    metrics.api("echo").answered(200, 0.004)
    metrics.api("echo").answered(200, 0.004)
    metrics.api("echo").answered(503, 3.0, refusal="no_worker")
    metrics.api("quiet").answered(200, 0.001)
    metrics.api("quiet").answered(503, 0.001)
    metrics.api("quiet").answered(422, 0.001)
    live = live_state(dispatcher.stats(), workers=["idle", "busy", "busy"], restarts=7, startup_s=12.5)
    reading = read(metrics.collect, lambda: live)
    running.cancel()
    held.cancel()
    return reading


@pytest.fixture(scope="module")
def reading() -> Reading:
    """Return the metrics during some traffic."""
    return asyncio.run(traffic())


def test_metrics_and_their_labels_are_documented(reading: Reading) -> None:
    """With the metrics of the process, and without the ones that other modules export."""
    table = re.findall(r"^\| (`uncork_.*?) \| [a-z]+ \| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    documented = {
        name: {*re.findall(r"`(\w+)`", labels)} - {"class"}
        for names, labels in table
        for name in re.findall(r"`(\w+)`", names)
    }
    found: dict[str, set[str]] = {}
    for series in reading:
        name = re.sub(r"_(count|sum|bucket)$", "", series.name)
        found.setdefault(name, set()).update({label for label, _ in series.labels} - {"le"})

    assert found.pop("process_cpu_seconds_total") == set()
    assert found.pop("python_gc_collections_total") == {"generation"}
    ours = {name: labels for name, labels in found.items() if name.startswith("uncork_")}
    assert ours == {name: labels for name, labels in documented.items() if name not in OF_OTHERS}


def test_requests_and_errors_are_counted_by_status(reading: Reading) -> None:
    """A 503 that is the gateway's refusal is no error."""

    def counts(name: str) -> dict[str, float]:
        labels = {series: dict(series.labels) for series in reading if series.name == name}
        return {of["api"] + of["status"]: reading[series] for series, of in labels.items()}

    assert counts("uncork_requests_total") == {
        "echo200": 2,
        "echo503": 1,
        "quiet200": 1,
        "quiet503": 1,
        "quiet422": 1,
    }
    assert counts("uncork_errors_total") == {"quiet503": 1}


@pytest.mark.parametrize(
    ("series", "labels", "expected"),
    [
        ("request_duration_seconds_count", {}, 3),
        ("request_duration_seconds_sum", {}, 3.008),
        *[
            ("request_duration_seconds_bucket", {"le": le}, n)
            for le, n in (("0.003", 0), ("0.005", 2), ("5.0", 3))
        ],
        # Released batches, by reason, rows and requests.
        ("releases_total", {"reason": "idle"}, 2),
        ("releases_total", {"reason": "full"}, 1),
        ("batch_rows_count", {}, 3),
        ("batch_rows_sum", {}, 1 + 5 + 1),
        ("batch_requests_sum", {}, 1 + 2 + 1),
        ("batch_rows_bucket", {"le": "4.0"}, 2),
        ("batch_rows_bucket", {"le": "8.0"}, 3),
        # Each request waits once, until it is released.
        ("queue_wait_seconds_count", {}, 4),
        ("batch_duration_seconds_count", {}, 2),
        ("batches_total", {"outcome": "worked"}, 2),
        ("shed_total", {"reason": "no_worker"}, 1),
        ("shed_total", {"reason": "deadline"}, None),
        ("queue_rows", {}, 4),
        ("queue_bytes", {}, 40),
        ("queue_rows", {"api": "quiet"}, 0),
        ("queue_bytes", {"api": "quiet"}, 0),
        ("estimate_intercept_seconds", {}, 0.010),
        ("estimate_slope_seconds", {}, 0.001),
        ("estimate_error_ratio", {}, Estimate().spread),
        *[(f"{n}", {"api": "quiet"}, 0) for n in ("estimate_intercept_seconds", "arrival_rate_rows")],
        # Charts compare latency and batch sizes with these.
        ("goal_seconds", {}, 50),
        ("max_batch_rows", {}, 5),
    ],
)
def test_an_api_is_measured(
    reading: Reading, series: str, labels: dict[str, str], expected: float | None
) -> None:
    assert value(reading, f"uncork_{series}", **{**API, **labels}) == (
        expected if expected is None else pytest.approx(expected)
    )


def test_batches_ahead_are_counted() -> None:
    metrics = Metrics()
    batch = batch_of(submitted(), api="echo")
    for batch.is_ahead in (False, True, True):
        metrics.batch_started(batch)

    assert value(read(metrics.collect), "uncork_batches_ahead_total", **API) == 2


def test_batches_that_nobody_answered_are_counted() -> None:
    """Lost and timed-out batches have no duration."""
    metrics = Metrics()
    outcomes: list[BatchStatus] = ["lost", "timed_out"]
    for outcome in outcomes:
        batch = batch_of(submitted(), api="echo")
        metrics.batch_started(batch)
        metrics.batch_ended(batch, outcome)
    reading = read(metrics.collect)

    assert [value(reading, "uncork_batches_total", **API, outcome=each) for each in outcomes] == [1, 1]
    assert value(reading, "uncork_batch_rows_count", **API) == 2
    assert value(reading, "uncork_batch_duration_seconds_count", **API) == 0


def test_the_share_of_padding_is_shown() -> None:
    """It is 0 for an API whose lengths have not differed."""
    [rows, texts] = [
        Api(ApiRules(name=name)).stats(0.0, Share(), fits=math.inf) for name in ("rows", "texts")
    ]
    texts = texts._replace(padding=Padding("longest", 0.25))
    reading = read(lambda: live_state([rows, texts], workers=[], restarts=0))

    assert value(reading, "uncork_batch_padding_ratio", api="texts") == 0.25
    assert value(reading, "uncork_batch_padding_ratio", api="rows") == 0


def test_workers_are_counted_by_state(reading: Reading) -> None:
    states = {
        dict(series.labels)["state"]: count
        for series, count in reading.items()
        if series.name == "uncork_workers"
    }
    assert states == {"starting": 0, "idle": 1, "busy": 2}
    assert value(reading, "uncork_worker_restarts_total") == 7


def test_who_has_no_goal_shows_none() -> None:
    """A proxy without a goal lacks only the goal's gauge."""
    stats = Api(ApiRules(name="echo")).stats(0.0, Share(), fits=math.inf)
    reading = read(Metrics().collect, lambda: live_state([stats], workers=[], restarts=0, has_goal=False))

    assert value(reading, "uncork_goal_seconds", **API) is None
    assert value(reading, "uncork_max_batch_rows", **API) == 1000


def test_the_time_of_a_start_is_absent_before_the_first(reading: Reading) -> None:
    before = read(lambda: live_state([], workers=[], restarts=0))

    assert value(reading, "uncork_worker_start_seconds") == 12.5
    assert value(before, "uncork_worker_start_seconds") is None


def test_the_version_is_told(reading: Reading) -> None:
    assert value(reading, "uncork_build_info", version=version("uncork")) == 1


def test_a_quantile_is_read_from_the_buckets() -> None:
    """Values are spread evenly within a bucket; above the last bound they count as the bound."""
    counted = Distribution(np.array([1.0, 2.0, 4.0]))
    assert (counted.quantile(0.5), counted.mean, counted.count) == (0, 0, 0)
    counted.observe_all([0.5, 1.5, 1.6, 3.0])

    assert [counted.quantile(share) for share in (0.25, 0.5, 0.75, 1.0)] == [1.0, 1.5, 2.0, 4.0]
    assert counted.mean == pytest.approx(1.65)
    counted.observe(100.0)
    assert counted.quantile(1.0) == 4.0


def test_buckets_tell_whether_a_goal_of_minutes_is_met() -> None:
    """A quantile that cannot exceed the goal would never raise the alert UncorkSlow."""
    counted = Distribution(SECONDS_BOUNDS)
    for duration in (90.0, 250.0, 1500.0):
        counted.observe(duration)
        assert counted.quantile(1.0) >= duration


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 4.0, 9.0]), max_size=40), st.integers(1, 30))
def test_values_are_counted_by_the_smallest_bound_that_they_do_not_exceed(
    values: list[float], times: int
) -> None:
    one_by_one, together = (Distribution(np.array([1.0, 2.0, 4.0])) for _ in range(2))
    for _ in range(times):
        together.observe_all(values)
        for value in values:
            one_by_one.observe(value)

    at_most = [sum(value <= bound for value in values) for bound in (1.0, 2.0, 4.0, math.inf)]
    for counted in (one_by_one, together):
        assert counted.counts.cumsum().tolist() == [times * count for count in at_most]
        assert counted.sum == pytest.approx(times * sum(values))


def test_what_was_counted_since_a_copy_is_the_difference() -> None:
    tally = Metrics().api("echo")
    tally.answered(200, 0.1)
    before = tally.copy()
    tally.answered(503, 0.2)

    later = tally.since(before)
    assert later.statuses == {503: 1}
    assert later.duration.count == 1
    assert later.duration.sum == pytest.approx(0.2)
    assert (before.duration.count, tally.duration.count) == (1, 2)


def test_a_difference_has_every_count() -> None:
    tally = ApiTally()
    counted = {
        name
        for name in dir(tally)
        if name[0] != "_" and isinstance(getattr(tally, name), Counter | Distribution | int | float)
    }

    assert set(_COUNTS) == counted - {"removed"}
