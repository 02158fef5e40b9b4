"""A proxy whose servers and settings change while it serves."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest

from tests.gateway.backends.model_servers.fake_server import Call, fake_server
from tests.gateway.backends.model_servers.fake_server import Reply as Answer
from tests.gateway.client import JSON
from tests.gateway.proxy_stage import (
    Model,
    ProxyStage,
    doubles,
    merging,
    predictions,
    proxy,
    rows_body,
    served,
    sizes,
)
from tests.gateway.running import turns
from tests.loops import until
from uncork_gateway.settings import ProxySettings

SETTINGS = ProxySettings(policy="fixed:0")


def settings(**values: object) -> ProxySettings:
    return ProxySettings(**{"policy": "fixed:0", **values})  # type: ignore[arg-type]


def triples(call: Call) -> Answer:
    rows = json.loads(call.body)["instances"]
    return Answer(json.dumps({"predictions": [row * 3 for row in rows]}).encode(), 200, (JSON,))


def named(name: bytes, call: Call) -> Answer:
    return Answer(name)


def urls_of(on: ProxyStage) -> list[str]:
    return [slot.url for slot in on.proxy.slots() if slot.url is not None]


async def ask(on: ProxyStage, *rows: int) -> list[int]:
    found: list[int] = predictions(await on.ask(rows_body(*rows)).reply())
    return found


async def test_requests_go_to_the_new_servers_once_they_are_healthy() -> None:
    """Calls that run end where they are."""
    first, second = Model(doubles), Model(triples)
    async with served(first) as old, served(second) as new, proxy(old) as on:
        first.gate.clear()
        running = on.ask(rows_body(1))
        await first.called(1)
        on.proxy.change([new], SETTINGS)

        assert await ask(on, 1) == [3]
        assert urls_of(on) == [new]
        first.gate.set()
        assert predictions(await running.reply()) == [2]
        assert await ask(on, 2) == [6]
        assert len(first.calls) == 1


async def test_former_servers_are_left_without_connections() -> None:
    answer = Answer(b'{"predictions": [5]}', 200, (JSON,))
    async with fake_server(lambda _: answer) as old, served(Model(doubles)) as new, proxy(old.url) as on:
        assert await ask(on, 1) == [5]
        await on.http.get("/v1/models")
        assert old.open_connections
        on.proxy.change([new], settings(concurrency=2))

        await until(lambda: not old.open_connections)
        assert await ask(on, 1) == [2]


async def test_new_connections_outlast_a_second_change() -> None:
    """Which comes before they are known to be healthy."""
    async with fake_server(lambda _: Answer()) as server, proxy(server.url) as on:
        for rows in (8, 4):
            on.proxy.change([server.url], settings(health_path="/well", max_batch_rows=rows))

        await until(lambda: any(call.target == b"/well" for call in server.calls))
        await until(lambda: len(urls_of(on)) == 1)


async def test_new_connections_end_no_response() -> None:
    model = Model(lambda call: doubles(call) if call.body else Answer(b"listed"))
    async with served(model) as url, proxy(url) as on:
        model.gate.clear()
        running, relayed = on.ask(rows_body(1)), asyncio.create_task(on.http.get("/v1/models"))
        await model.called(2)
        on.proxy.change([url], settings(concurrency=2))
        asking = asyncio.create_task(ask(on, 2))
        await model.called(3)
        model.gate.set()

        assert predictions(await running.reply()) == [2]
        assert (await relayed).content == b"listed"
        assert await asking == [4]


@pytest.mark.parametrize("changes", [1, 2])
async def test_the_former_servers_serve_until_then(changes: int) -> None:
    async with merging() as (on, _):
        for rows in range(1, 1 + changes):
            on.proxy.change(["http://127.0.0.1:1"], settings(max_batch_rows=rows))
        await turns()

        assert await ask(on, 1) == [2]
        assert (await on.http.get("/readyz")).status_code == 200
        on.proxy.change([model_url := urls_of(on)[-1]], SETTINGS)
        assert await ask(on, 2) == [4]
        assert urls_of(on) == [model_url]


async def test_servers_that_stay_keep_their_health_and_their_calls() -> None:
    first, second = Model(doubles), Model(doubles)
    async with served(first) as one, served(second) as other, proxy(one) as on:
        on.proxy.change([one, other], SETTINGS)
        assert on.proxy.any_ready
        assert await ask(on, 1) == [2]
        on.proxy.change([one], settings(concurrency=3))
        assert on.proxy.any_ready
        while [slot.state for slot in on.proxy.slots()] != ["idle"] * 3:
            await turns()
        assert await ask(on, 1) == [2]


async def test_new_limits_hold_for_new_requests() -> None:
    async with merging(max_batch_rows=8) as (on, model):
        assert await ask(on, *range(4)) == [0, 2, 4, 6]
        on.proxy.change(urls_of(on), settings(max_batch_rows=2))
        assert await ask(on, *range(4)) == [0, 2, 4, 6]

        assert sizes(model) == [4, 2, 2]


async def test_other_requests_are_passed_to_the_new_servers() -> None:
    first, second = (Model(partial(named, name)) for name in (b"first", b"second"))
    async with served(first) as old, served(second) as new, proxy(old) as on:
        assert (await on.http.get("/v1/models")).content == b"first"
        on.proxy.change([new], SETTINGS)
        assert (await on.http.get("/v1/models")).content == b"first"
        while urls_of(on) != [new]:
            await turns()
        assert (await on.http.get("/v1/models")).content == b"second"


@pytest.mark.parametrize(
    ("urls", "values", "says"),
    [
        (["grpc://127.0.0.1:1"], {}, "restart the proxy"),
        (["nowhere"], {}, "nowhere"),
        ([], {"health_path": "x"}, "must begin with /"),
        ([], {"max_batch_rows": 0}, "max_batch_rows"),
        ([], {"policy": "magic"}, "magic"),
        ([], {"concurrency": 0}, "concurrency"),
    ],
)
async def test_what_cannot_be_changes_nothing(urls: list[str], values: dict[str, object], says: str) -> None:
    async with merging() as (on, model):
        with pytest.raises(ValueError, match=says):
            on.proxy.change(urls or urls_of(on), settings(**values))

        assert await ask(on, 1, 2) == [2, 4]
        assert sizes(model) == [2]
