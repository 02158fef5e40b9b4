"""Triton's extensions of V2: model configuration, statistics, and the index of the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.dispatcher.batches import batch_of, submitted
from tests.gateway.fake_worker import array_api, json_api, service
from tests.gateway.gateway_stage import GatewayStage, client_of, gateway
from tests.gateway.proxy_stage import error
from tests.gateway.running import turns
from uncork_dispatcher import BatchStatus
from uncork_dispatcher.requests.batch import Batch
from uncork_gateway.pages.models.metadata import Model, ModelSource
from uncork_gateway.pages.models.tensors import Outputs
from uncork_gateway.pages.models.triton import statistics_of
from uncork_gateway.telemetry.metrics import Metrics
from uncork_workers.wire.forms import ListForm
from uncork_workers.wire.messages import Hello, Ready, RowResult


def told(reply: httpx.Response) -> Any:
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/json"
    return reply.json()


# Configuration


async def test_the_configuration_says_what_is_in_force(tmp_path: Path) -> None:
    """Overrides apply; shapes lack the batch axis."""
    async with gateway(tmp_path, overrides={"mb_max_batch_size": 16, "mb_max_latency": 250.0}) as on:
        worker = await on.connect()
        worker.send(Hello(index=0, launch=1, service=service(array_api(mb_max_batch_size=64))))
        worker.send(Ready(results={"echo": RowResult(form=ListForm("BYTES", (3,)))}))
        await on.gateway.front_end.ready.wait()
        for path in ("/v2/models/fake/config", "/v2/models/fake/versions/1/config"):
            assert told(await on.http.get(path)) == {
                "name": "fake",
                "platform": "uncork",
                "backend": "uncork",
                "version_policy": {"specific": {"versions": [1]}},
                "max_batch_size": 16,
                "input": [
                    {"name": "input-0", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": [4]}
                ],
                "output": [{"name": "output-0", "data_type": "TYPE_STRING", "dims": [3]}],
                "dynamic_batching": {
                    "preferred_batch_size": [],
                    "max_queue_delay_microseconds": 250_000,
                },
            }
        assert "unknown model: 'x'" in error(await on.http.get("/v2/models/x/config"), 404)
        assert error(await on.http.get("/v2/models/fake/versions/2/config"), 404)


@pytest.mark.parametrize(
    ("settings", "most_rows", "batching"),
    [
        ({"policy": "none"}, 1000, None),
        ({"policy": "fixed:25:8"}, 1000, ([8], 25_000)),
        ({"policy": "fixed:25:8", "mb_max_batch_size": 4}, 4, ([], 25_000)),
        ({"policy": "fixed"}, 1000, ([], 10_000)),
        ({"policy": "fixed:500"}, 1000, ([], 300_000)),
        ({"policy": "aimd", "allowed_batch_sizes": (1, 8, 32)}, 32, ([], 300_000)),
        ({"policy": "fixed:25:8", "cost": 2.5, "mb_max_batch_size": 64}, 25, ([], 25_000)),
        ({"cost": 2, "mb_max_batch_size": 64, "allowed_batch_sizes": (1, 8)}, 8, ([], 300_000)),
        ({"cost": 2, "mb_max_batch_size": 8, "allowed_batch_sizes": (1, 8)}, 4, ([], 300_000)),
        ({"cost": 99, "mb_max_batch_size": 8}, 1, ([], 300_000)),
        ({"cost": "bytes", "mb_max_batch_size": 4096}, 4096, ([], 300_000)),
    ],
)
async def test_the_configuration_says_how_rows_are_batched(
    on: GatewayStage, settings: dict[str, Any], most_rows: int, batching: tuple[list[int], int] | None
) -> None:
    """Only ``fixed`` has a preferred size; the delay is the policy's, at most the goal."""
    await on.worker(serves=service(array_api(**settings)))
    config = told(await on.http.get("/v2/models/fake/config"))
    dynamic = config.get("dynamic_batching")

    assert config["max_batch_size"] == most_rows
    found = dynamic and (dynamic["preferred_batch_size"], dynamic["max_queue_delay_microseconds"])
    assert found == batching


# Statistics


class Tick:
    """A clock that advances by 0.25 s whenever it is read."""

    now = 1_000_000.0

    def __call__(self) -> float:
        self.now += 0.25
        return self.now


def batch(*requests: int, seconds: float) -> Batch[Any]:
    asked = [submitted(rows=rows, arrival=-0.125) for rows in requests]
    return batch_of(*asked, api="echo", rows=sum(requests), seconds=seconds)


