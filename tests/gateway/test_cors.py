"""Pages of other origins: who may read what, in a browser that keeps to the Fetch standard."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.backends.model_servers.fake_server import Reply
from tests.gateway.fake_worker import json_api, service
from tests.gateway.gateway_stage import GatewayStage, client_of, gateway
from tests.gateway.proxy_stage import V1, Model, doubles, proxy, rows_body, served
from tests.gateway.test_auth import KEYS, WITH_KEY
from uncork_gateway.auth import AllowedOrigins, read_origin

APP, OTHER = "https://app.example.com", "http://localhost:5173"
ONE, TWO, ANY = (
    AllowedOrigins(frozenset(origins)) for origins in ([APP.encode()], [APP.encode(), OTHER.encode()], [b"*"])
)
EXPOSED = {"access-control-expose-headers": "*"}
FROM_APP = {"access-control-allow-origin": APP, **EXPOSED, "vary": "origin"}
FROM_ANYWHERE = {"access-control-allow-origin": "*", **EXPOSED}
PREFLIGHT = {
    "access-control-allow-methods": "*",
    "access-control-allow-headers": "authorization, *",
    "access-control-max-age": "600",
}
ASKS = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "content-type,authorization",
}


def cors(reply: httpx.Response) -> dict[str, str]:
    """Return the headers that browsers read, and what caches must know."""
    found = [
        (name, value)
        for name, value in reply.headers.multi_items()
        if name.startswith("access-control-") or (name == "vary" and "origin" in value.lower())
    ]
    assert len(found) == len(dict(found)), "browsers accept no second one"
    return dict(found)


async def echo(on: GatewayStage, worker: Any, **headers: str) -> httpx.Response:
    on.http.headers.update(headers)
    _, reply = await on.echo(worker, "/echo", [1])
    for name in headers:
        del on.http.headers[name]
    assert reply.status_code == 200
    return reply


@pytest.mark.parametrize(
    ("origins", "origin", "expected"),
    [
        (None, APP, {}),
        (ONE, APP, FROM_APP),
        (TWO, APP, FROM_APP),
        (TWO, OTHER, {**FROM_APP, "access-control-allow-origin": OTHER}),
        (ONE, OTHER, {"vary": "origin"}),
        (ONE, f"{APP}.evil.example", {"vary": "origin"}),
        (ONE, "null", {"vary": "origin"}),
        (ONE, "*", {"vary": "origin"}),
        (ONE, None, {"vary": "origin"}),
        (ANY, APP, FROM_ANYWHERE),
        (ANY, "null", FROM_ANYWHERE),
        (ANY, None, FROM_ANYWHERE),
    ],
)
async def test_allowed_origins_may_read_responses(
    tmp_path: Path, origins: AllowedOrigins | None, origin: str | None, expected: Mapping[str, str]
) -> None:
    """Also those to a head that was sent before, and errors."""
    headers = {} if origin is None else {"origin": origin}
    async with gateway(tmp_path, origins=origins) as on:
        worker = await on.worker(serves=service(json_api("echo")))

        for _ in range(3):
            assert cors(await echo(on, worker, **headers)) == expected
        for path in ("/v2", "/v1/models", "/openapi.json", "/readyz", "/nowhere"):
            assert cors(await on.http.get(path, headers=headers)) == expected, path
        for path in ("/echo", "/v1/models/echo:predict", "/v2/models/echo/infer"):
            reply = await on.http.post(path, content=b"{", headers=headers)
            assert (reply.is_error, cors(reply)) == (True, expected), path


async def test_two_pages_share_a_connection(tmp_path: Path) -> None:
    """The response to one has not the origin of the other, which sent the same otherwise."""
    async with gateway(tmp_path, origins=TWO) as on:
        worker = await on.worker(serves=service(json_api("echo")))
        for origin in (APP, OTHER, APP, OTHER):
            reply = await echo(on, worker, origin=origin, **{"x-request-id": origin})
            assert reply.headers["access-control-allow-origin"] == origin
        assert "access-control-allow-origin" not in cors(await echo(on, worker))


async def test_browsers_ask_first_and_need_no_key(tmp_path: Path) -> None:
    """They cannot send one with the question; the request itself needs it, and its refusal can be read."""
    async with gateway(tmp_path, origins=ONE, keys=KEYS) as on:
        worker = await on.worker(serves=service(json_api("echo")))
        for path in ("/echo", "/v1/models/echo:predict", "/v2/models/echo/infer", "/nowhere"):
            reply = await on.http.options(path, headers={"origin": APP, **ASKS})
            assert (reply.status_code, reply.content, cors(reply)) == (204, b"", {**FROM_APP, **PREFLIGHT})

            refused = await on.http.post(path, json=[1], headers={"origin": APP})
            assert (refused.status_code, cors(refused)) == (401, FROM_APP)
        assert cors(await echo(on, worker, origin=APP, **WITH_KEY)) == FROM_APP


@pytest.mark.parametrize(
    "headers", [{"origin": OTHER, **ASKS}, {"origin": "null", **ASKS}, ASKS, {"origin": APP}, {}]
)
async def test_other_questions_are_like_any_request(tmp_path: Path, headers: dict[str, str]) -> None:
    """Also OPTIONS that no browser sent."""
    async with gateway(tmp_path, origins=ONE) as on:
        await on.worker(serves=service(json_api("echo")))
        reply = await on.http.options("/echo", headers=headers)
        assert (reply.status_code, reply.headers["allow"]) == (204, "POST")
        assert not PREFLIGHT.keys() & reply.headers.keys()
        assert ("access-control-allow-origin" in reply.headers) == (headers.get("origin") == APP)


@pytest.mark.parametrize("origins", [ONE, ANY])
async def test_what_operators_see_is_for_no_other_origin(tmp_path: Path, origins: AllowedOrigins) -> None:
    """A page could otherwise read it through an operator's browser, which may reach what the page cannot."""
    async with gateway(tmp_path, origins=origins) as on:
        worker = await on.worker(serves=service(json_api("echo")))
        await echo(on, worker)
        for path in ("/status", "/metrics", "/dashboard", "/v2/models/fake/stats"):
            reply = await on.http.get(path, headers={"origin": APP})
            assert (reply.status_code, cors(reply)) == (200, {}), path
            assert not cors(await on.http.options(path, headers={"origin": APP, **ASKS})), path
    (tmp_path / "admin").mkdir()
    async with (
        gateway(tmp_path / "admin", origins=origins, admin=True) as on,
        client_of(on.gateway.front_end.admin_app) as admin,
    ):
        assert not cors(await admin.get("/status", headers={"origin": APP}))
        assert cors(await on.http.get("/readyz", headers={"origin": APP}))


