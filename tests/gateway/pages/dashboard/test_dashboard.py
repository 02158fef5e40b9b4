"""The routes of the dashboard: page, files, events, and the keys they require."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import httpx
import msgspec
import pytest

from tests.gateway.gateway_stage import GatewayStage, client_of, gateway, problem
from tests.gateway.proxy_stage import V1, Model, doubles, predictions, proxy, rows_body, served
from uncork_gateway.auth import ApiKeys
from uncork_gateway.pages.dashboard.feed import Event

KEY = "a-key-of-the-tests"
KEYS = ApiKeys([KEY.encode()])
EVENTS = "/dashboard/events"


async def events(reply: httpx.Response) -> AsyncIterator[Event]:
    async for line in reply.aiter_lines():
        if line:
            name, _, data = line.partition(": ")
            assert name == "data"
            yield msgspec.json.decode(data, type=Event)


def ticking() -> bool:
    return any("Feed._tick" in repr(task) for task in asyncio.all_tasks())


async def test_the_page_and_all_that_it_loads_is_here(on: GatewayStage) -> None:
    """The page names no other server, and its policy forbids loading from one."""
    page = await on.http.get("/dashboard")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "http" not in re.sub(r'data-origin="[^"]*"', "", page.text)

    loaded = set(re.findall(r'(?:src|href)="(dashboard/[^"]+)"', page.text))
    assert {url.partition("?")[0].rpartition("/")[2] for url in loaded} == {
        "icon.svg",
        "dashboard.css",
        "plotly.js",
        "dashboard.js",
        "theme.css",
        "theme.js",
    }
    for url in loaded:
        file = await on.http.get(f"/{url}")
        assert file.status_code == 200
        assert "immutable" in file.headers["cache-control"]
        for module in re.findall(r'from "\./([^"]+)"', file.text[:2000]):
            assert (await on.http.get(f"/dashboard/files/{module}")).status_code == 200


async def test_events_tell_what_happens(on: GatewayStage) -> None:
    """Events carry the status and finished batches, with the same figures as the metrics."""
    worker = await on.worker()
    await on.echo(worker, "/echo", {"a": 1})
    async with on.http.stream("GET", EVENTS) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.headers["cache-control"] == "no-store"
        event = await anext(events(reply))
    [api] = event.status.apis
    [batch] = event.batches
    assert (event.status.server, event.status.state, api.name) == ("Fake", "ready", "echo")
    assert api.requests == {"200": 1}
    assert (batch.api, batch.rows, batch.worker) == ("echo", 1, 0)


async def test_an_api_without_requests_has_the_command_of_the_home_page(on: GatewayStage) -> None:
    """For the address that the page puts in. Once there are requests, none is needed."""
    worker = await on.worker()
    home = (await on.http.get("/", headers={"accept": "text/html"})).text
    [of_home] = re.findall(r"<pre>(.*?)</pre>", re.sub(r"</?span[^>]*>", "", home))
    async with on.http.stream("GET", EVENTS) as reply:
        command = (await anext(events(reply))).commands["echo"]
    assert command.replace("http://GATEWAY", "http://gateway") == unescape(of_home)

    await on.echo(worker, "/echo", {"a": 1})
    async with on.http.stream("GET", EVENTS) as reply:
        assert (await anext(events(reply))).commands == {}


async def test_a_look_at_the_head_of_the_events_costs_nothing(on: GatewayStage) -> None:
    """The page sends HEAD to learn why it got no events."""
    reply = await on.http.head(EVENTS)
    assert (reply.status_code, ticking()) == (200, False)


async def drained(stage: GatewayStage) -> list[Event]:
    async with stage.http.stream("GET", EVENTS) as reply:
        seen = events(reply)
        await anext(seen)
        await stage.gateway.front_end.drain()
        return [event async for event in seen]


async def test_a_gateway_that_drains_ends_its_events(on: GatewayStage) -> None:
    """The last event reports the shutdown; new viewers get 503 with Retry-After."""
    await on.worker()
    [last] = await drained(on)
    assert last.status.state == "draining"
    refused = await on.http.get(EVENTS)
    assert problem(refused, 503) == "the server is shutting down"
    assert int(refused.headers["retry-after"]) > 0
    assert not ticking()


@pytest.mark.parametrize("path", ["/dashboard", "/dashboard/files/view.js"])
async def test_the_page_needs_no_key_but_its_events_do(tmp_path: Path, path: str) -> None:
    """A browser sends no key when it opens a page, and the page reveals nothing about the server."""
    async with gateway(tmp_path, keys=KEYS) as stage:
        assert (await stage.http.get(path)).status_code == 200
        assert "API key" in problem(await stage.http.get(EVENTS), 401)
        assert (await stage.http.head(EVENTS, headers={"x-api-key": KEY})).status_code == 200


@pytest.mark.parametrize("revoked", [False, True])
async def test_a_revoked_key_gets_no_more_events(tmp_path: Path, revoked: bool) -> None:
    async with (
        gateway(tmp_path, keys=KEYS) as stage,
        stage.http.stream("GET", EVENTS, headers={"x-api-key": KEY}) as reply,
    ):
        seen = events(reply)
        await anext(seen)
        keys = ApiKeys([b"another-key-of-the-tests"]) if revoked else ApiKeys([KEY.encode()])
        front_end = stage.gateway.front_end
        stage.gateway.change(replace(front_end.settings, keys=keys))
        await front_end.drain()
        assert len([event async for event in seen]) == (0 if revoked else 1)


async def test_operators_have_it_on_their_port_alone(tmp_path: Path) -> None:
    """Operators need no key; commands on the page do not name their port, which serves no API."""
    async with (
        gateway(tmp_path, keys=KEYS, admin=True) as stage,
        client_of(stage.gateway.front_end.admin_app) as http,
    ):
        await stage.worker()
        for path in ("/dashboard", EVENTS, "/dashboard/files/view.js"):
            problem(await stage.http.get(path), 401)
            problem(await stage.http.get(path, headers={"x-api-key": KEY}), 404)
            assert (await http.head(path)).status_code == 200
        assert 'data-origin="http://GATEWAY"' in (await http.get("/dashboard")).text


async def test_a_proxy_has_it_too() -> None:
    async with served(Model(doubles)) as url, proxy(url) as stage:
        for rows in ([1], [1, 2]):
            predictions(await stage.ask(rows_body(*rows), V1).reply())
        assert "dashboard.js" in (await stage.http.get("/dashboard")).text
        async with stage.http.stream("GET", EVENTS) as reply:
            event = await anext(events(reply))
        assert (event.status.server, [api.name for api in event.status.apis]) == (
            "proxy",
            ["m", "(unknown)"],
        )
        assert [(batch.api, batch.rows) for batch in event.batches] == [("(unknown)", 1), ("m", 2)]
