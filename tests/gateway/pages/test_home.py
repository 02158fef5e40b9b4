"""``/``: liveness for programs, a page for browsers."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.fake_worker import service
from tests.gateway.gateway_stage import GatewayStage, client_of, gateway
from tests.gateway.proxy_stage import Model, doubles, proxy, served
from uncork_gateway.auth import ApiKeys
from uncork_workers.wire.messages import Hello
from uncork_workers.wire.schema import ApiDescription, ServiceDescription

KEY = "a-key-of-the-tests"
KEYS = ApiKeys([KEY.encode()])
BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
SERVICE = ServiceDescription(
    name="Iris",
    doc="Tells <flowers> apart.\n\nBy their leaves.",
    apis=[
        ApiDescription(
            name="predict",
            route="/ask/here",
            input={"kind": "json"},
            doc="Name each & every one.\n\nAt length.",
            example=b'{"name":"<it\'s>"}',
            example_type="application/json",
        ),
        ApiDescription(name="story", route="/story", input={"kind": "json"}, streams=True),
    ],
)


def links(page: httpx.Response) -> list[str]:
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    return re.findall(r'<a href="([^"]*)"', page.text)


def commands(page: httpx.Response) -> list[str]:
    found = re.findall(r"<pre>(.*?)</pre>", page.text, re.DOTALL)
    return [html.unescape(re.sub(r"<[^>]*>", "", one)) for one in found]


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "application/json, text/html;q=0.5"])
async def test_programs_are_told_that_the_server_is_alive(on: GatewayStage, accept: str | None) -> None:
    """It is alive from start to shutdown; KServe's client sends no Accept header."""
    on.http.headers.pop("accept")
    headers = {} if accept is None else {"accept": accept}
    for step in range(2):
        reply = await on.http.get("/", headers=headers)
        assert (reply.status_code, reply.json()) == (200, {"status": "alive"})
        assert reply.headers["vary"] == "accept"
        if step == 0:
            on.gateway.front_end.retire()
    assert (await on.http.head("/", headers=headers)).status_code == 200


async def test_a_browser_gets_a_page_of_what_there_is(on: GatewayStage) -> None:
    """The page has the service's name and text, a command for each API, models and links."""
    await on.worker(serves=SERVICE)
    page = await on.http.get("/", headers=BROWSER)

    pages = ["docs", "openapi.json", "dashboard", "status", "metrics"]
    assert links(page) == [*pages, "v2/models/iris", "v2/models/iris.predict"]
    assert (page.headers["vary"], page.headers["cache-control"]) == ("accept", "no-cache")
    assert "<title>Iris</title>" in page.text
    assert "Tells &lt;flowers&gt; apart." in page.text
    assert "Name each &amp; every one." in page.text
    assert ">ready<" in page.text
    assert commands(page) == [
        "curl http://gateway/ask/here -H 'content-type: application/json' "
        """-d '{"name":"<it'"'"'s>"}'""",
        "curl --no-buffer http://gateway/story -H 'content-type: application/json' -d @FILE",
    ]
    assert "default-src 'none'" in page.headers["content-security-policy"]
    loaded = re.findall(r'(?:src|<link[^>]*href)="([^"]*)"', page.text)
    assert {url.partition("?")[0] for url in loaded} == {
        "docs/home/dashboard.css",
        "docs/home/home.css",
        "docs/home/home.js",
        "docs/home/icon.svg",
        "docs/home/theme.css",
        "docs/home/theme.js",
    }
    for url in loaded:
        assert (await on.http.get(f"/{url}")).status_code == 200


async def test_the_page_tells_why_nothing_is_answered(on: GatewayStage) -> None:
    page = await on.http.get("/", headers=BROWSER)
    assert "<title>Uncork</title>" in page.text
    assert "no worker is ready: workers are starting" in page.text
    (await on.connect()).send(Hello(index=0, launch=1, service=SERVICE))
    await on.service.events.described
    page = await on.http.get("/", headers=BROWSER)
    assert "<title>Iris</title>" in page.text
    assert "no worker is ready" in page.text
    assert ">ready<" not in page.text