async def test_origins_change_at_once(tmp_path: Path) -> None:
    """For heads that were sent before, too."""
    async with gateway(tmp_path, origins=ONE) as on:
        worker = await on.worker(serves=service(json_api("echo")))
        front = on.gateway.front_end
        assert cors(await echo(on, worker, origin=APP)) == FROM_APP
        for origins, expected in ((ANY, FROM_ANYWHERE), (None, {}), (TWO, FROM_APP)):
            front.change(dataclasses.replace(front.settings, origins=origins))
            assert cors(await echo(on, worker, origin=APP)) == expected
            assert cors(await on.http.get("/v2", headers={"origin": APP})) == expected


async def test_the_proxy_speaks_for_its_servers() -> None:
    """Browsers accept no second origin, and what a server allows is not what the proxy does."""
    own = (b"Access-Control-Allow-Origin", b"*"), (b"access-control-allow-credentials", b"true")
    async with served(Model(doubles)) as url, proxy(url, origins=ONE) as on:
        merged = await on.http.post(V1.decode(), content=rows_body(1), headers={"origin": APP})
        assert (merged.json()["predictions"], cors(merged)) == ([2], FROM_APP)
        asked = await on.http.options("/any/path", headers={"origin": APP, **ASKS})
        assert (asked.status_code, cors(asked)) == (204, {**FROM_APP, **PREFLIGHT})
        assert not cors(await on.http.get("/metrics", headers={"origin": APP}))
    answers = Model(lambda call: Reply(b"{}", 422, own))
    async with served(answers) as url, proxy(url, origins=ONE) as on:
        relayed = await on.http.get("/any/path", headers={"origin": APP})
        assert cors(relayed) == FROM_APP
        assert cors(await on.http.get("/any/path", headers={"origin": OTHER})) == {"vary": "origin"}
        for headers in ({}, {"content-encoding": "br"}):
            sent = {"origin": APP, **headers}
            alone = await on.http.post(V1.decode(), content=rows_body(1), headers=sent)
            assert (alone.status_code, cors(alone)) == (422, FROM_APP)


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("*", b"*"),
        (APP, APP.encode()),
        ("HTTPS://App.Example.com", APP.encode()),
        ("http://localhost:5173", b"http://localhost:5173"),
        ("http://[::1]:8080", b"http://[::1]:8080"),
        ("https://h:80", b"https://h:80"),
        ("capacitor://localhost", b"capacitor://localhost"),
    ],
)
def test_origins_are_those_of_browsers(text: str, origin: bytes) -> None:
    assert read_origin(text) == origin
