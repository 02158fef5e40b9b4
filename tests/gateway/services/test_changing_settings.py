"""The settings of a running gateway change, with its workers and without."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.fake_worker import json_api, service
from tests.gateway.gateway_stage import GatewayStage, gateway, problem
from tests.gateway.running import turns
from tests.gateway.services.test_joining import remote_only
from uncork_gateway.auth import ApiKeys
from uncork_gateway.settings import ServerSettings
from uncork_workers.wire.messages import Goodbye
from uncork_workers.wire.overrides import Override, for_all_apis
from uncork_workers.wire.schema import ApiSettings

KEY, OTHER = "a-key-of-the-tests", "another-key-of-the-tests"


def change(on: GatewayStage, *, overrides: dict[str, Any] | None = None, **settings: Any) -> None:
    if overrides is not None:
        settings["overrides"] = for_all_apis(overrides)
    others = replace(on.service.events.settings, **settings)
    on.service.change(on.service.prepare(others))
    on.gateway.change(others)


async def test_goal_cap_and_policy_change_for_what_is_queued(tmp_path: Path) -> None:
    """Requests that a policy would hold for a minute go in batches of the new cap, at once."""
    async with gateway(tmp_path, overrides={"policy": "fixed:60000", "mb_max_latency": 70_000}) as on:
        worker = await on.worker()
        asking = [on.post("/echo", number) for number in range(4)]
        await turns(50)
        change(on, overrides={"policy": "none", "mb_max_latency": 5000, "mb_max_batch_size": 2})
        for number in range(4):
            batch, payload = await worker.batch()
            assert batch.limit_rows == 1 or len(batch.rows) == 1
            worker.answer(batch, [payload])
            assert payload == str(number).encode()

        assert [(await one).json() for one in asking] == [0, 1, 2, 3]
        api = (await on.http.get("/status")).json()["apis"][0]
        assert (api["policy"], api["goal_ms"]) == ("none", 5000)


async def test_settings_that_the_service_cannot_have_change_nothing(tmp_path: Path) -> None:
    async with gateway(tmp_path, overrides={"policy": "aimd"}) as on:
        worker = await on.worker()
        wrong = [Override(api="ecko", argument="policy", value="none", source="uncork.toml: api.ecko.policy")]
        with pytest.raises(ValueError, match=r"api\.ecko\.policy: .* has no API 'ecko'"):
            on.service.prepare(replace(on.service.events.settings, overrides=wrong, max_body_bytes=1))

        assert on.service.events.settings.max_body_bytes == ServerSettings().max_body_bytes
        assert (await on.http.get("/status")).json()["apis"][0]["policy"] == "aimd"
        _, reply = await on.echo(worker, "/echo", [1, 2, 3])
        assert reply.json() == [1, 2, 3]


async def test_a_removed_key_is_refused_on_an_open_connection(tmp_path: Path) -> None:
    """Also where the whole head of the request is known from before."""
    async with gateway(tmp_path, keys=ApiKeys([KEY.encode()])) as on:
        worker = await on.worker()
        on.http.headers["x-api-key"] = KEY
        for _ in range(2):
            assert (await on.echo(worker, "/echo", 1))[1].status_code == 200
        change(on, keys=ApiKeys([OTHER.encode()]))
        assert (await on.http.post("/echo", json=1)).status_code == 401
        assert (await on.http.get("/status")).status_code == 401
        on.http.headers["x-api-key"] = OTHER
        assert (await on.echo(worker, "/echo", 1))[1].status_code == 200

        change(on, keys=None)
        del on.http.headers["x-api-key"]
        assert (await on.echo(worker, "/echo", 1))[1].status_code == 200
        assert "security" not in (await on.http.get("/openapi.json")).json()
        change(on, keys=ApiKeys([KEY.encode()]))
        assert (await on.http.post("/echo", json=1)).status_code == 401
        assert (await on.http.get("/metrics")).status_code == 401
        assert (await on.http.get("/readyz")).status_code == 200


async def test_a_front_end_forgets_heads_that_had_another_key(tmp_path: Path) -> None:
    """Whatever else changes."""
    async with gateway(tmp_path, keys=ApiKeys([KEY.encode()])) as on:
        worker = await on.worker()
        on.http.headers["x-api-key"] = KEY
        for _ in range(2):
            await on.echo(worker, "/echo", 1)
        assert on.gateway.front_end.routes.known
        on.gateway.front_end.change(replace(on.service.events.settings, keys=ApiKeys([OTHER.encode()])))
        assert (await on.http.post("/echo", json=1)).status_code == 401


async def test_limits_apply_to_new_requests(on: GatewayStage) -> None:
    """A lower limit removes nothing from the queue."""
    worker = await on.worker()
    first = on.post("/echo", 0)
    running, payload = await worker.batch()
    queued = [on.post("/echo", number) for number in (1, 2, 3)]
    await turns(50)
    change(on, max_queue_rows=3, max_body_bytes=10)

    full = await on.http.post("/echo", json=4)
    assert full.json()["reason"] == "queue_full"
    assert problem(await on.http.post("/echo", json="0123456789"), 413)
    worker.answer(running, [payload])
    batch, payload = await worker.batch()
    worker.answer(batch, [b"1", b"2", b"3"])
    assert [(await one).json() for one in (first, *queued)] == [0, 1, 2, 3]


async def test_the_access_log_begins_on_open_connections(
    on: GatewayStage, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await on.worker()
    with caplog.at_level(logging.INFO):
        await on.echo(worker, "/echo", 1)
        assert "POST /echo" not in caplog.text
        change(on, access_log=True)
        await on.echo(worker, "/echo", 1)
        assert "POST /echo 200" in caplog.text
        change(on, access_log=False)
        caplog.clear()
        await on.echo(worker, "/echo", 1)
        assert "POST /echo" not in caplog.text


async def test_clients_get_shares_from_the_change_on(tmp_path: Path) -> None:
    async with gateway(tmp_path, overrides={"mb_max_batch_size": 2}) as on:
        worker = await on.worker()
        asking = [on.post("/echo", 0)]
        running, payload = await worker.batch()
        change(on, fair_by=b"x-client")
        on.http.headers["x-client"] = "noisy"
        asking += [on.post("/echo", number) for number in (1, 2)]
        await turns(50)
        on.http.headers["x-client"] = "quiet"
        asking.append(on.post("/echo", 3))
        await turns(50)
        worker.answer(running, [payload])
        batch, _ = await worker.batch()
        worker.answer(batch, [b"1", b"3"])
        batch, _ = await worker.batch()
        worker.answer(batch, [b"2"])

        assert [(await one).json() for one in asking] == [0, 1, 2, 3]


async def test_what_is_known_of_outputs_stays_while_the_workers_do(on: GatewayStage) -> None:
    worker = await on.worker(serves=service(json_api("echo"), name="Fake"))
    await on.echo(worker, "/echo", [1.5, 2.5])
    known = on.gateway.catalogue.models["fake"]["1"].outputs.known()
    assert known
    change(on, overrides={"mb_max_latency": 50})
    assert on.gateway.catalogue.models["fake"]["1"].outputs.known() == known
    assert on.gateway.catalogue.models["fake"]["1"].api.settings.mb_max_latency == 50


async def test_settings_change_with_the_workers(on: GatewayStage) -> None:
    """Together, or not at all."""
    old = await on.worker()
    new = await on.standby(2)
    settings = replace(on.service.events.settings, overrides=for_all_apis({"policy": "aimd"}))
    wrong = replace(settings, overrides=for_all_apis({"route": "/metrics"}))
    with pytest.raises(ValueError, match="/metrics"):
        on.service.prepare_take_over([2], wrong)
    assert (await on.echo(old, "/echo", 1))[1].status_code == 200
    assert on.service.take_over([2], on.service.prepare_take_over([2], settings)) == {1}

    await on.echo(new, "/echo", 1)
    assert (await on.http.get("/status")).json()["apis"][0]["policy"] == "aimd"
    assert on.service.events.settings is settings


async def test_a_service_of_remote_workers_may_become_servable(tmp_path: Path) -> None:
    """It was refused for a setting that has been corrected; workers that come later get the new settings."""
    serves = service(json_api("echo", settings=ApiSettings(mb_max_latency=100)), name="A")
    settings = [Override(api="other", argument="policy", value="none", source="here")]
    async with remote_only(tmp_path, overrides=settings) as on:
        await on.remote("a", serves)
        assert not on.service.view.served_apis()
        change(on, overrides={"mb_max_latency": 200}, warmup_seconds=3.0)
        assert on.in_force == "A"
        assert (await on.http.get("/status")).json()["apis"][0]["goal_ms"] == 200


async def test_indexes_of_more_workers_are_taken_from_remote_ones(tmp_path: Path) -> None:
    """A remote worker answers what it runs, and comes back with another index."""
    async with remote_only(tmp_path, workers=1) as on:
        local = await on.worker(serves=service(json_api("echo"), name="A"))
        remote = await on.remote("a")
        assert on.service.pool.ready() == {0, 1}
        asking = [on.post("/echo", 0)]
        running, body = await local.batch()
        asking.append(on.post("/echo", 1))
        batch, payload = await remote.batch()
        change(on, workers=2)
        assert on.service.pool.ready() == {0}
        local.answer(running, [body])
        remote.answer(batch, [payload])
        assert {(await one).json() for one in asking} == {0, 1}
        assert await remote.dismissed() == Goodbye("the gateway starts more workers, one with this index")
        await on.remote("a")
        assert on.service.pool.ready() == {0, 2}
