"""API keys: requests with and without one, files of keys, and routes that need none."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.backends.model_servers.fake_server import fake_server
from tests.gateway.cost.budget import Bytecodes
from tests.gateway.fake_worker import json_api, service
from tests.gateway.gateway_stage import client_of, gateway, problem
from tests.gateway.proxy_stage import V1, Model, doubles, error, proxy, rows_body, served
from uncork_gateway.auth import ApiKeys, read_keys
from uncork_gateway.connection.client_limits import ClientLimits

KEY = "a-key-of-the-tests"
KEYS = ApiKeys([KEY.encode(), b"another-key-of-the-tests"])
WITH_KEY = {"authorization": f"Bearer {KEY}"}


@pytest.mark.parametrize(
    "header",
    [
        (b"Authorization", b"Bearer " + KEY.encode()),
        (b"authorization", b"bearer  " + KEY.encode()),
        (b"X-Api-Key", KEY.encode()),
        (b"x-api-key", b"another-key-of-the-tests"),
    ],
)
def test_a_key_may_come_in_either_header(header: tuple[bytes, bytes]) -> None:
    assert KEYS.admit([(b"host", b"here"), header])


@given(st.sampled_from([b"authorization", b"x-api-key", b"cookie"]), st.binary())
def test_nothing_else_is_a_key(name: bytes, value: bytes) -> None:
    """Not the name of the scheme alone, not a key in another header, not a part of a key."""
    assert not KEYS.admit([(name, value), (b"x-key", KEY.encode()), (b"authorization", KEY[:-1].encode())])
    assert not KEYS.admit([(b"authorization", b"Basic " + KEY.encode()), (b"x-api-key", KEY[1:].encode())])


def test_many_keys_do_not_make_many_headers_costly() -> None:
    """A client without a key chooses how many headers are compared with all keys."""
    keys = ApiKeys([b"a-key-of-the-tests-%d" % number for number in range(1000)])
    guesses = [(b"x-api-key", b"%d" % number) for number in range(100)]

    with Bytecodes() as counted:
        assert not keys.admit(guesses)

    assert counted.bytecodes < 100 * len(guesses)


def test_a_file_has_a_key_a_line(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(b"# of the team\r\n\r\n" + KEY.encode() + b"\r\n  another-key-of-the-tests \n")

    keys = read_keys(file)

    assert keys.admit([(b"x-api-key", KEY.encode())])
    assert keys.admit([(b"x-api-key", b"another-key-of-the-tests")])
    assert not keys.admit([(b"x-api-key", b"# of the team")])


WRONG_CHARACTER = (
    "line 1: the key has a character that headers cannot carry; use visible ASCII characters without spaces"
)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "contains no keys; write one key per line"),
        ("# none yet\n\n", "contains no keys; write one key per line"),
        ("# first\nshort\n", "line 2: the key must have at least 16 characters"),
        (
            "a key with spaces in it\n",
            WRONG_CHARACTER,
        ),
        (
            "schlüssel-mit-umlaut\n",
            WRONG_CHARACTER,
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said_without_the_key(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(ValueError, match=re.escape(complaint)) as raised:
        read_keys(file)

    assert str(raised.value).startswith(str(file))
    assert str(raised.value).endswith(complaint)
    assert not any(line in str(raised.value) for line in text.split("\n") if line)


@pytest.mark.parametrize("path", ["/echo", "/metrics", "/openapi.json", "/v1/models/model", "/nowhere"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_without_a_key_there_is_no_answer(tmp_path: Path, path: str, method: str) -> None:
    """The reply does not reveal whether the path exists; nothing reaches a worker."""
    async with gateway(tmp_path, keys=KEYS) as on:
        await on.worker(serves=service(json_api("echo")))

        for headers in ({}, {"x-api-key": "not-a-key-of-the-tests"}):
            reply = await on.http.request(method, path, json=[1], headers=headers)

            assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
            assert "Authorization: Bearer KEY" in reply.text


async def test_the_page_that_asks_for_the_key_needs_none(tmp_path: Path) -> None:
    """The page and its files are public; its data has another path."""
    async with gateway(tmp_path, keys=KEYS) as on:
        page = await on.http.get("/docs")
        assert page.status_code == 200
        [script] = re.findall(r'"(docs/docs\.js[^"]*)"', page.text)
        assert "openapi.json" in (await on.http.get(f"/{script}")).text
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert (await on.http.post("/docs")).status_code == 401


async def test_with_a_key_all_is_as_without_keys(tmp_path: Path) -> None:
    """This holds for both paths, also for a head that is known."""
    async with gateway(tmp_path, keys=KEYS) as on:
        worker = await on.worker(serves=service(json_api("echo")))
        on.http.headers.update(WITH_KEY)

        for value in ([1], [2]):
            _, reply = await on.echo(worker, "/echo", value)
            assert (reply.status_code, reply.json()) == (200, value)
        assert (await on.http.get("/metrics")).status_code == 200
        says = "no route for /nowhere; available APIs: POST /echo"
        assert problem(await on.http.get("/nowhere"), 404) == says


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/ping"])
async def test_health_needs_no_key(tmp_path: Path, path: str) -> None:
    """Supervisors and load balancers send none."""
    async with gateway(tmp_path, keys=KEYS) as on:
        await on.worker()
        assert (await on.http.get(path)).status_code == 200


@pytest.mark.parametrize("path", ["/docs/x", "/docs/home/x", "/dashboard/files/x"])
async def test_a_missing_file_of_a_page_names_no_route(tmp_path: Path, path: str) -> None:
    """Pages and their files need no key, but the routes of the service are known only with one."""
    async with gateway(tmp_path, keys=KEYS) as on:
        await on.worker()
        assert problem(await on.http.get(path), 404) == "there is no file 'x'"


@pytest.mark.parametrize("path", ["/readyz", "/healthz", "/ping"])
async def test_the_reason_of_health_needs_a_key(tmp_path: Path, path: str) -> None:
    """It may quote an exception of setup. Operators need no key on their own port."""
    async with (
        gateway(tmp_path, keys=KEYS, admin=True) as on,
        client_of(on.gateway.front_end.admin_app) as admin,
    ):
        assert problem(await on.http.get(path), 503) == "no worker is ready"
        in_full = "no worker is ready: workers are starting"
        assert problem(await on.http.get(path, headers=WITH_KEY), 503) == in_full
        assert problem(await admin.get(path), 503) == in_full
        await on.gateway.front_end.drain()
        assert problem(await on.http.get(path), 503) == "the server is shutting down"


@pytest.mark.parametrize("path", ["/readyz", "/healthz", "/ping", "/readyz/secret"])
async def test_health_names_no_service_without_a_key(tmp_path: Path, path: str) -> None:
    async with gateway(tmp_path, keys=KEYS, name="secret") as on:
        for name in ("secret@2", "other", "other@2"):
            await on.add(name)
        assert problem(await on.http.get(path), 503) == "no worker is ready"
        assert "secret: no worker" in problem(await on.http.get(path, headers=WITH_KEY), 503)


async def test_the_servers_of_a_proxy_are_known_to_nobody_without_a_key() -> None:
    async with fake_server(lambda call: None) as server:
        await server.stop()
        async with proxy(server.url, healthy=False, keys=KEYS) as on:
            assert error(await on.http.get("/readyz"), 503) == "no server is healthy"
            reply = await on.http.get("/readyz", headers=WITH_KEY)
            assert error(reply, 503).startswith(f"no server is healthy: {server.url}: ")


async def test_a_proxy_wants_keys_too(tmp_path: Path) -> None:
    """For merged and relayed requests; the servers get none without a key."""
    model = Model(doubles)
    async with served(model) as url, proxy(url, keys=KEYS) as on:
        for path in (V1.decode(), "/metrics", "/anything/else"):
            reply = await on.http.post(path, content=rows_body(1))
            assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
        assert not model.calls
        assert (await on.http.get("/readyz")).status_code == 200

        with_key = await on.http.post(V1.decode(), content=rows_body(1), headers=WITH_KEY)
        assert with_key.json()["predictions"] == [2]


@pytest.mark.parametrize("header", [WITH_KEY, {"x-api-key": KEY}])
@pytest.mark.parametrize("path", [V1.decode(), "/anything/else"])
async def test_a_proxy_passes_the_key_on(path: str, header: dict[str, str]) -> None:
    """In merged calls and relayed requests, because the servers may want it too."""
    model = Model(doubles)
    async with served(model) as url, proxy(url, keys=KEYS) as on:
        assert (await on.http.post(path, content=rows_body(1), headers=header)).status_code == 200

        [call] = model.calls
        [(name, value)] = header.items()
        assert call.header(name.encode()) == value.encode()


async def test_what_is_for_operators_may_have_a_door_of_its_own(tmp_path: Path) -> None:
    """Its clients need no key. Both listeners have health; only the public one has APIs and models."""
    async with (
        gateway(tmp_path, keys=KEYS, admin=True) as on,
        client_of(on.gateway.front_end.admin_app) as admin,
    ):
        await on.worker(serves=service(json_api("echo")))

        assert (await admin.get("/metrics")).status_code == 200
        assert (await on.http.get("/metrics", headers=WITH_KEY)).status_code == 404
        for path in ("/docs", "/openapi.json"):
            assert (await admin.get(path)).status_code == 404
            assert (await on.http.get(path, headers=WITH_KEY)).status_code == 200
        for client in (admin, on.http):
            assert (await client.get("/readyz")).status_code == 200
        assert (await on.http.get("/v2", headers=WITH_KEY)).status_code == 200
        for path in ("/echo", "/v2"):
            assert (await admin.get(path)).status_code == 404


async def test_the_operators_door_of_a_proxy_leaves_the_servers_metrics_to_clients(tmp_path: Path) -> None:
    model = Model(doubles)
    async with (
        served(model) as url,
        proxy(url, admin=True) as on,
        client_of(on.proxy.front_end.admin_app) as admin,
    ):
        assert "uncork_workers" in (await admin.get("/metrics")).text
        assert (await admin.post(V1.decode())).status_code == 404

        await on.http.get("/metrics")
        assert [call.target for call in model.calls] == [b"/metrics"]


LOAD = "/v2/repository/models/x/load"


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, False),
        ({"host": "gateway.svc:9000"}, False),
        ({"origin": "http://127.0.0.1:9000"}, False),
        ({"origin": "http://127.0.0.1:9000", "sec-fetch-site": "same-origin"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"origin": "http://localhost:9000", "host": "localhost:9000"}, False),
        ({"origin": "http://[::1]:9000", "host": "[::1]:9000"}, False),
        ({"origin": "https://ours.example:8443", "host": "Ours.example"}, False),
        ({"origin": "http://evil.example"}, True),
        ({"origin": "http://127.0.0.1:8888"}, True),
        ({"origin": "null"}, True),
        ({"origin": ""}, True),
        ({"sec-fetch-site": "cross-site"}, True),
        ({"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:9000"}, True),
        ({"origin": "http://evil.example:9000", "host": "evil.example:9000"}, True),
        ({"origin": "http://127.0.0.1.evil.example", "host": "127.0.0.1.evil.example"}, True),
        ({"origin": "http://127.0.0.1:9000", "host": "127.0.0.1:9000", "sec-fetch-site": "cross-site"}, True),
    ],
)
async def test_pages_of_other_sites_change_nothing(
    tmp_path: Path, headers: dict[str, str], refused: bool
) -> None:
    """Their requests come from the operator's browser, which reaches the port without a key."""
    clients = ClientLimits(allowed_hosts=frozenset(["ours.example"]))
    async with (
        gateway(tmp_path, admin=True, clients=clients) as on,
        client_of(on.gateway.front_end.admin_app) as admin,
    ):
        sent = {"host": "127.0.0.1:9000"} | headers
        reply = await admin.post(LOAD, headers=sent)
        assert (reply.status_code == 403) == refused
        if refused:
            assert "site" in reply.json()["error"]
        assert (await admin.get("/status", headers=sent)).status_code == 200


@pytest.mark.parametrize("headers", [{"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}])
async def test_pages_of_other_sites_load_nothing_in_an_application(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    """It may have neither keys nor a port for operators; a form sends such a request without asking."""
    async with gateway(tmp_path, open_repository=True) as on:
        sent = {"host": "127.0.0.1:9000", "content-type": "text/plain"}
        for path in (LOAD, LOAD.replace("load", "unload")):
            reply = await on.http.post(path, headers=sent | headers)
            assert (reply.status_code, "a page of another site" in reply.json()["error"]) == (403, True)
            for allowed in (
                {"origin": "http://127.0.0.1:9000"},
                {**headers, "x-api-key": "of-the-application"},
            ):
                own = await on.http.post(path, headers=sent | allowed)
                assert "cannot be loaded or unloaded" in own.json()["error"]
