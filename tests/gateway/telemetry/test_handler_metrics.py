"""The metrics that handlers record, as the gateway adds them up."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.gateway.exposed import Measured, exposition_of, registry_of
from uncork_gateway.telemetry.handler_metrics import HandlerMetrics
from uncork_workers.wire.messages import Reply


def reply(**fields: Any) -> Reply:
    return Reply(batch=1, worked=True, seconds=0.1, statuses=[], lengths=[], chunks=[], **fields)


def total(registry: CollectorRegistry, **labels: str) -> float | None:
    return registry.get_sample_value("app_tokens_total", {"api": "echo", **labels})


def dropped(registry: CollectorRegistry, api: str = "echo") -> float | None:
    return registry.get_sample_value("uncork_app_metrics_dropped_total", {"api": api})


def test_counts_add_up_by_api_and_labels() -> None:
    metrics = HandlerMetrics()
    metrics.add("echo", reply(counts=[("tokens", {}, 1), ("tokens", {"kind": "input", "a": "b"}, 2)]))
    metrics.add("echo", reply(counts=[("tokens", {"a": "b", "kind": "input"}, 0.5)]))
    metrics.add("other", reply(counts=[("tokens", {}, 7)]))
    registry = registry_of(metrics)

    assert (total(registry), total(registry, kind="input", a="b")) == (1, 2.5)
    assert registry.get_sample_value("app_tokens_total", {"api": "other"}) == 7
    assert dropped(registry) is None


def test_observed_values_are_a_histogram() -> None:
    metrics = HandlerMetrics()
    for values in ([0.0, 0.5], [3.0, 2.0**30]):
        metrics.add("echo", reply(observed={"faces": values}))
    registry = registry_of(metrics)

    def value(suffix: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"app_faces_{suffix}", {"api": "echo", **labels})

    assert [value("bucket", le=le) for le in ("0.0009765625", "0.5", "2.0", "4.0", "+Inf")] == [1, 2, 2, 3, 4]
    assert (value("count"), value("sum")) == (4, 3.5 + 2.0**30)


def test_an_api_has_few_series(caplog: pytest.LogCaptureFixture) -> None:
    """However many values a label has; the log says it once."""
    metrics = HandlerMetrics()
    for number in range(10_000):
        metrics.add("echo", reply(counts=[("tokens", {"user": str(number)}, 1)]))
    metrics.add("other", reply(counts=[("tokens", {}, 1)]))
    registry = registry_of(metrics)

    assert (total(registry, user="99"), total(registry, user="100")) == (1, None)
    assert (dropped(registry), dropped(registry, "other")) == (9_900, None)
    assert len(caplog.messages) == 1
    assert "API echo" in caplog.messages[0]


def test_an_api_has_few_names() -> None:
    metrics = HandlerMetrics()
    metrics.add("echo", reply(counts=[(f"c{at}", {}, 1) for at in range(15)]))
    metrics.add("echo", reply(observed={f"o{at}": [1.0, 2.0] for at in range(15)}, dropped_metrics=3))

    assert dropped(registry_of(metrics)) == 10 * 2 + 3


def test_a_name_is_counted_or_observed() -> None:
    """The first use decides, for all APIs of the service."""
    metrics = HandlerMetrics()
    metrics.add("echo", reply(counts=[("tokens", {}, 1)], observed={"faces": [1.0]}))
    metrics.add("other", reply(counts=[("faces", {}, 1)], observed={"tokens": [1.0]}))

    assert dropped(registry_of(metrics), "other") == 2


def test_a_name_is_of_one_kind_in_all_services(caplog: pytest.LogCaptureFixture) -> None:
    """The log says once which service lacks it, and what to do."""
    first, second = HandlerMetrics(), HandlerMetrics()
    first.add("echo", reply(counts=[("faces", {}, 1)]))
    second.add("echo", reply(observed={"faces": [1.0]}))
    exposition = exposition_of(Measured(first.collect, name="first"), Measured(second.collect, name="second"))
    for _ in range(2):
        text = generate_latest(exposition.registry).decode()

    assert 'app_faces_total{api="echo",service="first"} 1.0' in text
    assert "app_faces_count" not in text
    assert caplog.messages == [
        "service second: the metric app_faces that its handlers record is not exposed, because another "
        "service records a counter of this name; rename one of them"
    ]


def test_a_removed_api_makes_room() -> None:
    metrics = HandlerMetrics()
    metrics.add("echo", reply(counts=[("tokens", {}, 1)], observed={"faces": [1.0]}, dropped_metrics=1))
    metrics.forget("echo")
    assert dropped(registry_of(metrics)) is None
    metrics.add("other", reply(counts=[("faces", {}, 1)], observed={"tokens": [1.0]}))

    registry = registry_of(metrics)
    assert (total(registry), dropped(registry, "other")) == (None, None)