def model_of(metrics: Metrics) -> Model:
    return Model("m", json_api("echo"), None, Outputs(), ModelSource(metrics.of_classes))


def test_statistics_are_sums_over_requests_and_batches() -> None:
    """Each request counts its batch's whole time; failed batches count for the queue only."""
    metrics = Metrics(wall_clock=Tick())
    tally = metrics.api("echo")
    before = statistics_of(model_of(metrics))
    assert before["last_inference"] == before["inference_count"] == 0
    batches: list[tuple[list[int], float, BatchStatus]] = [
        ([1, 2], 0.5, "worked"),
        ([3], 0.25, "worked"),
        ([4], 2.0, "worked"),
        ([4], 1.0, "failed"),
        ([4], 1.0, "lost"),
    ]
    for requests, seconds, ending in batches:
        ran = batch(*requests, seconds=seconds)
        metrics.batch_started(ran)
        metrics.batch_ended(ran, ending)
    for status, seconds, rows in ((200, 1.0, 1), (201, 2.0, 2), (422, 4.0, 3), (503, 8.0, 0), (499, 16.0, 4)):
        tally.answered(status, seconds, rows)

    def duration(count: int, seconds: float) -> dict[str, int]:
        return {"count": count, "ns": round(seconds * 1e9)}

    stats = statistics_of(model_of(metrics))

    assert (stats["name"], stats["version"], stats["last_inference"]) == ("m", "1", 1_000_001_250)
    assert (stats["inference_count"], stats["execution_count"]) == (3, 3)
    assert stats["inference_stats"] == {
        "success": duration(2, 3.0),
        "fail": duration(3, 28.0),
        "queue": duration(6, 0.75),
        "compute_input": duration(4, 0),
        "compute_infer": duration(4, 2 * 0.5 + 0.25 + 2.0),
        "compute_output": duration(4, 0),
        "cache_hit": duration(0, 0),
        "cache_miss": duration(0, 0),
    }
    sizes = [(one["batch_size"], one["compute_infer"]) for one in stats["batch_stats"]]
    assert sizes == [(3, duration(2, 0.75)), (4, duration(1, 2.0))]


def test_a_client_cannot_make_statistics_grow_without_end() -> None:
    """Sizes beyond the first 1000 are missing from the list, not from the sums."""
    metrics = Metrics()
    for rows in range(1, 1502):
        metrics.batch_ended(batch(rows, seconds=1.0), "worked")
    metrics.batch_ended(batch(1000, seconds=1.0), "worked")

    stats = statistics_of(model_of(metrics))

    assert len(stats["batch_stats"]) == 1000
    assert stats["batch_stats"][-1]["compute_infer"] == {"count": 2, "ns": 2 * 10**9}
    assert stats["execution_count"] == stats["inference_stats"]["compute_infer"]["count"] == 1502


def test_statistics_count_both_classes() -> None:
    """A batch with rows of both is one execution, of all its requests."""
    metrics = Metrics()
    metrics.set_classes("echo", ("interactive", "bulk"))
    first, second = submitted(rows=1, arrival=-0.125), submitted(rows=2, arrival=-0.125)
    second.bulk = True
    mixed = batch_of(first, second, api="echo", rows=3, seconds=0.5)
    metrics.batch_started(mixed)
    metrics.batch_ended(mixed, "worked")
    metrics.api("echo").answered(200, 1.0, 1)
    metrics.bulk("echo").answered(200, 2.0, 2)
    metrics.bulk("echo").answered(503, 4.0)

    stats = statistics_of(model_of(metrics))

    assert (stats["inference_count"], stats["execution_count"]) == (3, 1)
    found = {name: (one["count"], one["ns"] / 1e9) for name, one in stats["inference_stats"].items()}
    assert (found["success"], found["fail"]) == ((2, 3.0), (1, 4.0))
    assert (found["queue"], found["compute_infer"]) == ((2, 0.25), (2, 1.0))


