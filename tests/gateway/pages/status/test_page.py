"""The page /status of a gateway and of a proxy, and who may read it."""

from __future__ import annotations

import re
from typing import Any

import httpx
import msgspec

from tests.gateway.fake_worker import json_api, service
from tests.gateway.gateway_stage import GatewayStage
from tests.gateway.proxy_stage import Model, doubles, merging, proxy, rows_body, served
from tests.gateway.running import turns
from uncork_workers.wire.messages import Hello
from uncork_workers.wire.schema import ApiSettings


async def status(http: httpx.AsyncClient, **headers: str) -> Any:
    reply = await http.get("/status", headers=headers)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
    return reply.json()


def without_time(text: str) -> str:
    """Return a text without the time that has passed, or that is left."""
    return re.sub(r" (?:for|in) [\d.,]+ [mµ]?s\b", "", text)


async def told(on: GatewayStage) -> list[tuple[int, str, str]]:
    workers = (await status(on.http))["workers"]
    return [(one["index"], one["state"], without_time(one["doing"])) for one in workers]


async def test_each_worker_tells_what_it_does(on: GatewayStage) -> None:
    """The first is dead, the second runs a batch, the third is idle, and the fourth is not ready yet."""
    await on.worker(index=2)
    busy = await on.worker(index=1)
    fourth = await on.connect()
    fourth.send(Hello(index=3, launch=7, service=service()))
    await on.http.post("/nothing")
    on.service.events.worker_exited(0, "was killed by SIGKILL", failures=3, retry_s=60)
    first, second = on.post("/echo", 1), on.post("/echo", 2)
    await busy.batch()

    assert await told(on) == [
        (0, "lost", "worker 0 was killed by SIGKILL (3 times in a row; retrying)"),
        (1, "busy", "has been running 1 row of echo"),
        (2, "busy", "has been running 1 row of echo"),
        (3, "starting", "worker 3 is being set up"),
    ]
    document = await status(on.http)
    assert without_time(document["sentence"]) == (
        "2 of 4 workers are ready. Worker 0 was killed by SIGKILL (3 times in a row; retrying). "
        "Worker 3 is being set up."
    )
    assert (document["state"], document["server"], document["restarts"]) == ("ready", "Fake", 4)
    first.cancel()
    second.cancel()


async def test_a_worker_that_is_back_is_not_lost_any_more(on: GatewayStage) -> None:
    old = await on.worker()
    old.close()
    await turns(50)
    on.service.events.worker_exited(0, "exited with code 3")
    assert await told(on) == [(0, "lost", "worker 0 exited with code 3")]
    assert (await status(on.http))["state"] == "not_ready"
    await on.worker()
    assert await told(on) == [(0, "idle", "waits for a batch")]


async def test_an_api_is_shown_with_its_settings_and_its_batches(on: GatewayStage) -> None:
    apis = [
        json_api("second", ApiSettings(mb_max_latency=50, mb_max_batch_size=8, policy="fixed:0")),
        json_api("first"),
    ]
    worker = await on.worker(serves=service(*apis))
    await on.echo(worker, "/second", 5)
    shown, other = (await status(on.http))["apis"]

    assert (shown["name"], shown["route"], other["name"]) == ("second", "/second", "first")
    assert (shown["goal_ms"], shown["max_batch_rows"], shown["policy"]) == (50, 8, "fixed:0")
    assert (shown["requests"], sum(shown["releases"].values())) == ({"200": 1}, 1)
    assert (shown["protocols"], other["protocols"]) == ({"http": 1}, {})
    assert (shown["too_few_requests"], shown["latency"], shown["rate_rows"]) == (True, None, None)
    assert (other["requests"], other["latency"], other["capacity_rows"]) == ({}, None, None)
    [batch] = on.gateway.front_end.status_builder.batches_after(0)
    assert (batch.api, batch.rows, batch.worker) == ("second", 1, 0)


async def test_an_api_says_what_it_counts_and_whether_it_streams(on: GatewayStage) -> None:
    """Programs cannot parse the sentences."""
    apis = [
        json_api("plain"),
        json_api("weighed", ApiSettings(cost=2.0)),
        msgspec.structs.replace(json_api("tell", ApiSettings(policy="none")), streams=True),
    ]
    await on.worker(serves=service(*apis))
    shown = (await status(on.http))["apis"]

    assert [(one["counts"], one["streams"]) for one in shown] == [
        ("rows", False),
        ("cost", False),
        ("rows", True),
    ]


async def test_a_proxy_shows_models_and_calls() -> None:
    """A model appears once a server has answered for it; it has a goal only if one was set."""
    async with merging(concurrency=2) as (on, _):
        [reply] = await on.replies([on.front.ask(rows_body(1))])
        assert reply.status == 200
        document = await status(on.http)

        [model, unknown] = document["apis"]
        assert unknown["name"] == "(unknown)"
        assert (model["name"], model["route"], model["goal_ms"]) == ("m", None, None)
        assert model["requests"] == {"200": 1}
        assert document["sentence"].startswith("1 server is ready.")
        workers = [(one["index"], one["state"], one["pid"]) for one in document["workers"]]
        assert workers == [(0, "idle", None), (1, "idle", None)]
        assert (document["server"], document["state"]) == ("proxy", "ready")


async def test_a_proxy_tells_of_servers_that_are_not_healthy() -> None:
    """Slots say why a server is unhealthy, and where a call runs."""
    model = Model(doubles)
    async with served(model) as url, proxy(url, "http://127.0.0.1:9") as on:
        await on.front.ask(rows_body(1)).reply()
        model.gate.clear()
        asking = on.front.ask(rows_body(1))
        await model.called(2)
        document = await status(on.http)

        good, bad = document["workers"]
        assert (good["url"], good["state"]) == (url, "busy")
        assert good["doing"].startswith("has been running 1 row of m for ")
        assert (bad["url"], bad["state"]) == ("http://127.0.0.1:9", "lost")
        assert "http://127.0.0.1:9: " in document["sentence"]
        assert document["sentence"].startswith("1 of 2 servers is ready.")
        model.gate.set()
        await asking.reply()