async def test_a_host_with_a_quote_is_not_shown(on: GatewayStage) -> None:
    """Commands use the Host header; one that a shell would read otherwise is left out."""
    await on.worker(serves=SERVICE)
    page = await on.http.get("/", headers={**BROWSER, "host": "x'y"})
    assert commands(page)[0].startswith("curl http://GATEWAY/ask/here ")


async def test_without_a_key_the_page_tells_nothing(tmp_path: Path) -> None:
    """Without a key the page says how to send one; liveness is public."""
    async with gateway(tmp_path, keys=KEYS) as on:
        await on.worker(serves=SERVICE)
        page = await on.http.get("/", headers=BROWSER)
        assert links(page) == ["docs"]
        assert "X-Api-Key" in page.text
        assert "ris" not in page.text.replace("requires", "")
        assert commands(page) == []
        assert (await on.http.get("/")).json() == {"status": "alive"}
        assert (await on.http.post("/")).status_code == 401

        page = await on.http.get("/", headers={**BROWSER, "x-api-key": KEY})
        assert "dashboard" in links(page)
        assert all("-H 'x-api-key: KEY'" in command for command in commands(page))


async def test_operators_with_a_port_of_their_own_have_a_page_there(tmp_path: Path) -> None:
    async with gateway(tmp_path, admin=True) as on, client_of(on.gateway.front_end.admin_app) as admin:
        await on.worker(serves=SERVICE)
        page = await on.http.get("/", headers=BROWSER)
        assert links(page)[:2] == ["docs", "openapi.json"]
        assert not {"dashboard", "status", "metrics"} & set(links(page))
        page = await admin.get("/", headers=BROWSER)
        assert links(page) == ["dashboard", "status", "metrics"]
        assert "<title>Iris</title>" in page.text
        assert commands(page) == []
        assert (await admin.get("/")).json() == {"status": "alive"}
        for url in re.findall(r'(?:src|<link[^>]*href)="([^"]*)"', page.text):
            assert (await admin.get(f"/{url}")).status_code == 200


@pytest.mark.parametrize("admin", [False, True])
async def test_before_other_servers_the_path_is_theirs(admin: bool) -> None:
    """Clients get the server's own page; the operators' port has the proxy's."""
    model = Model(doubles)
    async with served(model) as url, proxy(url, admin=admin) as on:
        for headers in ({}, BROWSER):
            await on.http.get("/", headers=headers)
        assert [call.target for call in model.calls] == [b"/", b"/"]
        if admin:
            async with client_of(on.proxy.front_end.admin_app) as admin_client:
                assert links(await admin_client.get("/", headers=BROWSER)) == [
                    "dashboard",
                    "status",
                    "metrics",
                ]


async def test_an_api_without_an_example_is_asked_with_a_file(on: GatewayStage) -> None:
    """Long examples would hide the rest of the command."""

    def raw(name: str, *accepts: str, parts: Sequence[str] = ()) -> ApiDescription:
        takes = {"kind": "raw", "accepts": list(accepts)}
        schema: dict[str, Any] = {"properties": {part: {} for part in parts}}
        return ApiDescription(name=name, route=f"/{name}", input=takes, schema=schema)

    apis = [
        raw("image", "image/*", "multipart/form-data"),
        raw("any", "*"),
        raw("parts", "multipart/form-data", parts=("left", "right")),
        ApiDescription(
            name="long",
            route="/long",
            input={"kind": "ndarray", "dtype": "float32", "shape": [200]},
            example=b"[" + b"1," * 199 + b"1]",
            example_type="application/json",
        ),
        ApiDescription(
            name="text",
            route="/text",
            input={"kind": "text"},
            example=b'"a\\nb"',
            example_type="text/plain",
        ),
    ]

    await on.worker(serves=service(*apis))
    page = await on.http.get("/", headers=BROWSER)
    assert [link for link in links(page) if "models" in link] == [
        "v2/models/fake.long",
        "v2/models/fake.text",
    ]
    assert commands(page) == [
        "curl http://gateway/image -H 'content-type: image/png' --data-binary @FILE",
        "curl http://gateway/any -H 'content-type: application/octet-stream' --data-binary @FILE",
        "curl http://gateway/parts -F left=@FILE -F right=@FILE",
        "curl http://gateway/long -H 'content-type: application/json' -d @FILE",
        "curl http://gateway/text -H 'content-type: text/plain' -d 'a\nb'",
    ]