async def test_statistics_count_what_metrics_count(tmp_path: Path) -> None:
    """All models of an API have the same statistics."""
    async with gateway(tmp_path, overrides={"policy": "fixed:0"}) as on:
        worker = await on.worker()
        await on.echo(worker, "/v1/models/fake:predict", {"instances": [1, 2, 3]})
        await on.echo(worker, "/echo", 1)
        asking = on.post("/echo", 5)
        batch, _ = await worker.batch()
        worker.answer(batch, [b"x"], statuses=[500], worked=False)
        await asking
        assert (await on.http.post("/echo", content=b"{")).status_code == 400
        [stats] = told(await on.http.get("/v2/models/fake/stats"))["model_stats"]

        assert (stats["name"], stats["version"]) == ("fake", "1")
        assert (stats["inference_count"], stats["execution_count"]) == (4, 2)
        sums = stats["inference_stats"]
        assert {name: one["count"] for name, one in sums.items()} == {
            "success": 2,
            "fail": 2,
            "queue": 3,
            "compute_input": 2,
            "compute_infer": 2,
            "compute_output": 2,
            "cache_hit": 0,
            "cache_miss": 0,
        }
        assert 0 < sums["compute_infer"]["ns"] < sums["success"]["ns"]
        assert sums["fail"]["ns"] > 0
        sizes = [(one["batch_size"], one["compute_infer"]["count"]) for one in stats["batch_stats"]]
        assert sizes == [(1, 1), (3, 1)]
        metrics = (await on.http.get("/metrics")).text
        assert 'uncork_batches_total{api="echo",outcome="worked",service="fake"} 2.0' in metrics

        for path in (
            "/v2/models/fake/versions/1/stats",
            "/v2/models/fake.echo/stats",
            "/v2/models/stats",
        ):
            others = told(await on.http.get(path))["model_stats"]
            assert {**others[-1], "name": "fake"} == stats
        assert [one["name"] for one in others] == ["fake", "fake.echo"]
        assert "unknown model: 'x'" in error(await on.http.get("/v2/models/x/stats"), 404)


async def test_statistics_are_for_operators_where_these_have_a_port(tmp_path: Path) -> None:
    """Clients get 404, with the place."""
    async with gateway(tmp_path, admin=True) as on, client_of(on.gateway.front_end.admin_app) as operator:
        await on.worker()
        for path in ("/v2/models/fake/stats", "/v2/models/fake/versions/1/stats", "/v2/models/stats"):
            elsewhere = "statistics are on the admin port (--admin-port), not on this one"
            assert error(await on.http.get(path), 404) == elsewhere
            assert told(await operator.get(path))["model_stats"]
        extensions = told(await on.http.get("/v2"))["extensions"]
        assert extensions == ["binary_tensor_data", "model_configuration", "model_repository"]
        assert told(await on.http.get("/v2/models/fake/config"))


# Repository


@pytest.mark.parametrize("body", [b"", b"{}", b'{"ready":false}', b'{"ready":true}'])
async def test_the_index_lists_the_models(on: GatewayStage, body: bytes) -> None:
    """Models that are not ready are listed unless the request asks for ready ones."""
    loading = "no worker is ready: worker 0 is in setup"

    async def index(on: Any) -> Any:
        return told(await on.http.post("/v2/repository/index", content=body))

    def models(state: str, reason: str) -> list[dict[str, str]]:
        return [
            {"name": name, "version": "1", "state": state, "reason": reason} for name in ("fake", "fake.echo")
        ]

    assert await index(on) == []
    worker = await on.connect()
    worker.send(Hello(index=0, launch=1, service=service(json_api())))
    await on.service.events.described
    [why] = {one["reason"] for one in await index(on)} or {loading}
    assert why.startswith("no worker is ready: ")
    assert await index(on) == ([] if b"true" in body else models("UNAVAILABLE", why))
    worker.send(Ready())
    await on.gateway.front_end.ready.wait()
    await turns()
    assert await index(on) == models("READY", "")


@pytest.mark.parametrize("body", [b"[", b"[]", b'{"ready":1}', b'{"ready":true}' + b" " * 70_000])
async def test_an_index_request_that_is_malformed_is_told(on: GatewayStage, body: bytes) -> None:
    """The error says what is accepted; a very long body is not read."""
    await on.worker()
    message = error(await on.http.post("/v2/repository/index", content=body), 400)
    assert 'send an empty body, or {"ready": true}' in message


@pytest.mark.parametrize("path", ["index", "models/fake/load", "models/fake/unload"])
async def test_a_repository_request_that_is_nested_too_deeply_is_told(on: GatewayStage, path: str) -> None:
    reply = await on.http.post(f"/v2/repository/{path}", content=b'{"a":' + b"[" * 1000)
    assert "invalid repository request: it is nested too deeply; send" in error(reply, 400)
