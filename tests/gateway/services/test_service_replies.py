"""The whole gateway: descriptions of services, settings in force, and learned estimates."""

import asyncio
import logging
from pathlib import Path
from typing import Any, Literal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.fake_worker import array_api, json_api, service
from tests.gateway.gateway_stage import GatewayStage, gateway, problem
from tests.gateway.running import turns
from uncork_gateway.services.worker_events import ServiceUnusable
from uncork_workers.wire.messages import Failed, Hello, Ready
from uncork_workers.wire.schema import ApiDescription, ApiSettings


async def test_overrides_replace_the_apis_own_settings(tmp_path: Path) -> None:
    """In all APIs; each keeps its other settings."""
    overrides = {"mb_max_batch_size": 2, "policy": "none"}
    serves = service(json_api("one", ApiSettings(mb_max_batch_size=9, timeout=5)), json_api("two"))

    async with gateway(tmp_path, overrides=overrides) as on:
        worker = await on.worker(serves=serves)
        one, two = (await on.service.events.described).apis

        assert one.settings == ApiSettings(mb_max_batch_size=2, policy="none", timeout=5)
        assert two.settings == ApiSettings(mb_max_batch_size=2, policy="none")
        asking = [on.post("/one", value) for value in range(2)]
        for value in range(2):  # one by one, as the policy says
            batch, payload = await worker.batch()
            assert (batch.limit_rows, payload) == (2, b"%d" % value)
            worker.answer(batch, [payload])
        assert [reply.json() for reply in await asyncio.gather(*asking)] == [0, 1]


@pytest.mark.parametrize("limit", ["mb_max_batch_size", "mb_max_batch_bytes"])
async def test_a_batch_has_at_most_the_rows_and_bytes_in_force(tmp_path: Path, limit: str) -> None:
    async with gateway(tmp_path, overrides={limit: 2}) as on:
        worker = await on.worker()
        asking = [on.post("/echo", value) for value in range(5)]
        sizes = []
        for _ in range(3):
            batch, _ = await worker.batch()
            sizes.append(len(batch.rows))
            worker.answer(batch, [b"0"] * len(batch.rows))
        await asyncio.gather(*asking)

        assert sizes == [2, 2, 1]


@pytest.mark.parametrize("overrides", [{}, {"allowed_batch_sizes": [1, 8, 64]}])
async def test_the_worker_is_told_the_batch_sizes_in_force(tmp_path: Path, overrides: dict[str, Any]) -> None:
    """With each batch, so that they apply to new code too."""
    async with gateway(tmp_path, overrides=overrides) as on:
        for coded in ((1, 8, 32), (2, 4), None):
            serves = service(json_api(settings=ApiSettings(allowed_batch_sizes=coded)))
            worker = await on.worker(serves=serves)
            batch, _ = await on.echo(worker, "/echo", 1)
            worker.close()
            await turns()

            sizes = (1, 8, 64) if overrides else coded
            assert batch.allowed_batch_sizes == sizes
            assert batch.limit_rows == (sizes or (1000,))[-1]


async def test_limits_of_the_gateway_are_in_force(tmp_path: Path) -> None:
    async with gateway(tmp_path, max_body_bytes=5, max_queue_rows=1) as on:
        worker = await on.worker()
        assert problem(await on.http.post("/echo", json="too long"), 413)
        asking = [on.post("/echo", 0)]
        batch, _ = await worker.batch()
        asking.append(on.post("/echo", 1))
        await turns(50)
        full = await on.http.post("/echo", json=2)
        worker.answer(batch, [b"0"])
        batch, _ = await worker.batch()
        worker.answer(batch, [b"1"])

        assert problem(full, 503) == "overloaded: the queue of this API is full"
        assert [(await one).status_code for one in asking] == [200, 200]


@pytest.mark.parametrize(
    ("api", "overrides", "message"),
    [
        (
            json_api(settings=ApiSettings(policy="magic")),
            {},
            "API 'echo': policy: unknown policy 'magic'; available: cork, ",
        ),
        (
            json_api(),
            {"policy": "fixed:x"},
            "API 'echo': policy: wrong arguments of policy 'fixed:x'; fixed:MS or ",
        ),
        (
            json_api(),
            {"mb_max_latency": -1},
            "API 'echo': mb_max_latency must be a positive number of milliseconds, got -1",
        ),
        (
            json_api(settings=ApiSettings(timeout=0)),
            {},
            "API 'echo': timeout must be a positive number of seconds, got 0",
        ),
        (json_api(settings=ApiSettings(cost=0)), {}, "API 'echo': cost must be a number above 0 "),
        (array_api("add", cost="n"), {}, "API 'add': cost must be a number or 'bytes' for"),
        (ApiDescription(name="see", route="/see", input={"kind": "hologram"}), {}, "there is no codec for "),
    ],
)
async def test_what_the_gateway_cannot_serve_makes_the_service_unusable(
    tmp_path: Path,
    api: ApiDescription,
    overrides: dict[str, Any],
    message: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The exception says all: no other version is served that the worker could wait for."""
    async with gateway(tmp_path, overrides=overrides) as on:
        (await on.connect()).send(Hello(index=0, launch=1, service=service(api)))

        with pytest.raises(ServiceUnusable) as caught:
            await on.service.events.described
        assert message in str(caught.value)
        problem(await on.http.post(api.route, json=1), 503)
    assert caplog.records == []


async def test_a_service_that_cannot_be_loaded_is_unusable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The exception has the worker's message; the log has the traceback, once."""
    async with gateway(tmp_path) as on:
        for index in range(2):
            worker = await on.connect()
            worker.send(Failed(index, "load", "svc cannot be imported", "line 1\nline 2"))

        with pytest.raises(ServiceUnusable, match=r"^svc cannot be imported$"):
            await on.service.events.described
        await turns(50)
    assert [record.getMessage() for record in caplog.records] == ["worker 0 failed in load\nline 1\nline 2"]


@pytest.mark.parametrize("stage", ["setup", "warmup"])
async def test_a_setup_that_fails_leaves_the_gateway_up_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stage: Literal["setup", "warmup"]
) -> None:
    """The next start may succeed: /readyz and the log show a crash loop."""
    async with gateway(tmp_path) as on:
        worker = await on.connect()
        worker.send(Hello(index=2, launch=1, service=service()))
        worker.send(Failed(2, stage, "OSError: no model", "line 1"))
        await on.service.events.described
        await turns(50)
        on.service.events.worker_exited(2, "exited with code 1")
        reason = f"worker 2 failed in {stage}: OSError: no model"
        assert problem(await on.ready(), 503) == f"no worker is ready: {reason}"
        on.service.events.worker_exited(2, "exited with code 9")
        assert problem(await on.ready(), 503) == "no worker is ready: worker 2 exited with code 9"
        await on.worker(index=2)
        assert (await on.ready()).status_code == 200
    messages = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert messages == [
        (logging.ERROR, f"worker 2 failed in {stage}: OSError: no model\nline 1"),
        (logging.WARNING, "worker 2 exited with code 9"),
    ]


async def test_a_changed_service_is_put_in_force(on: GatewayStage) -> None:
    """A restarted worker may serve something else; removed APIs are gone."""
    (await on.worker(serves=service(json_api("old"), json_api("both")))).close()
    await turns(50)
    new = service(json_api("both", ApiSettings(mb_max_batch_size=3)), json_api("new"))
    (await on.connect()).send(Hello(index=0, launch=2, service=new))
    await turns(50)

    problem(await on.http.post("/old", json=1), 404)
    problem(await on.http.get("/new"), 405)
    problem(await on.http.get("/both"), 405)
    assert [api.name for api in (await on.service.events.described).apis] == ["old", "both"]


async def test_a_changed_service_that_is_unusable_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is logged, and the worker gets no batches; all APIs stay as they were."""
    async with gateway(tmp_path) as on:
        (await on.worker()).close()
        wrong = service(json_api("bad", ApiSettings(policy="magic")))
        bad = await on.connect()
        bad.send(Hello(index=0, launch=2, service=wrong))
        bad.send(Ready())
        await turns(50)
        problem(await on.http.post("/bad", json=1), 404)
        assert (await on.http.post("/echo", json=1)).json()["reason"] == "no_worker"
        assert (await on.ready()).status_code == 503
        bad.close()
        _, reply = await on.echo(await on.worker(), "/echo", 1)
        assert reply.json() == 1
    logged = [record.getMessage() for record in caplog.records]
    assert (
        "a worker started with a service that cannot be served: API 'bad': policy: unknown policy"
        in logged[0]
    )


async def estimate(on: GatewayStage) -> float:
    """Return the estimated time of a batch that needs none per row."""
    text = (await on.http.get("/metrics")).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    (value,) = [sample.value for sample in samples if sample.name == "uncork_estimate_intercept_seconds"]
    return value


async def test_a_worker_that_has_warmed_up_teaches_the_estimate(tmp_path: Path) -> None:
    """Before any request. Batches over the limit and of APIs not in force do not count."""
    async with gateway(tmp_path, overrides={"mb_max_batch_size": 10}) as on:
        worker = await on.connect()
        worker.send(Hello(index=0, launch=1, service=service()))
        worker.send(Ready(profile={"echo": [(1, 0.5), (10, 0.5), (20, 70.0)], "other": [(1, 1.0)]}))
        await on.gateway.front_end.ready.wait()

        assert await estimate(on) == pytest.approx(0.5)


async def test_the_worker_is_told_how_much_time_is_left(tmp_path: Path) -> None:
    async with gateway(tmp_path, overrides={"mb_max_latency": 60_000}) as on:
        worker = await on.worker()
        asking = [on.post("/echo", 1)]
        patience = {"x-request-timeout-ms": "30000"}
        asking.append(asyncio.create_task(on.http.post("/echo", json=2, headers=patience)))
        left_s: list[float] = []
        while len(left_s) < 2:
            batch, _ = await worker.batch()
            left_s += batch.left_s
            worker.answer(batch, [b"1"] * len(batch.rows))
        await asyncio.gather(*asking)

        least_s, most_s = sorted(left_s)
        assert 0 < least_s <= 30 < most_s <= 60


async def test_only_batches_that_worked_teach_the_estimate(on: GatewayStage) -> None:
    """Not those whose handler raised, or that had only malformed requests."""
    worker = await on.worker()
    for statuses, worked, chunks in (([500], False, [(1, 0.1)]), ([400], True, [])):
        asking = on.post("/echo", 1)
        batch, _ = await worker.batch()
        worker.answer(batch, [b"x"], statuses=statuses, worked=worked, chunks=chunks)
        await asking
        assert await estimate(on) == 0
    await on.echo(worker, "/echo", 1)
    assert await estimate(on) > 0
